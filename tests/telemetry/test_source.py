"""Live process, files, memory: same questions, same answers; and the queries' arithmetic."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry.ask.reading import queries
from telemetry.conventions import Emitter
from telemetry.errors import QueryError, StoreBusy, StoreError, StoreUnreachable
from telemetry.otlp import encode
from telemetry.records import Batch
from telemetry.service.client import StoreClient
from telemetry.service.process import StoreServer
from telemetry.source import (
    FileSource,
    LiveSource,
    MemorySource,
    Source,
    StoreSource,
    open_source,
)
from telemetry.store import owner
from telemetry.store.store import Store
from tests.telemetry.delivered import (
    ADAPTER_ROW,
    DAY_S,
    ODD_NAMES,
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
)

WINDOW = {"start": T0, "end": T0 + 120}
# Whatever a named query may ask for.
ASKED: dict[str, Any] = WINDOW | {
    "by": "day", "request_id": "q7", "tenant": "a", "engine": "e1", "run_id": "r1", "pool": "main",
    "n": 5, "top": 1, "reload_s": 60.0, "near": T0, "states": True,
    "most": 5, "names": 3, "metric": "ttft", "one": True, "which": "all", "sort": "slowest",
    "low": T0, "high": T0 + 120, "usual": f"[[{T0 - 60}, {T0}]]", "tenants": '["a"]',
}  # fmt: skip
SELECT = """
    SELECT tenant, bucket_start, sum(output_tokens) AS tokens, list(oldest_wait_s) AS oldest,
           any_value(ttft) AS ttft
    FROM tenant_minute GROUP BY ALL ORDER BY ALL
