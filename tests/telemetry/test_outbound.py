"""Third parties: what they are sent arrives, and whatever they do costs nobody else anything."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.outbound.lane import DROPS, Lane, Pace, pause_s
from telemetry.outbound.metrics import cumulative
from telemetry.outbound.queue import Payload, Queue, Snapshots
from telemetry.outbound.wire import Fate, Reply
from telemetry.records import EngineRun
from telemetry.service.retry_info import retry_after_s
from tests.telemetry.delivered import RUN, T0, batch, minute, request, until
from tests.telemetry.otlp_collector import (
    Answer,
    Collector,
    collecting,
    refuses,
    rejects,
    retry_info,
    takes,
)
from tests.telemetry.sending import (
    FAST,
    counting,
    hear,
    losses,
    metrics_to,
    one,
    sending,
    traces_to,
)


@pytest.fixture
def dead() -> str:
    """A port where nobody listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}"


@pytest.fixture
def black_hole() -> Iterator[str]:
    """Connections are taken, and nothing is ever said."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(16)
        yield f"http://127.0.0.1:{s.getsockname()[1]}"


# --- traces arrive, once ---


def test_a_kept_request_arrives_as_its_spans():
    with collecting() as collector, sending(traces_to(collector.url)) as outbound:
        outbound.hear([batch(EngineRun(started=T0, model="tiny", **RUN))], T0)
        hear(outbound, request(1, ended=T0 + 2.0, wait_front_s=0.5))
        collector.wait(lambda: len(collector.spans()) == 2)
        [sent] = collector.traces
        said = {a.key: a.value.string_value for a in sent.resource_spans[0].resource.attributes}
        root, front = collector.spans()
        until(lambda: one(outbound).sent == 2)
    assert said == {
        "service.name": "tenantscope", "service.instance.id": "e1", "tenantscope.pool": "main"
    }  # fmt: skip
    assert (root.name, front.name) == ("request", "front")
    assert front.parent_span_id == root.span_id
    assert {a.key: a.value.string_value for a in root.attributes}["gen_ai.request.model"] == "tiny"
    assert root.end_time_unix_nano - root.start_time_unix_nano == 2_000_000_000


def test_a_store_that_is_busy_for_a_while_gets_everything_once():
    busy = refuses(grpc.StatusCode.UNAVAILABLE)
    with (
        collecting(busy, busy, busy, takes) as collector,
        sending(traces_to(collector.url)) as outbound,
    ):
        hear(outbound, *(request(n) for n in range(50)))
        collector.wait(lambda: len(collector.spans()) == 50)
        until(lambda: one(outbound).sent == 50)
        stats = one(outbound)
    assert len({s.span_id for s in collector.spans()}) == 50
    assert stats.retries >= 3
    assert losses(stats) == {}
    assert stats.last_error == ""


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,  # it does not say when to come back
    ],
)
def test_what_is_refused_for_good_is_dropped_and_the_next_one_goes_on(code: grpc.StatusCode):
    with collecting(refuses(code), takes) as collector, sending(traces_to(collector.url)) as out:
        hear(out, request(1))
        until(lambda: losses(one(out)) == {"refused": 1})
        assert code.name in one(out).last_error
        hear(out, request(2))
        until(lambda: one(out).sent == 1)
        assert one(out).last_error == ""
    assert collector.calls == 2


def test_a_wait_that_is_asked_for_is_waited():
    asked = refuses(grpc.StatusCode.RESOURCE_EXHAUSTED, wait_s=0.3)
    with collecting(asked, takes) as collector, sending(traces_to(collector.url)) as outbound:
        began = time.monotonic()
        hear(outbound, request(1))
        until(lambda: one(outbound).sent == 1)
        assert time.monotonic() - began >= 0.3


def test_a_part_that_is_rejected_is_counted_and_not_sent_again():
    with collecting(rejects(1)) as collector, sending(traces_to(collector.url)) as outbound:
        hear(outbound, request(1, ended=T0 + 1, wait_front_s=0.5))
        until(lambda: losses(one(outbound)) == {"rejected": 1})
        assert one(outbound).sent == 1
    assert collector.calls == 1


def test_after_long_enough_a_request_is_given_up(dead: str):
    with sending(traces_to(dead), pace=replace(FAST, give_up_s=0.05)) as outbound:
        hear(outbound, request(1))
        until(lambda: losses(one(outbound)) == {"too_old": 1})


# --- whatever a third party does ---


def test_one_that_hangs_holds_up_nobody_else():
    with collecting() as good, hanging() as bad:
        exports = (traces_to(bad.url, timeout_s=60.0), traces_to(good.url))
        with sending(*exports) as outbound:
            hear(outbound, request(1))
            bad.wait(lambda: bad.calls == 1)
            hear(outbound, *(request(n) for n in range(2, 100)))
            good.wait(lambda: len(good.spans()) == 99)
            until(lambda: outbound.stats().lanes[1].sent == 99)
            assert outbound.stats().lanes[0].waiting == 99


@contextmanager
def hanging() -> Iterator[Collector]:
    with collecting() as collector:
        collector.answers(collector.hangs)
        yield collector


def test_one_that_hangs_is_left_after_its_timeout_and_asked_again():
    with hanging() as collector, sending(traces_to(collector.url, timeout_s=0.1)) as outbound:
        hear(outbound, request(1))
        collector.wait(lambda: collector.calls >= 2)
        assert one(outbound).retries >= 1
        assert "DEADLINE_EXCEEDED" in one(outbound).last_error


def test_a_dead_one_costs_a_bounded_queue_and_every_loss_is_counted(dead: str):
    with sending(traces_to(dead, queue=10)) as outbound:
        for first in range(0, 2000, 100):
            hear(outbound, *(request(n) for n in range(first, first + 100)))
        until(lambda: outbound._rows == 0 and one(outbound).last_error != "")
        until(lambda: sum(losses(one(outbound)).values()) + one(outbound).waiting == 2000)
        assert len(outbound._lanes[0]._feed._waiting) <= 10
        assert losses(one(outbound))["no_room"] > 0
    assert sum(losses(one(outbound)).values()) == 2000


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 8), st.integers(1, 200))
def test_a_queue_keeps_its_bounds_and_loses_nothing_unsaid(
    sizes: list[int], limit: int, limit_bytes: int
):
    queue = Queue(limit, limit_bytes)
    for size in sizes:
        queue.put(Payload(b"x" * size, size))
        assert len(queue._waiting) <= limit
        assert sum(len(p.data) for p in queue._waiting) <= limit_bytes
    waiting = queue.waiting()
    assert waiting + queue.dropped() == sum(sizes)
    taken = 0
    while (payload := queue.take(0.0)) is not None:
        taken += payload.items
        assert len(payload.data) == payload.items
    assert taken == waiting


def test_rows_that_come_faster_than_they_are_looked_at_are_counted(monkeypatch: Any):
    monkeypatch.setattr("telemetry.outbound.outbound.MOST_ROWS", 10)
    held = threading.Event()
    with collecting() as collector, sending(traces_to(collector.url)) as outbound:
        outbound._look_at = lambda *_: held.wait(10)
        for n in range(5):
            hear(outbound, *(request(n * 4 + i) for i in range(4)))
        assert outbound.stats().overrun >= 4
        held.set()


BEHAVIOURS = ("takes", "refuses", "unavailable", "hangs", "dead", "black hole")


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_end_is_bounded_and_says_what_was_lost(
    behaviour: str, dead: str, black_hole: str, caplog: Any
):
    with collecting() as collector:
        answers: dict[str, Answer] = {
            "refuses": refuses(grpc.StatusCode.PERMISSION_DENIED),
            "unavailable": refuses(grpc.StatusCode.UNAVAILABLE),
            "hangs": collector.hangs,
        }
        collector.answers(answers.get(behaviour, takes))
        url = {"dead": dead, "black hole": black_hole}.get(behaviour, collector.url)
        exports = [
            traces_to(url, timeout_s=60.0),
            metrics_to(url, timeout_s=60.0),
            replace(traces_to(url + "/v1/traces", timeout_s=2.0), metrics=False),
        ]
        with sending(*exports) as outbound:
            hear(outbound, *(request(n) for n in range(300)))
            began = time.monotonic()
            outbound.stop()
            took_s = time.monotonic() - began
        stats = outbound.stats().lanes[0]
    assert took_s < 5.0
    assert stats.sent + sum(losses(stats).values()) == 300
    if behaviour == "takes":
        assert stats.sent == 300
    elif behaviour in ("hangs", "dead", "black hole", "unavailable"):
        assert losses(stats) == {"shutdown": 300}
        assert "300 spans were not sent before the end" in caplog.text


def test_a_fault_here_ends_no_lane():
    class Broken:
        def send(self, data: bytes, timeout_s: float) -> Reply:
            if data == b"bad":
                raise RuntimeError("a fault")
            return Reply(Fate.TAKEN)

        def close(self) -> None:
            return None

    lane = Lane("http://x:1", "traces", Queue(10), Broken(), 1.0, FAST)
    lane.put(Payload(b"bad", 3))
    until(lambda: losses(lane.stats()) == {"fault": 3})
    lane.put(Payload(b"good", 2))
    until(lambda: lane.stats().sent == 2)
    lane.begin_stop(1.0)
    lane.join(5.0)
    lane.end()
    assert lane.stats().waiting == 0


# --- running totals ---


def test_running_totals_arrive_again_and_again_with_one_start():
    heard = counting("a")
    with collecting() as collector, sending(metrics_to(collector.url), heard=heard):
        heard.hear([batch(minute("a", output_tokens=7), sealed=False)], T0)
        collector.wait(lambda: last(collector, "output_tokens") == 7)
        heard.hear([batch(minute("a", output_tokens=9), seq=2)], T0)
        collector.wait(lambda: last(collector, "output_tokens") == 9)
    starts = {p.start_time_unix_nano for p in points(collector, "output_tokens")}
    assert starts == {int(T0) * 10**9}


def points(collector: Collector, column: str) -> list[Any]:
    return [
        p
        for sent in collector.metrics
        for r in sent.resource_metrics
        for s in r.scope_metrics
        for m in s.metrics
        if m.name == f"tenantscope.tenant_minute.{column}"
        for p in m.sum.data_points
        if p.attributes[0].value.string_value == "a"
    ]


def last(collector: Collector, column: str) -> int | None:
    found = points(collector, column)
    return found[-1].as_int if found else None


def test_unsent_totals_are_replaced_by_newer_ones_and_take_no_room(dead: str):
    heard = counting("a")
    heard.hear([batch(minute("a", output_tokens=7))], T0)
    size = sum(p.items for p in cumulative(heard, T0, lambda *_: None))
    with sending(metrics_to(dead), heard=heard) as outbound:
        until(lambda: one(outbound).replaced >= 5)
        assert one(outbound).waiting <= size
        assert losses(one(outbound)) == {}


def test_a_snapshot_is_made_when_it_is_due_and_a_missed_turn_is_not_made_up_for():
    made: list[int] = []

    def make() -> list[Payload]:
        made.append(len(made))
        return [Payload(b"a", 1), Payload(b"b", 1)]

    feed = Snapshots(15.0, make)
    assert feed.due_s(100.0) == 0.0
    assert [feed.take(100.0), feed.take(101.0), feed.take(102.0)] == [
        Payload(b"a", 1), Payload(b"b", 1), None
    ]  # fmt: skip
    assert feed.due_s(102.0) == 13.0
    assert feed.newer(114.9) is None
    assert feed.newer(200.0) == Payload(b"a", 1)
    assert feed.take(201.0) == Payload(b"b", 1)
    assert feed.take(202.0) is None
    assert len(made) == 2


# --- how long to wait ---


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_wait_grows_to_its_longest_and_half_of_it_is_chance(failures: int, roll: float):
    pace = Pace(first_s=0.5, longest_s=30.0)
    whole = min(30.0, 0.5 * 2.0 ** min(failures - 1, 30))
    assert whole / 2 <= pause_s(failures, None, roll, pace) <= whole
    assert pause_s(failures, 60.0, roll, pace) == 60.0
    assert pause_s(failures, 1e9, roll, pace) == pace.most_asked_s


@given(st.integers(0, 3600 * 1000))
def test_a_wait_asked_for_is_read_from_the_status(milliseconds: int):
    asked = retry_after_s(retry_info(milliseconds / 1000))
    assert asked == pytest.approx(milliseconds / 1000, abs=1e-5)


@given(st.binary(max_size=80))
def test_a_status_that_is_none_asks_for_nothing_and_does_no_harm(status: bytes):
    asked = retry_after_s(status)
    assert asked is None or asked >= 0
    assert retry_after_s(None) is None


# --- seen from outside ---


def test_losses_are_in_prometheus(dead: str):
    from prometheus_client import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    from telemetry.prometheus.collector import registry_of

    heard = counting("a")
    refusal = refuses(grpc.StatusCode.INVALID_ARGUMENT)
    with (
        collecting(refusal) as collector,
        sending(traces_to(collector.url), heard=heard) as outbound,
    ):
        hear(outbound, request(1))
        until(lambda: losses(one(outbound)) == {"refused": 1})
        text = generate_latest(registry_of(heard, lambda: T0, outbound)).decode()
    found = {
        (s.name, *sorted(s.labels.items())): s.value
        for f in text_string_to_metric_families(text)
        for s in f.samples
    }
    where = (("endpoint", collector.url), ("reason", "refused"), ("signal", "traces"))
    assert found["tenantscope_store_export_dropped_total", *where] == 1
    reasons = {dict(k[1:])["reason"] for k in found if k[0].endswith("export_dropped_total")}
    assert reasons == set(DROPS)


def test_a_listener_that_only_shows_totals_keeps_nothing():
    with sending(metrics_to("http://127.0.0.1:1"), heard=counting("a")) as outbound:
        hear(outbound, *(request(n) for n in range(1000)))
        assert outbound._rows == 0
