"""Where an adapter can be, and what is said of its moves. Values only."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Place(enum.Enum):
    """DISK -> HOST -> LOADING -> DEVICE -> DRAINING."""

    DISK = "disk"
    HOST = "host"
    LOADING = "loading"
    DEVICE = "device"
    DRAINING = "draining"  # unloaded while in use: on the device until the last sequence ends

    @property
    def found(self) -> str:
        """The word for a lookup that meets it here: a draining adapter is on the device."""
        return "device" if self is Place.DRAINING else self.value


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Copy the adapter into these pages. Executed outside the step. `from_disk`: no host copy is
    kept, the files must be read first."""

    key: str
    pages: tuple[int, ...]
    tenant: str
    number: int
    from_disk: bool = False


@dataclass(frozen=True, slots=True)
class Eviction:
    """An adapter left the device. `suffered` used it last, `cause` needed the room."""

    key: str
    suffered: str | None
    cause: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """A load ended. `error` is the reason when it failed; its pages are free again then."""

    key: str
    tenant: str
    bytes: int
    load_s: float
    error: str | None
