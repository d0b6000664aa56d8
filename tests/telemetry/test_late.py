"""Rows for a day that is closed are merged into it, at once and exactly, whoever is killed when;
rows of days that are kept no more, and of the future, are refused with the reason."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from telemetry.conventions import Emitter
from telemetry.otlp import encode
from telemetry.service.client import StoreClient
from telemetry.service.listen import Listen
from telemetry.service.process import Options, StoreServer, run
from telemetry.source import FileSource, StoreSource
from telemetry.store import upkeep
from telemetry.store.late import GRACE_S
from telemetry.store.store import Receipt, Store
from tests.telemetry.delivered import (
    ADAPTER_ROW,
    DAY_S,
    RUN_ROW,
    T0,
    batch,
    charge,
    deliver,
    engine_minute,
    event,
    everything,
    minute,
    request,
    until,
)
from tests.telemetry.foreign_requests import OUTPUT, gauge, metrics_request, total

FIRST = "2027-01-15"
ROOT = Path(__file__).parents[2]


def closed(folder: Path) -> None:
    """A store whose first day is closed: one minute of two tenants, half told."""
    with Store.open(folder) as store:
        deliver(
            store,
            batch(
                minute("a", output_tokens=5),
                minute("b", output_tokens=7),
                engine_minute(steps=3),
                charge("a", "b", 1.0),
                request(1),
                sealed=False,
            ),
            batch(minute("a", offered_requests=2), emitter=Emitter.FRONT),
        )
        store.close_day(FIRST)


LATE = batch(
    minute("a", output_tokens=9),
    minute("c", T0 + 60, output_tokens=1),
    engine_minute(steps=4),
    charge("a", "c", 2.0),
    request(2),
    seq=2,
)
WHOLE = {
    "tenant_minute": [
        minute("a", output_tokens=9, offered_requests=2),
        minute("b", output_tokens=7),
        minute("c", T0 + 60, output_tokens=1),
    ],
    "engine_minute": [engine_minute(steps=4)],
    "interference_minute": [charge("a", "c", 2.0)],
    "request": [request(1), request(2)],
}


def found(source: object) -> dict[str, list[object]]:
    rows = everything(source)
    return {t: sorted(rows[t], key=repr) for t in WHOLE}


def test_late_rows_are_merged_like_any_others_and_seen_at_once(tmp_path: Path) -> None:
    closed(tmp_path / "store")
    with Store.open(tmp_path / "store") as store:
        deliver(store, LATE)
        assert found(StoreSource(store)) == WHOLE
        deliver(store, LATE)
        store.close_day(FIRST)
        assert found(StoreSource(store)) == WHOLE
    assert found(FileSource(tmp_path / "store")) == WHOLE


def test_an_older_state_that_is_late_changes_nothing(tmp_path: Path) -> None:
    closed(tmp_path / "store")
    with Store.open(tmp_path / "store") as store:
        deliver(store, LATE)
        store.close_day(FIRST)
        deliver(store, batch(minute("a", output_tokens=5), sealed=False))
        assert found(StoreSource(store)) == WHOLE


# Each place at which a process can end while it opens a closed day again.
_DIES = """
import os, sys
from pathlib import Path
from telemetry.store import ingest
from telemetry.store import parts
from telemetry.otlp import encode
from telemetry.store.store import Store
from tests.telemetry.test_late import LATE

def die(*_): os._exit(9)

where = sys.argv[2]
if where == "loading":
    parts.sync = die
elif where == "loaded":
    create = parts.create
    def create_and_die(*a): create(*a); die()
    parts.create = create_and_die
elif where == "removing":
    parts.remove_folder = die
elif where == "merging":
    ingest.merge = die
store = Store.open(Path(sys.argv[1]))
if where == "closing again":
    for data, take in zip(encode(LATE), (store.ingest_metrics, store.ingest_logs)):
        take(data)
    parts.remove_file = die
    store.close_day("2027-01-15")
elif where == "writing again":
    for data, take in zip(encode(LATE), (store.ingest_metrics, store.ingest_logs)):
        take(data)
    parts.write_table = die
    store.close_day("2027-01-15")
else:
    store.ingest_metrics(encode(LATE)[0])
