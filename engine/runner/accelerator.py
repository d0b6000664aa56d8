"""What a runner computes on where that is not the CPU. Values only: who makes them knows a device.

`engine.runner.cuda` makes one of a GPU. Tests make one of the CPU, with lanes that hold work back
and a recorder that calls again what it recorded: the code between is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.runner.lanes import Lane


class Replay(Protocol):
    """A recorded call. `out` is the tensor that it answered with, and every replay's answer."""

    @property
    def out(self) -> torch.Tensor: ...

    def __call__(self) -> None:
        """Do the call's work again, over the same memory."""
        ...


class Recorder(Protocol):
    """Makes a call into one that the device can do again without being told how."""

    def record(self, call: Callable[[], torch.Tensor]) -> Replay:
        """`call` is made now, more than once perhaps; it must read and write what never moves."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Accelerator:
    """`most_rows`: of a step; `most_sequences`: of them decode rows; `most_adapters`: with so many
    adapters in all. `recorder` None: every step is launched kernel by kernel. `broken`: why the
    device will compute nothing more in this process, asked once something has failed; None: it
    will."""

    device: torch.device
    steps: Lane
    copies: Lane
    recorder: Recorder | None
    most_rows: int
    most_sequences: int
    most_adapters: int
    broken: Callable[[], str | None] = lambda: None
