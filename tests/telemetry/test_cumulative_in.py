"""Totals of generic senders become what each bucket gained, once, whoever is killed when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.conventions import metric_name
from telemetry.otlp import cumulative as cumulative_in
from telemetry.otlp import decode_metrics
from telemetry.otlp.cumulative import Flow, Known, Sender, convert
from telemetry.prometheus.counting import Counting
from telemetry.source import FileSource, StoreSource
from telemetry.store import forget
from telemetry.store.store import Receipt, Store
from tests.telemetry.delivered import DAY_S, T0
from tests.telemetry.foreign_requests import (
    KV,
    OUTPUT,
    SENDER,
    SERVICE,
    TTFT,
    gauge,
    metrics_request,
    total,
)

COUNTS = (0,) * 19 + (3, 4)


class Clock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store that began to listen a second before T0."""
    with Store.open(tmp_path / "store", Clock(T0 - 1)) as opened:
        yield opened


def send(store: Store, *points: Any, name: str = OUTPUT, **how: Any) -> Receipt:
    return store.ingest_metrics(metrics_request(total(name, *points, **how)))


def minutes(source: Any) -> list[Any]:
    return source.read("tenant_minute", float("-inf"), float("inf"))


def gained(store: Store, column: str = "output_tokens") -> dict[tuple[str, float], Any]:
    """(tenant, seconds since T0) -> the column of the bucket."""
    return {
        (r.tenant, r.bucket_start - T0): getattr(r, column) for r in minutes(StoreSource(store))
    }


def test_a_total_becomes_what_each_bucket_gained(store: Store) -> None:
    for at, value in ((30.0, 10), (90.0, 25), (150.0, 25), (210.0, 31)):
        send(store, ("a", T0, T0 + at, value))
    assert gained(store) == {("a", 0.0): 10, ("a", 60.0): 15, ("a", 180.0): 6}


def test_points_of_one_bucket_add_up_and_the_bucket_is_the_one_they_end_in(store: Store) -> None:
    send(store, ("a", T0, T0 + 20, 1), ("a", T0, T0 + 40, 4), ("a", T0, T0 + 60, 9))
    assert gained(store) == {("a", 0.0): 9}


def test_a_histogram_and_seconds_are_converted_alike(store: Store) -> None:
    more = (1, *COUNTS[1:])
    store.ingest_metrics(
        metrics_request(
            total(TTFT, ("a", T0, T0 + 30, COUNTS), ("a", T0, T0 + 90, more)),
            total(SERVICE, ("a", T0, T0 + 30, 1.5), ("a", T0, T0 + 90, 4.0)),
        )
    )
    assert gained(store, "ttft") == {("a", 0.0): COUNTS, ("a", 60.0): (1,) + (0,) * 20}
    assert gained(store, "service") == {("a", 0.0): 1.5, ("a", 60.0): 2.5}


def test_the_same_points_again_and_older_ones_add_nothing_and_are_counted(store: Store) -> None:
    send(store, ("a", T0, T0 + 30, 10))
    send(store, ("a", T0, T0 + 90, 25))
    for at, value in ((30.0, 10), (90.0, 25), (45.0, 17)):
        receipt = send(store, ("a", T0, T0 + at, value))
        assert (receipt.repeated, receipt.accepted, receipt.refused) == (1, 0, 0)
    assert gained(store) == {("a", 0.0): 10, ("a", 60.0): 15}
    assert store.info().repeated_points == 3


def test_a_new_start_is_a_new_total(store: Store) -> None:
    send(store, ("a", T0, T0 + 30, 10))
    send(store, ("a", T0 + 40, T0 + 50, 3))
    send(store, ("a", T0, T0 + 35, 12))  # the old total's last word, late
    assert gained(store) == {("a", 0.0): 15}


