"""What operators have changed, on top of a settings file: changes in their order, and their ends.

Pure: knows no file, no worker and no clock of its own. In force = the settings file's, then every
change that is neither undone nor over, in the order in which they were made. So a change that ends
gives back what was under it, whoever made that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.admin.errors import ChangeRefused
from engine.admin.in_force import KINDS, Edit, InForce, applied
from engine.config import Settings

KEPT = 200  # past changes that are remembered
MOST_IN_FORCE = 1_000
BY_ITSELF = "tenantscope"
TIME_OVER = "its time is over"


@dataclass(frozen=True, slots=True)
class End:
    """When a change ended, by whom and why."""

    at_unix_s: float
    who: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """An edit by somebody. `until_unix_s` None: for good. `ended_unix_s` None: it has not."""

    number: int
    at_unix_s: float
    until_unix_s: float | None
    who: str
    why: str
    what: str
    edit: Edit
    state: str = "in force"  # then: undone, expired; "done" of one that leaves nothing behind
    ended_unix_s: float | None = None
    ended_by: str = ""
    ended_why: str = ""

    @property
    def in_force(self) -> bool:
        return self.state == "in force"

    def ended(self, state: str, end: End) -> Change:
        return replace(
            self,
            state=state,
            ended_unix_s=end.at_unix_s,
            ended_by=end.who,
            ended_why=end.why,
        )


@dataclass(frozen=True, slots=True)
class Overlay:
    """All changes, oldest first; `version` counts whatever changed what is in force. `seen_unix_s`
    is the latest instant that anything here was written at; 0 = never."""

    version: int = 1
    changes: tuple[Change, ...] = ()
    seen_unix_s: float = 0.0

    def with_change(
        self, edit: Edit, what: str, now_s: float, until_s: float | None, who: str, why: str
    ) -> Overlay:
        """One change more, in force. Raises ChangeRefused when there are too many."""
        if sum(c.in_force for c in self.changes) >= MOST_IN_FORCE:
            raise ChangeRefused(
                f"{MOST_IN_FORCE} changes are in force: undo some, or write them into the settings"
            )
        change = Change(self._next, now_s, until_s, who, why, what, edit)
        return self._moved((*self.changes, change), now_s)

    def with_note(self, what: str, now_s: float, who: str, why: str) -> Overlay:
        """An act that leaves nothing to revert, remembered."""
        note = Change(self._next, now_s, None, who, why, what, Edit("note"), "done")
        # Nothing that is in force has changed: who looked before it looked well enough.
        return replace(self._moved((*self.changes, note), now_s), version=self.version)

    def without(self, kind: str, name: str, end: End) -> Overlay | None:
        """Every change of this kind on this name is undone; None when there is none."""
        mine = {
            c.number
            for c in self.changes
            if c.in_force and (c.edit.kind, c.edit.name) == (kind, name)
        }
        if not mine:
            return None
        changes = (c.ended("undone", end) if c.number in mine else c for c in self.changes)
        return self._moved(tuple(changes), end.at_unix_s)

    def last(self) -> Change | None:
        """The last change in force."""
        return next((c for c in reversed(self.changes) if c.in_force), None)

    def without_last(self, end: End) -> tuple[Overlay, Change] | None:
        """The last change in force is undone; None when there is none."""
        last = self.last()
        if last is None:
            return None
        changes = (c.ended("undone", end) if c is last else c for c in self.changes)
        return self._moved(tuple(changes), end.at_unix_s), last

    def expired(self, now_s: float) -> tuple[Overlay, tuple[Change, ...]]:
        """Without the changes whose time is over, ended at the instant they were to end at; the
        same overlay when there is none."""
        over = tuple(c for c in self.changes if c.in_force and _is_over(c, now_s))
        if not over:
            return self, ()
        gone = {c.number for c in over}
        changes = tuple(
            c.ended("expired", End(c.until_unix_s or now_s, BY_ITSELF, TIME_OVER))
            if c.number in gone
            else c
            for c in self.changes
        )
        return self._moved(changes, now_s), over

    def after_restart(self, now_s: float) -> Overlay:
        """At a start. A clock that was set back meanwhile must not lengthen a change: what was to
        end in an hour when this was last written ends in an hour from now at the latest."""
        back_s = self.seen_unix_s - now_s
        if back_s <= 0 or all(c.until_unix_s is None or not c.in_force for c in self.changes):
            return self
        changes = tuple(
            replace(c, until_unix_s=c.until_unix_s - back_s)
            if c.in_force and c.until_unix_s is not None
            else c
            for c in self.changes
        )
        return replace(self, changes=changes, seen_unix_s=now_s)

    @property
    def next_expiry_s(self) -> float | None:
        """When the next change ends by itself, unix seconds."""
        ends = (c.until_unix_s for c in self.changes if c.in_force)
        return min((e for e in ends if e is not None), default=None)

    def on(self, base: Settings) -> InForce:
        """What is in force over these settings. What a change is about may be gone from them:
        then it does nothing."""
        now = InForce(base)
        for c in self.changes:
            if c.in_force:
                now = applied(now, c.edit)
        return now

    @property
    def _next(self) -> int:
        return self.changes[-1].number + 1 if self.changes else 1

    def _moved(self, changes: tuple[Change, ...], now_s: float) -> Overlay:
        past = [c for c in changes if not c.in_force]
        forgotten = {c.number for c in past[:-KEPT]}
        kept = tuple(c for c in changes if c.number not in forgotten)
        return Overlay(self.version + 1, kept, now_s)

    def dump(self) -> str:
        """As JSON; `load` reads it back."""
        return json.dumps({"format": 1, **asdict(self)}, indent=1)

    @classmethod
    def load(cls, text: str) -> Overlay:
        """Raises ValueError for what `dump` did not write."""
        raw = json.loads(text)
        if not isinstance(raw, dict) or raw.get("format") != 1:
            raise ValueError("not an overlay of this version")
        try:
            changes = tuple(_change(c) for c in raw["changes"])
            version, seen_s = int(raw["version"]), float(raw.get("seen_unix_s", 0.0))
        except (AttributeError, KeyError, TypeError) as e:
            raise ValueError(f"a change is not as it was written: {e}") from None
        if not math.isfinite(seen_s):
            raise ValueError(f"seen_unix_s is no instant: {seen_s!r}")
        unknown = sorted({c.edit.kind for c in changes} - KINDS.keys() - {"note"})
        if unknown:
            raise ValueError(f"kinds of change that are not known: {', '.join(unknown)}")
        return cls(version, changes, seen_s)


def _change(raw: Mapping[str, Any]) -> Change:
    change = Change(**{**raw, "edit": Edit(**raw["edit"])})
    for key in ("until_unix_s", "ended_unix_s"):
        at = getattr(change, key)
        if not (at is None or (isinstance(at, int | float) and math.isfinite(at))):
            raise ValueError(f"{key} is no instant: {at!r}")  # it would never be over
    if not isinstance(change.edit.name, str) or not isinstance(change.edit.values, Mapping):
        raise ValueError(f"edit of change {change.number!r} is none")
    return change


def _is_over(change: Change, now_s: float) -> bool:
    return change.until_unix_s is not None and change.until_unix_s <= now_s
