"""The native norm and gate equal float64, and the structures here are those of the C header."""

from __future__ import annotations

import ctypes
import re
from array import array
from pathlib import Path

import pytest
import torch

from kernels import cpu_ops, cpu_pack
from kernels.backend import PagedRows, StepOps
from kernels.cpu import Absent, Isa, kind_of
from kernels.cpu_ops import NativeOps, OpsShape
from tests.kernels.paged import EPS, FOUND, TOLERANCE, of_isa

BEST = Isa.PLAIN if isinstance(FOUND, Absent) else FOUND.isa
native_only = pytest.mark.skipif(isinstance(FOUND, Absent), reason=str(FOUND))
every_isa = pytest.mark.parametrize("isa", kind_of(BEST))
every_dtype = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


def step(isa: Isa, dtype: torch.dtype, rows: int, width: int) -> StepOps:
    """Ops of `rows` rows, `hidden` and `ff` of `width`."""
    if isa > BEST:
        pytest.skip(f"this CPU, or its kernel, has no {isa.name}")
    ops = NativeOps(
        of_isa(isa),
        OpsShape(width, 1, 1, 2, width, EPS),
        torch.zeros(1, 4, dtype=dtype),
        1,
        (torch.ones(1, 2), torch.zeros(1, 2)),
    )
    return ops.prepare(PagedRows(array("q", (0, rows)), array("q", (0,)), array("q", (0, 1)),
                                 array("q", (0,))))  # fmt: skip


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double(), expected, atol=tolerance / 8, rtol=tolerance)


@native_only
@every_dtype
@every_isa
@pytest.mark.parametrize(("rows", "width"), [(1, 3), (5, 57), (33, 576)])
def test_the_norm_adds_and_rounds_once(isa, dtype, rows, width):
    ops = step(isa, dtype, rows, width)
    x = torch.randn(rows, width) * 30
    added = (torch.randn(rows, width) * 30).to(dtype)
    weight = torch.randn(width)
    total = x + added.float()
    for residual, more in ((x, added), (x, None)):
        found = ops.normed(residual, more, weight)
        assert found.dtype == dtype
        assert torch.equal(x, total), "the residual stream itself, in float32"
        scale = (total.double().square().mean(-1, keepdim=True) + EPS).rsqrt()
        close(found, total.double() * scale * weight.double())


@native_only
@every_dtype
@every_isa
@pytest.mark.parametrize(("rows", "width"), [(1, 3), (5, 57), (33, 576)])
def test_the_gate_is_silu_times_up(isa, dtype, rows, width):
    ops = step(isa, dtype, rows, width)
    both = (torch.randn(rows, 2 * width) * 4).to(dtype)
    gate, up = both.double().split(width, 1)
    close(ops.gated(both), gate * gate.sigmoid() * up)


@native_only
@every_isa
def test_the_gate_of_huge_numbers_is_what_it_must_be(isa):
    ops = step(isa, torch.float32, 1, 6)
    gate = torch.tensor([[-3e38, -200.0, -88.5, 88.5, 200.0, 3e38]])
    found = ops.gated(torch.cat((gate, torch.ones(1, 6)), 1))
    torch.testing.assert_close(found, torch.clamp(gate, min=0.0), atol=1e-30, rtol=1e-6)


@native_only
@every_dtype
@every_isa
def test_a_nan_stays_one_and_stays_in_its_row(isa, dtype):
    width = 40
    ops = step(isa, dtype, 3, width)
    for bits in (float("nan"), torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)):
        x = torch.ones(3, width)
        x[1, 7] = bits
        found = ops.normed(x, None, torch.ones(width))
        assert found[1].isnan().all()
        assert found[[0, 2]].isfinite().all()
        gate_up = torch.ones(3, 2 * width, dtype=dtype)
        gate_up[1, 7] = float("nan")
        gated = ops.gated(gate_up)
        assert gated.isnan().nonzero().tolist() == [[1, 7]]


@native_only
@every_isa
def test_rounding_is_to_nearest_even_as_torchs(isa):
    """Values between two neighbours of the dtype, infinities and subnormals among them."""
    exact = torch.tensor([1.00390625, 1.01171875, -1.00390625, 1e-40, 6e-8, 65519.0, 65520.0,
                          3.4e38, 1e-30, -0.0, 2.0**-24, 2.0**-25, 5.96e-8])  # fmt: skip
    for dtype in (torch.bfloat16, torch.float16):
        ops = step(isa, dtype, 1, len(exact))
        # gate 40: SiLU(40) is 40 in float32, so that out = 40 x up, rounded once
        up = (exact / 40).to(dtype)
        found = ops.gated(torch.cat((torch.full_like(up, 40.0), up))[None])[0]
        assert torch.equal(found, (up.float() * 40).to(dtype))


@native_only
def test_a_norms_weight_that_the_kernel_would_read_past_is_refused():
    ops = step(BEST, torch.bfloat16, 2, 8)
    x = torch.randn(2, 8)
    for bad, why in (
        (torch.ones(7), "8 contiguous elements"),
        (torch.ones(16)[::2], "8 contiguous elements"),
        (torch.ones(7).bfloat16(), "8 contiguous elements"),
        (torch.ones(8).double(), "a norm's weight in torch.float64"),
    ):
        with pytest.raises(ValueError, match=why):
            ops.normed(x, None, bad)
    half = torch.ones(8).half()
    found = ops.normed(x, None, half).clone()
    assert torch.equal(ops.normed(x, None, half.float()), found)


def test_the_structures_are_those_of_the_header():
    folder = Path(cpu_ops.__file__).parent / "csrc"
    text = "".join((folder / name).read_text() for name in ("attention_api.h", "pack.h"))
    kinds = {"int64_t": ctypes.c_int64, "float": ctypes.c_float, "uint64_t": ctypes.c_uint64}
    for name, mirror in (
        ("TsArena", cpu_ops._Arena), ("TsPaged", cpu_ops._Paged), ("TsAttend", cpu_ops._Attend),
        ("TsNormed", cpu_ops._Normed), ("TsGated", cpu_ops._Gated), ("TsPack", cpu_pack._Pack),
    ):  # fmt: skip
        body = re.search(rf"struct {name} \{{(.*?)\}};", text, re.DOTALL).group(1)
        fields = []
        for line in filter(None, (part.strip() for part in body.split(";"))):
            kind, names = re.fullmatch(r"(?:const )?(\w+) (.*)", line, re.DOTALL).groups()
            for one in names.split(","):
                field = one.strip()
                pointer = field.startswith("*")
                fields.append((field.lstrip("*"), ctypes.c_void_p if pointer else kinds[kind]))
        assert fields == list(mirror._fields_)
