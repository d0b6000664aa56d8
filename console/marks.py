"""Marks and words that every screen uses alike: levels, tenants' marks, holders, first tokens."""

from __future__ import annotations

from console.formats import ABSENT, duration, quantity
from console.lines import Piece
from console.panels import Holder, Latency, Level, Mark
from telemetry.conventions import TENANT
from telemetry.plain import safe as plain

OLD_TOKEN_S = 2.0  # a last token that is older is worth a colour

LEVEL_MARKS = {
    Level.HURT: ("!!", "hurt"),
    Level.WARN: ("! ", "warn"),
    Level.QUIET: ("ok", "good"),
    Level.UNKNOWN: ("? ", "dim"),
}
MARKS = {Mark.HURT: "!!", Mark.NAMED: "* ", Mark.MISSING: "! ", Mark.NONE: "  "}
MARK_ROLES = {
    Mark.HURT: "hurt",
    Mark.NAMED: "named",
    Mark.MISSING: "warn",
    Mark.NONE: "text",
}
REASON_ROLES = {"slot": "slot", "budget": "budget", "kv": "kv", "adapter": "adapter"}
REASON_FILLS = {"slot": 2, "budget": 3, "kv": 0, "adapter": 1}  # of Glyphs.fills


def figure(name: str, value: str, role: str = "value") -> list[Piece]:
    """A name and its value; dim where it is not known."""
    return [Piece(f"{name} ", "dim"), Piece(value, "dim" if value == ABSENT else role)]


def holder_name(holder: Holder) -> str:
    """A tenant by its name; what is no tenant in brackets, so that neither passes for the other."""
    return plain(holder.name) if holder.kind == TENANT else f"({plain(holder.kind)})"


def ttft_text(ttft: Latency) -> str:
    """p99/n; under 20 samples the maximum, and it says so."""
    if not ttft.n:
        return ABSENT
    if ttft.p99_s is None or ttft.few:
        return f"max {duration(ttft.max_s)}/{quantity(ttft.n)}"
    return f"{duration(ttft.p99_s)}/{quantity(ttft.n)}"