def test_a_total_that_fell_began_again_unsaid(store: Store) -> None:
    send(store, ("a", T0, T0 + 30, 10))
    send(store, ("a", T0, T0 + 90, 4))
    send(store, ("a", T0, T0 + 95, 6))
    assert gained(store) == {("a", 0.0): 10, ("a", 60.0): 6}


def test_two_senders_of_one_name_with_starts_of_their_own_are_both_counted(store: Store) -> None:
    for at, value in ((10.0, 5), (20.0, 7), (30.0, 8)):
        send(store, ("a", T0, T0 + at, value))
        send(store, ("a", T0 + 1, T0 + at, 10 * value))
    assert gained(store) == {("a", 0.0): 88}


def test_what_a_total_held_before_we_listened_is_its_baseline(store: Store) -> None:
    old = T0 - DAY_S
    receipt = send(store, ("a", old, T0 + 30, 1_000))
    assert (receipt.baselines, receipt.accepted) == (1, 0)
    send(store, ("a", old, T0 + 90, 1_004))
    assert gained(store) == {("a", 60.0): 4}
    assert store.info().baseline_points == 1


def test_a_tenant_that_comes_later_to_an_old_sender_counts_from_its_first_token(
    store: Store,
) -> None:
    old = T0 - DAY_S
    send(store, ("a", old, T0 + 30, 1_000))
    send(store, ("a", old, T0 + 90, 1_004), ("b", old, T0 + 90, 7))
    assert gained(store) == {("a", 60.0): 4, ("b", 60.0): 7}


def test_a_total_older_than_states_are_kept_is_a_baseline_even_so(store: Store) -> None:
    old = T0 - 8 * DAY_S
    send(store, ("a", old, T0 + 30, 1_000))
    send(store, ("a", old, T0 + 90, 1_004), ("b", old, T0 + 90, 7))
    assert gained(store) == {("a", 60.0): 4}


def test_deltas_are_added_and_each_interval_counts_once(store: Store) -> None:
    send(store, ("a", T0, T0 + 30, 10), delta=True)
    send(store, ("a", T0 + 60, T0 + 90, 5), delta=True)
    send(store, ("a", T0 + 30, T0 + 60, 2), delta=True)  # out of order, and new
    assert send(store, ("a", T0 + 60, T0 + 90, 5), delta=True).repeated == 1
    assert gained(store) == {("a", 0.0): 12, ("a", 60.0): 5}


def test_deltas_of_two_senders_of_one_name_are_refused_with_the_reason(store: Store) -> None:
    send(store, ("a", T0, T0 + 30, 10), delta=True)
    receipt = send(store, ("a", T0 + 15, T0 + 45, 10), delta=True)
    assert (receipt.refused, gained(store)) == (1, {("a", 0.0): 10})
    assert "another sender of the same service.instance.id" in receipt.reasons[0]


def test_of_many_gaps_the_oldest_are_given_up() -> None:
    joined = cumulative_in._joined([[10 * i, 10 * i + 5] for i in range(1, 21)])
    assert len(joined) == 16
    assert joined[0] == [10, 55]


def test_a_gauge_keeps_the_newest_value_and_a_maximum_the_largest(store: Store) -> None:
    tenant = {"tenantscope.tenant": "a"}
    level = metric_name("tenant_minute", "quota_rpm_level")
    for at, value in ((10.0, 5.0), (30.0, 9.0), (20.0, 7.0), (40.0, 6.0)):
        store.ingest_metrics(
            metrics_request(
                gauge(KV, (tenant, T0 + at, value)), gauge(level, (tenant, T0 + at, value))
            )
        )
    assert gained(store, "kv_bytes_max") == {("a", 0.0): 9.0}
    assert gained(store, "quota_rpm_level") == {("a", 0.0): 6.0}


