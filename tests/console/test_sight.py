"""One picture from every source, at every time: live, from memory, closed, played again."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC

import pytest

from console.detail import Ask, Detail
from console.pages import PAGES
from console.panels import LIVE, Lamps, Snapshot
from console.rows import Rows
from console.screens import Place
from console.sight import LiveEdge, NothingRecorded, RecordEdge, ReplayEdge, Sight
from telemetry.ask.reading import Result
from telemetry.ask.rows import ROWS, columns_of
from telemetry.errors import QueryError, StoreError
from telemetry.instants import micros
from telemetry.source import open_source
from telemetry.tables import TABLES
from telemetry.window import PoolChoice
from tests.console import places
from tests.console import rows as made

END = made.T0 + 180.0


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def sight(where: str, edge=None, **more) -> Sight:
    return Sight(lambda: open_source(where), edge or LiveEdge(lambda: END), tz=UTC, **more)


def in_memory(rows: Rows, edge=None, **more) -> Sight:
    source = places.memory(rows)
    return Sight(lambda: source, edge or LiveEdge(lambda: END), tz=UTC, **more)


def asked_of_pages(s: Snapshot) -> tuple[Ask, ...]:
    """One of a page: that each query answers alike everywhere tests of the sources say."""
    asks = PAGES["tenant"].wants(s, Place(tenant="globex"))
    return tuple(a for a in asks if a.name == "history")


def told(detail: Detail) -> dict[str, list[tuple[object, ...]]]:
    """The rows, with sums to nine digits: in which order a source adds them up is its own."""

    def nine(value: object) -> object:
        return float(f"{value:.9g}") if isinstance(value, float) else value

    return {n: [tuple(map(nine, row)) for row in a.rows] for n, a in detail.answers.items()}


def same_but_lamps(s: Snapshot) -> Snapshot:
    return replace(s, lamps=Lamps())


@pytest.mark.parametrize(
    "place",
    [places.folder, places.parquet, places.live, places.worker, places.serve],
    ids=lambda p: p.__name__,
)
def test_every_source_gives_the_very_same_picture_and_rows_of_pages(place, tmp_path):
    rows = made.incident()
    memory = in_memory(rows)
    wanted = memory.snapshot()
    pages = asked_of_pages(wanted)
    assert (wanted.verdict.named, wanted.mode) == ("acme", LIVE)
    with ExitStack() as stack:
        looked = sight(place(rows, tmp_path, stack))
        stack.callback(looked.close)
        found = looked.snapshot()
        assert same_but_lamps(found) == same_but_lamps(wanted)
        assert (found.lamps.store_down_s is not None) is (place is places.serve)
        assert bool(found.lamps.notes) is (place in (places.serve, places.worker))
        assert told(looked.detail(pages)) == told(memory.detail(pages))


def test_a_record_is_looked_at_from_its_end(tmp_path):
    with ExitStack() as stack:
        looked = sight(places.folder(made.incident(), tmp_path, stack), RecordEdge(UTC))
        stack.callback(looked.close)
        s = looked.snapshot()
    assert (s.now, s.mode, s.stale) == (END, "STORE 2027-01-15", False)
    assert s.verdict.named == "acme"


def test_an_instant_of_the_past_shows_only_what_was_closed_by_then():
    looked = in_memory(made.incident())
    calm = looked.at(made.T0 + 115.0)
    assert calm.edge == END
    assert calm.data_at == made.T0 + 110.0
    assert calm.verdict.named is None
    assert not calm.stale
    hurt = looked.at(END)
    assert hurt.verdict.named == "acme"


def test_a_time_after_now_is_now():
    assert in_memory(made.incident()).at(END + 500.0).now == END


def test_a_replay_runs_from_the_first_closed_bucket_to_the_end_and_stays():
    clock = Clock()
    rows = replace(made.incident(), runs=(made.run(bucket_s=made.BUCKET_S),))
    looked = in_memory(rows, ReplayEdge(10.0, clock))
    first = looked.snapshot()
    assert (first.now, first.mode) == (made.T0 + 10.0, "REPLAY x10")
    clock.now = 16.0
    assert looked.snapshot().verdict.named == "acme"
    clock.now = 1e6
    assert looked.snapshot().now == END


def test_a_replay_faster_than_nothing_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        ReplayEdge(0.0)


def test_a_store_without_minutes_says_so_with_what_to_do():
    with pytest.raises(NothingRecorded, match="is it the right store"):
        in_memory(Rows(), RecordEdge(UTC)).snapshot()


def test_after_a_failure_the_source_is_opened_again_by_itself():
    source = places.memory(made.incident())
    opened = []

    def opening():
        opened.append(True)
        if len(opened) == 1:
            raise StoreError("not yet")
        return source

    looked = Sight(opening, LiveEdge(lambda: END), tz=UTC)
    with pytest.raises(StoreError):
        looked.snapshot()
    assert looked.snapshot().verdict.named == "acme"
    assert len(opened) == 2


def test_a_question_that_cannot_be_is_refused_and_the_source_stays():
    source = places.memory(made.incident())
    opened = []

    def opening():
        opened.append(True)
        return source

    looked = Sight(opening, LiveEdge(lambda: END), tz=UTC)
    with pytest.raises(QueryError, match="no query 'nonsense'"):
        looked.detail((Ask.of("rows", "nonsense"),))
    [answer] = looked.detail((Ask.of("rows", "events_page", 0.0, END, pool="main", which="every",
                                     most=1),)).answers.values()  # fmt: skip
    assert len(answer.rows) == 1
    assert len(opened) == 1


def test_what_answers_no_more_is_closed_and_let_go():
    class Dying:
        closed = False

        def query(self, name, **parameters):
            raise StoreError("gone")

        def span(self):
            return None

        def close(self):
            self.closed = True

    dying = Dying()
    looked = Sight(lambda: dying, LiveEdge(lambda: END), tz=UTC)
    with pytest.raises(StoreError):
        looked.snapshot()
    assert dying.closed
    dying.closed = False
    with pytest.raises(StoreError):
        looked.detail((Ask.of("rows", "span"),))
    assert dying.closed


def test_old_figures_are_stale_and_the_open_bucket_is_provisional():
    now = Clock(END)
    rows = made.incident()
    looked = in_memory(rows, LiveEdge(now))
    assert not looked.snapshot().stale
    now.now = END + 45.0
    later = looked.snapshot()
    assert later.stale
    assert later.data_age_s == 45.0
    half = replace(rows.engines[-1], observed_seconds=4.0)
    opened = in_memory(replace(rows, engines=(*rows.engines[:-1], half)), LiveEdge(lambda: END - 6))
    assert opened.snapshot().provisional


def test_minutes_that_nobody_observed_and_those_seen_in_part_are_counted():
    rows = made.incident()
    gone = made.T0 + 130.0
    short = made.T0 + 150.0
    holed = replace(
        rows,
        engines=tuple(
            replace(r, observed_seconds=3.0) if r.bucket_start == short else r
            for r in rows.engines
            if r.bucket_start != gone
        ),
        tenants=tuple(r for r in rows.tenants if r.bucket_start != gone),
        interference=tuple(r for r in rows.interference if r.bucket_start != gone),
    )
    account = in_memory(holed).snapshot().account
    assert (account.gaps, account.short) == (1, 1)


def two_pools() -> Rows:
    rows = made.incident()
    newer = replace(made.engine(made.T0 + 180.0, running_avg=1.0), pool="other", run_id="r2")
    older = replace(newer, bucket_start=made.T0 + 100.0)
    return replace(rows, engines=(*rows.engines, older, newer))


OWN_QUERIES = {
    "console_minutes": "tenant_minute",
    "console_minutes_all": "tenant_minute",
    "console_matrix": "interference_minute",
}


class Given:
    """A source that answers with what it is given."""

    def __init__(self, rows: Rows) -> None:
        self.fake = made.FakeSource(rows)

    def query(self, name, *, start=0.0, end=0.0, **more):
        if name in OWN_QUERIES:
            return self._own(OWN_QUERIES[name], columns_of(ROWS[name]), start, end)
        if not name.startswith("read."):
            raise QueryError(f"no query {name!r}")
        table = TABLES[name.removeprefix("read.")]
        rows = self.fake.read(table.name, start, end)
        at = [c.name for c in table.columns if c.sql == "TIMESTAMP"]

        def told(row, column):
            value = getattr(row, column)
            return micros(value) if column in at and value is not None else value

        values = tuple(tuple(told(r, c) for c in table.column_names) for r in rows)
        return Result(table.column_names, values)

    def _own(self, table, columns, start, end):
        """As the console's own queries answer: instants as seconds, histograms as text."""

        def told(value):
            return str(list(value)) if isinstance(value, tuple) else value

        rows = self.fake.read(table, start, end)
        values = (tuple(told(getattr(r, c)) for c in columns) for r in rows)
        return Result(columns, tuple(values))

    def span(self):
        return self.fake.span()

    def close(self):
        pass