"""


@pytest.mark.parametrize(
    "where",
    [
        "removing",
        "writing again",
        *(
            pytest.param(where, marks=pytest.mark.full)
            for where in ("loading", "loaded", "merging", "closing again")
        ),
    ],
)
def test_a_process_that_ends_in_the_middle_neither_loses_nor_doubles(
    tmp_path: Path, where: str
) -> None:
    folder = tmp_path / "store"
    closed(folder)
    before = found(FileSource(folder))
    done = subprocess.run(
        [sys.executable, "-c", _DIES, str(folder), where],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 9, done.stderr
    acknowledged = where in ("writing again", "closing again")
    assert found(FileSource(folder)) == (WHOLE if acknowledged else before)
    with Store.open(folder) as store:
        deliver(store, LATE)
        assert found(StoreSource(store)) == WHOLE
    assert not list(folder.glob(".*.opening*"))


def test_a_day_opened_by_late_rows_is_not_closed_between_two_of_them(tmp_path: Path) -> None:
    closed(tmp_path / "store")
    now = T0 + 5 * DAY_S
    with Store.open(tmp_path / "store") as store:
        for turn in range(4):
            deliver(store, batch(request(10 + turn)))
            assert store.close_old_days(now + 60 * turn) == []
        last = now + 60 * 3
        assert store.close_old_days(last + GRACE_S - 1) == []
        assert store.close_old_days(last - 3_600) == [], "the clock was set back"
        assert store.close_old_days(last - 3_600 + GRACE_S) == [FIRST]
        assert len(StoreSource(store).read("request", 0.0, float("inf"))) == 5


def test_a_day_that_just_ends_is_closed_at_the_first_look(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        deliver(store, batch(request(1)))
        assert store.close_old_days(T0 + 5 * DAY_S) == [FIRST]


# --- dates ---------------------------------------------------------------------------------------


class Clock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def offer(store: Store, *rows: object, **how: object) -> list[Receipt]:
    metrics, logs = encode(batch(*rows, **how))  # type: ignore[arg-type]
    receipts = [store.ingest_metrics(metrics)] if metrics else []
    return receipts + ([store.ingest_logs(logs)] if logs else [])


def test_a_day_that_is_kept_no_more_is_refused_table_by_table(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", Clock(T0 + 100 * DAY_S)) as store:
        one, two = offer(
            store,
            minute("a", output_tokens=5, prompt_tokens=6),
            charge("a", "b", 1.0),
            request(1),
            event(1),
        )
        assert (one.accepted, one.refused, two.accepted, two.refused) == (2, 1, 1, 1)
        assert one.reasons == (
            "interference_minute: 2027-01-15 is over, its rows are kept for 90 days",
        )
        kept = {t: len(rows) for t, rows in everything(StoreSource(store)).items() if rows}
        assert kept == {"tenant_minute": 1, "event": 1}


def test_what_is_taken_is_not_dropped_at_the_next_turn_of_the_day(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "settings.toml").write_text("[retention]\nrequest = 3\n")
    clock = Clock(T0 + 3 * DAY_S)
    with Store.open(folder, clock) as store:
        assert offer(store, request(1))[0].accepted == 1
        upkeep.turn_of_day(store, clock(), None)
        assert len(StoreSource(store).read("request", 0.0, float("inf"))) == 1
        clock.now_s += DAY_S
        [late] = offer(store, request(2))
        assert late.reasons == ("request: 2027-01-15 is over, its rows are kept for 3 days",)


def test_rows_of_the_future_are_refused_and_a_clock_set_back_is_no_reason(tmp_path: Path) -> None:
    clock = Clock(T0)
    with Store.open(tmp_path / "store", clock) as store:
        [ahead] = offer(store, minute("a", T0 + DAY_S + 60, output_tokens=5, prompt_tokens=1))
        assert (ahead.accepted, ahead.refused, ahead.rows) == (0, 2, 0)
        assert ahead.reasons == (
            "tenant_minute: 2027-01-16 is more than a day ahead of the store's clock "
            "(2027-01-15): set the sender's clock",
        )
        assert offer(store, minute("a", T0 + DAY_S - 60, output_tokens=5))[0].accepted == 1
        clock.now_s -= DAY_S / 2
        assert offer(store, minute("b", T0 - 60, output_tokens=5))[0].accepted == 1


def test_foreign_and_generic_points_are_held_to_the_same_dates(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", Clock(T0)) as store:
        data = metrics_request(
            gauge("x", ({}, T0 - 9 * DAY_S, 1.0), ({}, T0 + 2 * DAY_S, 1.0)),
            total(OUTPUT, ("a", T0 + 2 * DAY_S, T0 + 2 * DAY_S + 1, 5)),
            total(OUTPUT, ("a", T0 - 9 * DAY_S, T0 - 9 * DAY_S + 1, 5)),
        )
        receipt = store.ingest_metrics(data)
        assert (receipt.refused, receipt.kept, receipt.accepted) == (4, 0, 0)
        assert len(receipt.reasons) == 4


def test_without_a_clock_any_date_is_taken(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        assert offer(store, minute("a", 86_400.0 * 365, output_tokens=1))[0].accepted == 1
        assert offer(store, minute("a", T0 * 3, output_tokens=1))[0].accepted == 1


def test_runs_have_no_date_to_be_held_to(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", Clock(T0 + 4_000 * DAY_S)) as store:
        [receipt] = offer(store, RUN_ROW, ADAPTER_ROW)
        assert (receipt.accepted, receipt.refused) == (2, 0)


def test_a_store_process_holds_rows_to_its_clock_unless_told_not_to(tmp_path: Path) -> None:
    ahead = encode(batch(minute("a", time.time() + 3 * DAY_S, output_tokens=5)))[0]
    refused = {}
    for any_date in (False, True):
        options = Options(
            tmp_path / f"store-{any_date}", (Listen("127.0.0.1:0"),), any_date=any_date
        )
        stop = threading.Event()
        servers: list[StoreServer] = []

        def ready(server: StoreServer, servers: list[StoreServer] = servers) -> None:
            servers.append(server)

        process = threading.Thread(target=run, args=(options, ready, stop))
        process.start()
        try:
            until(lambda servers=servers: bool(servers))
            client = StoreClient(servers[0].address)
            refused[any_date] = client.export(ahead, None, 10.0).refused
            client.close()
        finally:
            stop.set()
            process.join(10)
    assert refused == {False: 1, True: 0}
