"""Versions of a policy in words: what changed for a tenant, by whom, why, and until when. Pure.

In the store a change of limits, weight or tier is a version of the policy; when one ends by itself
only the engine knows (`EngineState.changes`, where an operator's door was asked).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from console.act.values import NO_LIMIT, EngineState, tier_word
from console.cells import clip
from console.formats import ABSENT, when, whole
from console.lines import Line, Piece, Row, cut
from console.overview import Look
from telemetry.plain import safe as plain

EVENT = "event"  # the kind of rows whose name is an instant: Enter goes there
LIMITS = ("weight", "tier", "rpm", "tpm", "concurrency")


@dataclass(frozen=True, slots=True)
class Ending:
    """A change by an operator that is in force. `until` None: it does not end by itself."""

    engine: str
    at: float
    until: float | None
    who: str
    why: str
    what: str


def endings(engines: Sequence[EngineState], pool: str | None, tenant: str | None = None) -> list[
    Ending
]:  # fmt: skip
    """What operators' doors say is in force in a pool, what ends first first; of one tenant: the
    changes that name it."""
    found = [
        Ending(s.engine, c.at, c.until, c.who, c.why, c.what)
        for s in engines
        if pool is None or not s.pool or pool in (s.pool, *s.pools)  # one door, several pools
        for c in s.in_force
        if tenant is None or repr(tenant) in c.what
    ]
    return sorted(found, key=lambda x: (x.until is None, x.until or 0.0, x.at))


def countdown(until: float | None, now: float) -> str:
    if until is None:
        return "for good"
    return f"ends in {whole(until - now)}" if until > now else "is ending"


def word(name: str, value: float | int | None) -> str:
    """A limit as a person reads it: none is no limit."""
    if name == "tier":
        return tier_word(int(value or 0))
    if value is None:
        return NO_LIMIT
    return f"{value:g}"


def values(text: str | None) -> Mapping[str, Any]:
    """A tenant's values out of a version's parameters; nothing where there are none to read."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def difference(was: Mapping[str, Any], held: Mapping[str, Any]) -> str:
    """`rpm 60 -> 30, weight 1 -> 0.5`; empty where nothing differs."""
    out = []
    for name in LIMITS:
        before, after = _number(was.get(name)), _number(held.get(name))
        if word(name, before) != word(name, after):
            out.append(f"{name} {word(name, before)} -> {word(name, after)}")
    return ", ".join(out)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value == value else None


def in_force(held: Mapping[str, Any]) -> str:
    """`weight 1, tier normal, rpm none, tpm none, concurrency 16`."""
    return ", ".join(f"{name} {word(name, _number(held.get(name)))}" for name in LIMITS)


def version_line(row: Mapping[str, Any], now: float, cells: int, look: Look) -> Line:
    """One version: when, its number, who, what it changed, why. It can be gone to."""
    policy = str(row["policy"])
    if row["held"] is None and row["said"]:  # of no tenant in particular
        pieces: tuple[Piece, ...] = (
            Piece(f"{when(row['at_s'], now, look.tz)} ", "dim"),
            Piece(f"v{row['version']} ", "value"),
            Piece(plain(str(row["said"]))),
        )
        return _gone_to(cut(Line(pieces), cells, look.glyphs.ellipsis), row)
    what = difference(values(row["was"]), values(row["held"])) if row["was"] else ""
    if row["previous"] is not None and row["previous"] != policy:
        what = f"{plain(str(row['previous']))} -> {plain(policy)}{', ' if what else ''}{what}"
    if row["version"] == 1:
        what = f"{plain(policy)} at the start"
    why = f"  ({plain(str(row['why']))})" if row["why"] and row["version"] != 1 else ""
    pieces = (
        Piece(f"{when(row['at_s'], now, look.tz)} ", "dim"),
        Piece(f"v{row['version']} ", "value"),
        Piece(f"{clip(plain(str(row['who'] or ABSENT)), 12, look.glyphs.ellipsis)}: ", "phase"),
        Piece(what or "limits, weights or tiers"),
        Piece(why, "dim"),
    )
    return _gone_to(cut(Line(pieces), cells, look.glyphs.ellipsis), row)


def _gone_to(line: Line, row: Mapping[str, Any]) -> Line:
    return replace(line, row=Row(EVENT, repr(float(row["at_s"])), f"v{row['version']}"))


def ending_line(x: Ending, now: float, cells: int, look: Look) -> Line:
    """One change in force: how long it still holds, who, what, why."""
    soon = x.until is not None and x.until - now < 60.0
    pieces = (
        Piece(f"{countdown(x.until, now):<12} ", "warn" if soon else "value"),
        Piece(f"{clip(plain(x.who), 12, look.glyphs.ellipsis)}: ", "phase"),
        Piece(plain(x.what)),
        Piece(f"  ({plain(x.why)})" if x.why else "", "dim"),
    )
    return cut(Line(pieces), cells, look.glyphs.ellipsis)
