"""What a picture asks its source for: what is new, piece by piece, and nothing twice."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC

import pytest

from console import gather
from console.gather import COMMITS, COUNT_AGAIN_S, LATE_S, WHOLE_EVERY_S, Gatherer
from console.rows import Rows
from console.sight import LiveEdge, RecordEdge, Sight
from telemetry.ask.reading import Result
from telemetry.errors import StoreUnreachable
from telemetry.pipeline.portions import portions
from telemetry.service.process import StoreServer
from telemetry.store.store import Store
from tests.console import places
from tests.console import rows as made
from tests.console.test_sight import END, Clock, Given, sight


class Counting:
    """A source that remembers what it was asked."""

    def __init__(self, rows: Rows) -> None:
        self.source = places.memory(rows)
        self.asked: list[str] = []

    def query(self, name, **parameters):
        self.asked.append(name)
        return self.source.query(name, **parameters)

    def span(self):
        return self.source.span()

    def close(self):
        self.source.close()


def test_where_nothing_is_new_only_engines_and_events_are_asked_for():
    source = Silent(made.incident())
    gatherer = Gatherer(source, Clock())
    first = gatherer.now(END)
    source.asked.clear()
    again = gatherer.now(END + 1.0)
    assert source.asked == ["read.engine_minute", "read.event"]
    assert (again.revision, again.rows) == (first.revision, first.rows)


class Committing(Counting):
    """A live store: it counts what came in, and says so from memory."""

    commits = 7

    def __init__(self, rows: Rows) -> None:
        self.source = Given(rows)
        self.asked = []

    def query(self, name, **parameters):
        if name == COMMITS:
            self.asked.append(name)
            return Result(("pid", "started_unix_s", "batches"), ((1, 5.0, self.commits),))
        return super().query(name, **parameters)


def test_of_a_live_store_that_has_heard_nothing_since_no_row_is_asked_for():
    source = Committing(made.incident())
    gatherer = Gatherer(source, Clock())
    first = gatherer.now(END)
    source.asked.clear()
    assert gatherer.now(END + 1.0) is first
    assert source.asked == [COMMITS]
    source.commits += 1
    gatherer.now(END + 2.0)
    assert source.asked == [COMMITS, COMMITS, "read.engine_minute", "read.event"]


def test_what_came_while_rows_were_being_read_is_asked_for_again():
    class Racing(Committing):
        def query(self, name, **parameters):
            answer = super().query(name, **parameters)
            if name != COMMITS:
                self.commits += 1
            return answer

    source = Racing(made.incident())
    gatherer = Gatherer(source, Clock())
    gatherer.now(END)
    source.asked.clear()
    gatherer.now(END + 1.0)
    assert source.asked == [COMMITS, "read.engine_minute", "read.event"]


def test_now_and_then_rows_are_looked_through_however_quiet_the_store_is():
    source, clock = Committing(made.incident()), Clock()
    gatherer = Gatherer(source, clock)
    gatherer.now(END)
    source.asked.clear()
    clock.now += WHOLE_EVERY_S
    gatherer.now(END + 1.0)
    assert "read.engine_minute" in source.asked


class Silent(Committing):
    """A record: nobody counts."""

    def query(self, name, **parameters):
        self.asked.append(name)
        return self.source.query(name, **parameters)


def test_who_does_not_count_is_not_asked_to_each_second():
    source, clock = Silent(made.incident()), Clock()
    gatherer = Gatherer(source, clock)
    for i in range(4):
        gatherer.now(END + i)
    assert source.asked.count(COMMITS) == 1
    clock.now += COUNT_AGAIN_S
    gatherer.now(END + 4)
    assert source.asked.count(COMMITS) == 2


def test_all_columns_are_asked_for_of_the_last_minute_and_only_when_they_are_shown():
    every = replace(made.incident(), tenants=tuple(
        replace(t, vtc_counter=3.0) for t in made.incident().tenants))  # fmt: skip
    source = Committing(every)
    gatherer = Gatherer(source, Clock())
    narrow = gatherer.now(END)
    assert {t.vtc_counter for t in narrow.rows.tenants} == {None}
    assert {t.service for t in narrow.rows.tenants} == {t.service for t in every.tenants}
    gatherer.all_columns = True
    source.asked.clear()
    wide = gatherer.now(END + 1.0)
    assert "console_minutes_all" in source.asked
    known = [t for t in wide.rows.tenants if t.vtc_counter is not None]
    assert {t.bucket_start for t in known} >= {made.T0 + 10.0 * i for i in range(12, 18)}
    assert wide.revision > narrow.revision
    source.asked.clear()
    assert gatherer.now(END + 2.0).revision == wide.revision
    assert "console_minutes_all" not in source.asked
    assert {t.vtc_counter for t in gatherer.past(END).rows.tenants} >= {3.0}


def test_what_arrives_is_taken_in_and_the_rest_is_not_asked_for_again():
    before = made.incident(bad_buckets=5)
    source = Counting(before)
    gatherer = Gatherer(source, Clock())
    gatherer.now(END - 10.0)
    after = made.incident(bad_buckets=6)
    for one in places.batches(after):
        metrics, logs = places.encode(replace(one, seq=2))
        source.source.feed([metrics] if metrics else (), [logs] if logs else ())
    now = gatherer.now(END)
    assert now.revision == 1
    whole = Gatherer(Counting(after), Clock()).now(END)
    assert set(now.rows.engines) == set(whole.rows.engines)
    assert len(now.rows.tenants) == len(whole.rows.tenants)
    assert set(now.rows.interference) == set(whole.rows.interference)


def _redeliver(source, rows, seq):
    for one in places.batches(rows):
        metrics, logs = places.encode(replace(one, seq=seq))
        source.source.feed([metrics] if metrics else (), [logs] if logs else ())


def test_only_the_buckets_that_moved_on_are_read_again():
    half = replace(made.incident().engines[-1], observed_seconds=4.0)
    rows = made.incident()
    source = Bounds(replace(rows, engines=(*rows.engines[:-1], half)))
    gatherer = Gatherer(source, Clock())
    gatherer.now(END - 6.0)
    source.asked.clear()
    source.bounds.clear()
    _redeliver(source, rows, 2)
    gatherer.now(END)
    [(start, _)] = source.bounds
    assert start == END - made.BUCKET_S


def test_a_delivery_in_portions_is_read_once_when_it_is_whole():
    """The engine's own row comes with the last of them: until then no tenant is asked for."""
    rows = made.incident()
    last = END - made.BUCKET_S
    source = Bounds(_but(rows, last))
    gatherer = Gatherer(source, Clock())
    gatherer.now(last)
    source.bounds.clear()
    batch, _ = places.batches(_only(rows, last))
    parts = list(portions(batch, most_bytes=1))
    assert len(parts) > 3
    for part in parts:
        assert not source.bounds
        metrics, logs = places.encode(replace(part, seq=2))
        source.source.feed([metrics], [logs] if logs else ())
        gatherer.now(END - 1.0)
    assert len(source.bounds) == 1
    gatherer.now(END - 0.5)
    assert len(source.bounds) == 1


