"""The what-if's parts: arrivals and what is made up, starts, remedies as data, the fit, TOML."""

from __future__ import annotations

import itertools
import shlex
import tomllib
from dataclasses import replace

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cli import admin
from engine.config import Limits, PoolSpec, Slo, Tenant
from engine.costs import CostModel, StepFeatures
from engine.simulation.setup import Machine, Setup, check
from engine.simulation.workload import AdapterSpec
from postmortem.whatif import toml
from postmortem.whatif.arrivals import Offered, apart, from_rows, shaken, thinned, without_retries
from postmortem.whatif.fidelity import compare
from postmortem.whatif.fit import fit_costs
from postmortem.whatif.judge import Bar, cheapest, restores, spread_of
from postmortem.whatif.model import (
    CAPACITY,
    POOL,
    REVERT,
    SETTING,
    TIER,
    Change,
    NoConclusion,
    Outcome,
    Remedy,
    TenantNumbers,
    Tried,
)
from postmortem.whatif.policies import MAKERS, Facts, apply, candidates
from postmortem.whatif.rebuild import Changed, Settings, settings_of
from postmortem.whatif.start import plan_start
from postmortem.whatif.usual import Usual
from telemetry.records import EngineMinute, EngineRun, RequestRecord, StepSample, TenantMinute
from telemetry.window import Bucket

T0 = 1_767_225_600.0


def row(at: float, tenant: str = "a", **more) -> RequestRecord:
    values = {
        "engine": "e", "run_id": "r", "pool": "main", "request_id": f"{tenant}{at}",
        "tenant": tenant, "outcome": "finished", "arrived": T0 + at, "ended": T0 + at + 2,
        "prompt_tokens": 100, "output_tokens": 10, "max_tokens": 20, "ttft_s": 0.5,
    } | more  # fmt: skip
    # Columns that are absent are None, as the store gives them.
    names = RequestRecord.__dataclass_fields__
    return RequestRecord(**{n: values.get(n) for n in names})


def minute(tenant: str, at: float, **more) -> TenantMinute:
    values = {
        "bucket_start": T0 + at, "bucket_s": 60.0, "engine": "e", "run_id": "r", "pool": "main",
        "tenant": tenant,
    } | more  # fmt: skip
    return TenantMinute(**{n: values.get(n) for n in TenantMinute.__dataclass_fields__})


def bucket(at: float, *rows: TenantMinute, **engine) -> Bucket:
    values = {
        "bucket_start": T0 + at, "bucket_s": 60.0, "engine": "e", "run_id": "r", "pool": "main",
    } | engine  # fmt: skip
    e = EngineMinute(**{n: values.get(n) for n in EngineMinute.__dataclass_fields__})
    return Bucket(T0 + at, 60.0, 60.0, frozenset({"e"}), e, {r.tenant: r for r in rows}, {})


def arrivals(rows, buckets=(), *, begin=0.0, until=120.0, adapters=None, seed=0):
    return from_rows(
        rows,
        buckets,
        begin=T0 + begin,
        judged=(T0 + begin, T0 + until),
        until=T0 + until,
        adapters=adapters or {},
        seed=seed,
    )


# ---------------------------------------------------------------- arrivals


def test_a_finished_request_comes_again_as_it_was():
    [o] = arrivals([row(3.0, adapter="x", cached_tokens=40)], adapters={"x": "hash"})
    assert o == Offered(3.0, "a", "hash", 60, 10)


@pytest.mark.parametrize("outcome", ["aborted", "timed_out", "failed", "rejected"])
def test_a_request_that_made_nothing_to_the_end_is_imputed_from_the_tenants_own(outcome: str):
    known = [row(float(i), output_tokens=7) for i in range(5)]
    other = [row(float(i) + 0.5, tenant="b", output_tokens=1000) for i in range(5)]
    cut = row(50.0, outcome=outcome, output_tokens=3, reject_reason=None)
    last = arrivals([*known, *other, cut])[-1]
    assert last.imputed
    assert last.output_tokens == 7


