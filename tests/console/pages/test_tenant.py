"""A tenant's page: what it got, what it waited for and behind whom, its requests, its policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.act.values import IN_FORCE, Change, EngineState, TenantState
from console.lines import ASCII
from console.pages import PAGES
from console.pages.history import History, share
from console.pages.tenant_strips import quota_line, slo_line
from console.screens import GoTo, Open, Place, Row, Say
from tests.console import rows as made
from tests.console.pages import world

GLOBEX = Place(tenant="globex")


def line(label: str, place: Place = GLOBEX, size: tuple[int, int] = (120, 40)) -> str:
    return next(x for x in world.text("tenant", place, size) if x.startswith(label))


def test_its_share_stands_over_its_fair_share_bucket_by_bucket():
    got, due = line("SHARE"), line("FAIR")
    assert got.split()[2:5] == ["17%", "fair", "8%"]
    strips = [x.split()[1] for x in (got, due)]
    assert {len(s) for s in strips} == {18}
    assert [s[3] for s in strips] == ["·", "·"]  # nobody was heard then


def test_its_waits_are_told_by_reason_and_add_up():
    assert line("WAIT").split()[2:5] == ["273s", "excess", "273s"]
    assert line("  by").split()[2:] == ["slot", "182s", "kv", "60s", "budget", "31s"]


def test_both_lists_of_the_matrix_close_to_their_total():
    rows = world.scene("tenant", GLOBEX).detail.rows("charged")
    text = world.text("tenant", GLOBEX, (120, 60))
    for side, title in (("behind", "WAITED BEHIND"), ("held", "HELD UP")):
        whole = sum(r["charged_s"] for r in rows if r["side"] == side)
        assert f"charged {whole:.0f}s" in next(x for x in text if title in x)
    behind = [r for r in rows if r["side"] == "behind"]
    charged = [c for c in world.rows().interference
               if c.victim == "globex" and c.reason != "stall"]  # fmt: skip
    assert sum(r["charged_s"] for r in behind) == pytest.approx(sum(c.charged_s for c in charged))


def test_a_tenant_called_capacity_is_not_taken_for_lost_capacity():
    text = world.text("tenant", GLOBEX, (160, 60))
    assert any(x.lstrip().startswith("(capacity) ") for x in text)
    assert any(x.lstrip().startswith("capacity ") for x in text)


def test_what_was_cold_stands_apart_from_what_hit():
    text = world.text("tenant", GLOBEX, (120, 40))
    at = next(i for i, x in enumerate(text) if x.startswith("TTFT"))
    cold, hit = text[at], text[at + 1]
    assert cold.split()[1] == "cold"
    assert cold.split()[-6:] == ["max", "2s", "p50", "-", "n", "4"]
    assert hit.split()[0] == "hit"
    assert hit.split()[-6:] == ["p99", "50ms", "p50", "50ms", "n", "20"]
    marks = [next(i for i, c in enumerate(x) if c in "▁▂▃▄▅▆▇█") for x in (cold, hit)]
    assert marks[0] > marks[1] + 3


def test_misses_are_told_with_how_fast_they_burn():
    assert line("MISS").split()[2:8] == ["24%", "missed", "of", "102", "burn", "24x"]
    assert "ttft 24" in line("MISS")


def test_what_is_left_of_its_limits_is_told_beside_them():
    assert line("QUOTA", size=(160, 40)).startswith(
        "QUOTA  rpm 0 left of 30  tpm no limit  at once 4 in use of 16  refused 51 (rpm 51)"
    )


def test_its_policy_is_told_by_versions_that_changed_it():
    text = world.text("tenant", GLOBEX, (120, 60))
    at = next(i for i, x in enumerate(text) if "ITS POLICY" in x)
    assert text[at + 1 : at + 4] == [
        "08:01:30 v3 ann: weight 1 -> 2  (too much at once)",
        "08:01:00 v2 bob: rpm 60 -> 30  (too much at once)",
        "08:00:00 v1 start: vtc at the start",
    ]
    assert "globex, HURT, last 15min, 1 of 18 not observed, weight 2" in text[2]


def test_a_change_that_ends_by_itself_is_told_with_its_countdown_where_it_names_the_tenant():
    def change(number: int, name: str) -> Change:
        return Change(number=number, at=world.END - 60.0, until=world.END + 300.0, who="bob",
                      why="fan-out", what=f"tenant {name!r}: rpm 60", state=IN_FORCE)  # fmt: skip

    door = EngineState(address="a", engine="e1", pool="main", version=3,
                       tenants=(TenantState(tenant="globex", draining=True),),
                       changes=(change(1, "globex"), change(2, "acme")))  # fmt: skip
    text = "\n".join(world.text("tenant", GLOBEX, (120, 60), engines=(door,)))
    assert "ends in 5m   bob: tenant 'globex': rpm 60  (fan-out)" in text
    assert "'acme'" not in text
    assert "globex, HURT, DRAINING" in text


def test_enter_goes_to_holders_requests_and_instants():
    page = PAGES["tenant"]

    def step(row: Row | None) -> object:
        return page.enter(world.scene("tenant", Place(tenant="globex", cursor=row)))

    assert step(Row("tenant", "acme", "behind")) == Open("tenant", "acme")
    assert step(Row("request", "g1", tenant="globex")) == Open("requests", "globex")
    assert step(Row("event", "12.5", "v2")) == GoTo(12.5)
    assert isinstance(step(None), Say)


def test_another_stretch_of_time_is_asked_for():
    page = PAGES["tenant"]
    turned = page.turn(world.scene("tenant", GLOBEX), "span")
    spans = [{a.name: (a.end or 0) - (a.start or 0) for a in page.wants(world.now(), p)}
             for p in (GLOBEX, turned)]  # fmt: skip
    assert spans[0]["charged"] == pytest.approx(900.0)
    assert spans[1]["charged"] == pytest.approx(300.0)
    assert spans[0]["history"] == spans[1]["history"]


def bucket(at: float, **columns):
    usual = dict.fromkeys(
        ("service", "pool_service", "fair_share", "slo_eligible", "slo_missed", "slo_missed_ttft",
         "slo_missed_tpot", "slo_missed_gap", "missed_waiting", "concurrency_in_use",
         "quota_rpm_level", "quota_tpm_level", "offered_requests", "admitted_requests",
         *(f"rejected_{r}_requests" for r in ("rpm", "tpm", "concurrency", "queue", "impossible")))
    )  # fmt: skip
    given = {"bucket_start": at, "bucket_s": 10.0, "observed_s": 10.0, "there": True,
             "provisional": False}  # fmt: skip
    return {**usual, **given, **columns}


def test_who_was_never_heard_of_is_said_to_be_so():
    assert "nothing was heard of it" in world.text("tenant", Place(tenant="nobody"))[2]
    assert "nothing was heard" not in world.text("tenant", GLOBEX)[2]


def test_a_gap_is_not_known_an_idle_bucket_is_nothing_and_time_before_the_first_is_neither():
    rows = [
        bucket(20.0, service=5.0, pool_service=10.0),
        bucket(40.0, there=False, pool_service=10.0),
        bucket(50.0, service=1.0, pool_service=10.0, observed_s=4.0),
        bucket(60.0, service=1.0, pool_service=10.0, observed_s=2.0, provisional=True),
    ]
    h = History.of(rows, 0.0, 65.0, 10.0)
    assert h.series(share) == (0.5, None, 0.0, 0.1, 0.1)
    assert (h.gaps, h.short, h.provisional) == (1, 1, True)
    assert h.summed("service") == 7.0
    assert History.of([], 0.0, 60.0, 10.0).summed("service") is None


def test_what_nobody_counted_is_a_dash_and_what_did_not_happen_is_nothing():
    idle = History.of([bucket(0.0, there=False)], 0.0, 10.0, 10.0)
    unheard = History.of([], 0.0, 10.0, 10.0)
    told = [slo_line(h, 120, ASCII).plain for h in (idle, unheard)]
    assert "of 0" in told[0]
    assert "of -" in told[1]
    assert "refused -" in quota_line(unheard, None, 120, ASCII).plain


def test_the_picture_of_the_past_shows_only_what_was_known_then():
    then = made.T0 + 110.0
    s = replace(world.now(), now=then, data_at=then, edge=world.END)
    text = "\n".join(world.text("tenant", GLOBEX, (120, 60), s=s))
    assert "it did not wait" in text
    assert "none of its requests has ended" in text
    assert "v3" in text
    assert "v4" not in text


def test_the_largest_holder_stands_first_and_what_is_cut_off_closes_the_list():
    text = world.text("tenant", GLOBEX)
    at = next(i for i, x in enumerate(text) if "WAITED BEHIND" in x)
    assert text[at + 1].split()[:3] == ["acme", "240s", "88%"]
    assert text[at + 2].split()[:4] == ["others", "(4)", "33s", "12%"]