def _but(rows: Rows, start: float) -> Rows:
    """Without what is of one bucket."""
    return replace(
        rows,
        tenants=tuple(r for r in rows.tenants if r.bucket_start != start),
        engines=tuple(r for r in rows.engines if r.bucket_start != start),
        interference=tuple(r for r in rows.interference if r.bucket_start != start),
    )


def _only(rows: Rows, start: float) -> Rows:
    """That bucket's minutes alone."""
    return Rows(
        tenants=tuple(r for r in rows.tenants if r.bucket_start == start),
        engines=tuple(r for r in rows.engines if r.bucket_start == start),
        interference=tuple(r for r in rows.interference if r.bucket_start == start),
    )


class Bounds(Counting):
    """And for when tenants' rows were asked for."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.bounds: list[tuple[float, float]] = []

    def query(self, name, **parameters):
        if name == "console_minutes":
            self.bounds.append((parameters["start"], parameters["end"]))
        return super().query(name, **parameters)


def test_what_the_front_sends_of_a_bucket_later_is_taken_in():
    rows = made.incident()
    worker, front = places.batches(rows)
    source = Counting(Rows())
    metrics, logs = places.encode(worker)
    source.source.feed([metrics], [logs])
    gatherer = Gatherer(source, Clock())
    assert {r.offered_requests for r in gatherer.now(END).rows.tenants} == {None}
    metrics, _ = places.encode(front)
    source.source.feed([metrics], ())
    after = made.engine(END, observed_seconds=5.0)
    _redeliver(source, Rows(engines=(after,)), 3)
    newest = [r for r in gatherer.now(END + LATE_S).rows.tenants if r.bucket_start >= END - 40.0]
    assert {r.offered_requests for r in newest} == {6, 24}


def test_now_and_then_the_engines_rows_of_old_buckets_are_looked_at_too():
    rows = made.incident(calm_buckets=60)
    end = made.T0 + 660.0
    old = replace(rows.engines[2], observed_seconds=4.0)
    source = Bounds(replace(rows, engines=(*rows.engines[:2], old, *rows.engines[3:])))
    clock = Clock()
    gatherer = Gatherer(source, clock)
    gatherer.now(end)
    source.bounds.clear()
    _redeliver(source, rows, 2)
    gatherer.now(end)
    assert not source.bounds
    clock.now = WHOLE_EVERY_S + 1.0
    gatherer.now(end + 1.0)
    assert source.bounds[0] == (old.bucket_start, old.bucket_start + made.BUCKET_S)


def test_a_crowds_history_comes_piece_by_piece_and_is_said_to_be_read(monkeypatch):
    monkeypatch.setattr(gather, "PIECE_ROWS", 16)  # four buckets of four tenants
    rows = made.calm(30)
    end = made.T0 + 300.0
    source = Given(rows)
    gatherer, seen = Gatherer(source, Clock()), []
    for second in range(12):
        seen.append(gatherer.now(end + second))
    whole = Gatherer(Given(rows), Clock())
    assert [len(g.rows.engines) for g in seen[:4]] == [5, 9, 13, 17]
    assert "before are still being read" in seen[0].notes[-1]
    assert seen[-1].notes == ()
    assert seen[-1].revision == seen[-2].revision
    monkeypatch.undo()
    assert set(seen[-1].rows.tenants) == set(whole.now(end).rows.tenants)
    assert len(seen[-1].rows.tenants) == len(set(seen[-1].rows.tenants))
    past = Gatherer(Given(rows), Clock()).past(end).rows
    assert set(past.tenants) == set(whole.now(end).rows.tenants)


@pytest.mark.parametrize("edge", [LiveEdge(lambda: END), RecordEdge(UTC)], ids=["live", "record"])
def test_for_a_script_all_of_the_history_is_read_first(edge, monkeypatch):
    monkeypatch.setattr(gather, "PIECE_ROWS", 16)
    source = Given(made.incident())
    looked = Sight(lambda: source, edge, tz=UTC)
    assert looked.whole().verdict.named == "acme"
    assert looked.whole().lamps.notes == ()


def test_what_is_too_old_goes_and_nothing_comes_twice():
    rows = made.calm(150)
    source = Given(rows)
    gatherer = Gatherer(source, Clock())
    for bucket in range(60, 150, 7):
        now = gatherer.now(made.T0 + made.BUCKET_S * bucket).rows
        assert len(now.tenants) == len(set(now.tenants))
        assert {r.bucket_start for r in now.tenants} == {e.bucket_start for e in now.engines}
        assert min(e.bucket_start for e in now.engines) >= made.T0 + 10.0 * bucket - 920.0


def test_after_a_leap_of_the_clock_no_row_is_left_out():
    rows = made.calm(60)
    source = Given(rows)
    gatherer = Gatherer(source, Clock())
    gatherer.now(made.T0 + 60.0)
    leapt = gatherer.now(made.T0 + 500.0).rows
    assert set(leapt.engines) == set(Gatherer(source, Clock()).now(made.T0 + 500.0).rows.engines)


def test_a_store_that_went_and_came_back_is_found_again(tmp_path):
    rows = made.incident()
    with ExitStack() as stack:
        where = places.live(rows, tmp_path, stack)
        looked = sight(where)
        stack.callback(looked.close)
        assert looked.snapshot().verdict.named == "acme"
    with pytest.raises(StoreUnreachable):
        looked.snapshot()
    with ExitStack() as stack:
        server = StoreServer(Store.open(tmp_path / "store"), where)
        server.start()
        stack.callback(server.stop, 0.2)
        stack.callback(looked.close)
        assert looked.snapshot().verdict.named == "acme"


def test_a_record_that_has_ended_is_not_asked_again_and_again():
    source = Counting(made.incident())
    clock = Clock()
    looked = Sight(lambda: source, RecordEdge(UTC, clock), tz=UTC, monotonic=clock)
    first = looked.snapshot()
    source.asked.clear()
    clock.now = 60.0
    assert looked.snapshot() == first
    assert source.asked == []