def test_what_was_refused_as_impossible_is_refused_again_and_nothing_is_made_up():
    o = arrivals([row(1.0), row(2.0, outcome="rejected", reject_reason="impossible")])[-1]
    assert (o.output_tokens, o.imputed) == (20, False)


def test_requests_that_minutes_count_and_no_row_tells_of_are_imputed_and_counted():
    rows = [row(10.0), row(20.0)]
    made = arrivals(rows, [bucket(0.0, minute("a", 0.0, offered_requests=5))])
    assert [o.imputed for o in made].count(True) == 3
    assert all(0 <= o.at_s < 60 for o in made)


def test_without_any_finished_request_nothing_can_be_made_up():
    with pytest.raises(NoConclusion, match="nothing to replay"):
        arrivals([row(1.0, outcome="aborted")])


def test_who_was_running_at_the_start_is_there_with_what_was_left_to_do():
    running = row(-3.0, first_token=T0 - 2, last_token=T0 + 2, ended=T0 + 2, output_tokens=10)
    waiting = row(-1.0, first_token=T0 + 1, last_token=T0 + 2, ended=T0 + 2)
    gone = row(-9.0, ended=T0 - 5)
    made = arrivals([gone, running, waiting, row(5.0)])
    # Five of ten tokens were made: they are context now, and five are left.
    assert sorted((o.prompt_tokens, o.output_tokens) for o in made[:2]) == [(100, 10), (105, 5)]
    assert [o.judged for o in made] == [False, False, True]


def test_retries_can_be_dropped():
    made = arrivals([row(1.0), row(2.0, is_retry=True)])
    assert [o.at_s for o in without_retries(made)] == [1.0]


offers = st.lists(
    st.tuples(st.floats(0, 100), st.sampled_from("abc"), st.integers(1, 500)), max_size=60
).map(lambda items: apart(Offered(at, t, None, n, 5) for at, t, n in items))


@given(offers)
def test_no_two_arrivals_share_an_instant(offered):
    at = [o.at_s for o in offered]
    assert all(x < y for x, y in itertools.pairwise(at))


@given(offers, st.integers(1, 9))
def test_shaking_keeps_every_tenants_requests_and_their_order(offered, seed):
    moved = shaken(offered, seed)
    assert moved == shaken(offered, seed)
    for tenant in "abc":
        was = [o.prompt_tokens for o in offered if o.tenant == tenant]
        assert [o.prompt_tokens for o in moved if o.tenant == tenant] == was
    assert shaken(offered, 0) == offered


@given(offers, st.floats(0, 3), st.floats(0, 300))
def test_thinning_keeps_a_tenant_to_its_rate_and_leaves_the_others_alone(offered, rate, tokens):
    left, out = thinned(offered, "a", rate, tokens, 505)
    assert [o for o in left if o.tenant != "a"] == [o for o in offered if o.tenant != "a"]
    mine = [o for o in left if o.tenant == "a"]
    assert len(mine) + out == sum(o.tenant == "a" for o in offered)
    if mine:
        span = mine[-1].at_s
        assert len(mine) <= max(1.0, 30 * rate) + rate * span + 1e-6
        sent = sum(o.prompt_tokens + o.output_tokens for o in mine)
        assert sent <= max(505.0, 30 * tokens) + tokens * span + 1e-3


# ---------------------------------------------------------------- the start


def start_of(tenants, buckets=(), started=-9e9, since=-9e9):
    rows = [row(float(i)) for i in range(600, 700)]
    return plan_start(T0 + 600, T0 + 900, rows, buckets, tenants, T0 + started, T0 + since)


def test_a_replay_begins_one_requests_life_early():
    plan = start_of([Tenant("a")])
    assert plan.begin == T0 + 598
    assert plan.until == T0 + 902
    assert plan.quotas == "none"


def test_with_limits_it_begins_where_every_bucket_stood_full():
    full = bucket(360.0, minute("a", 360.0, quota_rpm_level=60.0))
    low = bucket(480.0, minute("a", 480.0, quota_rpm_level=3.0))
    plan = start_of([Tenant("a", rpm=60)], [full, low])
    assert (plan.begin, plan.quotas) == (T0 + 420, "full")


