"""The verdict on every recorded incident: at its own window, three buckets earlier and later, and
twice as wide. Prints a table; exit code 1 where one says otherwise than `expected.toml`.

    PYTHONPATH=. python -m benchmarks.sample_verdicts
    PYTHONPATH=. python -m benchmarks.sample_verdicts two-culprits --own --lines
    PYTHONPATH=. python -m benchmarks.sample_verdicts --bucket-s 10 --json

Three buckets are three minutes where a bucket is a minute; a recording with buckets of ten seconds
is over before three minutes are. With `--bucket-s` the incidents that were simulated are played
again with such buckets, and their windows moved by three minutes all the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC

from benchmarks.kept_rows import Kept
from engine.simulation.setup import make_setup
from engine.simulation.simulate import simulate
from engine.simulation.workload import read_workload
from sample_incidents import IncidentError, incident_path, list_incidents
from sample_incidents.expected import Expected, read_expected
from telemetry.case import open_case
from telemetry.findings import examine
from telemetry.plain import clock, percent
from telemetry.source import open_source
from telemetry.verdict import Verdict, judge_case
from telemetry.window import Reads, read_window

SHIFT_BUCKETS, SHIFT_S = 3, 180.0
# What `causes` of expected.toml are called among the findings; one of them has to hold.
FINDINGS: dict[str, tuple[str, ...]] = {
    "kv": ("kv_pressure",),
    "slot": ("slot_queueing",),
    "budget": ("budget_queueing",),
    "adapter": ("adapter_thrash",),
    "stall": ("long_prefill",),
    "preemption": ("preemption_storm",),
    "own_limits": ("own_limits",),
    "retry_storm": ("retry_storm",),
    "fixed_window": ("fixed_window",),
    "slow_engine": ("engine",),
    "lost_engine": ("lost_engine",),
    "frozen_engine": ("frozen",),
    "change": ("change",),
    "growth": ("everyone", "own_growth"),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One verdict on one window of one incident. `wrong` says what is not as expected."""

    incident: str
    window: str
    kind: str
    named: tuple[str, ...]
    confidence: str | None
    share: float | None
    onset_off_s: float | None
    victims: int
    causes: tuple[str, ...]
    judge_s: float
    wrong: tuple[str, ...]


def windows(expected: Expected, shift: float) -> dict[str, tuple[float, float]]:
    """The four windows by name."""
    start, end = expected.window
    half = (end - start) / 2
    return {
        "own": (start, end),
        "earlier": (start - shift, end - shift),
        "later": (start + shift, end + shift),
        "wide": (start - half, end + half),
    }


def judge_incident(
    expected: Expected, only: Sequence[str] = (), bucket_s: float | None = None
) -> Iterator[tuple[Judged, Verdict]]:
    """Judge the recorded rows, or with `bucket_s` those of the incident played again in buckets of
    that length; `only` names the windows, all where it is empty."""
    if bucket_s is not None:
        yield from _judge_rows(expected, played(expected.name, bucket_s), SHIFT_S, only)
        return
    source = open_source(str(expected.store))
    try:
        length = read_window(source, *expected.window).bucket_s
        yield from _judge_rows(expected, source, SHIFT_BUCKETS * length, only)
    finally:
        source.close()


def played(name: str, bucket_s: float) -> Kept:
    """The rows of a simulated incident, in buckets of that length."""
    workload = read_workload(incident_path(name) / "workload.toml")
    rows = Kept()
    simulate(workload.stream(), replace(make_setup(workload), bucket_s=bucket_s), rows=rows)
    return rows


def _judge_rows(
    expected: Expected, rows: Reads, shift_s: float, only: Sequence[str]
) -> Iterator[tuple[Judged, Verdict]]:
    for name, (start, end) in windows(expected, shift_s).items():
        if only and name not in only:
            continue
        window = read_window(rows, start, end)
        begun = time.perf_counter()
        case = open_case(window)
        verdict = judge_case(case, examine(case), zone=UTC)
        took = time.perf_counter() - begun
        yield _judged(expected, name, verdict, took), verdict


def _judged(expected: Expected, window: str, verdict: Verdict, took_s: float) -> Judged:
    named = tuple(n.tenant for n in verdict.culprits) or (
        (verdict.tenant,) if verdict.tenant is not None else ()
    )
    off = None
    if verdict.onset is not None and expected.onset is not None:
        off = verdict.onset - expected.onset
    held = tuple(f.name for f in verdict.findings if f.holds.value == "yes")
    return Judged(
        expected.name,
        window,
        verdict.kind,
        named,
        verdict.confidence,
        verdict.share,
        off,
        len(verdict.victims),
        held,
        took_s,
        tuple(_wrong(expected, verdict, named, off, held)),
    )


