"""How soon the console's verdict line is right: time from the onset to it, beside the first miss.

    PYTHONPATH=. python -m benchmarks.verdict_time [NAME ...] [--until-s 600] [--json]

Each sample incident is played again. Every 10 s the rows that an engine had sent by then (buckets
of a minute of which the open one leaves every 10 s) are handed to the judge of the console's first
screen, with nothing else. *Right* is the verdict that the folder promises: its kind and exactly its
names. *Wrong* is a name that the folder does not give, at any moment from two minutes before the
onset on; whoever hurts only itself is no culprit of others. An abstention is never wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC
from typing import Any

from benchmarks.sample_verdicts import played
from console.judge import LiveJudge
from console.panels import VerdictLines
from console.rows import Rows, Source, read_rows
from engine.config import Slo
from engine.simulation.workload import read_workload
from sample_incidents import IncidentError, incident_path, list_incidents
from sample_incidents.expected import Expected, read_expected
from telemetry.conventions import Kind
from telemetry.records import RequestRecord
from telemetry.window import combine

HISTORY_S = 900.0  # of rows before now: as much as the console keeps
EVERY_S = 10.0  # how often an open bucket leaves, and how often the judge is asked
MINUTE_S = 60.0
BEFORE_S = 120.0  # of the onset: from here on a wrong name counts
# What the console's lines say, by the kind that a folder promises.
WORDS = {
    "capacity": ("LOST CAPACITY", "FROZEN"),
    "self": ("SELF-INFLICTED",),
    "everyone": ("EVERYONE grew",),
    "no_single": ("NO SINGLE TENANT",),
    "quiet": ("QUIET",),
}


@dataclass(frozen=True, slots=True)
class Told:
    """One incident; seconds since its onset (of the quiet day: since its window's beginning), None
    = never. `right_s`: the first right verdict; `wrong`: instants at which somebody was named who
    did not do it, and whom, of `asked` instants in all; `before`: what was said until it was right,
    in order."""

    name: str
    kind: str
    miss_s: float | None
    right_s: float | None
    asked: int
    right: int
    wrong: tuple[tuple[float, str], ...]
    before: tuple[str, ...]


def at_most_open(rows: Rows) -> Rows:
    """Rows of ten seconds as what an engine has sent of them: buckets of a minute, of which the
    last is open. Averages weigh by time, and where a tenant had no row it was idle."""
    seen: dict[float, float] = {}
    engines = _by_minute(rows.engines, lambda r: (r.engine, r.run_id, r.pool))
    for row in engines:
        seen[row.bucket_start] = max(seen.get(row.bucket_start, 0.0), row.observed_seconds)
    tenants = _by_minute(rows.tenants, lambda r: (r.engine, r.run_id, r.pool, r.tenant))
    return replace(
        rows,
        engines=tuple(engines),
        tenants=tuple(_over_all(r, seen.get(r.bucket_start, MINUTE_S)) for r in tenants),
        interference=tuple(replace(r, bucket_start=_minute(r), bucket_s=MINUTE_S)
                           for r in rows.interference),
    )  # fmt: skip


def _minute(row: Any) -> float:
    return float(row.bucket_start // MINUTE_S * MINUTE_S)


def _by_minute(rows: Sequence[Any], key: Any) -> list[Any]:
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault((_minute(row), *key(row)), []).append(row)
    return [
        replace(
            combine(group),
            bucket_start=minute,
            bucket_s=MINUTE_S,
            observed_seconds=sum(EVERY_S if r.observed_seconds is None else r.observed_seconds
                                 for r in group),
        )
        for (minute, *_), group in groups.items()
    ]  # fmt: skip


def _over_all(row: Any, seen_s: float) -> Any:
    """A tenant's averages over all the time the engine was seen, not only over its own rows."""
    part = min(1.0, row.observed_seconds / seen_s) if seen_s else 1.0
    levels = {
        f.name: value * part
        for f in fields(row)
        if f.metadata["kind"] is Kind.AVG and (value := getattr(row, f.name)) is not None
    }
    return replace(row, observed_seconds=seen_s, **levels)


def verdicts(
    rows: Source, start: float, end: float, every_s: float = EVERY_S
) -> Iterator[tuple[float, VerdictLines]]:
    """What the first screen says at every instant from `start` to `end`."""
    judge = LiveJudge(tz=UTC)
    now = start
    while now <= end:
        # The history begins with a whole minute.
        known = read_rows(rows, (now - HISTORY_S) // MINUTE_S * MINUTE_S, now).as_of(now)
        yield now, judge(at_most_open(known), now)
        now += every_s


def named(lines: VerdictLines) -> frozenset[str]:
    """Everybody whom a verdict calls the one that did it, or one of them."""
    if lines.named is not None:
        return frozenset((lines.named,))
    for line in lines.lines:
        if line.startswith("NO SINGLE TENANT") and " do: " in line:
            return frozenset(re.findall(r"(\S+) <?\d+%", line.partition(" do: ")[2]))
    return frozenset()


def is_right(expected: Expected, lines: VerdictLines) -> bool:
    said = "\n".join(lines.lines)
    if expected.kind == "tenant":
        return named(lines) == set(expected.who)
    if not any(word in said for word in WORDS[expected.kind]):
        return False
    return named(lines) == (set(expected.who) if expected.kind == "no_single" else set())


def first_miss(
    rows: Source, targets: Mapping[str, Slo], since: float, end: float, without: Collection[str]
) -> float | None:
    """The instant from `since` on at which the first target passes of anybody not at fault."""
    found = [at for r in rows.read("request", 0.0, end) if r.tenant not in without
             for at in _passed(r, targets[r.tenant])]  # fmt: skip
    return min((at for at in found if at >= since), default=None)


def _passed(request: RequestRecord, target: Slo) -> Iterator[float]:
    if request.missed_ttft and target.ttft_s is not None:
        yield request.arrived + target.ttft_s
    elif request.missed_gap and request.ended is not None:
        yield request.ended  # when in its life the gap was is not kept


def told(expected: Expected, rows: Source, until_s: float) -> Told:
    """Ask the console's judge about an incident's rows until its window ends."""
    workload = read_workload(incident_path(expected.name) / "workload.toml")
    onset = expected.onset if expected.onset is not None else expected.window[0]
    end = min(onset + until_s, expected.window[1])
    own = () if expected.kind == "self" else expected.who
    missed = first_miss(rows, {t.name: t.slo for t in workload.tenants}, onset, end, own)
    may = set(expected.who) if expected.kind in ("tenant", "no_single") else set()
    wrong: list[tuple[float, str]] = []
    before: list[str] = []
    right_s: float | None = None
    asked = right = 0
    for now, lines in verdicts(rows, onset - BEFORE_S, end):
        at_s = now - onset
        asked += 1
        wrong += [(at_s, tenant) for tenant in sorted(named(lines) - may)]
        good = is_right(expected, lines)
        right += good
        if good and right_s is None and at_s >= 0:
            right_s = at_s
        said = _short(lines)
        if right_s is None and said not in before[-1:]:
            before.append(said)
    return Told(
        expected.name, expected.kind, None if missed is None else missed - onset, right_s, asked,
        right, tuple(wrong), tuple(before),
    )  # fmt: skip


def _short(lines: VerdictLines) -> str:
    """The words in capitals that a verdict begins with, and whom it names."""
    for line in lines.lines:
        found = re.match(r"[A-Z][A-Z -]+[A-Z]", line)
        if found:
            return " ".join([found.group(), *sorted(named(lines))])
    return "counts"


def _s(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} s"


def _row(t: Told) -> str:
    wrong = "; ".join(f"{tenant} at {at:+.0f} s" for at, tenant in t.wrong) or "none"
    return (
        f"{t.name:24} {t.kind:9} {_s(t.miss_s):>10} {_s(t.right_s):>10} "
        f"{t.right:>4} of {t.asked:<4} {' > '.join(t.before) or '-'}; wrong names: {wrong}"
    )


def main(args: Sequence[str] | None = None) -> int:
    """0 nobody was named wrongly, 1 somebody was, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verdict_time",
        description="Time from the onset to the right verdict line, beside the first miss.",
        epilog="example: python -m benchmarks.verdict_time self-inflicted --until-s 300",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="sample incidents (all simulated)")
    parser.add_argument("--until-s", type=float, default=600.0,
                        help="how long after the onset it is asked (600)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one object an incident")
    given = parser.parse_args(args)
    try:
        chosen = [read_expected(n) for n in given.names or list_incidents()]
    except IncidentError as e:
        print(f"verdict_time: {e}", file=sys.stderr)
        return 2
    if not given.json:
        print(f"{'incident':24} {'kind':9} {'first miss':>10} {'right':>10} {'right':>4} instants "
              "said before")  # fmt: skip
    bad = 0
    for expected in chosen:
        if expected.recorded != "simulate":
            print(f"{expected.name}: recorded, not simulated; left out", file=sys.stderr)
            continue
        found = told(expected, played(expected.name, EVERY_S), given.until_s)
        bad += bool(found.wrong)
        print(json.dumps(asdict(found), allow_nan=False) if given.json else _row(found), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
