"""Peers side by side: medians and ratios by cell, claims, the table. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.paired import Ratios, ratios
from benchmarks.peer_sides.read_off import Agreement, Rates

OURS, BASE = "ours", "vllm-base"
# How many times ours is to be faster; the least of both measures counts.
AIMS = {"peft-mixed": 4.0, "peft-one": 10.0, "vllm-lora": 3.5, "llama.cpp": 7.0, BASE: 1.1}


@dataclass(frozen=True, slots=True)
class Cell:
    """One load: so many streams at once over so many adapters (0: the base model)."""

    adapters: int
    streams: int


@dataclass(slots=True)
class Run:
    """What has been played so far, by cell and contender."""

    about: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    rates: dict[tuple[Cell, str], list[Rates]] = field(default_factory=dict)
    agrees: dict[tuple[Cell, str], list[Agreement]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A contender in a cell: medians over its rounds. Ratios: ours over it, None for ours."""

    contender: str
    cell: Cell
    decode_tokens_per_s: float
    end_to_end_tokens_per_s: float
    ttft_s: float
    window: bool  # its streams all decode at once
    decode_ratio: Ratios | None
    end_to_end_ratio: Ratios | None
    agrees: Agreement | None


def rows_of(run: Run, cells: Sequence[Cell]) -> list[Row]:
    """By cell, in the order of `cells`; ours first."""
    names = [OURS, *AIMS]
    found = sorted(run.rates, key=lambda at: (cells.index(at[0]), names.index(at[1])))
    return [_row(run, cell, name) for cell, name in found]


def _row(run: Run, cell: Cell, name: str) -> Row:
    seen, own = run.rates[cell, name], run.rates.get((cell, OURS), [])
    decode = end_to_end = None
    # Rounds stand side by side as long as both have played them.
    if name != OURS and (pairs := list(zip(own, seen, strict=False))):
        decode = ratios([(a.decode_tokens_per_s, b.decode_tokens_per_s) for a, b in pairs])
        end_to_end = ratios(
            [(a.end_to_end_tokens_per_s, b.end_to_end_tokens_per_s) for a, b in pairs]
        )
    return Row(
        name,
        cell,
        statistics.median(r.decode_tokens_per_s for r in seen),
        statistics.median(r.end_to_end_tokens_per_s for r in seen),
        statistics.median(r.ttft_s for r in seen),
        all(r.window for r in seen),
        decode,
        end_to_end,
        _all_of(run.agrees.get((cell, name), [])),
    )


def _all_of(seen: Sequence[Agreement]) -> Agreement | None:
    streams = sum(a.streams for a in seen)
    if not streams:
        return None
    return Agreement(
        streams,
        sum(a.same_first for a in seen),
        sum(a.mean_prefix * a.streams for a in seen) / streams,
        sum(a.same_whole for a in seen),
    )


def claims(rows: Sequence[Row]) -> list[tuple[bool, str]]:
    """Whether each aim is met at the most streams, in both measures; and that going one adapter at
    a time falls behind further as there are more of them."""
    out = []
    most = max((r.cell.streams for r in rows), default=0)
    judged = [r for r in rows if r.cell.streams == most and r.contender in AIMS]
    for r in judged:
        for what, ratio in (("decode", r.decode_ratio), ("end to end", r.end_to_end_ratio)):
            if ratio is None:
                continue
            aim = AIMS[r.contender]
            where = f"{r.cell.adapters} adapters" if r.cell.adapters else "base only"
            text = f"{r.contender}, {where}, {most} streams, {what}: x {shown(ratio)} (aim {aim:g})"
            out.append((ratio.median >= aim, text))
    one = [(r.cell.adapters, r.decode_ratio) for r in judged if r.contender == "peft-one"]
    for (few, less), (many, more) in itertools.pairwise(one):
        if less is not None and more is not None:
            text = f"peft-one falls behind further with {many} adapters than with {few}"
            out.append((more.median > less.median, text))
    return out


def shown(r: Ratios) -> str:
    """The median, and its interval where there are several rounds."""
    if r.pairs == 1:
        return f"{r.median:.2f}"
    return f"{r.median:.2f} ({r.low:.2f}-{r.high:.2f})"


def table(rows: Sequence[Row]) -> list[str]:
    """What a person reads."""
    lines: list[str] = []
    cell = None
    for r in rows:
        if r.cell != cell:
            cell = r.cell
            what = f"{cell.adapters} adapters" if cell.adapters else "base only"
            lines += [
                "",
                f"{what + ', ' + str(cell.streams) + ' streams':<26}{'decode':>8}{'end to end':>12}"
                f"{'TTFT s':>8}   {'ours / it: decode':<21}{'end to end':<21}same first, prefix",
            ]
        same = ""
        if r.agrees is not None:
            same = f"{r.agrees.same_first} of {r.agrees.streams}, {r.agrees.mean_prefix:.0%}"
        told = ["" if x is None else shown(x) for x in (r.decode_ratio, r.end_to_end_ratio)]
        lines.append(
            f"  {r.contender + ('' if r.window else '*'):<24}{r.decode_tokens_per_s:>8.0f}"
            f"{r.end_to_end_tokens_per_s:>12.0f}{r.ttft_s:>8.2f}   {told[0]:<21}{told[1]:<21}{same}"
        )
    if any(not r.window for r in rows):
        lines += ["", "* its streams do not all decode at once: tokens after each stream's first"]
    return lines
