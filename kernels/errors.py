"""The kernels' exception tree. Every message says what was wrong, with which value, what to do."""

from __future__ import annotations


class KernelError(Exception):
    """Operands that do not fit together, or a kernel that this machine cannot run."""
