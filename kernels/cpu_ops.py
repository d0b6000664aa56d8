"""A step's ops by the native library: norms, RoPE, paged attention, the gate. Chooses nothing.

Keys and values are read where they lie in the arena's pages; what is not written yet is never
read. The structures mirror kernels/csrc/attention_api.h, which has their meaning.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from kernels.backend import HeadNorms, PagedRows, StepOps
from kernels.cpu import DTYPES, Native

# The kernels keep a head's sums in fixed room, and rotate it by halves.
WIDEST_HEAD = 256

_int = ctypes.c_int64
_at = ctypes.c_void_p


class _Arena(ctypes.Structure):
    _fields_ = (
        ("pages", _at), ("page_elements", _int), ("page_tokens", _int), ("heads", _int),
        ("kv_heads", _int), ("head_dim", _int), ("cos", _at), ("sin", _at),
        ("scale", ctypes.c_float), ("norm_eps", ctypes.c_float), ("dtype", _int), ("isa", _int),
    )  # fmt: skip


class _Paged(ctypes.Structure):
    _fields_ = (
        ("sequences", _int), ("first_row", _at), ("start", _at), ("first_page", _at),
        ("pages", _at), ("scratch", _at), ("threads", _int),
    )  # fmt: skip


class _Attend(ctypes.Structure):
    _fields_ = (("layer", _int), ("qkv", _at), ("q_norm", _at), ("k_norm", _at), ("out", _at))


class _Normed(ctypes.Structure):
    _fields_ = (
        ("x", _at), ("added", _at), ("weight", _at), ("out", _at), ("rows", _int),
        ("width", _int), ("threads", _int), ("eps", ctypes.c_float),
    )  # fmt: skip


class _Gated(ctypes.Structure):
    _fields_ = (
        ("gate_up", _at), ("out", _at), ("rows", _int), ("width", _int), ("threads", _int)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpsShape:
    """Widths of a model's ops. `ff`: of gate and of up; `norm_eps`: of every RMSNorm."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    norm_eps: float


