"""A question is planned over the parts of its window alone, and answers as over all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from telemetry.ask import reading, windowed
from telemetry.ask.reading import Result, queries
from telemetry.otlp import encode
from telemetry.source import MemorySource
from telemetry.store import retention, sql
from telemetry.store.parts import Part
from telemetry.store.store import Store
from telemetry.tables import TABLES
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
    minute,
    request,
)

DAYS = ("2027-01-15", "2027-01-16", "2027-01-17", "2027-01-18")
MIDNIGHT = T0 + 16 * 3600.0  # the first one after T0
ASKED: dict[str, Any] = {
    "by": "day", "request_id": "q7", "tenant": "a", "engine": "e1", "run_id": "r1", "pool": "main",
    "low": T0, "high": T0 + DAY_S, "usual": f"[[{T0}, {T0 + DAY_S}]]", "tenants": '["a"]',
    "n": 3, "top": 2, "near": T0, "reload_s": 60.0, "states": True,
    "most": 5, "names": 3, "metric": "ttft", "one": True, "which": "all", "sort": "slowest",
}  # fmt: skip


def rows_of(at: float, day: int) -> list[Any]:
    """A minute's life of most tables, in numbers that add up exactly."""
    return [
        minute("a", at, service=4.0 * day, output_tokens=day, kv_bytes_avg=8.0, finished=1,
               observed_seconds=60.0, weight=1.0, wait_kv_s=0.5, in_flight=1.0, slo_missed=1),
        minute("b", at, service=2.0, output_tokens=3, offered_requests=2, admitted_requests=2,
               observed_seconds=60.0, weight=1.0, wait_slot_s=0.25),
        engine_minute(at, steps=day, observed_seconds=60.0, waiting_avg=2.0, pool_bytes=64.0),
        charge("a", "b", 1.5, at),
        request(day * 10 + int(at) % 7, at + 1.0, ttft_s=0.5, output_tokens=3, slo_met=True),
        event(int(at), at + 2.0, kind="evict", adapter="ab12", tenant="a"),
    ]  # fmt: skip


def fill(store: Store) -> None:
    """Four days, minutes on both sides of each midnight; the first two closed, one lacks events."""
    for n in range(4):
        around = [T0 + n * DAY_S, MIDNIGHT - 60.0 + (n - 1) * DAY_S, MIDNIGHT + (n - 1) * DAY_S]
        for at in around:
            if at >= T0:
                deliver(store, batch(*rows_of(at, n + 1)))
    deliver(store, batch(RUN_ROW, ADAPTER_ROW))
    for day in DAYS[:2]:
        store.close_day(day)
    (store.folder / DAYS[1] / "interference_minute.parquet").unlink()
    forget_column(store.folder / DAYS[0] / "tenant_minute.parquet", "wait_slot_s")
    with store.alone("the views") as shelf:
        shelf.refresh()


def forget_column(file: Path, column: str) -> None:
    """As an older version wrote the file."""
    con = duckdb.connect()
    kept = sql.literal(file.with_suffix(".old"))
    con.execute(
        f"COPY (SELECT * EXCLUDE ({column}) FROM {sql.parquet(file)}) TO {kept} (FORMAT parquet)"
    )
    con.close()
    file.with_suffix(".old").rename(file)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("windowed") / "store") as opened:
        fill(opened)
        yield opened


def over_all(store: Store, name: str, parameters: dict[str, Any]) -> Result:
    """The answer of the views, which have every part."""
    with store.still("the views") as shelf:
        return reading.run(shelf.con.cursor(), name, parameters)


def questions(start: float, end: float) -> dict[str, dict[str, Any]]:
    """Everything that can be asked about a window, and what can be asked about none."""
    window = {"start": start, "end": end}
    found: dict[str, dict[str, Any]] = {f"read.{t}": window for t in TABLES}
    for query in queries().values():
        found[query.name] = {p: (ASKED | window)[p] for p in query.parameters}
    return found


bounds = st.integers(-3, 4 * 24 * 4).map(lambda quarter: T0 + quarter * 900.0)


@settings(max_examples=4, deadline=None)
@given(bounds, bounds)
@example(MIDNIGHT, MIDNIGHT + DAY_S)
@example(MIDNIGHT + DAY_S, MIDNIGHT + DAY_S + 60.0)
def test_every_question_answers_alike_over_the_parts_of_its_window_and_over_all(
    store: Store, one: float, other: float
) -> None:
    for name, parameters in questions(min(one, other), max(one, other)).items():
        assert store.run(name, parameters) == over_all(store, name, parameters), name


def test_a_window_without_end_is_of_every_part(store: Store) -> None:
    everything = {"start": float("-inf"), "end": float("inf")}
    for name in ("read.tenant_minute", "token_totals", "reconcile"):
        assert store.run(name, everything) == over_all(store, name, everything), name
    assert {row["tenant"] for row in store.run("token_totals", everything).dicts()} == {"a", "b"}


def listed() -> list[Part]:
    return [Part(day, file=Path(f"{day}.duckdb")) for day in (*DAYS, sql.RUNS_PART)]


def test_the_last_hour_touches_its_day_alone() -> None:
    hour = {"start": MIDNIGHT + DAY_S, "end": MIDNIGHT + DAY_S + 3600.0, "n": 50}
    touched = windowed.touched(listed(), "top_tenants", hour)
    assert [p.name for p in touched] == [DAYS[2], sql.RUNS_PART]
    text = windowed.over(queries()["top_tenants"].text, touched)
    assert sql.in_part(DAYS[2], "tenant_minute") in text
    assert not any(day in text for day in (DAYS[0], DAYS[1], DAYS[3]))


