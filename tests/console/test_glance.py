"""The first look: what it shows is true, what it cannot know it says, and the whole follows."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console import glance as glances
from console.detail import Detail
from console.early import Early
from console.frame import screen_lines
from console.overview import Look, overview_lines
from console.pages import PAGES
from console.panels import Level, Mark, Snapshot, TenantRow
from console.rows import Rows
from console.screens import Place, Scene
from console.sight import LiveEdge, RecordEdge, Sight
from telemetry.errors import QueryError
from tests.console import places
from tests.console import rows as made

END = made.T0 + 180.0
CROWD = tuple(f"tenant-{i:03}" for i in range(14))


@cache
def source(holder: str = "acme", victims: tuple[str, ...] = CROWD):
    """Rows in memory."""
    return places.memory(made.incident(8, 10, holder, victims))


@cache
def whole_picture() -> Snapshot:
    return Sight(source, LiveEdge(lambda: END), tz=UTC).snapshot()


@cache
def glimpsed(top: int = glances.TOP, **more) -> Snapshot:
    """The first look, `top` tenants of each kind."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(glances, "TOP", top)
        found = glances.glance(
            source(**more), END, pool=None, mode="LIVE", settled=False, window_s=60.0
        )
    assert found is not None
    return found[0]


def by_name(s: Snapshot) -> dict[str, TenantRow]:
    """Every tenant's line; marks are the verdict's, which a first look has none of."""
    return {t.name: replace(t, mark=Mark.NONE) for t in s.tenants if not t.folded}


def test_every_line_of_a_first_look_is_that_of_the_whole_picture():
    first, whole = glimpsed(), whole_picture()
    assert (first.filling, whole.filling) == (True, False)
    assert by_name(first) == by_name(whole)
    assert (first.strip, first.wait, first.data_at) == (whole.strip, whole.wait, whole.data_at)
    assert (first.pool, first.pools, first.engines) == (whole.pool, whole.pools, whole.engines)


@given(st.integers(1, 20))
@settings(max_examples=4, deadline=None)
def test_of_a_crowd_the_largest_have_lines_and_the_others_close_the_sums(top):
    first, whole = glimpsed(top), whole_picture()
    listed, known = by_name(first), by_name(whole)
    assert sum(t.folded or 1 for t in first.tenants) == len(known)
    assert sum(t.folded > 0 for t in first.tenants) <= 1
    for name, line in listed.items():
        for column in ("service_share", "fair_share", "kv_share", "running", "waiting"):
            assert getattr(line, column) == pytest.approx(getattr(known[name], column))
    for column in ("service", "running", "kv_share", "slo_missed", "offered", "fair_share"):
        sums = [sum(getattr(t, column) or 0.0 for t in s.tenants) for s in (first, whole)]
        assert sums[0] == pytest.approx(sums[1])
    assert max(known.values(), key=lambda t: t.service).name in listed


def test_fair_shares_are_those_of_the_whole_where_the_others_wait_at_several_engines():
    rows = made.incident(8, 10, "acme", CROWD)
    moved = {t for i, t in enumerate(CROWD) if i % 3}
    two = replace(
        rows,
        tenants=tuple(replace(r, engine="e2") if r.tenant in moved else r for r in rows.tenants),
        engines=(*rows.engines, *(replace(e, engine="e2") for e in rows.engines)),
        runs=(*rows.runs, *(replace(r, engine="e2") for r in rows.runs)),
    )
    held = places.memory(two)
    whole = by_name(Sight(lambda: held, LiveEdge(lambda: END), tz=UTC).snapshot())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(glances, "TOP", 3)
        first, _ = glances.glance(held, END, pool=None, mode="LIVE", settled=False, window_s=60.0)
    listed = by_name(first)
    assert 0 < len(listed) < len(whole)
    for name, line in listed.items():
        assert line.fair_share == pytest.approx(whole[name].fair_share)


def test_a_pool_that_fell_silent_is_looked_at_where_it_was_last_heard():
    burning, alive = made.incident(8, 4), made.calm(18)
    moved = {f: tuple(replace(r, pool="alive", run_id="r2") for r in getattr(alive, f))
             for f in ("tenants", "engines", "runs", "policies")}  # fmt: skip
    held = places.memory(burning.then(Rows(**moved)))
    first, _ = glances.glance(held, END, pool="main", mode="LIVE", settled=False, window_s=60.0)
    whole = Sight(lambda: held, LiveEdge(lambda: END), tz=UTC, pool="main").snapshot()
    assert by_name(first) == by_name(whole)
    assert any(t.slo_missed for t in first.tenants)


def test_a_tenant_that_is_called_as_the_others_are_keeps_its_own_line():
    first = glimpsed(1, holder="others", victims=CROWD[:9])
    largest, *_, rest = first.account.holds
    assert (largest.name, largest.row.folded) == ("others", 0)
    assert largest.row.service_share > 0.5
    assert rest.name == f"others ({rest.row.folded})"


