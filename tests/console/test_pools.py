"""Several pools: the one in front has the screen, every other one a line, the worst first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from functools import cache

import pytest

from console.building import MOST_OTHERS
from console.lines import UNICODE
from console.once import as_json, is_open
from console.once_command import ALL_WELL, NOBODY_CAN_SAY, OPEN, code_of
from console.others import other_lines
from console.overview import Look, overview_lines
from console.panels import Level, PoolVerdict, Snapshot
from console.rows import Rows
from console.sight import LiveEdge, Sight
from tests.console import rows as made
from tests.console.test_sight import Given

END = made.T0 + 180.0


def in_pool(rows: Rows, pool: str) -> Rows:
    def moved(some):
        return tuple(replace(r, pool=pool, run_id=f"run-{pool}") for r in some)

    return Rows(
        tenants=moved(rows.tenants),
        engines=moved(rows.engines),
        interference=moved(rows.interference),
        requests=(),
        events=(),
        policies=moved(rows.policies),
        runs=moved(rows.runs),
    )


@cache
def seen() -> Snapshot:
    """A calm pool in front; one in which tenants are hurt, one that is silent, one that is calm."""
    silent = in_pool(made.calm(8), "silent")
    parts = [made.calm(18), in_pool(made.incident(), "burning"), silent,
             in_pool(made.calm(18), "calm")]  # fmt: skip
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.then(part)
    source = Given(rows)
    sight = Sight(lambda: source, LiveEdge(lambda: END), tz=UTC, pool="main")
    return sight.snapshot()


def test_every_other_pool_has_its_own_verdict_and_the_worst_comes_first():
    s = seen()
    assert (s.pool, s.verdict.level) == ("main", Level.QUIET)
    assert [o.pool for o in s.others] == ["burning", "silent", "calm"]
    burning, silent, calm = s.others
    assert (burning.level, burning.named, burning.is_hurt) == (Level.HURT, "acme", True)
    assert burning.victims == 3
    assert (silent.stale, calm.stale, calm.level) == (True, False, Level.QUIET)
    assert silent.age_s == pytest.approx(100.0)


def test_a_pool_alone_has_no_lines_of_others():
    source = Given(made.calm(18))
    s = Sight(lambda: source, LiveEdge(lambda: END), tz=UTC).snapshot()
    assert s.others == ()
    assert other_lines(s, 80, 4, UNICODE) == ()


def text(s: Snapshot, cells: int = 80, lines: int = 24) -> list[str]:
    return [x.plain.rstrip() for x in overview_lines(s, cells, lines, Look(tz=UTC))]


def test_on_80x24_the_burning_pool_is_told_and_the_lists_are_still_there():
    drawn = text(seen())
    [line] = [x for x in drawn if "burning" in x]
    assert line.startswith("!! burning")
    assert "HURT" in line
    [folded] = [x for x in drawn if "more pools" in x]
    assert folded == "?  2 more pools: ? silent, ok calm"
    assert any("HURT" in x and "excess" in x for x in drawn)
    assert any("HOLDS" in x for x in drawn)
    assert all(len(x) <= 80 for x in drawn)


def test_where_there_is_room_each_pool_has_its_line():
    drawn = text(seen(), 160, 50)
    told = {x.split()[1]: x for x in drawn if x[3:].split(" ")[0] in ("burning", "silent", "calm")}
    assert set(told) == {"burning", "silent", "calm"}
    assert told["silent"].startswith("?  silent")
    assert "ago: " in told["silent"]


@pytest.mark.parametrize(("cells", "lines"), [(40, 10), (60, 20), (80, 24), (200, 60)])
def test_no_number_of_pools_breaks_the_screen(cells, lines):
    many = tuple(
        PoolVerdict(pool=f"pool [red]{i}", level=Level.QUIET, line="QUIET: nobody is hurt")
        for i in range(MOST_OTHERS)
    )
    s = replace(seen(), others=many, pools=tuple(f"p{i}" for i in range(90)))
    screen = overview_lines(s, cells, lines, Look(tz=UTC))
    assert len(screen) == lines
    assert all(x.width <= cells for x in screen)


def test_pools_that_are_not_judged_are_counted():
    one = PoolVerdict(pool="b", level=Level.QUIET, line="QUIET: nobody is hurt")
    s = replace(seen(), others=(one,), pools=("a", "b", "c", "d"))
    assert [x.plain for x in other_lines(s, 80, 1, UNICODE)] == [
        "ok b  QUIET: nobody is hurt  +2 more"
    ]
    [line] = [x.plain for x in other_lines(replace(s, others=(one, one)), 80, 1, UNICODE)]
    assert line.endswith("+2 more")
    assert [x.plain for x in other_lines(s, 80, 2, UNICODE)][1] == ("?  2 not judged here")


def test_a_script_hears_of_a_pool_that_burns_beside_the_one_it_looks_at():
    s = seen()
    assert is_open(s, ())
    assert code_of(s, ()) == OPEN
    assert code_of(replace(s, stale=True), ()) == OPEN
    assert [o["pool"] for o in as_json(s, ())["others"]] == ["burning", "silent", "calm"]
    silent = replace(s, others=tuple(replace(o, stale=True) for o in s.others))
    assert code_of(silent, ()) == NOBODY_CAN_SAY, "one was hurt when it fell silent"
    calm = replace(s, others=tuple(replace(o, level=Level.QUIET) for o in s.others))
    assert code_of(calm, ()) == ALL_WELL
    assert code_of(replace(calm, stale=True), ()) == NOBODY_CAN_SAY
    assert code_of(replace(calm, others=calm.others[1:]), ()) == NOBODY_CAN_SAY, "one not judged"


def test_what_another_pool_changes_cuts_no_verdict():
    rows = made.incident().then(in_pool(made.calm(18), "calm"))
    source = Given(rows)
    alone = Sight(lambda: source, LiveEdge(lambda: END), tz=UTC, pool="main").snapshot()
    change = replace(made.policy(made.T0 + 130.0, "vtc", 2, previous="fcfs"), pool="calm")
    told = Given(replace(rows, policies=(*rows.policies, change)))
    beside = Sight(lambda: told, LiveEdge(lambda: END), tz=UTC, pool="main").snapshot()
    assert beside.verdict == alone.verdict
    own = replace(change, pool="main")
    here = Given(replace(rows, policies=(*rows.policies, own)))
    changed = Sight(lambda: here, LiveEdge(lambda: END), tz=UTC, pool="main").snapshot()
    assert changed.verdict != alone.verdict, "a change of its own does"


def test_a_worker_that_began_inside_a_bucket_has_been_heard_just_now():
    begun = END - 4.0
    late = in_pool(made.calm(18), "late")
    engines = (replace(late.engines[-1], bucket_start=END - 10.0, observed_seconds=4.0),)
    runs = (replace(late.runs[0], started=begun),) if late.runs else (
        replace(made.run(started=begun), pool="late", run_id="run-late"),)  # fmt: skip
    late = replace(late, engines=engines, tenants=(), interference=(), runs=runs)
    source = Given(made.calm(18).then(late))
    [one] = Sight(lambda: source, LiveEdge(lambda: END), tz=UTC, pool="main").snapshot().others
    assert (one.pool, one.age_s) == ("late", pytest.approx(0.0))


def test_the_lines_grow_older_where_nothing_new_comes():
    now = [END]
    parts = made.calm(18).then(in_pool(made.calm(18), "calm"))
    source = Given(parts)
    sight = Sight(lambda: source, LiveEdge(lambda: now[0]), tz=UTC, pool="main")
    [fresh] = sight.snapshot().others
    now[0] += 50.0
    [old] = sight.snapshot().others
    assert (fresh.stale, old.stale) == (False, True)
    assert old.age_s == pytest.approx(fresh.age_s + 50.0)
