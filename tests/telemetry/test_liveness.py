"""Which engines are heard, and what the watermark promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from telemetry.conventions import Emitter
from telemetry.otlp.decode import Decoded
from telemetry.records import Batch, TenantMinute
from telemetry.service.liveness import SETTLE_S, SILENT_S, Liveness
from tests.telemetry.delivered import T0, event


class Clock:
    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> float:
        return self.now


def heard(
    engine: str = "e1",
    start: float = T0,
    sealed: bool = True,
    run: str = "r1",
    emitter: Emitter = Emitter.WORKER,
    rows: bool = True,
) -> Decoded:
    row = TenantMinute(
        bucket_start=start, bucket_s=60.0, engine=engine, run_id=run, pool="main", tenant="a"
    )
    return Decoded((Batch(engine, run, "main", emitter, sealed, 1, (row,) if rows else ()),))


def test_the_watermark_is_the_earliest_sealed_end_of_the_engines_that_are_heard() -> None:
    clock = Clock()
    live = Liveness(clock)
    assert live.watermark_s() is None
    clock.now = T0 + 300
    live.took(heard("e1", T0 + 180))
    live.took(heard("e2", T0 + 60))
    assert live.watermark_s() == T0 + 120
    live.took(heard("e2", T0 + 120))
    assert live.watermark_s() == T0 + 180


def test_a_silent_engine_holds_the_watermark_back_for_a_bounded_time() -> None:
    clock = Clock()
    live = Liveness(clock)
    live.took(heard("gone", T0 - 60))
    for second in range(0, int(SILENT_S) + 120, 10):
        clock.now = T0 + second
        begun = T0 + second // 60 * 60
        live.took(heard("e1", begun, sealed=False))
        live.took(heard("e1", begun - 60))
        mark = T0 if second <= SILENT_S else begun
        assert live.watermark_s() == min(mark, clock.now - SETTLE_S)
    rows = {r["engine"]: r for r in live.engines().dicts()}
    assert (rows["gone"]["live"], rows["e1"]["live"]) == (False, True)
    assert list(rows) == ["gone", "e1"]  # the longest silent first


def test_an_open_bucket_of_a_front_is_waited_for_although_the_worker_has_sealed_it() -> None:
    clock = Clock()
    live = Liveness(clock)
    live.took(heard(start=T0, sealed=False, emitter=Emitter.FRONT))
    clock.now = T0 + 100
    live.took(heard(start=T0))
    assert live.watermark_s() == T0
    live.took(heard(start=T0, emitter=Emitter.FRONT))
    assert live.watermark_s() == T0 + 60


def test_a_minute_is_given_time_to_settle() -> None:
    clock = Clock()
    live = Liveness(clock)
    clock.now = T0 + 61
    live.took(heard(start=T0))
    assert live.watermark_s() == T0 + 61 - SETTLE_S
    clock.now = T0 + 60 + SETTLE_S
    assert live.watermark_s() == T0 + 60


def test_an_open_state_that_comes_late_does_not_open_a_sealed_minute_again() -> None:
    clock = Clock()
    live = Liveness(clock)
    clock.now = T0 + 100
    live.took(heard(start=T0))
    live.took(heard(start=T0, sealed=False))
    assert live.watermark_s() == T0 + 60


def test_a_minute_that_still_runs_is_not_sealed_whatever_its_sender_says() -> None:
    clock = Clock()
    live = Liveness(clock)
    clock.now = T0 + 50
    live.took(heard(start=T0))
    assert live.watermark_s() == T0


def test_rows_without_minutes_say_who_lives_and_hold_nothing_back() -> None:
    clock = Clock()
    live = Liveness(clock)
    only_logs = heard(rows=False)
    live.took(replace(only_logs, packed=(replace(only_logs.packed[0], logs=(event(1),)),)))
    assert live.watermark_s() is None
    [row] = live.engines().dicts()
    assert (row["live"], row["last_sealed_end_unix_s"], row["senders"]) == (True, None, 1)


def test_what_callers_name_is_bounded_and_said() -> None:
    clock = Clock()
    live = Liveness(clock)
    for n in range(1_200):
        clock.now = T0 + n
        live.took(heard(f"e{n}", run=f"r{n}"))
    [store] = live.store().dicts()
    assert (store["engines"], store["forgotten_engines"]) == (1_000, 200)
    assert {r["engine"] for r in live.engines().dicts()} == {f"e{n}" for n in range(200, 1_200)}
    for n in range(100):
        live.took(heard("e1199", run=f"again{n}"))
    assert next(r for r in live.engines().dicts() if r["engine"] == "e1199")["senders"] == 64


def test_denials_failures_and_refusals_are_counted_with_the_last_reason() -> None:
    clock = Clock()
    live = Liveness(clock)
    live.took(replace(heard(), refused=3))
    live.denied("no token", "e1")
    live.denied("x" * 1_000)
    clock.now = T0 + 5
    live.failed("No space left on device")
    live.put_off()
    [store] = live.store(queued=2).dicts()
    assert (store["denied"], store["failures"], store["put_off"], store["queued"]) == (2, 1, 1, 2)
    assert store["last_denial"] == "x" * 300
    assert (store["last_failure"], store["last_failure_unix_s"]) == (
        "No space left on device",
        T0 + 5,
    )
    [row] = live.engines().dicts()
    assert (row["refused"], row["denied"]) == (3, 1)


deliveries = st.lists(
    st.tuples(
        st.sampled_from(["e1", "e2"]),
        st.sampled_from(list(Emitter)[:2]),
        st.integers(0, 5),
        st.booleans(),
        st.floats(0, 90),
    ),
    max_size=30,
)


@given(deliveries)
def test_no_live_sender_has_a_begun_minute_before_the_watermark(given_: list[Any]) -> None:
    """Against a plain model: the last thing each sender said of each of its minutes."""
    clock = Clock()
    live = Liveness(clock)
    begun: dict[tuple[str, Emitter], tuple[float, float | None, float | None]] = {}
    for engine, emitter, number, sealed, wait_s in given_:
        clock.now += wait_s
        start = T0 + 60 * number
        live.took(heard(engine, start, sealed, emitter=emitter))
        _, end, opened = begun.get((engine, emitter), (0.0, None, None))
        if sealed and start + 60 <= clock.now:
            end = max(end or 0.0, start + 60)
            opened = None if opened is not None and opened < end else opened
        elif end is None or start >= end:
            opened = start
        begun[engine, emitter] = (clock.now, end, opened)
        mark = live.watermark_s()
        marks = [
            opened if opened is not None else end
            for last, end, opened in begun.values()
            if clock.now - last <= SILENT_S
        ]
        known = [m for m in marks if m is not None]
        assert mark == (min(*known, clock.now - SETTLE_S) if known else None)