def test_a_limit_that_is_never_full_is_forgotten_in_a_refill():
    low = [bucket(60.0 * i, minute("a", 60.0 * i, quota_rpm_level=3.0)) for i in range(9)]
    plan = start_of([Tenant("a", rpm=60, rpm_burst=120)], low)
    assert (plan.begin, plan.quotas) == (T0 + 480, "forgotten")


def test_it_begins_with_the_engine_where_that_started_later():
    plan = start_of([Tenant("a", rpm=60)], started=599.0)
    assert (plan.begin, plan.quotas) == (T0 + 599, "full")


def test_it_begins_no_earlier_than_the_settings_it_is_about():
    plan = start_of([Tenant("a", rpm=60)], since=599.0)
    assert (plan.begin, plan.quotas) == (T0 + 599, "forgotten")


# ---------------------------------------------------------------- the fit


def samples(costs: CostModel, slow: dict[int, float] | None = None):
    out = []
    for i in range(200):
        f = StepFeatures(17 * (i % 5), 1 + i % 7, 40 * (1 + i % 11), i % 3)
        at = T0 + 3.0 * i
        factor = (slow or {}).get(int((at - T0) // 60), 1.0)
        p = costs.predict(f)
        out.append(
            StepSample(
                engine="e", run_id="r", pool="main", step=i, at=at, duration_s=p * factor,
                predicted_s=p, prefill_tokens=f.prefill_tokens, decode_rows=f.decode_rows,
                context_tokens=f.context_tokens, adapters=f.adapters, cost_version=1,
            )
        )  # fmt: skip
    return out


TRUE = CostModel(0.02, 0.0005, 0.002, 3e-6, 0.001)


def test_the_fit_on_odd_buckets_is_right_on_the_even_ones():
    fitted = fit_costs(samples(TRUE), [], 60.0)
    assert fitted.error.p95 < 1e-6
    assert fitted.costs.prefill_token_s == pytest.approx(TRUE.prefill_token_s)
    assert fitted.paces == ()


def test_a_slow_bucket_is_replayed_as_slow_as_it_was_and_the_error_says_so():
    fitted = fit_costs(samples(TRUE, {4: 2.0}), [], 60.0)  # an even one: it was not fitted to
    assert fitted.paces == ((T0 + 240, 60.0, pytest.approx(2.0)),)
    assert fitted.error.p95 > 0.4


def test_a_machine_that_was_slow_for_half_the_time_does_not_bend_the_model():
    fitted = fit_costs(samples(TRUE, dict.fromkeys(range(4, 9), 1.5)), [], 60.0)
    paces = {round((at - T0) / 60): f for at, _, f in fitted.paces}
    step = StepFeatures(68, 7, 400, 2)
    for b in range(10):
        is_ = TRUE.predict(step) * (1.5 if 4 <= b < 9 else 1.0)
        assert fitted.costs.predict(step) * paces.get(b, 1.0) == pytest.approx(is_, rel=0.02)


def test_a_bucket_in_one_half_alone_is_too_little_to_fit_and_test():
    with pytest.raises(NoConclusion, match="0 step samples to fit"):
        fit_costs([s for s in samples(TRUE) if s.at < T0 + 60], [], 60.0)


# ---------------------------------------------------------------- remedies


def facts(**more) -> Facts:
    setup = Setup(
        "w",
        Machine("m", TRUE, 1000, 1e9, 1),
        (PoolSpec("main", 1, Limits(slots=8, step_tokens=256, pool_bytes=1_000_000)),),
        (Tenant("x"), Tenant("y", slo=Slo(ttft_s=1.0)), Tenant("z", tier=2)),
        (AdapterSpec("hash", 5_500, 0),),
        policy="fcfs",
    )
    usual = Usual("x", 0.5, 60.0, 30.0, 4000.0, 3, 500)
    values = {
        "setup": setup, "victims": ("y",), "culprits": ("x",), "usual": {"x": usual},
        "victims_adapters": ("hash",), "changed": None,
    } | more  # fmt: skip
    return Facts(**values)


def tenant_of(setup: Setup, name: str) -> Tenant:
    return next(t for t in setup.tenants if t.name == name)


def made(name: str, of: Facts | None = None) -> Setup:
    of = of or facts()
    remedy = MAKERS[name](of)
    assert remedy is not None
    setup = apply(remedy, of.setup)
    check(setup)
    return setup


def test_each_remedy_changes_the_setting_it_says():
    assert made("vtc").policy == "vtc"
    assert tenant_of(made("cap"), "x").concurrency == 5  # 1.5 x 3
    assert tenant_of(made("rpm"), "x").rpm == 45
    assert tenant_of(made("tpm"), "x").tpm == 6000
    assert tenant_of(made("weight"), "x").weight == 0.25
    assert made("weight").policy == "vtc"
    assert tenant_of(made("tier"), "x").tier == 3
    assert made("chunk").pools[0].limits.step_tokens == 128
    assert made("adapter-floor").pools[0].limits.adapter_floor_bytes == 6000
    assert made("slots").pools[0].limits.slots == 16
    assert made("pages").pools[0].limits.pool_bytes == 2_000_000
    assert made("faster").machine.costs.base_s == TRUE.base_s / 2
    dedicated = made("dedicated-pool")
    assert [p.name for p in dedicated.pools] == ["main", "dedicated"]
    assert tenant_of(dedicated, "x").pool == "dedicated"
    assert tenant_of(dedicated, "y").pool is None


def test_a_remedy_touches_nobody_it_is_not_aimed_at():
    for name in ("cap", "rpm", "tpm", "weight", "tier", "dedicated-pool"):
        assert tenant_of(made(name), "y") == tenant_of(facts().setup, "y")


def test_remedies_come_cheapest_first():
    before = Settings("vtc", facts().setup.tenants, Limits(), facts().setup.knobs)
    after = replace(before, policy="fcfs")
    found = candidates(facts(changed=Changed(T0, "v2 by bob", before, after)))
    ranks = [r.rank for r in found]
    assert ranks == sorted(ranks)
    assert found[0].name == "revert"
    assert [r.name for r in found if r.rank == TIER] == ["tier"]
    assert [r.name for r in found if r.rank == POOL] == ["dedicated-pool"]
    assert REVERT < SETTING < TIER < POOL < CAPACITY


def test_what_is_set_already_is_no_remedy():
    tight = replace(facts().setup, tenants=(Tenant("x", rpm=10, concurrency=2), Tenant("y")))
    names = {r.name for r in candidates(facts(setup=replace(tight, policy="vtc")))}
    assert names.isdisjoint({"vtc", "rpm", "cap", "revert"})


def test_undoing_a_change_puts_every_changed_value_back():
    old = (Tenant("x", concurrency=4), Tenant("y"), Tenant("z"))
    before = Settings("fcfs", old, Limits(), facts().setup.knobs)
    after = replace(before, tenants=(Tenant("x"), Tenant("y", weight=3.0), Tenant("z")))
    setup = made("revert", facts(changed=Changed(T0, "v2", before, after)))
    assert tenant_of(setup, "x").concurrency == 4
    assert tenant_of(setup, "y").weight == 1.0


def test_without_a_culprit_only_what_is_aimed_at_nobody_is_tried():
    names = {r.name for r in candidates(facts(culprits=(), usual={}))}
    assert names == {"vtc", "chunk", "adapter-floor", "slots", "pages", "faster"}


def test_every_remedys_settings_are_toml_that_say_the_same():
    for remedy in candidates(facts()):
        read = tomllib.loads(toml.settings(remedy))
        for change in remedy.changes:
            if change.table == "settings":
                assert read[change.key] == change.value
            elif change.table == "limits":
                assert read["limits"][change.key] == change.value
            elif change.table in ("tenant", "pool"):
                [table] = [t for t in read[change.table] if t["name"] == change.who]
                assert table[change.key] == change.value


def test_what_needs_a_restart_has_no_command():
    commands = {r.name: toml.command(r) for r in candidates(facts())}
    cap = "tenantscope admin tenant set x --concurrency 5 --reason 'what-if: cap'"
    assert commands["cap"] == cap
    for name in ("chunk", "adapter-floor", "dedicated-pool", "slots", "pages", "faster"):
        assert commands[name] is None


def parsed(line: str) -> list[tuple[str, dict]]:
    """What the operator's own commands read from a printed line: (command, its arguments)."""
    out = []
    words = shlex.split(line)
    while words:
        end = words.index("&&") if "&&" in words else len(words)
        args, words = words[:end], words[end + 1 :]
        assert args[:2] == ["tenantscope", "admin"]
        command, args, names, context = admin, args[2:], [], click.Context(admin)
        while isinstance(command, click.Group):
            name, command, args = command.resolve_command(context, args)
            names.append(name)
            if isinstance(command, click.Group):
                context = click.Context(command, parent=context)
        made = command.make_context(names[-1], args, parent=context)
        out.append((" ".join(names), made.params))
    return out


def test_every_printed_command_is_one_that_the_operators_interface_takes():
    before = Settings("vtc", facts().setup.tenants, Limits(), facts().setup.knobs)
    tenants = tuple(replace(t, weight=2.0, rpm=7) for t in before.tenants)
    after = replace(before, policy="fcfs", tenants=tenants)
    some = candidates(facts(changed=Changed(T0, "v2 by bob", before, after)))
    printed = {r.name: c for r in some if (c := toml.command(r)) is not None}
    assert {"revert", "vtc", "cap", "rpm", "tpm", "weight", "tier"} <= set(printed)
    for remedy in some:
        if remedy.name not in printed:
            continue
        read = parsed(printed[remedy.name])
        assert all(p["reason"] == f"what-if: {remedy.name}" for _, p in read)
        for change in remedy.changes:
            if change.table == "settings":
                assert ("policy set", change.value) in [(n, p.get("policy")) for n, p in read]
                continue
            [mine] = [p for n, p in read if n == "tenant set" and p["name"] == change.who]
            said = "none" if change.value is None else str(change.value)
            assert mine[change.key] == said


@given(st.text(min_size=1).filter(lambda n: "\0" not in n))
def test_any_name_survives_the_operators_command(name: str):
    remedy = Remedy("cap", SETTING, "", (Change("tenant", "concurrency", 1, name),))
    line = toml.command(remedy)
    assert line is not None
    [(command, params)] = parsed(line)
    assert (command, params["name"], params["concurrency"]) == ("tenant set", name, "1")


@given(st.text(min_size=1))
def test_any_name_survives_toml(name: str):
    remedy = Remedy("cap", SETTING, "", (Change("tenant", "concurrency", 1, name),))
    [tenant] = tomllib.loads(toml.settings(remedy))["tenant"]
    assert tenant["name"] == name.encode("utf-8", "replace").decode()


# ---------------------------------------------------------------- judging


def numbers(tenant="y", missed=0, eligible=100, refused=0, p50=0.2, p99=1.0, n=100):
    return TenantNumbers(
        tenant, n + refused, refused, n, p50, p99, p99, eligible, missed, 1.0
    )  # fmt: skip


def outcome(*tenants: TenantNumbers, others_missed=0, imputed=0.0) -> Outcome:
    hurt = tenants[0]
    missed = sum(t.missed for t in tenants) + others_missed
    eligible = sum(t.eligible for t in tenants) + 100
    refused = sum(t.refused for t in tenants)
    everyone = replace(hurt, tenant="", missed=missed, eligible=eligible, refused=refused)
    return Outcome(tenants, replace(hurt, tenant=""), everyone, 100.0, imputed)


BARS = (Bar("y", 0.05, None),)


def test_a_victim_is_restored_by_being_served_not_by_being_refused():
    base = outcome(numbers(missed=40))
    assert restores(outcome(numbers(missed=5)), BARS, base, ("x",))
    assert not restores(outcome(numbers(missed=6)), BARS, base, ("x",))
    assert not restores(outcome(numbers(missed=0, refused=1)), BARS, base, ("x",))


def test_a_remedy_that_moves_the_pain_to_others_restores_nobody():
    base = outcome(numbers(missed=40))
    assert not restores(outcome(numbers(), others_missed=20), BARS, base, ("x",))


def test_where_no_victim_can_be_judged_nothing_is_restored():
    assert not restores(outcome(numbers()), (Bar("y", None, None),), outcome(numbers()), ())


def tried(name: str, rank: int, refused: int = 0, restored: bool = True, problem=None) -> Tried:
    out = outcome(numbers(refused=refused))
    remedy = Remedy(name, rank, "", ())
    spread = spread_of([out], ("y",))
    return Tried(remedy, "kept", out, spread, restored, None, problem, "", None)


def test_the_cheapest_is_by_rank_then_by_whom_it_refuses():
    best = cheapest(
        [
            tried("pool", POOL),
            tried("cap", SETTING, refused=9),
            tried("vtc", SETTING),
            tried("revert", REVERT, restored=False),
            tried("rpm", REVERT, problem="made up"),
        ]
    )
    assert best is not None
    assert best.remedy.name == "vtc"
    assert cheapest([tried("a", SETTING, restored=False)]) is None


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_fidelity_holds_within_a_quarter_and_not_beyond(was: float, now: float):
    found = compare(outcome(numbers(p50=was)), outcome(numbers(p50=now)), ("y",))
    off = abs(now - was) / was
    if off < 0.249:
        assert found.holds
    if off > 0.251:
        assert not found.holds


@pytest.mark.parametrize("victims", [2, 40])
def test_one_victim_that_is_off_breaks_fidelity_among_however_many(victims):
    names = [f"v{i}" for i in range(victims)]
    was = outcome(*(numbers(n) for n in names))
    now = outcome(*(numbers(n, p50=0.4 if n == "v1" else 0.2) for n in names))
    assert not compare(was, now, names).holds
    assert compare(was, was, names).holds


def test_those_hurt_together_must_be_right_whoever_else_is():
    names = [f"v{i}" for i in range(40)]
    was = outcome(*(numbers(n) for n in names))
    now = replace(was, hurt=replace(was.hurt, ttft_p99_s=2.0))
    problem = compare(was, now, names).problem
    assert problem is not None
    assert "of those hurt" in problem


def test_made_up_requests_beyond_a_tenth_break_fidelity():
    was = outcome(numbers())
    assert compare(was, outcome(numbers(), imputed=0.10), ("y",)).holds
    assert not compare(was, outcome(numbers(), imputed=0.11), ("y",)).holds


def test_too_few_requests_are_no_proof():
    few = numbers(n=5, p50=None, p99=None)
    found = compare(outcome(few), outcome(few), ("y",))
    assert found.problem is not None
    assert "5 requests" in found.problem


# ---------------------------------------------------------------- what a run says of itself


def run(config: str | None) -> EngineRun:
    values = {
        "engine": "e", "run_id": "r", "pool": "main", "started": T0, "model": "m", "config": config,
    }  # fmt: skip
    return EngineRun(**{n: values.get(n) for n in EngineRun.__dataclass_fields__})


def test_settings_of_an_older_or_newer_run_are_read_as_far_as_they_are_known():
    found = settings_of(
        run('{"policy": "fcfs", "limits": {"slots": 3, "new": 1}, "tenants": [{"name": "a"}]}')
    )
    assert (found.policy, found.limits.slots, found.tenants) == ("fcfs", 3, (Tenant("a"),))


@pytest.mark.parametrize("config", ["", "{}", "[]", '{"policy": "fcfs", "limits": 3}', None])
def test_settings_that_cannot_be_read_are_no_conclusion(config):
    with pytest.raises(NoConclusion):
        settings_of(run(config))
