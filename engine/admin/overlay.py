"""What operators have changed, on top of a settings file: changes as values, and what they make.

Pure: knows no file, no worker and no clock of its own. In force = the settings file's, then every
change that is neither undone nor over, in the order in which they were made. So a change that ends
gives back what was under it, whoever made that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from engine.config import POLICIES, Settings, Tenant
from engine.config_keys import LONGEST_NAME, Declared, declared, without_none
from engine.errors import EngineError

NO_LIMIT = "none"
TIERS = {"normal": 0, "low": 10, "lowest": 100}
LIMITS = ("rpm", "tpm", "concurrency")  # keys of which "none" means no limit
CHANGEABLE = (*LIMITS, "weight", "tier")
KEPT = 200  # past changes that are remembered
MOST_IN_FORCE = 1_000

_BURST = {"rpm": "rpm_burst", "tpm": "tpm_burst"}


class ChangeRefused(EngineError):
    """A change that cannot be made; says which value and what may stand there."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What a change does: one of `KINDS`, on whom, with which values."""

    kind: str
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """An edit by somebody. `until_unix_s` None: for good."""

    number: int
    at_unix_s: float
    until_unix_s: float | None
    who: str
    why: str
    what: str
    edit: Edit
    state: str = "in force"  # then: undone, expired; "done" of one that leaves nothing behind

    @property
    def in_force(self) -> bool:
        return self.state == "in force"


@dataclass(frozen=True, slots=True)
class InForce:
    """What holds now. `settings` are the file's with every change on top."""

    settings: Settings
    pinned: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Overlay:
    """All changes, oldest first; `version` counts whatever changed what is in force."""

    version: int = 1
    changes: tuple[Change, ...] = ()

    def with_change(
        self, edit: Edit, what: str, now_s: float, until_s: float | None, who: str, why: str
    ) -> Overlay:
        """One change more, in force. Raises ChangeRefused when there are too many."""
        if sum(c.in_force for c in self.changes) >= MOST_IN_FORCE:
            raise ChangeRefused(
                f"{MOST_IN_FORCE} changes are in force: undo some, or write them into the settings"
            )
        number = self.changes[-1].number + 1 if self.changes else 1
        change = Change(number, now_s, until_s, who, why, what, edit)
        return self._moved((*self.changes, change))

    def with_note(self, what: str, now_s: float, who: str, why: str) -> Overlay:
        """An act that leaves nothing to revert, remembered."""
        number = self.changes[-1].number + 1 if self.changes else 1
        note = Change(number, now_s, None, who, why, what, Edit("note"), "done")
        # Nothing that is in force has changed: who looked before it looked well enough.
        return replace(self._moved((*self.changes, note)), version=self.version)

    def without(self, kind: str, name: str) -> Overlay | None:
        """Every change of this kind on this name is undone; None when there is none."""
        mine = {
            c.number
            for c in self.changes
            if c.in_force and (c.edit.kind, c.edit.name) == (kind, name)
        }
        return self._ended(mine, "undone") if mine else None

    def without_last(self) -> tuple[Overlay, Change] | None:
        """The last change in force is undone; None when there is none."""
        for c in reversed(self.changes):
            if c.in_force:
                return self._ended({c.number}, "undone"), c
        return None

    def expired(self, now_s: float) -> tuple[Overlay, tuple[Change, ...]]:
        """Without the changes whose time is over; the same overlay when there is none."""
        over = tuple(c for c in self.changes if c.in_force and _is_over(c, now_s))
        if not over:
            return self, ()
        return self._ended({c.number for c in over}, "expired"), over

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

    def _ended(self, numbers: set[int], state: str) -> Overlay:
        return self._moved(
            tuple(replace(c, state=state) if c.number in numbers else c for c in self.changes)
        )

    def _moved(self, changes: tuple[Change, ...]) -> Overlay:
        past = [c for c in changes if not c.in_force]
        forgotten = {c.number for c in past[:-KEPT]}
        return Overlay(self.version + 1, tuple(c for c in changes if c.number not in forgotten))

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
            version = int(raw["version"])
        except (AttributeError, KeyError, TypeError) as e:
            raise ValueError(f"a change is not as it was written: {e}") from None
        unknown = sorted({c.edit.kind for c in changes} - KINDS.keys() - {"note"})
        if unknown:
            raise ValueError(f"kinds of change that are not known: {', '.join(unknown)}")
        return cls(version, changes)