def test_the_pool_heard_last_is_shown_and_stays_until_another_is_chosen():
    source = Given(two_pools())
    looked = Sight(lambda: source, LiveEdge(lambda: END + 5.0), tz=UTC)
    s = looked.snapshot()
    assert (s.pool, s.pools) == ("other", ("main", "other"))
    looked.show_pool("main")
    s = looked.snapshot()
    assert (s.pool, s.verdict.named) == ("main", "acme")


def test_a_pool_chosen_while_a_picture_is_made_is_that_of_the_next_one():
    class Choosing(Given):
        choice: str | None = None

        def query(self, name, **parameters):
            if self.choice is not None:
                looked.show_pool(self.choice)
            return super().query(name, **parameters)

    source = Choosing(two_pools())
    looked = Sight(lambda: source, LiveEdge(lambda: END + 5.0), tz=UTC, pool="main")
    source.choice = "other"
    assert looked.at(END).pool == "main"
    source.choice = None
    looked.show_pool("main")
    assert looked.at(END).pool == "main"
    looked.show_pool("other")
    assert looked.at(END).pool == "other"


def test_a_pool_that_is_not_there_is_named_with_those_that_are():
    source = Given(two_pools())
    looked = Sight(lambda: source, LiveEdge(lambda: END), tz=UTC, pool="nope")
    with pytest.raises(PoolChoice, match="no pool 'nope' was heard lately; there is 'main'"):
        looked.snapshot()


class Moody(Given):
    """A source that says of its answers what the test wants."""

    partial: tuple[str, ...] = ()

    def query(self, name, **parameters):
        return replace(super().query(name, **parameters), partial=self.partial)


def test_a_store_that_goes_down_is_said_with_since_when_and_so_is_its_return():
    source, clock = Moody(made.incident()), Clock()
    looked = Sight(lambda: source, LiveEdge(lambda: END), tz=UTC, monotonic=clock)
    assert looked.snapshot().lamps.lost == 0
    source.partial = ("the store is not answering: refused", "from the worker's memory")
    assert looked.snapshot().lamps.store_down_s == 0.0
    clock.now, source.partial = 60.0, (source.partial[0], "the worker is silent for 60 s")
    lamps = looked.snapshot().lamps
    assert (lamps.store_down_s, lamps.lost, lamps.notes) == (60.0, None, source.partial)
    source.partial = ()
    lamps = looked.snapshot().lamps
    assert (lamps.store_down_s, lamps.lost, lamps.notes) == (None, 0, ())
