"""Where Triton is looked for: at the first launch, so that all else loads without it."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

from kernels.errors import KernelError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def triton_module(name: str, kernel: str) -> tuple[ModuleType, bool]:
    """A module of Triton kernels, and whether the interpreter runs them.

    Raises KernelError where triton is not installed.
    """
    try:
        from triton.runtime import JITFunction

        module = importlib.import_module(f"kernels.{name}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != "triton":
            raise
        raise KernelError(
            "the Triton kernels need the package `triton`, which is not installed (its wheels are "
            "for Linux on x86-64): install it, or use the plain torch path"
        ) from missing
    return module, not isinstance(getattr(module, kernel), JITFunction)
