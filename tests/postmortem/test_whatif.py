"""The what-if on simulated incidents: true replays, remedies that work, and honest refusals."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import PoolSpec, Tenant
from engine.simulation.hardware import PRESETS
from engine.simulation.setup import Setup, machine_of
from engine.simulation.workload import Retry
from postmortem.whatif import Options, table, what_if, without_excess
from postmortem.whatif.arrivals import Offered
from postmortem.whatif.model import (
    CONCLUDED,
    NO_CONCLUSION,
    RESTORED_MISSES,
    Counterfactual,
    WhatIf,
)
from postmortem.whatif.options import Budget
from postmortem.whatif.replay import Job, Stretch
from postmortem.whatif.run import Replays, Told
from telemetry.source import open_source
from telemetry.window import Window, read_window
from tests.postmortem.incident_stores import (
    HEAVY,
    LIGHT,
    OTHER,
    flood,
    recorded,
    setup_and_arrivals,
)

SAMPLE = Path(__file__).parents[2] / "sample_incidents" / "five-pm-fanout" / "store"
pytestmark = pytest.mark.xdist_group("whatif")  # one store, one answer for all of them

ONE = Options(seeds=1, processes=1)


class Rows:
    """A store's rows, some tables of it emptied or changed."""

    def __init__(self, store: Path, **instead):
        self._source, self._instead = open_source(store), instead

    def read(self, name: str, start: float, end: float) -> list:
        rows = self._source.read(name, start, end)
        return self._instead[name](rows) if name in self._instead else rows

    def span(self) -> tuple[float, float]:
        return self._source.span()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flood(tmp_path_factory.mktemp("flood"))


@pytest.fixture(scope="module")
def found(store: Path) -> WhatIf:
    return ask(Rows(store), Options(seeds=2, processes=1))


def ask(source: Rows, options: Options = ONE, **more) -> WhatIf:
    return what_if(source, *source.span(), options=options, **more)


def window_of(source: Rows) -> Window:
    return read_window(source, *source.span())


# ---------------------------------------------------------------- fidelity


def test_the_replay_of_a_simulated_run_is_the_run(found: WhatIf):
    assert found.fidelity is not None
    assert found.fidelity.holds
    for error in found.fidelity.errors:
        assert error.p50_error < 0.02
        assert error.p99_error < 0.02
    was, made = found.recorded, found.baselines[0].outcome
    assert was is not None
    assert [t.missed for t in made.tenants] == [t.missed for t in was.tenants]
    assert found.fit is not None
    assert found.fit.median < 0.01


def test_those_hurt_and_the_one_who_did_it_come_from_the_verdict(found: WhatIf):
    assert set(found.victims) == {LIGHT, OTHER}
    assert found.culprits == (HEAVY,)


def test_only_the_incident_is_judged_not_the_calm_beside_it(found: WhatIf):
    assert (found.start - found.asked_start, found.end - found.asked_start) == (100, 140)


# ---------------------------------------------------------------- remedies


def test_vtc_and_a_cap_and_a_pool_of_its_own_restore_those_hurt(found: WhatIf):
    restored = {t.remedy.name for t in found.tried if t.restored}
    assert {"vtc", "cap", "dedicated-pool", "tier"} <= restored
    assert "slots" not in restored  # the step's budget was short, not slots


def test_the_cheapest_remedy_is_one_that_refuses_nobody(found: WhatIf):
    assert found.conclusion == CONCLUDED
    best = found.best
    assert best is not None
    assert best.remedy.name == found.remedy == "vtc"
    assert best.outcome.everyone.refused == 0
    for victim in found.victims:
        numbers = best.outcome.of(victim)
        assert numbers is not None
        assert numbers.missed <= RESTORED_MISSES * numbers.eligible
    assert "vtc" in found.sentence
    assert 'policy = "vtc"' in best.settings


def test_a_limit_says_what_it_would_have_refused_in_normal_hours(found: WhatIf):
    limits = [t for t in found.tried if t.remedy.name in ("cap", "rpm", "tpm")]
    assert len(limits) == 3
    for tried in limits:
        assert tried.calm is not None
        assert tried.calm.offered > 0
        assert tried.calm.refused <= tried.calm.offered
        heavy = tried.outcome.of(HEAVY)
        assert heavy is not None
        assert heavy.refused > 0