def _change(raw: Mapping[str, Any]) -> Change:
    change = Change(**{**raw, "edit": Edit(**raw["edit"])})
    ends = change.until_unix_s
    if not (ends is None or (isinstance(ends, int | float) and math.isfinite(ends))):
        raise ValueError(f"until_unix_s is no instant: {ends!r}")  # it would never be over
    if not isinstance(change.edit.name, str) or not isinstance(change.edit.values, Mapping):
        raise ValueError(f"edit of change {change.number!r} is none")
    return change


def _is_over(change: Change, now_s: float) -> bool:
    return change.until_unix_s is not None and change.until_unix_s <= now_s


# -- edits


def tenant_edit(now: InForce, name: str, words: Mapping[str, str]) -> Edit:
    """Limits, weight and tier out of what a person wrote. Raises ChangeRefused."""
    _known_tenant(now, name)
    if "pool" in words:
        _refuse_pool(now.settings, words["pool"])
    values = {key: _value(key, word) for key, word in words.items() if key != "pool"}
    if not values:
        raise ChangeRefused(f"nothing to change: give one of {', '.join(CHANGEABLE)}")
    return Edit("tenant", name, values)


def cap_edit(now: InForce, name: str, words: Mapping[str, str]) -> Edit:
    """Limits that lower and never raise. Raises ChangeRefused."""
    return replace(tenant_edit(now, name, words), kind="cap")


def drain_edit(now: InForce, name: str) -> Edit:
    _known_tenant(now, name)
    if name in now.draining:
        raise ChangeRefused(f"tenant {name!r} drains already")
    return Edit("drain", name)


def policy_edit(now: InForce, policy: str) -> Edit:
    if policy not in POLICIES:
        raise ChangeRefused(f"policy {policy!r} is not known: use one of {', '.join(POLICIES)}")
    return Edit("policy", policy)


