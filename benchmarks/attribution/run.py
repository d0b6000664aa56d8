"""The command: plays incidents on a few processes, appends their rows, prints what they come to.

Owns files, processes and the budget. Rows are JSON lines, one an incident, appended as they come: a
run that is broken off goes on where it was. `--keep` keeps the simulations (rows of telemetry and
the runs without each player) so that another version of the attribution is judged in a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import sys
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path

from benchmarks.attribution.crowds import CROWD_KINDS, crowd_kind_of, make_crowd
from benchmarks.attribution.methods import judge
from benchmarks.attribution.scenarios import KINDS, Scenario, kind_of, make
from benchmarks.attribution.score import Row, Summary, groups, is_false, row, summarise, wilson
from benchmarks.attribution.told import window
from benchmarks.attribution.truth import Rows, Runs, play

HALVES = {"tuning": (0,), "reported": (1,), "both": (0, 1)}
SAY_EVERY_S = 10.0


def one(seed: int, keep: Path | None = None, crowd: bool = False) -> Row:
    """Make, play and judge the incident of a seed."""
    scenario = make_crowd(seed) if crowd else make(seed)
    rows, runs = _played(scenario, keep)
    return row(scenario, runs, judge(window(scenario, rows)))


def _played(scenario: Scenario, keep: Path | None) -> tuple[Rows, Runs]:
    if keep is None:
        return play(scenario)
    path = keep / f"{scenario.seed}-{_mark(scenario)}.z"
    if path.exists():
        tables, runs = pickle.loads(zlib.decompress(path.read_bytes()))
        rows = Rows()
        rows.tables = tables
        return rows, runs
    rows, runs = play(scenario)
    draft = path.with_suffix(".part")
    draft.write_bytes(zlib.compress(pickle.dumps((rows.tables, runs)), 1))
    draft.rename(path)  # whole, or not there
    return rows, runs


def _mark(scenario: Scenario) -> str:
    """Of what was played: another one under the same seed is played anew."""
    whole = repr((scenario.setup, scenario.players, scenario.calm, scenario.excess))
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def _job(given: tuple[int, Path | None, bool]) -> Row:
    return one(*given)


def read(path: Path) -> list[Row]:
    """The rows that are there; a line cut short by a kill is left out."""
    found: list[Row] = []
    if not path.exists():
        return found
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        try:
            found.append(Row.read(json.loads(line)))
        except json.JSONDecodeError:
            print(f"{path}: a line is cut short; its incident is played again", file=sys.stderr)
    return found


def run(
    seeds: Sequence[int],
    out: Path | None,
    *,
    processes: int = 2,
    budget_s: float = float("inf"),
    keep: Path | None = None,
    crowds: bool = False,
) -> list[Row]:
    """All rows of the seeds, those already in `out` among them; fewer where the budget is spent."""
    wanted = set(seeds)
    written = read(out) if out is not None else []
    done = [r for r in written if r.seed in wanted and (r.kind in CROWD_KINDS) == crowds]
    have = {r.seed for r in done}
    left = [(s, keep, crowds) for s in seeds if s not in have]
    if out is not None and left:
        _end_line(out)
    began = said = time.monotonic()
    for made in _results(left, processes, began + budget_s):
        done.append(made)
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made.dump(), allow_nan=False) + "\n")
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            print(f"{len(done)} of {len(seeds)}, {said - began:.0f} s", file=sys.stderr)
    return sorted(done, key=lambda r: r.seed)


def _end_line(path: Path) -> None:
    """What a kill has cut short stays a line of its own."""
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")


def _results(
    jobs: Sequence[tuple[int, Path | None, bool]], processes: int, until: float
) -> Iterable[Row]:
    if processes == 1:
        for job in jobs:
            if time.monotonic() >= until:
                return
            yield _job(job)
        return
    with get_context("spawn").Pool(processes) as pool:
        for made in pool.imap_unordered(_job, jobs):
            yield made
            if time.monotonic() >= until:
                return  # leaving the pool ends what is under way; its incidents come next time


# ---------------------------------------------------------------- what is printed


def _number(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.2f}"


def _of(k: int, n: int) -> str:
    low, high = wilson(k, n)
    part = f" = {k / n:.4f}" if n else ""
    return f"{k} of {n}{part} (95%: {low:.3f} to {high:.3f})"


def table(s: Summary) -> list[str]:
    lines = [
        f"{s.incidents} incidents: {s.culprits} with a culprit, {s.without} without, "
        f"{s.unclear} in between; abstained {s.abstained}; with a culprit and nobody found hurt "
        f"{s.missed}, hurt and nobody named {s.unnamed}",
        f"culprit first {_of(s.first, s.culprits - s.missed)}; "
        f"false accusations {_of(s.false, s.incidents)}",
        f"{'method':<18}{'first':>6}{'of all':>7}{'share error: mean':>19}{'median':>8}{'p90':>6}"
        f"{'n':>6}{'accused, none guilty':>22}{'an innocent':>13}",
    ]
    for f in s.figures:
        lines.append(
            f"{f.method:<18} {_number(f.first)}  {_number(f.first_of_all)}"
            f"{_number(f.error_mean):>19}   {_number(f.error_median)} {_number(f.error_p90)}"
            f"{f.errors:>6}{f.accused_none:>22}{f.accused_innocent:>13}"
        )
    return lines


def by_group(rows: Sequence[Row], by: str) -> list[str]:
    """One line a group, of ours."""
    lines = [f"{'by ' + by:<18}{'n':>4}{'culprit':>9}{'first':>7}{'of all':>8}{'error':>7}"
             f"{'abstained':>11}{'missed':>8}{'unnamed':>9}{'false':>7}"]  # fmt: skip
    for name, s in groups(rows, lambda r: str(getattr(r, by)) or "-").items():
        ours = s.figures[0]
        lines.append(
            f"{name:<18}{s.incidents:>4}{s.culprits:>9}  {_number(ours.first)}   "
            f"{_number(ours.first_of_all)}  {_number(ours.error_mean)}{s.abstained:>11}"
            f"{s.missed:>8}{s.unnamed:>9}{s.false:>7}"
        )
    return lines


def wrong(rows: Sequence[Row]) -> list[str]:
    """The incidents to look at: an innocent named, or the culprit not first."""
    lines = []
    for r in rows:
        ours = r.said["rung 2"]
        said = f"{r.seed:>5} {r.kind:<16} {r.policy:<11} {r.perturbed or '-':<12}"
        shares = ", ".join(f"{k} {v:.2f}" for k, v in sorted(r.shares.items(), key=lambda x: -x[1]))
        if is_false(r, "rung 2"):
            lines.append(f"{said} FALSE: {ours.named} named ({r.headline}); truth: {shares or '-'}")
        elif r.truth == "culprit" and r.judged and ours.first not in r.leaders:
            lines.append(f"{said} NOT FIRST: {ours.first}; truth: {shares}")
    return lines


def _kinds(text: str) -> tuple[str, ...]:
    chosen = tuple(k.strip() for k in text.split(","))
    for kind in chosen:
        if kind not in (*KINDS, *CROWD_KINDS):
            there = ", ".join((*KINDS, *CROWD_KINDS))
            raise argparse.ArgumentTypeError(f"no kind {kind!r}: there are {there}")
    return chosen


def main(args: Sequence[str] | None = None) -> int:
    """0: the aims are met, 1: one is missed, 2: usage, 130: interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attribution",
        description="Random incidents against their counterfactual truth: ours beside four rivals.",
        epilog="example: python -m benchmarks.attribution --incidents 500 --half reported "
        "--out rows.jsonl --keep played --budget-s 1500",
    )
    parser.add_argument("--incidents", type=int, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, default=0, help="the first one's (0)")
    parser.add_argument("--half", choices=tuple(HALVES), default="both",
                        help="even seeds are for tuning, odd ones are reported")  # fmt: skip
    parser.add_argument("--crowds", action="store_true",
                        help="100, 300 and 1,000 tenants; seeds are others there")  # fmt: skip
    listed = f"{', '.join(KINDS)}; of crowds: {', '.join(CROWD_KINDS)}"
    parser.add_argument("--kinds", type=_kinds, metavar="KIND,...", help=f"only these: {listed}")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="stop after (never)")
    parser.add_argument("--out", type=Path, help="rows, JSON lines; those there are not made again")
    parser.add_argument("--keep", type=Path, help="folder for what was simulated")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    given = parser.parse_args(args)
    if given.incidents < 1 or given.processes < 1:
        parser.error("--incidents and --processes: expected 1 or more")
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    kept = HALVES[given.half]
    step = 2 // len(kept)
    first = given.seed if given.seed % 2 in kept else given.seed + 1
    turns = (first + step * i for i in count())
    named, there = (crowd_kind_of, CROWD_KINDS) if given.crowds else (kind_of, KINDS)
    kinds = given.kinds or there
    if not set(kinds) <= set(there):
        parser.error(f"--kinds: expected some of {', '.join(there)}; --crowds has others")
    wanted = (seed for seed in turns if named(seed) in kinds)
    seeds = list(islice(wanted, given.incidents))
    try:
        rows = run(seeds, given.out, processes=given.processes, budget_s=given.budget_s,
                   keep=given.keep, crowds=given.crowds)  # fmt: skip
    except KeyboardInterrupt:
        print("interrupted; with --out it goes on from here next time", file=sys.stderr)
        return 130
    summary = summarise(rows)
    if given.json:
        parts = {"false_accusations": summary.false_accusations, "met": summary.met}
        print(json.dumps({**asdict(summary), **parts}, indent=2, allow_nan=False))
        return 0 if all(summary.met.values()) else 1
    for line in table(summary):
        print(line)
    for by in ("kind", "policy", "perturbed"):
        print()
        print("\n".join(by_group(rows, by)))
    print()
    print("\n".join([*wrong(rows), *(f"{'met' if ok else 'NOT MET'}: {aim}"
                                    for aim, ok in summary.met.items())]))  # fmt: skip
    return 0 if all(summary.met.values()) else 1
