"""Which adapters have a copy in host memory, within a cap, and which copy goes first.

Owns the order of disuse of the copies; the copies themselves are a library's. Copies of adapters
that are neither on the device nor on their way there go first, the least recently used before
others; then those of adapters that are on the device (they would be read again after an eviction);
never one that is being copied to the device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class HostCopies:
    """`most` adapters and `most_bytes` bytes; None = no cap of that kind."""

    def __init__(self, most: int | None = None, most_bytes: int | None = None) -> None:
        for name, cap in (("adapters", most), ("bytes", most_bytes)):
            if cap is not None and cap < 0:
                raise ValueError(f"a host cap of {cap} {name}: at least 0")
        self._most = most
        self._most_bytes = most_bytes
        self._resting: OrderedDict[str, int] = OrderedDict()  # key -> bytes, oldest first
        self._doubled: OrderedDict[str, int] = OrderedDict()  # their adapter is on the device
        self._copying: OrderedDict[str, int] = OrderedDict()
        self._in: dict[str, OrderedDict[str, int]] = {}
        self.bytes = 0

    def __contains__(self, key: str) -> bool:
        return key in self._in

    def __iter__(self) -> Iterator[str]:
        return iter(self._in)

    def __len__(self) -> int:
        return len(self._in)

    def rest(self, key: str, size: int) -> None:
        """The copy is of no use now; it has been until now."""
        self._put(key, size, self._resting)

    def double(self, key: str, size: int) -> None:
        """The adapter has come to the device."""
        self._put(key, size, self._doubled)

    def copy(self, key: str, size: int) -> None:
        """The copy is read (and made, when there was none) to bring the adapter in."""
        self._put(key, size, self._copying)

    def remove(self, key: str) -> bool:
        """Whether there was one."""
        among = self._in.pop(key, None)
        if among is None:
            return False
        self.bytes -= among.pop(key)
        return True

    def trim(self) -> list[str]:
        """Drop copies until the cap is kept, as far as it can be; returns their keys."""
        dropped: list[str] = []
        while self._over():
            among = self._resting or self._doubled
            if not among:
                break
            key = next(iter(among))
            self.remove(key)
            dropped.append(key)
        return dropped

    def check_integrity(self) -> None:
        """O(copies). Raises ValueError when the sums or the lists disagree."""
        lists = (self._resting, self._doubled, self._copying)
        if sum(sum(each.values()) for each in lists) != self.bytes:
            raise ValueError(f"{self.bytes} bytes of host copies booked, others listed")
        if sum(len(each) for each in lists) != len(self._in) or any(
            key not in among for key, among in self._in.items()
        ):
            raise ValueError("a host copy stands in no list, or in two")
        if self._over() and (self._resting or self._doubled):
            raise ValueError(f"{len(self)} copies of {self.bytes} bytes are more than the cap")

    def _over(self) -> bool:
        return (self._most is not None and len(self._in) > self._most) or (
            self._most_bytes is not None and self.bytes > self._most_bytes
        )

    def _put(self, key: str, size: int, among: OrderedDict[str, int]) -> None:
        self.remove(key)
        among[key] = size
        self._in[key] = among
        self.bytes += size
