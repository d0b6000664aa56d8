"""Deliveries in any order, any number of times, end in one state; columns of two writers merge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.conventions import Emitter
from telemetry.otlp import encode
from telemetry.records import Batch
from telemetry.source import MemorySource, StoreSource
from telemetry.store import ingest_columns
from telemetry.store.store import Store
from telemetry.tables import TABLES
from tests.telemetry.delivered import (
    ADAPTER_ROW,
    ODD_NAMES,
    RUN_ROW,
    T0,
    any_rows,
    batch,
    charge,
    deliver,
    engine_minute,
    event,
    everything,
    minute,
    request,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def rows(store: Store, table: str) -> list[Any]:
    return everything(StoreSource(store))[table]


def provisional(store: Store) -> list[bool]:
    result = StoreSource(store).query("tenants_now", start=T0, end=T0 + 60)
    return [r["provisional"] for r in result.dicts()]


def test_front_and_worker_columns_of_one_minute_merge(store: Store) -> None:
    front = batch(minute("a", offered_requests=5, wait_front_s=0.5), emitter=Emitter.FRONT)
    worker = batch(minute("a", output_tokens=70, ttft=(0,) * 20 + (2,)))
    deliver(store, front, worker)
    assert rows(store, "tenant_minute") == [
        minute("a", offered_requests=5, wait_front_s=0.5, output_tokens=70, ttft=(0,) * 20 + (2,))
    ]


def test_a_higher_seq_overwrites_and_a_lower_one_does_not(store: Store) -> None:
    deliver(store, batch(minute("a", output_tokens=2), sealed=False, seq=2))
    deliver(store, batch(minute("a", output_tokens=3), sealed=False, seq=3))
    deliver(store, batch(minute("a", output_tokens=1), sealed=False, seq=1))
    assert rows(store, "tenant_minute") == [minute("a", output_tokens=3)]
    assert provisional(store) == [True]


def test_a_sealed_batch_beats_open_ones_whatever_their_seq(store: Store) -> None:
    deliver(store, batch(minute("a", output_tokens=9), sealed=True, seq=1))
    deliver(store, batch(minute("a", output_tokens=7), sealed=False, seq=50))
    assert rows(store, "tenant_minute") == [minute("a", output_tokens=9)]
    assert provisional(store) == [False]


def test_a_minute_is_provisional_while_one_of_its_writers_has_not_sealed(store: Store) -> None:
    deliver(store, batch(minute("a", offered_requests=1), emitter=Emitter.FRONT, sealed=False))
    deliver(store, batch(minute("a", output_tokens=9), sealed=True))
    assert provisional(store) == [True]
    deliver(store, batch(minute("a", offered_requests=2), emitter=Emitter.FRONT, sealed=True))
    assert provisional(store) == [False]


def test_the_marks_of_one_writer_do_not_guard_the_other(store: Store) -> None:
    deliver(store, batch(minute("a", output_tokens=9), sealed=True, seq=9))
    front = Emitter.FRONT
    deliver(store, batch(minute("a", offered_requests=4), emitter=front, sealed=False, seq=1))
    assert rows(store, "tenant_minute") == [minute("a", output_tokens=9, offered_requests=4)]


def test_absent_columns_stay_and_zero_overwrites(store: Store) -> None:
    deliver(store, batch(minute("a", output_tokens=9, prompt_tokens=4), sealed=False, seq=1))
    deliver(store, batch(minute("a", prompt_tokens=0), sealed=False, seq=2))
    assert rows(store, "tenant_minute") == [minute("a", output_tokens=9, prompt_tokens=0)]


def test_a_holder_that_left_the_top_few_does_not_linger(store: Store) -> None:
    deliver(store, batch(charge("v", "x", 1.0), charge("v", "y", 2.0), sealed=False, seq=1))
    deliver(store, batch(charge("v", "x", 5.0), charge("v", "z", 3.0), sealed=True, seq=2))
    final = [charge("v", "x", 5.0), charge("v", "z", 3.0)]
    assert rows(store, "interference_minute") == final
    deliver(store, batch(charge("v", "y", 2.5), charge("w", "y", 1.0), sealed=False, seq=1))
    assert rows(store, "interference_minute") == final


def test_the_matrix_of_another_bucket_stays_when_one_is_replaced(store: Store) -> None:
    later = T0 + 60
    deliver(store, batch(charge("v", "x", 1.0), sealed=True, seq=1))
    deliver(store, batch(charge("v", "y", 2.0, at=later), sealed=True, seq=2))
    assert rows(store, "interference_minute") == [
        charge("v", "x", 1.0),
        charge("v", "y", 2.0, at=later),
    ]


def test_an_empty_matrix_replaces_a_full_one_through_the_engines_row(store: Store) -> None:
    deliver(store, batch(engine_minute(steps=1), charge("v", "x", 1.0), sealed=False, seq=1))
    deliver(store, batch(engine_minute(steps=2), sealed=True, seq=2))
    assert rows(store, "interference_minute") == []
    deliver(store, batch(engine_minute(steps=1), charge("v", "x", 1.0), sealed=False, seq=1))
    assert rows(store, "interference_minute") == []


def test_log_rows_are_not_doubled_by_redelivery(store: Store) -> None:
    sent = batch(request(1), request(2, T0 + 1), event(1, value=2.5), RUN_ROW, ADAPTER_ROW)
    deliver(store, sent, sent)
    deliver(store, batch(request(1), event(2)))
    assert rows(store, "request") == [request(1), request(2, T0 + 1)]
    assert rows(store, "event") == [event(1, value=2.5), event(2)]
    assert rows(store, "engine_run") == [RUN_ROW]
    assert rows(store, "adapter") == [ADAPTER_ROW]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_tenant_names_are_stored_as_they_are(store: Store, name: str) -> None:
    kept = [minute(name, output_tokens=1), charge(name, name, 1.0), request(1, tenant=name)]
    deliver(store, batch(*kept, minute("other", output_tokens=2)))
    assert kept[0] in rows(store, "tenant_minute")
    assert rows(store, "interference_minute") == [kept[1]]
    assert rows(store, "request") == [kept[2]]


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_rows_are_read_back_as_they_were_sent(name: str, data: st.DataObject) -> None:
    drawn = data.draw(any_rows(TABLES[name], most=3))
    metrics, logs = encode(batch(*drawn))
    source = MemorySource([metrics] if metrics else [], [logs] if logs else [])
    try:
        back = source.read(name, float("-inf"), float("inf"))
        assert sorted(map(repr, back)) == sorted(map(repr, drawn))
    finally:
        source.close()


# --- any order, any number of times --------------------------------------------------------------


def life_of_two_buckets() -> list[Batch]:
    """What front and worker send for two buckets: open states that grow, then the sealed one."""
    sent = []
    for bucket in range(2):
        at = T0 + 60.0 * bucket
        for seq in (1, 2, 3):
            done = seq == 3
            front = [minute(t, at, offered_requests=seq * 2, wait_front_s=seq / 10) for t in "ab"]
            worker: list[Any] = [
                minute("a", at, output_tokens=10 * seq, kv_bytes_avg=float(seq)),
                engine_minute(at, steps=seq, capacity_s=seq / 7),
                charge("a", f"holder-{seq}", float(seq), at),
                charge("a", "b", seq / 3, at),
                request(10 * bucket + seq, at + seq),
            ]
            if seq > 1:  # a tenant, and a column, that come later in the bucket
                worker.append(minute("b", at, output_tokens=seq, ttft=(seq,) + (0,) * 20))
            order = 10 * bucket + seq
            sent.append(batch(*front, emitter=Emitter.FRONT, sealed=done, seq=order))
            sent.append(batch(*worker, sealed=done, seq=order))
    return sent


def in_pieces(one: Batch) -> list[Batch]:
    """The same delivery, re-batched on its way: a row here, a column there."""
    return [replace(one, minutes=(row,), logs=()) for row in one.minutes] + [
        replace(one, minutes=(), logs=(row,)) for row in one.logs
    ]


def outcome(batches: list[Batch]) -> tuple[Any, ...]:
    encoded = [encode(b) for b in batches]
    source = MemorySource([m for m, _ in encoded if m], [g for _, g in encoded if g])
    try:
        flags = source.query("tenants_now", start=T0, end=T0 + 120).rows
        return everything(source), flags
    finally:
        source.close()


LIFE = life_of_two_buckets()
PIECES = [piece for one in LIFE for piece in in_pieces(one)]
FINAL = outcome(LIFE)


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(LIFE), again=st.lists(st.sampled_from(LIFE), max_size=8))
def test_any_order_and_duplication_of_deliveries_ends_in_one_state(
    order: list[Batch], again: list[Batch]
) -> None:
    assert outcome([*order, *again]) == FINAL


@settings(max_examples=5, deadline=None)
@given(order=st.permutations(PIECES))
def test_rebatching_neither_doubles_nor_loses(order: list[Batch]) -> None:
    assert outcome(order) == FINAL


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(order=st.permutations(LIFE + PIECES))
def test_any_order_of_whole_and_rebatched_deliveries_ends_in_one_state(order: list[Batch]) -> None:
    assert outcome(order) == FINAL


COLUMN = st.sampled_from(["output_tokens", "service", "kv_bytes_avg", "ttft", "offered_requests"])
VALUES: dict[str, Any] = {
    "output_tokens": 7, "service": 0.5, "kv_bytes_avg": 64.0, "ttft": (1,) + (0,) * 20,
    "offered_requests": 3,
}  # fmt: skip
SOME_ROWS = st.dictionaries(
    st.sampled_from("abc"), st.sets(COLUMN, min_size=1), min_size=1, max_size=3
)


@settings(max_examples=8, deadline=None)
@given(
    sent=st.lists(
        st.tuples(SOME_ROWS, st.sampled_from([Emitter.FRONT, Emitter.WORKER]), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    seqs=st.lists(st.integers(1, 4), min_size=6, max_size=6),
)
def test_many_rows_are_merged_by_the_rule_that_few_are_merged_by(sent: Any, seqs: Any) -> None:
    batches = [
        batch(
            *(
                minute(name, **{c: VALUES[c] if c == "ttft" else VALUES[c] * (i + 1) for c in have})
                for name, have in rows.items()
            ),
            emitter=emitter,
            sealed=sealed,
            seq=seq,
        )
        for i, ((rows, emitter, sealed), seq) in enumerate(zip(sent, seqs, strict=False))
    ]
    found = []
    for few in (1, 1_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ingest_columns, "FEW", few)
            source = MemorySource()
            for one in batches:
                metrics, _ = encode(one)
                assert metrics is not None
                source.feed([metrics])
            now = source.query("tenants_now", start=T0, end=T0 + 60).dicts()
            found.append((everything(source)["tenant_minute"], [r["provisional"] for r in now]))
            source.close()
    assert found[0] == found[1]
