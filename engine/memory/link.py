"""How long a load takes: a pure model of the link to the device and of the disk before it.

Owns no thread, no clock and no bytes: it answers when a load of so many bytes that is begun at an
instant ends, given those begun before. A stage carries one load at a time. What was said about an
end stays true: a later load goes into a gap before it or waits behind it.

Sources of the presets' figures, in words:

* PCIe Gen4 x16: 31.5 GB/s by the standard (16 GT/s a lane, 128b/130b); pinned host-to-device
  copies reach about 25 GB/s, and that is what is taken here.
* PCIe Gen5 x16: 63 GB/s by the standard (32 GT/s a lane), commonly quoted, and taken, as 64 GB/s.
* NVMe Gen3 x4 and Gen4 x4: sequential reads of 3.5 and 7 GB/s and about 0.1 ms for a first byte,
  as vendors' data sheets of data-centre drives state them.
* SATA: 0.55 GB/s, the interface's limit after its framing.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """Rate and time to the first byte of one stage. Raises ValueError for impossible ones."""

    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0 or not self.latency_s >= 0:
            raise ValueError(
                f"a link of {self.bytes_per_s} bytes/s after {self.latency_s} s: "
                "the rate must be above 0, the latency at least 0"
            )

    def duration_s(self, size_bytes: float) -> float:
        """Seconds that `size_bytes` take alone."""
        return self.latency_s + size_bytes / self.bytes_per_s


LINKS: Mapping[str, LinkSpec] = MappingProxyType(
    {
        "pcie-gen4-x16": LinkSpec(25e9),
        "pcie-gen5-x16": LinkSpec(64e9),
    }
)
DISKS: Mapping[str, LinkSpec] = MappingProxyType(
    {
        "nvme-gen3": LinkSpec(3.5e9, 1e-4),
        "nvme-gen4": LinkSpec(7e9, 1e-4),
        "sata": LinkSpec(0.55e9, 1e-4),
    }
)


class Stage:
    """One link or disk and the transfers it has promised, each within its own span of time."""

    def __init__(self, spec: LinkSpec) -> None:
        self.spec = spec
        self._starts: list[float] = []  # of promised spans, in order
        self._ends: list[float] = []

    def ends_s(self, size_bytes: float, ready_s: float) -> float:
        """When a transfer that can begin at `ready_s` would end. Promises nothing."""
        duration = self.spec.duration_s(size_bytes)
        return self._fit(duration, ready_s)[1] + duration

    def begin(self, size_bytes: float, ready_s: float, now: float) -> tuple[float, float]:
        """Promise the first span from `ready_s` on that is free; returns (start, end). Spans that
        are over at `now` are forgotten."""
        gone = bisect.bisect_right(self._ends, now)
        del self._starts[:gone], self._ends[:gone]
        duration = self.spec.duration_s(size_bytes)
        at, start = self._fit(duration, max(ready_s, now))
        self._starts.insert(at, start)
        self._ends.insert(at, start + duration)
        return start, start + duration

    def busy_s(self, now: float) -> float:
        """Seconds of promised work that are not over."""
        return sum(
            end - max(start, now)
            for start, end in zip(self._starts, self._ends, strict=True)
            if end > now
        )

    def _fit(self, duration_s: float, ready_s: float) -> tuple[int, float]:
        """Position among the spans, and start, of the first gap that is long enough."""
        at = bisect.bisect_right(self._ends, ready_s)
        start = ready_s
        while at < len(self._starts) and self._starts[at] < start + duration_s:
            start = max(start, self._ends[at])
            at += 1
        return at, start


@dataclass(frozen=True, slots=True)
class Passage:
    """A load's way: read into host memory until `host_s` (at once when it was there), then on the
    link from `start_s` to `end_s`."""

    host_s: float
    start_s: float
    end_s: float


class LoadPath:
    """Disk, then link. The disk reads one adapter while the link carries another."""

    def __init__(self, link: LinkSpec, disk: LinkSpec) -> None:
        self.link = Stage(link)
        self.disk = Stage(disk)

    def begin(self, size_bytes: float, now: float, *, from_disk: bool = False) -> Passage:
        """A load of `size_bytes` is begun now."""
        host = self.disk.begin(size_bytes, now, now)[1] if from_disk else now
        start, end = self.link.begin(size_bytes, host, now)
        return Passage(host, start, end)
