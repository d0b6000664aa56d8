"""Compile ahead of time every form of every kernel that the runner of a device launches. No GPU.

    python benchmarks/aot_runner.py [--targets sm_90,gfx942] [--dtypes bf16] [--json]

Where `aot_kernels.py` lists launches by hand, this one has them from the runner itself: a layer of
an 8-billion-parameter Llama, with norms of heads and without, started on the CPU with kernels that
only write down what they are asked for. Everything is launched at the start (a test holds that
service brings nothing new), so this is all that will ever be compiled for that model. Exit status 1
where a form does not compile, spills registers, or needs more shared memory than the target has.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch
from aot_sgmv import SHARED_CEILING_BYTES, build

from engine.model.config import synthetic_config
from engine.model.loaders import LoadedModel
from engine.model.tensor_names import expected_shapes
from engine.model.weights import Weights
from engine.runner.accelerator import Accelerator
from engine.runner.device_runner import DeviceRunner
from engine.runner.lanes import AtOnce
from kernels import attention, fused, sgmv

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
KERNELS = ("shrink", "expand", "attend", "combine", "normed", "gated", "rotate_and_store")
ADDRESS = 16  # stands for any that a device's allocator gives: they are multiples of 16


@dataclass(frozen=True)
class Form:
    """What Triton compiles a kernel for: kinds of its arguments by place ("1": the number), which
    of them are multiples of 16, constants, warps and stages."""

    kernel: str
    kinds: tuple[str, ...]
    even: tuple[bool, ...]
    constants: tuple[tuple[str, Any], ...]
    warps: int
    stages: int


@dataclass
class Launches:
    """Stands where Triton's functions do."""

    forms: dict[Form, None] = field(default_factory=dict)

    def module(self) -> tuple[Any, bool]:
        return SimpleNamespace(**{f"{k}_kernel": _Kernel(k, self) for k in KERNELS}), False


@dataclass
class _Kernel:
    name: str
    launches: Launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.launch

    def launch(self, *arguments: Any, **constants: Any) -> None:
        warps, stages = constants.pop("num_warps", 4), constants.pop("num_stages", 3)
        form = Form(
            self.name,
            tuple(map(_kind, arguments)),
            tuple(not isinstance(a, float) and _number(a) % 16 == 0 for a in arguments),
            tuple(constants.items()),
            warps,
            stages,
        )
        self.launches.forms[form] = None


def _number(argument: Any) -> int:
    if not isinstance(argument, torch.Tensor):
        return int(argument)
    # Where a view starts in its memory, which itself starts on a boundary.
    return ADDRESS + argument.storage_offset() * argument.itemsize


def _kind(argument: Any) -> str:
    if isinstance(argument, torch.Tensor):
        return POINTERS[argument.dtype]
    if isinstance(argument, float):
        return "fp32"
    return "1" if argument == 1 else "i32"


class _Again:
    """A recorder that makes its call once."""

    def record(self, call: Callable[[], torch.Tensor]) -> Any:
        return SimpleNamespace(out=call())


def forms(dtype: torch.dtype) -> list[Form]:
    """All that a runner of one layer launches."""
    launches = Launches()
    kept = [(m, m._kernels) for m in (sgmv, attention, fused)]
    agrees = DeviceRunner._agrees
    for module, _ in kept:
        cast(Any, module)._kernels = launches.module
    cast(Any, DeviceRunner)._agrees = lambda *a: True  # nothing is computed
    try:
        for head_norms in (False, True):
            config = synthetic_config(
                vocab=256, layers=1, hidden=4096, heads=32, kv_heads=8, head_dim=128, ff=14336,
                max_context=8192, tied=True, head_norms=head_norms,
            )  # fmt: skip
            weights = Weights(config, dtype)
            for name, shape in expected_shapes(config).items():
                weights.put(name, torch.zeros(shape))
            model = LoadedModel("made", config, weights, cast(Any, None), "made", True, dtype)
            lanes = AtOnce(), AtOnce()
            on = Accelerator(torch.device("cpu"), *lanes, _Again(), 128, 2, 1)
            DeviceRunner(model, 64, 16, on)
    finally:
        for module, own in kept:
            cast(Any, module)._kernels = own
        cast(Any, DeviceRunner)._agrees = agrees
    return list(launches.forms)


def compiled(target: str, form: Form) -> dict[str, object]:
    """A row of the table. Raises what Triton raises where the form does not compile."""
    from kernels import attention_jit, fused_jit, sgmv_jit

    modules: tuple[ModuleType, ...] = (attention_jit, fused_jit, sgmv_jit)
    [fn] = [
        getattr(m, f"{form.kernel}_kernel") for m in modules if hasattr(m, f"{form.kernel}_kernel")
    ]
    names = fn.arg_names[: len(form.kinds)]
    free = {fn.arg_names[i] for i in fn.do_not_specialize if isinstance(i, int)}
    free |= {n for n in fn.do_not_specialize if isinstance(n, str)}
    constants = dict(form.constants)
    signature, even = {}, []
    for name, kind, is_even in zip(names, form.kinds, form.even, strict=True):
        if kind == "1" and name not in free:
            signature[name], constants[name] = "constexpr", 1
            continue
        signature[name] = "i32" if kind == "1" else kind
        even += [name] if is_even and name not in free and kind != "fp32" else []
    signature |= dict.fromkeys(dict(form.constants), "constexpr")
    built = build(target, fn, signature, constants, even, form.warps, form.stages)
    registers, spills, shared, wide = built
    told = {k: v for k, v in form.constants if k in ("PARTIAL", "NORMS", "ADDS", "SPLITS", "BM")}
    return {
        "target": target, "kernel": form.kernel, "form": told, "registers": registers,
        "spills": spills, "shared_bytes": shared, "wide_loads": wide,
        "fits": shared <= SHARED_CEILING_BYTES[target],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", default=",".join(SHARED_CEILING_BYTES))
    parser.add_argument("--dtypes", default="bf16")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for dtype in options.dtypes.split(","):
        for form in forms(DTYPES[dtype]):
            for target in options.targets.split(","):
                rows.append({"dtype": dtype} | compiled(target, form))
    wrong = [r for r in rows if r["spills"] or not r["fits"]]
    if options.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("  ".join(f"{k}={v}" for k, v in row.items()))
        print(f"{len(rows)} compiled, {len(wrong)} with spills or too much shared memory")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