def test_attributes_of_a_point_make_series_of_one_row(store: Store) -> None:
    metric = total(OUTPUT, ("a", T0, T0 + 30, 10), ("a", T0, T0 + 30, 5))
    for point, model in zip(metric.sum.data_points, ("m1", "m2"), strict=True):
        point.attributes.add(key="model").value.string_value = model
    assert store.ingest_metrics(metrics_request(metric)).accepted == 2
    assert gained(store) == {("a", 0.0): 15}


# --- who sends -----------------------------------------------------------------------------------


def test_the_least_a_sender_must_say_is_who_it_is(store: Store) -> None:
    point = total(OUTPUT, ("a", T0, T0 + 30, 10))
    store.ingest_metrics(metrics_request(point, resource={"service.instance.id": "chat-7"}))
    [row] = minutes(StoreSource(store))
    assert (row.engine, row.run_id, row.pool, row.bucket_s) == ("chat-7", "otlp:chat-7", "main", 60)


def test_it_may_say_more(store: Store) -> None:
    said = {
        "service.instance.id": "chat-7",
        "tenantscope.engine": "e9",
        "tenantscope.run_id": "r5",
        "tenantscope.pool": "large",
        "tenantscope.bucket_s": 10,
    }
    point = total(OUTPUT, ("a", T0, T0 + 30, 10))
    store.ingest_metrics(metrics_request(point, resource=said))
    [row] = minutes(StoreSource(store))
    assert (row.engine, row.run_id, row.pool) == ("e9", "otlp:r5", "large")
    assert (row.bucket_start, row.bucket_s) == (T0 + 20, 10.0)


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        ({}, "service.instance.id is None: expected who sends"),
        ({"service.name": "chat"}, "service.instance.id is None"),
        ({**SENDER, "tenantscope.pool": 7}, "tenantscope.pool is 7: expected text"),
        ({**SENDER, "tenantscope.bucket_s": 0.0}, "tenantscope.bucket_s = 0.0"),
        ({**SENDER, "tenantscope.bucket_s": float("nan")}, "tenantscope.bucket_s = nan"),
        ({**SENDER, "tenantscope.bucket_s": True}, "tenantscope.bucket_s = True"),
        ({"service.instance.id": "x" * 2000}, "an engine of 2000 characters"),
        ({**SENDER, "tenantscope.sealed": True}, "tenantscope.seq is None"),
    ],
)
def test_a_sender_that_says_too_little_is_refused_with_the_reason(
    resource: dict[str, Any], reason: str
) -> None:
    sent = metrics_request(total(OUTPUT, ("a", T0, T0 + 30, 10)), resource=resource)
    decoded = decode_metrics(sent)
    assert (decoded.refused, decoded.arrivals, decoded.batches) == (1, (), ())
    assert reason in decoded.reasons[0]


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (total(OUTPUT, ("a", T0, T0 + 1, 1), monotonic=False), "may fall"),
        (total(OUTPUT, ("a", T0, T0 + 1, 1.5)), "1.5: expected an integer"),
        (total(OUTPUT, ("a", T0, T0 + 1, 2.0**54)), "expected an integer"),
        (total(OUTPUT, ("a", T0, T0 + 1, 1 << 54)), "18014398509481984: expected at most 2**53"),
        (total(OUTPUT, ("a", T0, T0 + 1, -1)), "cannot be negative"),
        (total(SERVICE, ("a", T0, T0 + 1, float("inf"))), "inf: expected a finite number"),
        (total(SERVICE, ("a", T0, T0 + 1, 1.0), unit="ms"), "is in 'ms': expected '1'"),
        (total(OUTPUT, ("a", T0, T0 + 1, COUNTS)), "came as histogram: expected sum"),
        (total(TTFT, ("a", T0, T0 + 1, (1, 2))), "2 buckets: expected 21"),
        (total(OUTPUT, ("a", T0, 0.0, 1)), "time_unix_nano = 0: not an instant"),
        (gauge(KV, ({}, T0, 1.0)), "a point without tenantscope.tenant"),
        (gauge(KV, ({"tenantscope.tenant": "t" * 2000}, T0, 1.0)), "tenantscope.tenant of 2000"),
    ],
)
def test_a_point_that_is_not_right_is_refused_with_the_reason(metric: Any, reason: str) -> None:
    decoded = decode_metrics(metrics_request(metric, total(OUTPUT, ("b", T0, T0 + 1, 1))))
    assert (decoded.refused, [a.keys for a in decoded.arrivals]) == (1, [("b",)])
    assert reason in decoded.reasons[0]


