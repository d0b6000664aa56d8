"""`kill -9` of a process that writes, closes, backs up or forgets: nothing acknowledged is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from telemetry.source import FileSource, StoreSource
from telemetry.store import backup
from telemetry.store.store import Store
from tests.telemetry.delivered import DAY_S, T0, batch, charge, deliver, minute, request

FIRST = "2027-01-15"
TENANTS = 20
ROOT = Path(__file__).parents[2]

# Each request is 20 tenants' rows of one bucket, half of the buckets a day later, and log rows.
_WRITER = """
import sys
from pathlib import Path
from telemetry.store import backup
from telemetry.store import forget
from telemetry.store.store import Store
from tests.telemetry.delivered import deliver
from tests.telemetry.test_store_kill import delivery
folder, first, act = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with Store.open(folder) as store:
    for n in range(first, 100_000):
        deliver(store, delivery(n))
        print("ack", n, flush=True)
        if act != "ingest" and n > first + 3:
            print("begin", n, flush=True)
            if act == "close":
                store.close_day("2027-01-15")
            elif act == "backup":
                backup.back_up(store, folder.parent / f"copy-{n}", 0.0)
            elif act == "forget":
                forget.forget(store, f"t{n % 20}")
            print("done", n, flush=True)
"""


def delivery(n: int) -> Any:
    at = T0 + 60 * (n // 2) + DAY_S * (n % 2)
    rows = [minute(f"t{t}", at, output_tokens=n, prompt_tokens=t) for t in range(TENANTS)]
    return batch(*rows, charge("t0", "t1", 1.0, at), request(n, at, tenant="kept"), seq=n + 1)


class Killed:
    """A writer killed after `lines` lines and a moment more; what it had said by then."""

    def __init__(
        self, folder: Path, first: int, act: str, lines: int, moment_s: float, word: str
    ) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(folder), str(first), act],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdout is not None
        said: list[str] = []
        try:
            while sum(s.startswith(word) for s in said) < lines:
                line = process.stdout.readline()
                assert line, f"the writer ended by itself after {said[-3:]}"
                said.append(line)
            # Anywhere inside what it does: the moment is drawn, not a rendezvous.
            time.sleep(moment_s)
        finally:
            process.send_signal(signal.SIGKILL)
            said += process.stdout.read().splitlines(keepends=True)
            process.wait()
            process.stdout.close()
        numbers = [s.split() for s in said if s.endswith("\n")]
        self.acknowledged = max(int(n) for what, n in numbers if what == "ack")
        self.begun = {int(n) for what, n in numbers if what == "begin"}
        self.done = {int(n) for what, n in numbers if what == "done"}


def check(source: Any, acknowledged: int, forgotten: frozenset[str] = frozenset()) -> int:
    """Every acknowledged batch is there once and whole; at most one more is. Returns the last."""
    found: dict[int, list[str]] = {}
    for row in source.read("tenant_minute", 0.0, float("inf")):
        found.setdefault(row.output_tokens, []).append(row.tenant)
    last = max(found, default=-1)
    assert sorted(found) == list(range(last + 1)), "lost"
    assert acknowledged <= last <= acknowledged + 1
    everybody = {f"t{t}" for t in range(TENANTS)}
    for n, tenants in found.items():
        assert len(tenants) == len(set(tenants)), f"doubled in {n}"
        assert everybody - forgotten <= set(tenants) <= everybody, f"torn: {n}"
    asked = [r.request_id for r in source.read("request", 0.0, float("inf"))]
    assert len(asked) == len(set(asked))
    assert {f"q{n}" for n in range(acknowledged + 1)} <= set(asked)
    waited = sum(r.charged_s for r in source.read("interference_minute", 0.0, float("inf")))
    if not forgotten:
        assert waited == last + 1
    return last


def kill_often(folder: Path, kills: int, seed: int) -> list[float]:
    """Kill a writer again and again; returns how long each reopening took."""
    random, reopened, last = Random(seed), [], -1
    for _ in range(kills):
        killed = Killed(
            folder, last + 1, "ingest", random.randint(1, 9), random.uniform(0, 0.02), "ack"
        )
        began = time.perf_counter()
        with Store.open(folder) as store:
            reopened.append(time.perf_counter() - began)
            last = check(StoreSource(store), killed.acknowledged)
            # Whoever heard no acknowledgement sends again: nothing doubles.
            for n in range(max(0, last - 2), last + 1):
                deliver(store, delivery(n))
            assert check(StoreSource(store), last) == last
    return reopened


def told(reopened: list[float]) -> None:
    print(
        f"\n{len(reopened)} kills: acknowledged-but-lost 0, torn 0, double 0; reopened in "
        f"{1e3 * sorted(reopened)[len(reopened) // 2]:.0f} ms (median), "
        f"{1e3 * max(reopened):.0f} ms (most)"
    )


def test_five_kills_during_ingest_lose_tear_and_double_nothing(tmp_path: Path) -> None:
    told(kill_often(tmp_path / "store", 5, seed=1))


@pytest.mark.full
def test_a_hundred_kills_during_ingest_lose_tear_and_double_nothing(tmp_path: Path) -> None:
    told(kill_often(tmp_path / "store", 100, seed=2))


def act_and_kill(tmp_path: Path, act: str, kills: int, seed: int) -> None:
    folder, random, last = tmp_path / "store", Random(seed), -1
    forgotten: frozenset[str] = frozenset()
    for _ in range(kills):
        # The drawn moment spreads over all of an act: the first takes tens of milliseconds.
        killed = Killed(
            folder, last + 1, act, random.randint(1, 3), random.uniform(0, 0.06), "begin"
        )
        if act == "forget":
            forgotten |= {f"t{n % TENANTS}" for n in killed.begun}
        check(FileSource(folder), killed.acknowledged, forgotten)
        with Store.open(folder) as store:
            last = check(StoreSource(store), killed.acknowledged, forgotten)
            # The kill may have come between the two requests of a batch: its sender sends it again.
            deliver(store, delivery(last))
        assert not (folder / "quarantine").exists()
        assert not [p for p in folder.glob(".*") if p.name != ".spill"]
        for n in killed.begun:
            copy = tmp_path / f"copy-{n}"
            assert copy.exists() or n not in killed.done or act != "backup"
            if copy.exists():
                backup.restore(copy, tmp_path / f"back-{n}")
                check(FileSource(tmp_path / f"back-{n}"), n)


@pytest.mark.parametrize("act", ["close", "backup", "forget"])
def test_a_kill_during_upkeep_loses_nothing(tmp_path: Path, act: str) -> None:
    act_and_kill(tmp_path, act, kills=1, seed=3)


@pytest.mark.full
@pytest.mark.parametrize("act", ["close", "backup", "forget"])
def test_twenty_kills_during_upkeep_lose_nothing(tmp_path: Path, act: str) -> None:
    act_and_kill(tmp_path, act, kills=20, seed=4)


def test_the_files_of_a_killed_writer_can_be_read_before_anyone_reopens_them(
    tmp_path: Path,
) -> None:
    killed = Killed(tmp_path / "store", 0, "ingest", 3, 0.0, "ack")
    check(FileSource(tmp_path / "store"), killed.acknowledged)