def load_edit(now: InForce, name: str, folder: str, tenants: tuple[str, ...]) -> Edit:
    """`folder` is a resolved path. Raises ChangeRefused."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ChangeRefused(f"an adapter's name has up to {LONGEST_NAME} printable characters")
    if any(n == name for n, _ in now.settings.adapters):
        raise ChangeRefused(f"adapter {name!r} is served already: `adapter reload` reads it again")
    if not tenants:
        raise ChangeRefused(f"nobody could name adapter {name!r}: say who with --tenant")
    for tenant in tenants:
        _known_tenant(now, tenant)
    return Edit("load", name, {"folder": folder, "tenants": list(tenants)})


def unload_edit(now: InForce, name: str) -> Edit:
    _known_adapter(now, name)
    return Edit("unload", name)


def pin_edit(now: InForce, name: str) -> Edit:
    _known_adapter(now, name)
    if name in now.pinned:
        raise ChangeRefused(f"adapter {name!r} is pinned already")
    return Edit("pin", name)


def _known_tenant(now: InForce, name: str) -> Tenant:
    tenant = now.settings.tenant(name)
    if tenant is None:
        raise ChangeRefused(f"tenant {name!r} is not in the settings: see `admin tenant show`")
    return tenant


def _known_adapter(now: InForce, name: str) -> None:
    if all(n != name for n, _ in now.settings.adapters):
        served = ", ".join(repr(n) for n, _ in now.settings.adapters) or "none"
        raise ChangeRefused(f"adapter {name!r} is not served here; served are {served}")


def _refuse_pool(settings: Settings, wanted: str) -> None:
    names = [p.name for p in settings.all_pools()]
    there = f"this engine serves one pool, {names[0]!r}"
    raise ChangeRefused(f"pool {wanted!r}: {there}: there is no other to move a tenant to")


_MOST_FIGURES = 15  # a double holds each such number exactly


def _value(key: str, word: str) -> Any:
    if key not in CHANGEABLE:
        raise ChangeRefused(f"{key} cannot be changed live: one of {', '.join(CHANGEABLE)} can")
    rule = next(d for d in declared(Tenant) if d.name == key)
    if key in LIMITS and word == NO_LIMIT:
        return None
    if key == "tier" and word in TIERS:
        return TIERS[word]
    number = _number(rule, word)
    low, high = rule.key.at_least, rule.key.at_most
    if number is None or (low is not None and number < low) or (high is not None and number > high):
        long = f", in at most {_MOST_FIGURES} figures" if len(word) > _MOST_FIGURES else ""
        raise ChangeRefused(f"{key} {word!r}: expected {_expected(rule)}{long}")
    return number


def _number(rule: Declared, word: str) -> float | int | None:
    """Plain figures of our alphabet only: no sign, no exponent, no `inf`."""
    if not word.isascii() or not word.replace(".", "", 1).isdigit() or len(word) > _MOST_FIGURES:
        return None
    if without_none(rule.type) is int:
        return int(word) if word.isdigit() else None
    return float(word)


def _expected(rule: Declared) -> str:
    kind = "a whole number" if without_none(rule.type) is int else "a number"
    low, high = rule.key.at_least, rule.key.at_most
    bounds = f" of at least {low:g}" if low is not None else ""
    bounds += f" and at most {high:g}" if high is not None else ""
    extra = f", or {NO_LIMIT!r} for no limit" if rule.name in LIMITS else ""
    extra = f", or one of {', '.join(TIERS)}" if rule.name == "tier" else extra
    return f"{kind}{bounds}{extra}"


# -- what they make


def applied(now: InForce, edit: Edit) -> InForce:
    """What is in force with one edit more."""
    return KINDS[edit.kind](now, edit)


def _set(now: InForce, edit: Edit) -> InForce:
    values = dict(edit.values)
    for key, burst in _BURST.items():
        if key in values:
            values[burst] = None  # a burst of the file's would let through what is now capped
    return _with_tenant(now, edit.name, lambda t: replace(t, **values))


def _cap(now: InForce, edit: Edit) -> InForce:
    tenant = now.settings.tenant(edit.name)
    own = {key: getattr(tenant, key, None) for key in edit.values}
    lower = {k: v for k, v in edit.values.items() if own[k] is None or v < own[k]}
    return _set(now, replace(edit, values=lower))


def _drain(now: InForce, edit: Edit) -> InForce:
    return replace(now, draining=now.draining | {edit.name})


def _policy(now: InForce, edit: Edit) -> InForce:
    return replace(now, settings=now.settings.with_policy(edit.name))


def _load(now: InForce, edit: Edit) -> InForce:
    settings = now.settings
    if any(n == edit.name for n, _ in settings.adapters):
        return now  # the settings file names it by now
    adapters = (*settings.adapters, (edit.name, str(edit.values["folder"])))
    whose = set(edit.values["tenants"])
    tenants = tuple(
        replace(t, adapters=(*t.adapters, edit.name)) if t.name in whose else t
        for t in settings.tenants
    )
    return replace(now, settings=replace(settings, adapters=adapters, tenants=tenants))


def _unload(now: InForce, edit: Edit) -> InForce:
    settings, name = now.settings, edit.name
    tenants = tuple(
        replace(t, adapters=tuple(a for a in t.adapters if a != name)) for t in settings.tenants
    )
    adapters = tuple(a for a in settings.adapters if a[0] != name)
    return replace(
        now,
        settings=replace(settings, adapters=adapters, tenants=tenants),
        pinned=now.pinned - {name},
    )


def _pin(now: InForce, edit: Edit) -> InForce:
    if all(n != edit.name for n, _ in now.settings.adapters):
        return now
    return replace(now, pinned=now.pinned | {edit.name})


def _with_tenant(now: InForce, name: str, edit: Callable[[Tenant], Tenant]) -> InForce:
    tenants = tuple(edit(t) if t.name == name else t for t in now.settings.tenants)
    return replace(now, settings=replace(now.settings, tenants=tenants))


KINDS: Mapping[str, Callable[[InForce, Edit], InForce]] = {
    "tenant": _set,
    "cap": _cap,
    "drain": _drain,
    "policy": _policy,
    "load": _load,
    "unload": _unload,
    "pin": _pin,
}


def served(now: InForce) -> Settings:
    """The settings as front and worker are to have them: a tenant that drains is let nothing new
    through, what it has under way goes on."""
    tenants = tuple(
        replace(t, concurrency=0) if t.name in now.draining else t for t in now.settings.tenants
    )
    return replace(now.settings, tenants=tenants)