class NativeOps:
    """The native backend (`OpsBackend`)."""

    def __init__(
        self,
        native: Native,
        shape: OpsShape,
        arena: torch.Tensor,
        page_tokens: int,
        rope: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        """arena: [pages, elements of a page] in the model's dtype, a page laid out
        [layers, page_tokens, 2 (K, V), kv_heads x head_dim]; rope: cos and sin of every position,
        float32 [positions, head_dim], the sign of the rotation folded into sin.

        Raises ValueError for what the kernels cannot take (`refusal` tells without raising).
        """
        if (why := refusal(arena.dtype, shape.head_dim)) is not None:
            raise ValueError(why)
        self.functions = native.functions
        self.isa = native.isa
        self.shape = shape
        self.dtype = arena.dtype
        self.code = DTYPES[arena.dtype]
        cos, sin = (table.float().contiguous() for table in rope)
        self._kept = (arena, cos, sin)  # the structure holds bare addresses
        self.arena = _Arena(
            pages=arena.data_ptr(),
            page_elements=arena.shape[1],
            page_tokens=page_tokens,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            scale=shape.head_dim**-0.5,
            norm_eps=shape.norm_eps,
            dtype=self.code,
            isa=self.isa,
        )
        self.arena_at = ctypes.addressof(self.arena)
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self._rows = -1
        self._activations: tuple[torch.Tensor, ...] = ()
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        _declare(self.functions)

    def prepare(self, rows: PagedRows) -> StepOps:
        return _NativeStep(self, rows)

    def scratch(self, paged: _Paged) -> tuple[int, torch.Tensor]:
        """The address of enough scratch for `ts_attend`, at a multiple of 64; and what it is in."""
        needed = self.functions.ts_scratch_bytes(self.arena_at, ctypes.addressof(paged)) + 64
        if len(self._scratch) < needed:
            self._scratch = torch.empty(needed + needed // 4, dtype=torch.uint8)
        return -(-self._scratch.data_ptr() // 64) * 64, self._scratch

    def weight(self, norm: torch.Tensor, size: int) -> int:
        """The address of a norm's weight [size] as the kernels read it, in float32: itself, or a
        copy that is made once. Raises ValueError for what is not so many contiguous numbers of a
        kind that the kernels know."""
        if norm.dtype not in DTYPES:
            raise ValueError(
                f"a norm's weight in {norm.dtype}: it must be one of {', '.join(map(str, DTYPES))}"
            )
        own = _address(norm, size)
        if norm.dtype == torch.float32:
            return own
        kept = self._weights.get(own)
        if kept is None:  # the original is kept as well, or its address might become another's
            kept = self._weights[own] = (norm, norm.float())
        return _address(kept[1], size)

    def activations(self, rows: int) -> tuple[torch.Tensor, ...]:
        """Room for normed [rows, hidden], attended [rows, q width] and gated [rows, ff]; the same
        as the step before's where that had as many rows."""
        if rows != self._rows:
            s = self.shape
            widths = (s.hidden, s.heads * s.head_dim, s.ff)
            self._activations = tuple(torch.empty(rows, w, dtype=self.dtype) for w in widths)
            self._rows = rows
        return self._activations


class _NativeStep:
    """`StepOps` of one step."""

    def __init__(self, owner: NativeOps, rows: PagedRows) -> None:
        self._owner = owner
        self._rows = rows  # their addresses are held
        count, shape = rows.first_row[-1], owner.shape
        threads = torch.get_num_threads()
        self._paged = paged = _Paged(
            sequences=len(rows.start),
            first_row=rows.first_row.buffer_info()[0],
            start=rows.start.buffer_info()[0],
            first_page=rows.first_page.buffer_info()[0],
            pages=rows.pages.buffer_info()[0],
            threads=threads,
        )
        paged.scratch, self._room = owner.scratch(paged)  # the structure holds a bare address
        self._h, self._attended, self._gated = owner.activations(count)
        self._attend = _Attend(out=self._attended.data_ptr())
        self._normed = _Normed(
            out=self._h.data_ptr(),
            rows=count,
            width=shape.hidden,
            threads=threads,
            eps=shape.norm_eps,
        )
        self._gate = _Gated(out=self._gated.data_ptr(), rows=count, width=shape.ff, threads=threads)
        self._hidden_size = count * shape.hidden
        self._qkv_size = count * (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        self._gate_up_size = 2 * count * shape.ff
        self._paged_at = ctypes.addressof(paged)
        self._attend_at = ctypes.addressof(self._attend)
        self._normed_at = ctypes.addressof(self._normed)
        self._gate_at = ctypes.addressof(self._gate)

    def normed(
        self, x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        owner, job = self._owner, self._normed
        job.x = _address(x, self._hidden_size)
        job.added = None if added is None else _address(added, self._hidden_size)
        job.weight = owner.weight(weight, owner.shape.hidden)
        owner.functions.ts_normed(self._normed_at, owner.isa, owner.code)
        return self._h

    def attend(self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None) -> torch.Tensor:
        owner, job = self._owner, self._attend
        job.layer = layer
        job.qkv = _address(qkv, self._qkv_size)
        if norms is not None:
            size = owner.shape.head_dim
            job.q_norm, job.k_norm = owner.weight(norms.q, size), owner.weight(norms.k, size)
        owner.functions.ts_attend(owner.arena_at, self._paged_at, self._attend_at)
        return self._attended

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        owner, job = self._owner, self._gate
        job.gate_up = _address(gate_up, self._gate_up_size)
        owner.functions.ts_gated(self._gate_at, owner.isa, owner.code)
        return self._gated


def refusal(dtype: torch.dtype, head_dim: int) -> str | None:
    """Why the kernels cannot take a model; None where they can."""
    if dtype not in DTYPES:
        return f"the native ops compute {', '.join(map(str, DTYPES))}, not {dtype}"
    if head_dim % 2 or not 2 <= head_dim <= WIDEST_HEAD:
        return f"the native ops take even heads of 2 to {WIDEST_HEAD}, not {head_dim}"
    return None


def _address(t: torch.Tensor, size: int) -> int:
    """The kernels go by address alone: what does not fit is refused here."""
    if t.numel() != size or not t.is_contiguous():
        raise ValueError(
            f"a tensor of {tuple(t.shape)}, strides {t.stride()}, where {size} contiguous elements "
            "are needed"
        )
    return t.data_ptr()


def _declare(functions: ctypes.CDLL) -> None:
    functions.ts_scratch_bytes.argtypes = (_at, _at)
    functions.ts_scratch_bytes.restype = _int
    functions.ts_attend.argtypes = (_at, _at, _at)
    functions.ts_attend.restype = None
    for name in ("ts_normed", "ts_gated"):
        getattr(functions, name).argtypes = (_at, _int, _int)
        getattr(functions, name).restype = None
