"""Records the incidents' stores by simulation, and checks them. Owns no incident.

    python -m sample_incidents.record                    all of them
    python -m sample_incidents.record five-pm-contexts   this one
    python -m sample_incidents.record --check            compare rows with those that are here

Rows are compared, not bytes: how Parquet packs them is nobody's business. A store recorded by the
demo on a real engine is left as it is.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sample_incidents import IncidentError, incident_path, list_incidents
from sample_incidents.expected import read_expected

CLOSE = 1e-6  # of two numbers that are the same but for rounding
EVER = (-math.inf, math.inf)


def record(name: str, target: Path) -> None:
    """Simulate the incident's workload and write its telemetry, as Parquet, to a new folder.

    Raises WorkloadError for a workload that cannot be read or played, StoreError for a folder
    that has something in it.
    """
    from engine.simulation.setup import make_setup
    from engine.simulation.simulate import simulate
    from engine.simulation.store_out import StoreOut
    from engine.simulation.workload import read_workload
    from telemetry.store.store import Store

    workload = read_workload(incident_path(name) / "workload.toml")
    with tempfile.TemporaryDirectory(prefix="tenantscope-") as folder:
        raw = Path(folder) / "store"
        with StoreOut(raw) as rows:
            simulate(workload.stream(), make_setup(workload), rows=rows)
        with Store.open(raw) as store:
            store.export(target)


def differences(recorded: Path, fresh: Path) -> Iterator[str]:
    """What differs between the rows of two stores, a sentence each, table by table."""
    from telemetry.source import open_source
    from telemetry.tables import TABLES

    old, new = open_source(str(recorded)), open_source(str(fresh))
    try:
        for table in TABLES:
            before = sorted(old.read(table, *EVER), key=_order)
            after = sorted(new.read(table, *EVER), key=_order)
            if len(before) != len(after):
                yield f"{table}: {len(before)} rows are recorded, {len(after)} were made"
                continue
            for a, b in zip_longest(before, after):
                if (said := _differs(a, b)) is not None:
                    yield f"{table}: {said}"
                    break
    finally:
        old.close()
        new.close()


def _order(row: Any) -> tuple[str, ...]:
    """By the row's names and instants: numbers may differ in the last digit."""
    instants = ("bucket_start", "at", "arrived", "step", "version")
    keys = [getattr(row, f.name) for f in fields(row)]
    first = [f"{getattr(row, i):020.3f}" for i in instants if hasattr(row, i)]
    return (*first, *(k for k in keys if isinstance(k, str)))


def _differs(a: Any, b: Any) -> str | None:
    for f in fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if f.name == "config" and x and y:
            x, y = json.loads(x), json.loads(y)
            y = of_then(x, y)
        if f.name == "costs" and x and y:
            x, y = json.loads(x), json.loads(y)
        if not _same(x, y):
            return f"{f.name} is recorded as {x!r}, made as {y!r} (in {_order(a)[:3]})"
    return None


def _same(x: Any, y: Any, least: float = CLOSE) -> bool:
    """Numbers may differ in the last digits, those of fitted costs too: libraries add up in orders
    of their own. Below `least` two are the same; costs of a token are smaller than that."""
    if isinstance(x, float) and isinstance(y, float):
        return x == y or math.isclose(x, y, rel_tol=CLOSE, abs_tol=least)
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(_same(v, y[k], 0.0) for k, v in x.items())
    return bool(x == y)


def of_then(recorded: Any, made: Any) -> Any:
    """Settings without those that the recording's version did not know: they are no difference."""
    if isinstance(recorded, dict) and isinstance(made, dict):
        return {k: of_then(recorded[k], v) for k, v in made.items() if k in recorded}
    if isinstance(recorded, list) and isinstance(made, list) and len(recorded) == len(made):
        return [of_then(a, b) for a, b in zip(recorded, made, strict=True)]
    return made


def check(name: str) -> list[str]:
    """What the recorded store says otherwise than a fresh one; empty = nothing."""
    with tempfile.TemporaryDirectory(prefix="tenantscope-") as folder:
        fresh = Path(folder) / "fresh"
        record(name, fresh)
        return list(differences(incident_path(name) / "store", fresh))


def main(args: Sequence[str] | None = None) -> int:
    """0 done, 1 a store differs, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="python -m sample_incidents.record",
        description="Record the incidents' stores by simulation, or check them.",
        epilog="example: python -m sample_incidents.record --check quiet-day",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which incidents (all)")
    parser.add_argument("--check", action="store_true", help="compare rows, write nothing")
    given = parser.parse_args(args)
    try:
        chosen = [read_expected(n) for n in given.names or list_incidents()]
    except IncidentError as e:
        print(f"record: {e}", file=sys.stderr)
        return 2
    failed = False
    for expected in chosen:
        if expected.recorded != "simulate":
            print(f"{expected.name}: recorded by the demo, left as it is", file=sys.stderr)
            continue
        if given.check:
            found = check(expected.name)
            failed = failed or bool(found)
            for line in found or ["as recorded"]:
                print(f"{expected.name}: {line}")
            continue
        with tempfile.TemporaryDirectory(prefix="tenantscope-") as folder:
            record(expected.name, Path(folder) / "store")  # the old one stays where this fails
            shutil.rmtree(expected.store, ignore_errors=True)
            shutil.copytree(Path(folder) / "store", expected.store)
        size = sum(f.stat().st_size for f in expected.store.rglob("*.parquet"))
        print(f"{expected.name}: {size / 1000:.0f} kB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