def test_the_same_question_has_the_same_answer(store: Path):
    options = Options(policies=("vtc",), seeds=2, processes=1)
    one, again = (replace(ask(Rows(store), options), wall_s=0.0) for _ in range(2))
    assert again == one


def test_seeds_move_the_arrivals_and_the_spread_says_how_much_it_matters(found: WhatIf):
    spread = found.baselines[0].spread
    assert spread.seeds == 2
    assert spread.least_p99_s is not None
    assert spread.most_p99_s is not None
    assert spread.least_p99_s < spread.most_p99_s


def test_two_processes_find_what_one_finds(store: Path, monkeypatch: pytest.MonkeyPatch):
    only = Options(policies=("vtc", "tier"), seeds=1, processes=1)
    one = ask(Rows(store), only)
    monkeypatch.setattr("postmortem.whatif.answer.SMALL", 0)
    two = ask(Rows(store), replace(only, processes=2))
    assert replace(two, wall_s=0.0) == replace(one, wall_s=0.0)


def test_a_remedy_asked_for_by_name_is_the_only_one_tried(store: Path):
    found = ask(Rows(store), replace(ONE, policies=("tier",)))
    assert [t.remedy.name for t in found.tried] == ["tier"]


def test_a_change_of_policy_before_the_onset_can_be_undone(store: Path):
    def changed(rows):
        [first] = rows
        was = replace(first, policy="vtc")
        later = replace(first, version=2, at=first.at + 95, previous="vtc", who="bob", why="?")
        return [was, later]

    found = ask(Rows(store, policy=changed), replace(ONE, policies=("revert", "vtc")))
    assert found.remedy == "revert"
    assert "v2 by bob" in found.sentence
    assert found.best is not None
    assert found.best.outcome.of(LIGHT).missed == 0


def test_limits_and_retries_replay_to_the_request_and_retries_can_be_dropped(tmp_path: Path):
    setup, arrivals = setup_and_arrivals(tmp_path)
    again = [replace(a, at_s=a.at_s + 0.3) for a in arrivals if a.prompt_tokens > 200]
    limited = tuple(
        replace(t, rpm=80, rpm_burst=30) if t.name == HEAVY else t for t in setup.tenants
    )
    setup = replace(setup, tenants=limited, retries=(Retry(HEAVY, 2.0, 4),))
    both = sorted((*arrivals, *again), key=lambda a: a.at_s)
    found = ask(Rows(recorded(tmp_path, setup, both)), replace(ONE, policies=("vtc",)))
    assert found.recorded is not None
    assert found.recorded.of(HEAVY).refused > 50
    kept, dropped = found.baselines
    assert kept.outcome.of(HEAVY).refused == found.recorded.of(HEAVY).refused
    assert dropped.outcome.of(HEAVY).offered < kept.outcome.of(HEAVY).offered
    assert [(t.remedy.name, t.retries) for t in found.tried] == [
        ("vtc", "kept"),
        ("vtc", "dropped"),
    ]
    assert any("all limits stood full" in n for n in found.notes)
    only = ask(Rows(tmp_path / "store"), replace(ONE, policies=("vtc",), retries="dropped"))
    assert only.remedy == "vtc"
    assert [t.retries for t in only.tried] == ["dropped"]


# ---------------------------------------------------------------- no conclusion


def cut(found: WhatIf | Counterfactual) -> str:
    assert found.sentence.startswith("no conclusion: ")
    return found.sentence.removeprefix("no conclusion: ")


def test_without_step_samples_nothing_is_concluded(store: Path):
    found = ask(Rows(store, step_sample=lambda rows: []))
    assert found.conclusion == NO_CONCLUSION
    assert "0 step samples" in cut(found)


def test_without_the_runs_own_row_nothing_is_concluded(store: Path):
    assert "engine_run" in cut(ask(Rows(store, engine_run=lambda rows: [])))