"""


def incident() -> list[Batch]:
    """Two buckets of two tenants, one of them oddly named in every possible way."""
    odd = "".join(ODD_NAMES)[:200]
    front = [
        minute("a", offered_requests=10, admitted_requests=7, rejected_rpm_requests=3),
        minute("a", T0 + 60, offered_requests=2, admitted_requests=2),
        minute(odd, offered_requests=4, admitted_requests=4),
    ]
    worker = [
        minute("a", service=30.0, output_tokens=12, prompt_tokens=6, finished=4, in_flight=3.0,
               kv_bytes_avg=100.0, kv_bytes_max=400.0, observed_seconds=60.0, weight=1.0,
               wait_kv_s=1.5, oldest_wait_s=4.0, waiting_max=2.0),
        minute("a", T0 + 60, service=10.0, output_tokens=4, finished=3, aborted=1, in_flight=1.0,
               kv_bytes_avg=300.0, observed_seconds=60.0, weight=2.0, wait_kv_s=0.5,
               oldest_wait_s=9.0, waiting_max=1.0),
        minute(odd, service=60.0, output_tokens=30, finished=4, in_flight=0.0,
               kv_bytes_avg=800.0, observed_seconds=60.0),
        engine_minute(steps=5, observed_seconds=60.0, waiting_avg=1.0),
        engine_minute(T0 + 60, steps=6, observed_seconds=60.0, waiting_avg=2.0),
        charge("a", odd, 1.5),
        *(request(n, T0 + n, ttft_s=n / 10, output_tokens=3, slo_met=n < 15, max_gap_s=0.1)
          for n in range(40)),
        request(99, T0 + 1, tenant=odd, outcome="rejected", reject_reason="rpm"),
        event(1, T0 + 30, tenant=odd, value=1.0),
        RUN_ROW,
        ADAPTER_ROW,
    ]  # fmt: skip
    tomorrow = [engine_minute(T0 + DAY_S, steps=1), request(500, T0 + DAY_S)]
    return [
        batch(*front, emitter=Emitter.FRONT),
        batch(*worker),
        batch(*tomorrow, seq=2, sealed=False),
    ]


def in_memory() -> MemorySource:
    encoded = [encode(b) for b in incident()]
    return MemorySource([m for m, _ in encoded if m], [g for _, g in encoded if g])


def answers(source: Source) -> dict[str, Any]:
    """Everything a source can be asked."""
    found: dict[str, Any] = dict(everything(source))
    for query in queries().values():
        asked = {k: ASKED[k] for k in query.parameters}
        found[f"query {query.name}"] = source.query(query.name, **asked)
    found["sql"] = source.query("sql", text=SELECT, most_rows=10, timeout_s=10.0)
    found["span"] = source.span()
    return found


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Store], StoreServer]]:
    servers = []

    def start(store: Store) -> StoreServer:
        server = StoreServer(store, f"unix:{tmp_path}/s")
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop(0.2)


def test_live_store_file_parquet_and_memory_sources_answer_alike(
    tmp_path: Path, serve: Callable[[Store], StoreServer]
) -> None:
    memory = in_memory()
    wanted = answers(memory)
    memory.close()
    assert [len(wanted[t]) for t in ("tenant_minute", "request", "engine_run")] == [3, 42, 1]
    folder = tmp_path / "store"
    with Store.open(folder) as store:
        deliver(store, *incident())
        assert answers(StoreSource(store)) == wanted
        store.export(tmp_path / "parquet")
    assert answers(FileSource(folder)) == wanted
    assert answers(FileSource(tmp_path / "parquet")) == wanted
    server = serve(Store.open(folder))
    live = LiveSource(server.address)
    assert answers(live) == wanted
    live.close()


def test_a_folder_is_asked_of_its_live_process_and_read_when_there_is_none(
    tmp_path: Path, serve: Callable[[Store], StoreServer]
) -> None:
    folder = tmp_path / "store"
    with Store.open(folder) as store:
        deliver(store, batch(minute("a", output_tokens=1)))
    source = open_source(folder)
    assert [r.output_tokens for r in source.read("tenant_minute", T0, T0 + 60)] == [1]
    server = serve(Store.open(folder))
    assert owner.find_live(folder) == owner.Live(os.getpid(), server.address)
    deliver(server.store, batch(minute("a", output_tokens=2), seq=2))
    assert [r.output_tokens for r in source.read("tenant_minute", T0, T0 + 60)] == [2]
    server.stop(0.2)
    assert not (folder / owner.LIVE).exists()
    assert [r.output_tokens for r in source.read("tenant_minute", T0, T0 + 60)] == [2]
    source.close()


def test_the_span_of_files_is_that_of_the_first_and_the_last_day_that_have_any(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    days = [T0 + k * DAY_S for k in range(4)]
    with Store.open(tmp_path) as store:
        # The last day has an event and no minute.
        rows = [minute("a", d, output_tokens=1) for d in days[:3]]
        deliver(store, batch(*rows), batch(event(1, days[3]), seq=2))
        for day in list(store.days()):
            store.close_day(day)
        wanted = StoreSource(store).span()
    (tmp_path / "2027-01-16" / "tenant_minute.parquet").write_bytes(b"spoilt")
    assert FileSource(tmp_path).span() == wanted == (T0, days[2] + 60.0)
    assert caplog.text == ""  # the day between is not looked at


def test_a_live_file_left_by_a_killed_process_is_not_believed(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        deliver(store, batch(minute("a", output_tokens=1)))
        owner.announce(tmp_path, f"unix:{tmp_path}/gone")
    assert (tmp_path / owner.LIVE).exists()
    assert owner.find_live(tmp_path) is None
    assert open_source(tmp_path).span() == (T0, T0 + 60)


def test_an_owner_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with Store.open(tmp_path), pytest.raises(StoreBusy, match=f"process {os.getpid()}"):
        open_source(tmp_path).span()


def test_an_address_nobody_listens_at_says_so(tmp_path: Path) -> None:
    source = LiveSource(f"unix:{tmp_path}/nobody")
    with pytest.raises(StoreUnreachable, match=r"no store answers at unix:.*is it running"):
        source.span()
    source.close()


def test_what_is_neither_folder_nor_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="neither a store folder nor an address"):
        open_source(tmp_path / "missing")


def test_a_reader_does_not_lock_out_a_store_that_starts_later(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        deliver(store, batch(minute("a", output_tokens=1)))
    source = FileSource(tmp_path)
    assert source.span() is not None
    with Store.open(tmp_path) as store:
        deliver(store, batch(minute("b", output_tokens=1)))
    assert len(source.read("tenant_minute", T0, T0 + 60)) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2027-01-15.duckdb", "LOCK"]


def test_files_are_read_without_leaving_a_trace(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a") as store:
        deliver(store, *incident())
        store.export(tmp_path / "b")
    before = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "b").rglob("*"))
    answers(FileSource(tmp_path / "b"))
    assert sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "b").rglob("*")) == before


def test_live_refusals_are_those_of_the_files(
    tmp_path: Path, serve: Callable[[Store], StoreServer]
) -> None:
    server = serve(Store.open(tmp_path / "store"))
    for source in (LiveSource(server.address), StoreSource(server.store)):
        with pytest.raises(QueryError, match="no query 'who'"):
            source.query("who")
        with pytest.raises(QueryError, match="given: none"):
            source.query("tenants_now")
        source.close()


def test_info_counts_what_came_in(tmp_path: Path, serve: Callable[[Store], StoreServer]) -> None:
    server = serve(Store.open(tmp_path / "store"))
    client = StoreClient(server.address)
    before = time.time()
    client.export(*encode(batch(minute("a", output_tokens=1), request(1))))
    info = client.info()
    assert (info.pid, info.batches, info.rows, info.refused_points) == (os.getpid(), 2, 2, 0)
    assert info.last_ingest_unix_s >= before
    client.close()


# --- the queries' arithmetic ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def memory() -> Iterator[MemorySource]:
    source = in_memory()
    yield source
    source.close()


def test_tenants_now_adds_sums_and_weighs_averages_by_the_pools_time(memory: MemorySource) -> None:
    odd, a = memory.query("tenants_now", **WINDOW).dicts()
    assert (a["tenant"], a["offered_requests"], a["admitted_requests"]) == ("a", 12, 9)
    assert (a["rejected_requests"], a["output_tokens"], a["finished"]) == (3, 16, 7)
    assert (a["wait_kv_s"], a["oldest_wait_s"], a["waiting_max"], a["weight"]) == (
        2.0,
        9.0,
        2.0,
        2.0,
    )
    assert a["kv_bytes_avg"] == 200.0
    assert odd["kv_bytes_avg"] == 400.0  # idle in the second of the two buckets
    assert (a["share"], odd["share"]) == (0.4, 0.6)
    assert odd["wait_slot_s"] is None
    assert a["provisional"] is False


def test_pool_minutes_is_one_row_a_bucket(memory: MemorySource) -> None:
    rows = memory.query("pool_minutes", **WINDOW).dicts()
    assert [(r["bucket_start"], r["steps"], r["waiting_avg"]) for r in rows] == [
        (T0, 5, 1.0),
        (T0 + 60, 6, 2.0),
    ]


def test_runs_of_one_engine_add_up(memory: MemorySource) -> None:
    first = batch(engine_minute(steps=5, observed_seconds=20.0, waiting_avg=1.0))
    row = engine_minute(steps=2, observed_seconds=40.0, waiting_avg=4.0)
    other = type(row)(**{n: getattr(row, n) for n in row.__slots__} | {"run_id": "r2"})
    second = Batch("e1", "r2", "main", Emitter.WORKER, True, 1, (other,))
    source = MemorySource([m for m, _ in map(encode, (first, second)) if m])
    [row] = source.query("pool_minutes", **WINDOW).dicts()
    assert (row["steps"], row["observed_seconds"], row["waiting_avg"]) == (7, 60.0, 3.0)
    source.close()


def test_percentiles_count_outcomes_and_goodput(memory: MemorySource) -> None:
    odd, a = sorted(
        memory.query("requests_percentiles", **WINDOW).dicts(), key=lambda r: r["tenant"] == "a"
    )
    assert (a["n"], a["n_ttft"], a["finished"], a["met"], a["missed"]) == (40, 40, 40, 15, 25)
    assert a["ttft_p50_s"] == pytest.approx(1.95)
    assert a["ttft_p99_s"] == pytest.approx(0.99 * 3.9)
    assert a["ttft_max_s"] == 3.9
    assert (a["goodput_tokens"], a["output_tokens"]) == (45, 120)
    assert (odd["rejected"], odd["n_ttft"], odd["ttft_p99_s"], odd["eligible"]) == (1, 0, None, 0)


def test_under_twenty_values_the_p99_is_the_maximum(memory: MemorySource) -> None:
    [a] = [
        r
        for r in memory.query("requests_percentiles", start=T0, end=T0 + 19).dicts()
        if r["tenant"] == "a"
    ]
    assert (a["n_ttft"], a["ttft_p99_s"]) == (19, 1.8)


def test_token_totals_are_the_sums(memory: MemorySource) -> None:
    totals = {r["tenant"]: r for r in memory.query("token_totals", **WINDOW).dicts()}
    assert (totals["a"]["output_tokens"], totals["a"]["prompt_tokens"]) == (16, 6)


def test_reconcile_accounts_for_every_request(memory: MemorySource) -> None:
    for row in memory.query("reconcile", **WINDOW).dicts():
        assert (row["offered_unaccounted"], row["admitted_unaccounted"]) == (0, 0)
    [a] = [
        r
        for r in memory.query("reconcile", start=T0 + 60, end=T0 + 120).dicts()
        if r["tenant"] == "a"
    ]
    assert (a["admitted"], a["outcomes"], a["in_flight_at_start"], a["in_flight_at_end"]) == (
        2,
        4,
        3,
        1,
    )
    assert a["admitted_unaccounted"] == 0


def test_reconcile_finds_a_lost_request() -> None:
    rows = [
        minute("a", offered_requests=5, admitted_requests=4, finished=2, in_flight=1.0),
        engine_minute(steps=1),
    ]
    metrics, _ = encode(batch(*rows))
    assert metrics is not None
    source = MemorySource([metrics])
    [row] = source.query("reconcile", **WINDOW).dicts()
    assert (row["offered_unaccounted"], row["admitted_unaccounted"]) == (1, 1)
    source.close()


def test_every_query_says_what_it_is_about() -> None:
    assert {"tenants_now", "pool_minutes", "requests_percentiles"} <= set(queries())
    assert {"token_totals", "reconcile", "span"} <= set(queries())
    for query in queries().values():
        assert query.about[0].isupper()
        assert query.parameters <= set(ASKED)
