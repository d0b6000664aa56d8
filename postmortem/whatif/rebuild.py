"""The recorded pool as a simulator's setup: settings in force, machine, adapters. Pure.

Owns what a run says of itself (`engine_run`, `policy`, `adapter` rows) and which of the settings'
changes is judged; runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from engine.config import POLICIES, Limits, PolicyKnobs, PoolSpec, Slo, Tenant
from engine.costs import CostModel
from engine.simulation.setup import Machine, Setup
from engine.simulation.workload import AdapterSpec, Fault
from postmortem.whatif.model import NoConclusion
from telemetry.records import AdapterRecord, EngineRun, PolicyRecord, RequestRecord
from telemetry.window import Bucket

CHANGE_BEFORE_S = 600.0  # a change at most so long before the window may be what caused it
_USUAL_LINK_BYTES_PER_S = 10e9
_TENANT_KEYS = frozenset(f.name for f in fields(Tenant)) - {"name", "slo", "adapters"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What was in force at an instant, of what a replay needs."""

    policy: str
    tenants: tuple[Tenant, ...]
    limits: Limits
    knobs: PolicyKnobs


@dataclass(frozen=True, slots=True)
class Changed:
    """A change of settings: from when on, what was before and what is after."""

    at: float
    words: str
    before: Settings
    after: Settings


def one_run(runs: Iterable[EngineRun], rows: Iterable[RequestRecord]) -> tuple[EngineRun, int]:
    """The run that served these requests, and how many replicas it had.

    Raises NoConclusion where there is none, where engines differ, or where a worker restarted."""
    served = {(r.engine, r.run_id) for r in rows}
    known = {(r.engine, r.run_id): r for r in runs}
    found = sorted((known[k] for k in served if k in known), key=lambda r: r.started)
    if not found:
        raise NoConclusion(
            "no row says how the engine of this window was set up (engine_run): there is nothing "
            "to replay it on"
        )
    if len({r.engine for r in found}) > 1 or served - set(known):
        raise NoConclusion(
            f"{len({e for e, _ in served})} engines and {len(served)} runs served this window: a "
            "replay knows one engine that tells of itself"
        )
    if found[-1].started - found[0].started > 1.0:
        raise NoConclusion(
            f"the worker was started anew in the time to be replayed ({len(found)} runs): ask for "
            "a window before or after it"
        )
    if found[0].config is None or not found[0].page_bytes:
        raise NoConclusion("the engine's own row lacks its configuration or its page size")
    return found[0], len(found)


def settings_of(run: EngineRun) -> Settings:
    """What the run was started with. Keys that are not known here are passed over."""
    try:
        config = json.loads(run.config or "")
        limits = Limits(**_known(Limits, config["limits"]))
        tenants = tuple(_tenant(t) for t in config["tenants"])
        knobs = PolicyKnobs(**_known(PolicyKnobs, config.get("knobs") or {}))
        policy = str(config["policy"])
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise NoConclusion(f"the configuration of run {run.run_id!r} cannot be read: {e}") from None
    own = next((p for p in config.get("pools") or () if p.get("name") == run.pool), None)
    if own and own.get("limits"):
        limits = Limits(**_known(Limits, own["limits"]))
    if policy not in POLICIES:
        raise NoConclusion(f"policy {policy!r} of run {run.run_id!r} is not known here")
    first = (config.get("pools") or [{"name": run.pool}])[0]["name"]
    here = tuple(replace(t, pool=None) for t in tenants if (t.pool or first) == run.pool)
    return Settings(policy, here, limits, knobs)


def _known(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    return {k: v for k, v in values.items() if k in names}


def _tenant(values: Mapping[str, Any]) -> Tenant:
    mine = _known(Tenant, values)
    mine["slo"] = Slo(**_known(Slo, mine.get("slo") or {}))
    mine["adapters"] = tuple(mine.get("adapters") or ())
    mine.pop("key_sha256", None)
    return Tenant(**mine)


def changed_by(settings: Settings, row: PolicyRecord) -> Settings:
    """The settings after a policy row came into force."""
    try:
        values = json.loads(row.parameters or "{}")
        tenants = tuple(
            replace(t, **{k: v for k, v in values[t.name].items() if k in _TENANT_KEYS})
            if isinstance(values.get(t.name), dict)
            else t
            for t in settings.tenants
        )
    except (ValueError, AttributeError, TypeError) as e:
        raise NoConclusion(f"policy version {row.version} cannot be read: {e}") from None
    policy = row.policy if row.policy in POLICIES else settings.policy
    return replace(settings, policy=policy, tenants=tenants)


def history(run: EngineRun, rows: Iterable[PolicyRecord]) -> tuple[Settings, tuple[Changed, ...]]:
    """What the run began with, and every change after it that changed something."""
    now = settings_of(run)
    first = now
    changes: list[Changed] = []
    mine = (r for r in rows if (r.engine, r.run_id) == (run.engine, run.run_id))
    for row in sorted(mine, key=lambda r: r.version):
        after = changed_by(now, row)
        if after == now:
            continue
        if row.previous is None:  # how it started, not a change
            first = after
        else:
            words = f"v{row.version} by {row.who or 'nobody named'}"
            changes.append(Changed(row.at, words, now, after))
        now = after
    return first, tuple(changes)


def link_bytes_per_s(buckets: Iterable[Bucket]) -> float:
    """What the link carried while it loaded: the best bucket's, as queues make it look slower."""
    rates = [
        row.swap_in_bytes / row.load_s
        for b in buckets
        for row in b.tenants.values()
        if row.swap_in_bytes and row.load_s
    ]
    return max(rates, default=_USUAL_LINK_BYTES_PER_S)


def adapters_of(rows: Sequence[AdapterRecord], run: EngineRun) -> dict[str, AdapterRecord]:
    """The run's adapters by the name that requests call them."""
    mine = [a for a in rows if (a.engine, a.run_id, a.pool) == (run.engine, run.run_id, run.pool)]
    return {a.name: a for a in (mine or rows) if a.bytes}


def make(
    run: EngineRun,
    replicas: int,
    settings: Settings,
    costs: CostModel,
    adapters: Iterable[AdapterRecord],
    tenants: Iterable[str],
    link: float,
    paces: Sequence[tuple[float, float, float]] = (),
    begin: float = 0.0,
) -> Setup:
    """`tenants` that the settings do not name are served without limits; `paces` are (start,
    length, factor) of stretches in which steps took longer, or shorter. An adapter's rank counts
    bytes here: the row knows how large it is, and that is all that matters of it. The prefix cache
    is off: which prompts began alike is not recorded, and what was cached is left out of the
    prompts."""
    named = {t.name for t in settings.tenants}
    beside = tuple(Tenant(t) for t in sorted(set(tenants) - named))
    page = run.page_bytes or 1
    pages = run.pages or settings.limits.pool_bytes // page
    limits = replace(settings.limits, prefix_cache=False, pool_bytes=pages * page)
    sizes = {a.adapter: a.bytes or 1 for a in adapters}
    return Setup(
        name="what-if",
        machine=Machine(run.model, costs, page, link, rank_bytes=1),
        pools=(PoolSpec(run.pool, replicas, limits),),
        tenants=settings.tenants + beside,
        adapters=tuple(AdapterSpec(key, size, 0) for key, size in sorted(sizes.items())),
        policy=settings.policy,
        bucket_s=run.bucket_s or 60.0,
        knobs=settings.knobs,
        faults=tuple(
            Fault("slow", max(0.0, at - begin), length - max(0.0, begin - at), factor, replica=i)
            for at, length, factor in paces
            if at + length > begin
            for i in range(replicas)
        ),
    )
