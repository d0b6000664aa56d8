"""A minute too large for one request goes in parts; two states of a bucket are never mixed."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter
from telemetry.otlp import decode_metrics, encode
from telemetry.pipeline.exporter import Exporter, Inline
from telemetry.pipeline.packed import pack
from telemetry.pipeline.portions import PORTION_BYTES, portions
from telemetry.pipeline.recent import Recent, place_of
from telemetry.records import Batch, EngineMinute, InterferenceMinute, TenantMinute
from telemetry.source import MemorySource, StoreSource
from telemetry.store import ingest_columns
from telemetry.store.store import Store
from tests.telemetry.delivered import (
    T0,
    batch,
    charge,
    deliver,
    engine_minute,
    event,
    everything,
    minute,
    until,
)

TENANTS = "abcde"
SMALL = 7_000  # bytes: a tenant a part


def state(seq: int, *, sealed: bool = False) -> Batch:
    """A minute whose every number tells which delivery it is of."""
    rows: list[Any] = [engine_minute(steps=seq)]
    for i, name in enumerate(TENANTS):
        rows.append(minute(name, output_tokens=seq, ttft=(seq,) * (len(LATENCY_BOUNDS_S) + 1)))
        rows += [charge(name, TENANTS[(i + n) % 5], seq + n / 10) for n in range(1, 3)]
        rows.append(charge(name, f"only-{seq}", float(seq)))
    return batch(*rows, event(seq), sealed=sealed, seq=seq)


def parts_of(one: Batch) -> list[Batch]:
    return list(portions(one, SMALL))


# --- how it is cut -------------------------------------------------------------------------------


def test_a_small_batch_is_its_own_only_part() -> None:
    one = state(1)
    assert list(portions(one)) == [one]


def test_a_tenants_rows_stay_together_and_the_engines_goes_last_with_the_logs() -> None:
    one = state(1)
    parts = parts_of(one)
    assert len(parts) > 2
    seen: dict[str, set[int]] = defaultdict(set)
    for index, part in enumerate(parts):
        assert (part.seq, part.sealed, part.emitter) == (one.seq, one.sealed, one.emitter)
        for row in part.minutes:
            if isinstance(row, TenantMinute | InterferenceMinute):
                seen[row.tenant if isinstance(row, TenantMinute) else row.victim].add(index)
            else:
                assert isinstance(row, EngineMinute)
                assert index == len(parts) - 1
    assert [p.logs for p in parts[:-1]] == [()] * (len(parts) - 1)
    assert parts[-1].logs == one.logs
    assert all(len(where) == 1 for where in seen.values())
    rows = [r for p in parts for r in p.minutes]
    assert sorted(map(repr, rows)) == sorted(map(repr, one.minutes))


@settings(max_examples=12, deadline=None)
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=30), most=st.integers(1, 60_000))
def test_parts_hold_every_row_once_and_keep_to_the_bound_unless_one_tenant_is_larger(
    sizes: list[int], most: int
) -> None:
    rows: list[Any] = []
    for i, cells in enumerate(sizes):
        rows += [minute(f"t{i}", output_tokens=i)]
        rows += [charge(f"t{i}", f"h{n}", 1.0) for n in range(cells)]
    parts = list(portions(batch(*rows), most))
    assert sorted(map(repr, (r for p in parts for r in p.minutes))) == sorted(map(repr, rows))
    for part in parts:
        assert len({getattr(r, "tenant", None) or r.victim for r in part.minutes}) == 1 or (
            len(encode(part)[0] or b"") <= most
        )


def test_a_request_of_full_rows_is_within_what_a_message_may_be() -> None:
    columns = dict.fromkeys(("offered_requests", "prompt_tokens", "cached_tokens"), 1)
    counts = (1,) * (len(LATENCY_BOUNDS_S) + 1)
    rows: list[Any] = []
    for i in range(1_500):
        name = f"tenant-{i:04}-" + "n" * 200
        rows.append(minute(name, ttft=counts, tpot=counts, max_gap=counts, **columns))
        rows += [charge(name, f"holder-{h}", 1.0) for h in range(12)]
    parts = list(portions(batch(*rows)))
    assert len(parts) > 1
    assert all(len(encode(part)[0] or b"") <= PORTION_BYTES for part in parts)


# --- what a store makes of parts -----------------------------------------------------------------

OLD, NEW = state(1), state(2, sealed=True)
PARTS = [*parts_of(OLD), *parts_of(NEW), OLD, NEW]


def held(batches: list[Batch]) -> dict[str, list[Any]]:
    source = MemorySource([m for m in (encode(b)[0] for b in batches) if m])
    try:
        return everything(source)
    finally:
        source.close()


WHOLE = held([OLD, NEW])


@settings(max_examples=8, deadline=None)
@given(order=st.permutations(PARTS), again=st.lists(st.sampled_from(PARTS), max_size=4))
def test_parts_in_any_order_and_again_end_as_the_whole_does(
    order: list[Batch], again: list[Batch]
) -> None:
    assert held([*order, *again]) == WHOLE


@settings(max_examples=15, deadline=None)
@given(sent=st.lists(st.sampled_from(PARTS), min_size=1, max_size=10))
def test_with_parts_lost_no_two_states_of_a_matrix_are_mixed(sent: list[Batch]) -> None:
    cells = held(sent)["interference_minute"]
    seqs = {seq for r in cells for seq in (1, 2) if r.holder == f"only-{seq}"}
    assert len(seqs) <= 1
    newest = max(b.seq for b in sent)
    came = {
        r for b in sent if b.seq == newest for r in b.minutes if isinstance(r, InterferenceMinute)
    }
    assert set(cells) == came  # all that came of the newest, of each victim all cells
    for name in {r.victim for r in cells}:
        assert sum(r.victim == name for r in cells) == 3


def test_what_comes_again_is_not_written_again(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        one = state(3, sealed=True)
        deliver(store, one)

        def places() -> list[Any]:
            with store.still("cannot look") as shelf:
                return [
                    shelf.con.execute(f'SELECT rowid FROM "2027-01-15"."{t}" ORDER BY 1').fetchall()
                    for t in ("tenant_minute", "interference_minute", "engine_minute")
                ]

        before = places()
        deliver(store, one, *parts_of(one))
        assert places() == before


def test_a_bucket_that_two_writers_charged_is_merged_by_key(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        deliver(store, batch(charge("v", "x", 1.0), charge("v", "y", 2.0), seq=5))
        deliver(store, batch(charge("v", "x", 3.0), emitter=Emitter.FRONT, seq=1))
        rows = everything(StoreSource(store))["interference_minute"]
        assert rows == [charge("v", "x", 3.0), charge("v", "y", 2.0)]


@pytest.mark.parametrize("few", [0, 1_000])
def test_rows_written_by_column_are_those_written_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(ingest_columns, "FEW", few)
    counts = tuple(range(len(LATENCY_BOUNDS_S) + 1))
    rows = [
        minute(
            f"t{i}\x00é",
            output_tokens=None if i % 2 else (1 << 63) - 1 - i,
            service=None if i % 3 else i / 7,
            ttft=None if i % 4 else counts,
        )
        for i in range(1, 100)
    ]
    rows = [r for r in rows if (r.output_tokens, r.service, r.ttft) != (None, None, None)]
    with Store.open(tmp_path / "store") as store:
        deliver(store, batch(*rows))
        found = everything(StoreSource(store))["tenant_minute"]
        assert found == sorted(rows, key=lambda r: r.tenant)


# --- the way out ---------------------------------------------------------------------------------


def large(seq: int, *, sealed: bool = True) -> Batch:
    """Of the size of a few requests."""
    counts = (seq,) * (len(LATENCY_BOUNDS_S) + 1)
    rows = [minute(f"{i:04}" + "n" * 900, output_tokens=seq, ttft=counts) for i in range(250)]
    return batch(*rows, engine_minute(steps=seq), event(seq), sealed=sealed, seq=seq)


PIECES = len(list(portions(large(1))))


def test_an_exporter_sends_a_large_batch_in_parts_and_keeps_them_for_live_answers() -> None:
    taken: list[Any] = []
    out = Exporter(sink=lambda m, g: taken.append((m, g)))
    out.submit(large(1, sealed=False))
    out.submit(large(2))
    assert out.flush(20)
    metrics, _ = out.recent(T0, T0 + 60)
    assert out.close().lost == 0
    assert PIECES > 1
    rows = [r for m in metrics for r in decode_metrics(m).rows("tenant_minute")]
    assert sorted(r.tenant for r in rows) == sorted(r.tenant for r in large(2).minutes[:250])  # type: ignore[union-attr]
    assert {r.output_tokens for r in rows} == {2}
    last = [m for m, _ in taken if m is not None][-PIECES:]
    assert [len(decode_metrics(m).rows("engine_minute")) for m in last] == [0] * (PIECES - 1) + [1]


def test_a_newer_state_replaces_all_parts_of_an_open_one_in_the_queue() -> None:
    gate, tried = threading.Event(), threading.Event()
    seqs: list[int] = []

    def sink(metrics: bytes | None, _: bytes | None) -> None:
        tried.set()
        gate.wait(10)
        if metrics is not None:
            seqs.extend(b.seq for b in decode_metrics(metrics).batches)

    out = Exporter(sink=sink)
    out.submit(batch(engine_minute(T0 - 60, steps=1), seq=100))
    tried.wait(10)
    out.submit(large(1, sealed=False))
    out.submit(large(2))
    out.submit(batch(engine_minute(T0 + 60, steps=1), seq=101))
    # The first is in the sender's hands; of two batches with logs three requests' worth more.
    until(lambda: out.stats().superseded == PIECES and out.stats().queued == PIECES + 4)
    gate.set()
    assert out.flush(20)
    assert seqs == [100, *[2] * PIECES, 101]
    assert out.close().superseded == PIECES


def test_inline_delivery_goes_in_parts_too(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        Inline(store.take).submit(large(1))
        assert store.info().batches == PIECES + 1  # and the logs
        assert len(everything(StoreSource(store))["tenant_minute"]) == 250


def test_a_bucket_too_large_to_remember_is_forgotten_whole() -> None:
    recent = Recent(3600.0, 100)
    one = state(1)
    for index, part in enumerate(parts_of(one)):
        data = pack(encode(part)[0] or b"")
        recent.add_metrics(place_of(one), part, data, is_first=index == 0)
    assert recent.between(0.0, float("inf")) == ([], [])


def test_large_requests_are_packed_and_come_out_as_they_were() -> None:
    data, _ = encode(large(1))
    assert data is not None
    kept = pack(data)
    assert kept.plain() == data
    assert (kept.sent_bytes, kept.size_bytes < len(data) // 5) == (len(data), True)
    assert pack(b"small").size_bytes == len(b"small")
