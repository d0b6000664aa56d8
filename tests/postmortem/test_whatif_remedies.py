"""Remedies as data: what each changes, in which order they come, and how they are written down."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import replace

import click
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cli import admin
from engine.config import Limits, PoolSpec, Slo, Tenant
from engine.simulation.setup import Machine, Setup, check
from engine.simulation.workload import AdapterSpec
from postmortem.whatif import toml
from postmortem.whatif.model import (
    CAPACITY,
    POOL,
    REVERT,
    SETTING,
    TIER,
    Change,
    Remedy,
)
from postmortem.whatif.policies import MAKERS, Facts, apply, candidates
from postmortem.whatif.rebuild import Changed, Settings
from postmortem.whatif.usual import Usual
from tests.postmortem.whatif_values import T0, TRUE


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