def test_without_request_rows_nothing_is_concluded(store: Path):
    assert "no request rows" in cut(ask(Rows(store, request=lambda rows: [])))


def test_calm_hours_have_nothing_to_prevent(store: Path):
    source = Rows(store)
    start, _ = source.span()
    assert "nobody is hurt" in cut(what_if(source, start, start + 90, options=ONE))


def test_a_replay_that_differs_from_what_was_recorded_concludes_nothing(store: Path):
    """As if something that no row tells of had held everybody up."""

    def held_up(rows):
        return [r if r.ttft_s is None else replace(r, ttft_s=1.5 * r.ttft_s) for r in rows]

    found = ask(Rows(store, request=held_up))
    assert found.conclusion == NO_CONCLUSION
    assert "off by 33% at p50 and 33% at p99" in cut(found)
    assert found.tried == ()
    assert found.baselines  # the numbers are there to be looked at


def test_made_up_requests_are_counted_and_too_many_conclude_nothing(store: Path):
    """Every sixth row is lost on its way: the minutes still count its request."""
    found = ask(Rows(store, request=lambda rows: [r for i, r in enumerate(rows) if i % 6]))
    assert found.conclusion == NO_CONCLUSION
    assert found.baselines[0].outcome.imputed_share > 0.10


def test_a_restart_inside_the_stretch_concludes_nothing(store: Path):
    def restarted(rows):
        [first] = rows
        return [first, replace(first, run_id="second", started=first.started + 110)]

    def after(rows):
        split = min(r.arrived for r in rows) + 110
        return [replace(r, run_id="second") if r.arrived > split else r for r in rows]

    assert "started anew" in cut(ask(Rows(store, engine_run=restarted, request=after)))


def test_a_tenant_that_is_not_there_is_named(store: Path):
    assert "no request of nobody" in cut(ask(Rows(store), culprits=("nobody",)))


def test_a_store_that_sums_gives_the_answer_of_its_rows(store: Path):
    only = replace(ONE, policies=("vtc",))
    rows, summed = ask(Rows(store), only), ask(open_source(store), only)
    assert rows.tried
    assert replace(summed, wall_s=0.0) == replace(rows, wall_s=0.0)


# ---------------------------------------------------------------- the budget


class Turned:
    """A clock that moves a little each time it is looked at."""

    def __init__(self, by_s: float) -> None:
        self.now, self.by_s = 0.0, by_s

    def __call__(self) -> float:
        self.now += self.by_s
        return self.now


def test_what_the_time_was_too_short_for_is_named_and_nothing_is_guessed(store: Path):
    clock = Turned(1.0)
    # Long enough for the replay of what happened and a little more.
    only = replace(ONE, budget_s=110.0, policies=("vtc", "tier", "weight"))
    found = ask(Rows(store), only, clock=clock)
    assert found.tried
    assert found.not_run
    done = {t.remedy.name for t in found.tried}
    assert done.isdisjoint(found.not_run)
    assert clock.now < 110 + 50


def test_no_time_at_all_is_no_conclusion(store: Path):
    clock = Turned(1.0)
    found = ask(Rows(store), replace(ONE, budget_s=2.0), clock=clock)
    assert "2 s were over before the window was read and prepared" in cut(found)
    assert clock.now < 6


def test_a_budget_that_preparing_used_up_leaves_the_replay_out(store: Path):
    found = ask(Rows(store), replace(ONE, budget_s=20.0), clock=Turned(1.0))
    assert "did not end within 20 s" in cut(found)


def test_reading_the_window_counts_and_nothing_is_read_when_the_time_is_over(store: Path):
    clock = Turned(1.0)
    budget = Budget(3.0, clock)
    source = Rows(store)
    found = what_if(source, *source.span(), options=ONE, budget=budget)
    assert "3 s were over before the window was read" in cut(found)
    assert found.wall_s <= 6


def test_many_rows_to_read_leave_less_time_for_replays():
    options = Options(budget_s=100.0)
    assert options.most_requests(2_000_000) < options.most_requests(0)
    assert options.most_requests(10**12) >= 1