@pytest.mark.parametrize(
    ("point", "delta", "reason"),
    [
        (("a", 0.0, T0 + 1, 1), False, "expected the instant the total starts"),
        (("a", T0 + 2, T0 + 1, 1), False, "expected the instant the total starts"),
        (("a", 0.0, T0 + 1, 1), True, "expected an interval"),
        (("a", T0 + 1, T0 + 1, 1), True, "expected an interval"),
    ],
)
def test_a_total_must_say_since_when(store: Store, point: Any, delta: bool, reason: str) -> None:
    receipt = send(store, point, delta=delta)
    assert (receipt.refused, gained(store)) == (1, {})
    assert reason in receipt.reasons[0]


def test_whole_doubles_will_do_for_whole_numbers(store: Store) -> None:
    send(store, ("a", T0, T0 + 30, 10.0))
    assert gained(store) == {("a", 0.0): 10}


def test_a_sender_has_so_many_series(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(cumulative_in, "SERIES_A_SENDER", 2)
    receipt = send(store, *((f"t{i}", T0, T0 + 30, 1) for i in range(3)))
    assert (receipt.accepted, receipt.refused) == (2, 1)
    assert "'gen-1' has 2 already" in receipt.reasons[0]


def test_sums_do_not_leave_64_bits() -> None:
    from telemetry.conventions import Kind

    assert cumulative_in.added((1 << 63) - 2, 7, Kind.SUM) == (1 << 63) - 1
    assert cumulative_in.added(((1 << 63) - 2, 1), (7, 7), Kind.HIST) == ((1 << 63) - 1, 8)


# --- restarts, days, forgetting ------------------------------------------------------------------


def test_the_stores_restart_neither_doubles_nor_loses(tmp_path: Path) -> None:
    for at, value in ((30.0, 10), (90.0, 25), (95.0, 26), (150.0, 40)):
        with Store.open(tmp_path / "store", Clock(T0 - 1)) as store:
            send(store, ("a", T0, T0 + at, value))
            send(store, ("a", T0, T0 + at, value))
    rows = minutes(FileSource(tmp_path / "store"))
    assert {r.bucket_start - T0: r.output_tokens for r in rows} == {0.0: 10, 60.0: 16, 120.0: 14}


def test_a_series_goes_on_over_midnight_and_over_closed_days(tmp_path: Path) -> None:
    clock = Clock(T0 - 1)
    with Store.open(tmp_path / "store", clock) as store:
        send(store, ("a", T0, T0 + 30, 10))
        clock.now_s += 3 * DAY_S
        send(store, ("a", T0, T0 + DAY_S, 14), ("a", T0, T0 + DAY_S + 90, 15))
        store.close_day("2027-01-15")
        send(store, ("a", T0, T0 + 30, 10))
        send(store, ("a", T0, T0 + 3 * DAY_S, 20))
        assert gained(store) == {
            ("a", 0.0): 10,
            ("a", DAY_S - 60): 4,
            ("a", DAY_S + 60): 1,
            ("a", 3 * DAY_S - 60): 5,
        }


def test_an_increase_is_added_whatever_the_clock_says_when_it_comes(tmp_path: Path) -> None:
    clock = Clock(T0 - 1)
    with Store.open(tmp_path / "store", clock) as store:
        send(store, ("a", T0, T0 + 30, 10))
        clock.now_s -= 3_600.0
        send(store, ("a", T0, T0 + 40, 15))
        assert gained(store) == {("a", 0.0): 15}


def test_to_forget_a_tenant_forgets_how_far_it_was_counted(store: Store) -> None:
    send(store, ("a", T0, T0 + 30, 10), ("b", T0, T0 + 30, 11))
    forget.forget(store, "a")
    left = StoreSource(store).read("series_state", float("-inf"), float("inf"))
    assert [s.attributes for s in left] == ['{"tenantscope.tenant":"b"}']


def test_who_counts_along_hears_the_sum_of_the_bucket_not_the_increase(store: Store) -> None:
    counting = Counting(T0)
    for at, value in ((10.0, 5), (20.0, 9), (70.0, 12)):
        receipt = send(store, ("a", T0, T0 + at, value))
        counting.hear(receipt.committed.batches, T0 + at)
    place = counting.tenants.at["output_tokens"]
    _, values = counting.look(T0 + 80).tenants
    assert values[:, place].sum() == 12


# --- any order, any number of times, any restarts ------------------------------------------------


def life(random: Random) -> tuple[list[tuple[bool, Any]], dict[str, int]]:
    """Points of three tenants over minutes and restarts of the sender, and what they add up to."""
    points: list[tuple[bool, Any]] = []
    truth: dict[str, int] = defaultdict(int)
    start = T0
    for _ in range(random.randint(1, 3)):
        totals: dict[str, int] = defaultdict(int)
        at = start
        for _ in range(random.randint(1, 6)):
            at += random.choice((1.0, 15.0, 60.0, 61.5))
            for tenant in "abc":
                more = random.randint(0, 9)
                totals[tenant] += more
                truth[tenant] += more
                points.append((False, (tenant, start, at, totals[tenant])))
        start = at + random.choice((0.5, 30.0))
    return points, truth


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_order_and_repetition_ends_in_the_senders_totals(random: Random) -> None:
    """The last point of each total comes at some time; then order and repetition do not matter to
    the sum, whatever they do to the minute it is booked in."""
    points, truth = life(random)
    again = [random.choice(points) for _ in range(10)]
    order = points + again
    random.shuffle(order)
    sender, states, sums = Sender("e", "otlp:e", "main", 60.0), [], defaultdict(int)
    while order:
        size = random.randint(1, 5)
        chunk, order = order[:size], order[size:]
        sent = metrics_request(total(OUTPUT, *(p for _, p in chunk)))
        decoded = decode_metrics(sent)
        assert {a.flow for a in decoded.arrivals} == {Flow.CUMULATIVE}
        made = convert(sender, decoded.arrivals, Known(states, round(T0 * 1e9)))
        assert made.counted + made.repeated + made.tally.refused == len(chunk)
        assert made.tally.refused == 0
        for rows in made.rows.values():
            for row in rows:
                sums[row.tenant] += row.output_tokens
        states = [*states, *made.states]
    assert {t: n for t, n in sums.items() if n} == {t: n for t, n in truth.items() if n}


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_order_and_repetition_of_deltas_ends_in_their_sum(random: Random) -> None:
    points = []
    for tenant in "ab":
        at = T0
        for _ in range(random.randint(1, 12)):
            end = at + random.choice((1.0, 30.0, 60.0))
            points.append((tenant, at, end, random.randint(0, 9)))
            at = end
    order = points + [random.choice(points) for _ in range(8)]
    random.shuffle(order)
    sender, states, sums = Sender("e", "otlp:e", "main", 60.0), [], defaultdict(int)
    for point in order:
        decoded = decode_metrics(metrics_request(total(OUTPUT, point, delta=True)))
        made = convert(sender, decoded.arrivals, Known(states))
        assert made.tally.refused == 0
        for rows in made.rows.values():
            for row in rows:
                sums[row.tenant] += row.output_tokens
        states = [*states, *made.states]
    for tenant in "ab":
        assert sums[tenant] == sum(p[3] for p in points if p[0] == tenant)
