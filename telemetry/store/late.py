"""Which closed days late rows have opened again, and how long they stay open. Pure; no clock.

To open a closed day, and to close it again, costs as much as it has rows, and what is late seldom
comes alone: the day stays open until no row has come for a while.
"""

from __future__ import annotations

GRACE_S = 900.0


class LateDays:
    """Days opened again. A day is looked at from time to time, with the clock of who looks."""

    def __init__(self) -> None:
        self._quiet_since: dict[str, float | None] = {}  # None: rows have come since the last look

    def came(self, day: str, *, was_closed: bool) -> None:
        """Rows came for a day."""
        if was_closed or day in self._quiet_since:
            self._quiet_since[day] = None

    def closed(self, day: str) -> None:
        self._quiet_since.pop(day, None)

    def waits(self, day: str, now_unix_s: float) -> bool:
        """Whether the day should stay open: at a look, and as of this look."""
        if day not in self._quiet_since:
            return False
        since = self._quiet_since[day]
        if since is None or now_unix_s < since:  # new rows; or the clock was set back
            self._quiet_since[day] = now_unix_s
            return True
        return now_unix_s - since < GRACE_S
