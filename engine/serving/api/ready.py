"""Whether the pool gets anywhere: the verdict of GET /ready. Pure; the clock is passed in.

Not ready is a pool whose worker does not answer, and one where requests wait and nothing has come
from the worker, no token and no end, for `stalled_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STALLED_S = 30.0


@dataclass(slots=True)
class Progress:
    """Told of the link now and then; says since when nothing has moved."""

    stalled_s: float = STALLED_S
    _heard: int = -1
    _since_s: float = field(default=0.0)

    def observe(self, heard: int, open_requests: int, now_s: float) -> None:
        """`heard` counts the worker's messages. Without an open request nothing can stall."""
        if heard != self._heard or not open_requests:
            self._heard, self._since_s = heard, now_s

    def stalled(self, now_s: float) -> float | None:
        """Seconds without news while work waits, once they are too many."""
        age_s = now_s - self._since_s
        return age_s if age_s >= self.stalled_s else None