def test_what_looks_back_has_the_day_before_too() -> None:
    hour = {"start": MIDNIGHT + DAY_S, "end": MIDNIGHT + DAY_S + 3600.0}
    touched = windowed.touched(listed(), "reconcile", hour)
    assert [p.name for p in touched] == [DAYS[1], DAYS[2], sql.RUNS_PART]


def test_a_question_about_no_window_is_of_every_part() -> None:
    assert windowed.touched(listed(), "span", {}) == listed()
    assert windowed.touched(listed(), "sql", {"text": "SELECT 1"}) == listed()


def test_every_question_said_to_stay_in_its_window_exists_and_names_one() -> None:
    named = {name for name in windowed.IN_WINDOW if not name.startswith(reading.READ)}
    for name in named:
        assert {"start", "end"} <= queries()[name].parameters, name


def test_only_the_columns_that_a_question_names_are_read() -> None:
    text = windowed.over(queries()["token_share"].text, listed()[:1])
    read = text.partition(" FROM ")[0]
    assert '"service"' in read
    assert '"kv_bytes_avg"' not in read


def test_a_part_that_closes_opens_again_or_is_dropped_is_found_as_it_is(tmp_path: Path) -> None:
    question = ("token_totals", {"start": T0, "end": T0 + DAY_S})
    with Store.open(tmp_path / "store") as store:

        def tokens() -> dict[str, int]:
            return {r["tenant"]: r["output_tokens"] for r in store.run(*question).dicts()}

        assert tokens() == {}
        deliver(store, batch(minute("a", output_tokens=5), engine_minute(steps=1)))
        assert tokens() == {"a": 5}
        store.close_day(DAYS[0])
        assert tokens() == {"a": 5}
        deliver(store, batch(minute("b", T0 + 60, output_tokens=7), seq=2))
        assert tokens() == {"a": 5, "b": 7}
        store.close_day(DAYS[0])
        retention.apply(store, T0 + 500 * DAY_S)
        assert tokens() == {}


def test_a_day_found_damaged_by_a_question_is_moved_aside_and_the_rest_answers(
    tmp_path: Path,
) -> None:
    with Store.open(tmp_path / "store") as store:
        deliver(store, batch(minute("a", output_tokens=5)))
        deliver(store, batch(minute("a", T0 + DAY_S, output_tokens=7)))
        store.close_day(DAYS[0])
        (store.folder / DAYS[0] / "tenant_minute.parquet").write_bytes(b"PAR1 no more PAR1")
        day_after = {"start": MIDNIGHT, "end": MIDNIGHT + DAY_S}
        assert store.run("token_totals", day_after).rows[0][3] == 7
        assert not store.run("token_totals", day_after).partial  # it never looked at the damage
        both = store.run("token_totals", {"start": T0, "end": T0 + 2 * DAY_S})
        assert [row[3] for row in both.rows] == [7]
        assert both.partial


def test_no_answer_has_half_of_a_batch(tmp_path: Path) -> None:
    hour = {"start": T0, "end": T0 + 3600.0}
    with Store.open(tmp_path / "store") as store:
        begun = (minute(t, output_tokens=1) for t in ("a", "b"))
        deliver(store, batch(*begun, sealed=False))
        done, seen = threading.Event(), []

        def ask() -> None:
            while not done.is_set():
                seen.append({row[3] for row in store.run("token_totals", hour).rows})

        readers = [threading.Thread(target=ask) for _ in range(2)]
        for reader in readers:
            reader.start()
        for seq in range(2, 40):
            told = (minute(t, output_tokens=seq) for t in ("a", "b"))
            deliver(store, batch(*told, sealed=False, seq=seq))
        done.set()
        for reader in readers:
            reader.join()
        assert {row[3] for row in store.run("token_totals", hour).rows} == {39}
    assert seen
    assert all(len(numbers) == 1 for numbers in seen)


services = st.lists(st.none() | st.sampled_from([0.0, 1.0, 1.0, 2.5, 8.0]), min_size=1, max_size=7)


@settings(max_examples=10, deadline=None)
@given(st.lists(services, min_size=1, max_size=3), st.integers(1, 9))
def test_of_each_minute_the_first_by_service_then_name_have_their_share_of_all(
    minutes: list[list[float | None]], n: int
) -> None:
    rows, wanted = [], []
    for number, served in enumerate(minutes):
        at = T0 + 60.0 * number
        by_name = {f"t{i}": service for i, service in enumerate(served)}
        rows += [minute(t, at, service=s, finished=1) for t, s in by_name.items()]
        whole = sum(filter(None, by_name.values()))
        ranked = sorted(by_name.items(), key=lambda kv: (kv[1] is None, -(kv[1] or 0.0), kv[0]))
        for name, service in ranked[:n]:
            share = None if service is None or not whole else service / whole
            wanted.append((at, 60.0, name, service, share))
    metrics, _ = encode(batch(*rows))
    source = MemorySource([metrics] if metrics else [])
    answer = source.query("token_share", start=T0, end=T0 + 3600.0, n=n)
    source.close()
    assert [*answer.rows] == wanted