def drawn(s: Snapshot, page: str = "overview") -> str:
    scene = Scene(s, Place(), 80, 24, Look(tz=UTC))
    return "\n".join(x.plain.rstrip() for x in screen_lines(PAGES[page], scene))


def test_it_says_what_it_does_not_know_yet_and_claims_nothing():
    first = glimpsed()
    text = drawn(first)
    assert first.verdict.level is Level.UNKNOWN
    assert "nobody has been judged yet" in text
    assert "whom the waits are charged to is still being read" in text
    assert "what has changed is still being read" in text
    for word in ("excess", "lost ", "nothing has changed", "not tenants", "LIKELY"):
        assert word not in text
    assert all(len(x) <= 80 for x in text.splitlines())


@pytest.mark.parametrize("page", [p for p in PAGES if p != "overview"])
def test_a_page_that_needs_more_than_the_first_look_waits_for_it(page):
    first = glimpsed()
    assert "the last minutes are still being read" in drawn(first, page)


def test_lists_of_a_first_look_fit_every_size():
    first = glimpsed(3)
    for cells, lines in ((40, 10), (60, 20), (80, 24), (160, 50)):
        screen = overview_lines(first, cells, lines, Look(tz=UTC))
        assert len(screen) == lines
        assert all(x.width <= cells for x in screen)


class Odd:
    """A source that answers all but one question, or nothing of the first look."""

    def __init__(self, refuses: str = "") -> None:
        self.rows = source()
        self.refuses = refuses

    def query(self, name, **parameters):
        if name == self.refuses:
            raise QueryError(f"no query {name!r}")
        return self.rows.query(name, **parameters)

    def span(self):
        return self.rows.span()

    def close(self):
        pass


def test_the_first_picture_alone_is_a_first_look():
    sight = Sight(Odd, LiveEdge(lambda: END), tz=UTC, first_look=True)
    assert [sight.snapshot().filling for _ in range(2)] == [True, False]


def test_where_no_engine_was_heard_lately_the_first_picture_is_whole():
    late = Sight(Odd, LiveEdge(lambda: END + 900.0), tz=UTC, first_look=True)
    assert late.snapshot().filling is False


def test_a_source_of_another_version_shows_the_whole_at_once():
    old = Sight(lambda: Odd("console_glance"), LiveEdge(lambda: END), tz=UTC, first_look=True)
    assert old.snapshot().filling is False


def test_a_record_that_has_ended_has_a_first_look_of_its_end():
    sight = Sight(Odd, RecordEdge(UTC), tz=UTC, first_look=True)
    first = sight.snapshot()
    assert (first.filling, first.stale) == (True, False)
    assert first.mode.startswith("STORE")


def test_what_is_asked_for_whole_has_no_first_look():
    sight = Sight(Odd, LiveEdge(lambda: END), tz=UTC, first_look=True)
    assert sight.whole().filling is False


class Feed:
    """A feed that counts, and refuses where it is told to."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal
        self.asked: list[str] = []

    def snapshot(self) -> str:
        self.asked.append("snapshot")
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal
        return f"picture {len(self.asked)}"

    def detail(self, asks) -> Detail:
        self.asked.append("detail")
        return Detail(asks)

    def close(self) -> None:
        self.asked.append("close")


def test_the_picture_that_was_begun_early_is_the_first_one_and_is_made_once():
    feed = Feed()
    early = Early(feed)
    early.start()
    assert [early.snapshot(), early.snapshot()] == ["picture 1", "picture 2"]
    early.close()
    assert feed.asked == ["snapshot", "snapshot", "close"]


def test_a_refusal_that_came_early_is_raised_where_the_picture_is_wanted():
    early = Early(Feed(ConnectionError("no route")))
    early.start()
    with pytest.raises(ConnectionError, match="no route"):
        early.snapshot()
    assert early.snapshot() == "picture 2"


def test_a_source_that_hangs_holds_up_no_end(monkeypatch):
    monkeypatch.setattr("console.early.LEAVE_S", 0.01)
    free = threading.Event()

    class Hanging(Feed):
        def snapshot(self) -> str:
            free.wait(20)
            return super().snapshot()

    feed = Hanging()
    early = Early(feed)
    early.start()
    early.close()
    assert feed.asked == []  # it is still being asked, on its own thread
    free.set()
    early.snapshot()
    early.close()
    assert feed.asked == ["snapshot", "close"]


def test_other_questions_wait_for_what_was_begun_early():
    feed = Feed()
    early = Early(feed)
    early.start()
    early.detail(())
    assert feed.asked == ["snapshot", "detail"]
    assert early.snapshot() == "picture 1"


LIGHT = """
import sys
import console.command, console.early, console.glance, console.app, console.act.open
import console.handover.hand, console.sight, telemetry.source, telemetry.service.client
heavy = {"numpy", "duckdb", "pyarrow", "altair", "torch", "opentelemetry.sdk", "telemetry.verdict"}
print(*sorted(heavy & sys.modules.keys()))
"""


@pytest.mark.full
def test_the_way_to_a_live_stores_first_look_loads_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