def test_a_window_too_large_for_the_budget_is_cut_around_the_onset(store: Path):
    small = Options(seeds=1, processes=1, budget_s=60.0, requests_per_s=5.0, policies=("vtc",))
    found = ask(Rows(store), small, clock=lambda: 0.0)
    assert found.end - found.start < 40
    assert any("more than the time allows" in n for n in found.notes)


def test_ctrl_c_leaves_no_process_behind():
    def interrupt(told: Told) -> None:
        raise KeyboardInterrupt

    before = set(multiprocessing.active_children())
    setup = Setup("w", machine_of(PRESETS["a10g-llama2-7b"]), (PoolSpec("main"),), (Tenant("a"),))
    offered = tuple(Offered(float(i), "a", None, 50, 5) for i in range(3))
    job = Job("any", "window", setup, frozenset(), frozenset())
    stretches = {"window": Stretch(offered, 0.0, 3.0)}
    with (
        pytest.raises(KeyboardInterrupt),
        Replays(stretches, 1e12, processes=2, hear=interrupt) as replays,
    ):
        replays.run([job])
    assert set(multiprocessing.active_children()) <= before


# ---------------------------------------------------------------- without the excess


def test_without_the_floods_excess_nobody_would_have_waited(store: Path):
    source = Rows(store)
    claim = without_excess(source, *source.span(), HEAVY, options=ONE)
    assert claim.holds
    assert 0.5 < claim.left_out / claim.of <= 1.0
    assert claim.without is not None
    assert claim.without.hurt.missed == 0
    assert "heavy's excess" in claim.sentence


def test_without_a_bystanders_excess_nothing_would_have_changed(store: Path):
    source = Rows(store)
    claim = without_excess(source, *source.span(), OTHER, options=ONE)
    assert claim.holds
    assert claim.without is not None
    assert claim.baseline is not None
    assert claim.without.hurt.missed > 0.8 * claim.baseline.hurt.missed


# ---------------------------------------------------------------- what is written


def test_json_has_no_nan_and_gives_every_remedy(found: WhatIf):
    def refuse(name: str):
        raise AssertionError(name)

    body = json.loads(table.as_json(found), parse_constant=refuse)
    assert body["conclusion"] == "remedy"
    assert {t["remedy"]["name"] for t in body["tried"]} >= {"vtc", "cap"}
    assert body["fidelity"]["holds"] is True


def test_json_of_nothing_is_json_too(store: Path):
    found = ask(Rows(store, step_sample=lambda rows: []))
    assert json.loads(table.as_json(found))["conclusion"] == "no conclusion"


def test_lines_fit_eighty_columns(found: WhatIf):
    from telemetry.plain import cells

    assert max(cells(line) for line in table.lines(found)) <= 80


ODD = ['a|b`<script>"', "=HYPERLINK(1)", "naïve – 名前 'q'"]


def test_odd_names_stay_data(tmp_path: Path):
    names = dict(zip((HEAVY, LIGHT, OTHER), ODD, strict=True))
    found = ask(Rows(flood(tmp_path, names)), replace(ONE, policies=("cap", "tier")))
    assert found.culprits == (ODD[0],)
    assert json.loads(table.as_json(found))["culprits"] == [ODD[0]]
    best = found.best
    assert best is not None
    import tomllib

    [tenant] = tomllib.loads(best.settings)["tenant"]
    assert tenant["name"] == ODD[0]
    import shlex

    assert best.command is not None
    words = shlex.split(best.command)
    assert words[words.index("set") + 1] == ODD[0]


# ---------------------------------------------------------------- a real engine's rows


def test_a_real_incident_replays_true_and_vtc_restores_its_victims():
    source = Rows(SAMPLE)
    found = ask(source, replace(ONE, policies=("vtc",)), victims=None)
    assert found.conclusion == CONCLUDED
    assert found.culprits == ("acme",)
    assert set(found.victims) == {"globex", "initech", "umbrella"}
    best = found.best
    assert best is not None
    assert best.outcome.hurt.missed == 0
    assert any("when the settings changed" in n for n in found.notes)
