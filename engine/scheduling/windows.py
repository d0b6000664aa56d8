"""How an amount a minute is counted: token bucket, fixed window, sliding log. Pure; owns no clock.

All three answer the same questions. `now_s` is monotonic; a question charges nothing, so a wait
that is told is tried against the very arithmetic that will judge the retry.

| | a burst of | holds an even 85% for requests up to |
|---|---|---|
| bucket | what it holds, then the rate | all of what it holds |
| fixed window | twice the limit, across a boundary | 15% of the limit |
| sliding log | the limit in any 60 s | 15% of the limit |
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, Protocol

MINUTE_S = 60.0
# A refill in floats must not miss an amount by a rounding error.
_ROUNDING = 1e-6


class Window(Protocol):
    """Counts amounts against `limit` a minute. `largest` is the most one amount may ever be."""

    limit: float
    largest: float

    def left(self, now_s: float) -> float:
        """What may still be taken now."""
        ...

    def fits(self, amount: float, now_s: float) -> bool: ...

    def take(self, amount: float, now_s: float) -> Any:
        """Take it, and get the mark by which it is given back."""
        ...

    def give_back(self, amount: float, mark: Any, now_s: float) -> None:
        """Return a part of what was taken, or all of it, to where it was taken from."""
        ...

    def wait_s(self, amount: float, now_s: float) -> int | None:
        """Whole seconds, 1 at least, after which `amount` fits if nothing else is taken; None =
        never."""
        ...


def make_window(kind: str, limit: int, burst: int | None, now_s: float) -> Window:
    """`kind` is bucket, fixed or sliding; `burst` is what a bucket holds, None = a minute's."""
    if kind == "fixed":
        return FixedWindow(float(limit))
    if kind == "sliding":
        return SlidingLog(float(limit))
    return Bucket(float(limit), float(limit if burst is None else burst), now_s)


class Bucket:
    """Holds `largest`, full at first; refills evenly with `limit` a minute."""

    __slots__ = ("_level", "_rate_per_s", "_since_s", "largest", "limit")

    def __init__(self, limit: float, burst: float, now_s: float) -> None:
        self.limit = limit
        self.largest = burst if limit else 0.0
        self._rate_per_s = limit / MINUTE_S
        self._level = self.largest
        self._since_s = now_s

    def left(self, now_s: float) -> float:
        passed = now_s - self._since_s
        if passed <= 0.0:
            return self._level
        level = self._level + self._rate_per_s * passed
        return level if level < self.largest else self.largest

    def fits(self, amount: float, now_s: float) -> bool:
        return self.left(now_s) >= amount - _ROUNDING

    def take(self, amount: float, now_s: float) -> None:
        self._level = self.left(now_s) - amount
        if now_s > self._since_s:
            self._since_s = now_s

    def give_back(self, amount: float, mark: None, now_s: float) -> None:
        """Never beyond what it holds: what refilled meanwhile is not paid twice."""
        level = self.left(now_s) + amount
        self._level = level if level < self.largest else self.largest
        if now_s > self._since_s:
            self._since_s = now_s

    def wait_s(self, amount: float, now_s: float) -> int | None:
        if amount > self.largest:
            return None
        missing_s = (amount - _ROUNDING - self.left(now_s)) / self._rate_per_s
        wait = max(1, math.ceil(missing_s))
        while not self.fits(amount, now_s + wait):
            wait += _next_s(now_s)
        return wait


class FixedWindow:
    """Minutes aligned to the clock's zero; each begins with all of `limit`. What is given back
    after its minute has ended is given back to that minute: nobody can use it any more."""

    __slots__ = ("_minute", "_used", "largest", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = self.largest = limit
        self._minute = 0
        self._used = 0.0

    def left(self, now_s: float) -> float:
        # A clock reading from before the present minute does not open an earlier one.
        return self.limit - self._used if now_s // MINUTE_S <= self._minute else self.limit

    def fits(self, amount: float, now_s: float) -> bool:
        return self.left(now_s) >= amount

    def take(self, amount: float, now_s: float) -> int:
        minute = int(now_s // MINUTE_S)
        if minute > self._minute:
            self._minute, self._used = minute, 0.0
        self._used += amount
        return self._minute

    def give_back(self, amount: float, mark: int, now_s: float) -> None:
        if mark == self._minute:
            self._used -= amount

    def wait_s(self, amount: float, now_s: float) -> int | None:
        if amount > self.limit:
            return None
        wait = max(1, math.ceil((self._minute + 1) * MINUTE_S - now_s))
        while not self.fits(amount, now_s + wait):
            wait += _next_s(now_s)
        return wait


class _Entry:
    __slots__ = ("amount", "at_s", "number")

    def __init__(self, number: int, at_s: float, amount: float) -> None:
        self.number = number
        self.at_s = at_s
        self.amount = amount


class SlidingLog:
    """Every amount of the last 60 s, each until exactly 60 s have passed. Memory grows with the
    requests of a minute; an entry is looked at once when it comes and once when it leaves."""

    __slots__ = ("_last_s", "_log", "_number", "_used", "largest", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = self.largest = limit
        self._log: OrderedDict[int, _Entry] = OrderedDict()
        self._number = 0
        self._last_s = -math.inf
        self._used = 0.0

    def left(self, now_s: float) -> float:
        self._forget(now_s)
        return self.limit - self._used

    def fits(self, amount: float, now_s: float) -> bool:
        self._forget(now_s)
        return self.limit - self._used >= amount

    def take(self, amount: float, now_s: float) -> _Entry:
        self._forget(now_s)
        self._number += 1
        if now_s > self._last_s:  # the log stays in order, also for a reading that came late
            self._last_s = now_s
        entry = _Entry(self._number, self._last_s, amount)
        self._log[self._number] = entry
        self._used += amount
        return entry

    def give_back(self, amount: float, mark: _Entry, now_s: float) -> None:
        if mark.number in self._log:
            mark.amount -= amount
            self._used -= amount
            if mark.amount <= 0.0:
                del self._log[mark.number]

    def wait_s(self, amount: float, now_s: float) -> int | None:
        """Walks the entries that have to leave first: they hold no more than `amount`."""
        if amount > self.limit:
            return None
        self._forget(now_s)
        missing = self._used + amount - self.limit
        until_s = now_s
        for entry in self._log.values():
            if missing <= 0.0:
                break
            missing -= entry.amount
            until_s = entry.at_s + MINUTE_S
        wait = max(1, math.ceil(until_s - now_s))
        while now_s + wait < until_s:
            wait += _next_s(now_s)
        return wait

    def _forget(self, now_s: float) -> None:
        log = self._log
        while log:
            entry = next(iter(log.values()))
            if entry.at_s + MINUTE_S > now_s:
                return
            log.popitem(last=False)
            self._used -= entry.amount


def _next_s(now_s: float) -> int:
    """One second, or as many as it takes to be told apart from `now_s` at all."""
    return max(1, math.ceil(math.ulp(now_s)))