def _wrong(
    expected: Expected,
    verdict: Verdict,
    named: tuple[str, ...],
    off_s: float | None,
    held: tuple[str, ...],
) -> Iterator[str]:
    if verdict.kind != expected.kind:
        yield f"kind {verdict.kind}, not {expected.kind}"
    if set(named) != set(expected.who):
        yield f"names {', '.join(named) or 'nobody'}, not {', '.join(expected.who) or 'nobody'}"
    accused = set(named) & set(expected.innocent)
    if accused:
        yield f"accuses {', '.join(sorted(accused))}"
    hurt = {v.tenant for v in verdict.hurt}
    missing = set(expected.whom) - hurt
    if missing:
        yield f"does not see {', '.join(sorted(missing))} hurt"
    if (expected.onset is None) != (verdict.onset is None):
        yield "an onset" if expected.onset is None else "no onset"
    elif off_s is not None and abs(off_s) > expected.tolerance_s:
        yield f"onset {off_s:+.0f} s off"
    for cause in expected.causes:
        if not set(FINDINGS[cause]) & set(held):
            yield f"cause {cause} not found"


def _row(j: Judged) -> str:
    off = "-" if j.onset_off_s is None else f"{j.onset_off_s:+.0f}s"
    share = "-" if j.share is None else percent(j.share)
    return (
        f"{j.incident:24} {j.window:8} {j.kind:9} {', '.join(j.named) or '-':14} "
        f"{j.confidence or '-':6} {share:>5} {off:>6} {j.victims:>4} {1000 * j.judge_s:>6.0f}ms  "
        f"{'; '.join(j.wrong) or 'as expected'}"
    )


def main(args: Sequence[str] | None = None) -> int:
    """0 all as expected, 1 one is not, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sample_verdicts",
        description="Verdicts on the recorded incidents beside what they ought to be.",
        epilog="example: python -m benchmarks.sample_verdicts two-culprits --own --lines",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which incidents (all)")
    parser.add_argument("--own", action="store_true", help="at their own windows only")
    parser.add_argument("--bucket-s", type=float, metavar="S",
                        help="play again in buckets of so many seconds (as recorded)")  # fmt: skip
    parser.add_argument("--lines", action="store_true", help="print what the verdict says")
    parser.add_argument("--json", action="store_true", help="one object a verdict")
    given = parser.parse_args(args)
    if given.bucket_s is not None and not 1.0 <= given.bucket_s <= 60.0:
        parser.error(f"--bucket-s: expected 1 to 60 seconds, got {given.bucket_s:g}")
    try:
        chosen = [read_expected(n) for n in given.names or list_incidents()]
    except IncidentError as e:
        print(f"sample_verdicts: {e}", file=sys.stderr)
        return 2
    wrong = total = 0
    if not given.json:
        print(f"{'incident':24} {'window':8} {'kind':9} {'named':14} {'conf':6} {'share':>5} "
              f"{'onset':>6} {'hurt':>4} {'judged':>8}")  # fmt: skip
    for expected in chosen:
        if given.bucket_s is not None and expected.recorded != "simulate":
            print(f"{expected.name}: not simulated; left out", file=sys.stderr)
            continue
        only = ("own",) if given.own else ()
        for judged, verdict in judge_incident(expected, only, given.bucket_s):
            total += 1
            wrong += bool(judged.wrong)
            print(json.dumps(asdict(judged)) if given.json else _row(judged))
            if given.lines and not given.json:
                _say(verdict)
    print(f"{total - wrong} of {total} verdicts as expected", file=sys.stderr)
    return 1 if wrong else 0


def _say(verdict: Verdict) -> None:
    for line in verdict.lines():
        print(f"    {line}")
    for cause in verdict.causes:
        part = "" if cause.share is None else f" {percent(cause.share)}"
        print(f"    cause {cause.name}{part} ({cause.holds}): {cause.sentence}")
    for f in verdict.findings:
        if f.holds.value != "yes":
            print(f"    {f.holds} {f.name}: {f.sentence}")
    if verdict.onset is not None and verdict.end is not None:
        print(f"    {clock(verdict.onset, UTC)} to {clock(verdict.end, UTC)}")


if __name__ == "__main__":
    sys.exit(main())
