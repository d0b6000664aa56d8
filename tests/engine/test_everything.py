"""Everything at once: whatever is thrown at a core in virtual time, every sum closes at the end.

Owns a strategy of worlds and the list of what must hold in any of them.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import POLICIES, Slo, Tenant
from engine.loading import LoadDone
from engine.scheduling.plan import StepOutcome
from engine.simulation.world import CostRunner
from telemetry.conventions import WAIT_REASONS
from tests.engine.worlds import COSTS, PAGE_BYTES, make_pool

NAMES = ("a", "b", "", "[red]", "\u202e", "\U0001f600", "capacity", "self", "x" * 300)
ADAPTERS = "uvwx"


@dataclass(frozen=True)
class Request:
    at: float
    tenant: int
    prompt: int
    out: int
    adapter: str | None
    key: str | None
    queue_timeout_s: float | None
    deadline_s: float | None
    stop: int | None
    abort_after_s: float | None


@dataclass(frozen=True)
class Story:
    """A world, what is asked of it, and what befalls it."""

    tenants: list[tuple[float, int, str, str | None, Slo]]
    policy: str
    pages: int
    limits: dict
    adapters: dict[str, int]
    link_bytes_per_s: float
    requests: list[Request]
    switches: list[tuple[float, str]]
    unloads: list[tuple[float, str, float | None]]  # when, which, known again so much later
    broken_loads: bool
    bad_rows: float
    slow: bool
    freeze: tuple[float, float] | None
    bucket_s: float
    ticks: float | None
    tokens: bool  # a runner that says which tokens came out
    seed: int = field(default=0)


instants = st.one_of(st.sampled_from([0.0, 0.5]), st.floats(0.0, 2.0))
spans = st.one_of(st.none(), st.sampled_from([0.001, 0.05, 0.5]))


@st.composite
def stories(draw, plain: bool = False):
    """`plain`: nothing that differs from run to run by itself."""
    pages = draw(st.sampled_from([14, 20, 40, 200]))
    page_tokens = draw(st.sampled_from([1, 4, 16]))
    room = pages * page_tokens
    adapters = draw(st.dictionaries(st.sampled_from(ADAPTERS), st.integers(1, 7), max_size=4))
    tenant = st.tuples(
        st.sampled_from([1.0, 0.3, 7.0]),
        st.sampled_from([0, 0, 1]),
        st.sampled_from(["none", "none", "adapter", "key"]),
        st.sampled_from([None, "group"]),
        st.sampled_from([Slo(), Slo(0.3, 0.03, 0.1), Slo(max_gap_s=0.2)]),
    )
    tenants = draw(st.lists(tenant, min_size=1, max_size=5))
    some = st.one_of(st.none(), st.sampled_from(sorted(adapters))) if adapters else st.none()
    request = st.builds(
        Request,
        at=instants,
        tenant=st.integers(0, len(tenants) - 1),
        prompt=st.one_of(
            st.integers(1, 90), st.sampled_from([page_tokens, 2 * page_tokens, room, room + 1])
        ),
        out=st.one_of(st.just(1), st.integers(1, 60)),
        adapter=some,
        key=st.sampled_from([None, "k", "l"]),
        queue_timeout_s=spans,
        deadline_s=spans,
        stop=st.one_of(st.none(), st.integers(0, 30)),
        abort_after_s=st.one_of(st.none(), st.none(), st.floats(0.0, 1.0)),
    )
    unloads = st.tuples(
        instants, st.sampled_from(ADAPTERS), st.sampled_from([None, 0.0, 0.001, 0.3])
    )
    return Story(
        tenants,
        draw(st.sampled_from(POLICIES)),
        pages,
        {
            "slots": draw(st.sampled_from([1, 2, 4, 16])),
            "step_tokens": draw(st.sampled_from([1, 3, 8, 64])),
            "step_s": draw(st.sampled_from([None, None, 0.011, 0.02])),
            "adapters_per_step": draw(st.sampled_from([1, 2, 16])),
            "prefetch": draw(st.sampled_from([0, 1, 8])),
            "bypass": draw(st.sampled_from([0, 1, 8])),
            "preemptions": draw(st.sampled_from([0, 1, 3])),
            "host_adapters": draw(st.sampled_from([1, 256])),
            "prefix_cache": draw(st.booleans()),
            "page_tokens": page_tokens,
            "kv_floor_bytes": draw(st.sampled_from([0, 0, pages // 3])) * PAGE_BYTES,
            "adapter_floor_bytes": draw(st.sampled_from([0, 0, pages // 3])) * PAGE_BYTES,
        },
        adapters,
        draw(st.sampled_from([1e5, 1e6, 1e9])),
        draw(st.lists(request, min_size=1, max_size=25)),
        draw(st.lists(st.tuples(instants, st.sampled_from(POLICIES)), max_size=3)),
        draw(st.lists(unloads, max_size=3)),
        not plain and draw(st.booleans()),
        0.0 if plain else draw(st.sampled_from([0.0, 0.0, 0.05])),
        draw(st.booleans()),
        draw(st.sampled_from([None, None, (0.3, 2.0), (0.3, 15.0)])),
        draw(st.sampled_from([0.2, 1.0, 10.0])),
        draw(st.sampled_from([None, 0.1, 0.7])),
        not plain and draw(st.booleans()),
        draw(st.integers(0, 1000)),
    )


class TokenRunner:
    """Takes as long as the cost model says and says which tokens came out; some rows fail."""

    def __init__(self, inner, limits, bad_rows, seed):
        self._inner, self._limits = inner, limits
        self._bad_rows, self._random = bad_rows, random.Random(seed)

    def execute(self, plan):
        rows = plan.segments
        assert len({s.request_id for s in rows}) == len(rows)
        assert sum(len(s.tokens) for s in rows) <= self._limits.step_tokens
        assert plan.adapter_count == len(plan.adapters) <= self._limits.adapters_per_step
        for s in rows:
            assert 0 < s.start + len(s.tokens) <= len(s.pages) * self._limits.page_tokens
        self._inner.execute(plan)
        draw = self._random
        bad = {s.request_id: "not finite" for s in rows if draw.random() < self._bad_rows}
        good = [s.request_id for s in rows if s.samples and s.request_id not in bad]
        return StepOutcome({name: draw.randrange(30) for name in good}, bad)


def played(story: Story, jumping: bool = True):
    """The pool after the story, and how often each request was said to have ended."""
    tenants = tuple(
        Tenant(NAMES[i], weight, tier, share_by, prefix_group=group, slo=slo)
        for i, (weight, tier, share_by, group, slo) in enumerate(story.tenants)
    )

    def slowdown(now):
        return 1.0 + 0.5 * (int(now * 3) % 2)

    pool = make_pool(
        tenants,
        policy=story.policy,
        pages=story.pages,
        bucket_s=story.bucket_s,
        adapters=story.adapters,
        slowdown=slowdown if story.slow else None,
        freeze=story.freeze,
        link_bytes_per_s=story.link_bytes_per_s,
        **story.limits,
    )
    core, world = pool.core, pool.world
    scheduler, residency = core.scheduler, core.scheduler._residency
    if story.tokens:
        slower = {"slowdown": slowdown} if story.slow else {}
        inner = CostRunner(world, COSTS, freeze=story.freeze, **slower)
        core._runner = TokenRunner(inner, scheduler._limits, story.bad_rows, story.seed)
    if story.broken_loads:
        done, draw = core._load_done, random.Random(story.seed)

        def sometimes_broken(load):
            done(LoadDone(load.key, "its files are missing") if draw.random() < 0.3 else load)

        core._transfers.on_done(sometimes_broken)

    @contextmanager
    def instant():
        with core.ledger.lock:
            core.ledger.tick(pool.clock.now())
            yield

    def unload(key):
        with instant():
            scheduler.unload(key)

    def register(name):
        with instant():
            residency.register("key-" + name, story.adapters[name], in_host=True)

    ended: Counter[str] = Counter()
    one_step = core._one_step

    def checked():
        result = one_step()
        with instant():
            scheduler.check_integrity()
        ended.update(e.request_id for e in result.ended)
        assert scheduler.running <= scheduler._limits.slots
        return result

    core._one_step = checked
    for r in story.requests:
        name = pool.ask(
            r.at,
            tenants[r.tenant].name,
            r.prompt,
            r.out,
            r.adapter,
            key_id=r.key,
            queue_timeout_s=r.queue_timeout_s,
            deadline_s=r.deadline_s,
            stop_tokens=frozenset() if r.stop is None else frozenset([r.stop]),
        )
        if r.abort_after_s is not None:
            world.at(r.at + r.abort_after_s, lambda name=name: core.abort(name))
    for at, policy in story.switches:
        world.at(at, lambda policy=policy: core.set_policy(policy, who="ops", why="a try"))
    for at, adapter, back in story.unloads:
        if adapter in story.adapters:
            world.at(at, lambda key="key-" + adapter: unload(key))
            if back is not None:
                world.at(at + back, lambda adapter=adapter: register(adapter))
    if story.ticks:
        world.every(story.ticks, 5.0, core.tick)
    pool.run(jumping=jumping)  # until nothing is left to happen
    return pool, ended


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def waited(rows, reason: str) -> float:
    both = (f"wait_{reason}_s", f"rewait_{reason}_s")
    return sum(getattr(r, column) or 0.0 for r in rows for column in both)


def assert_sums_close(pool) -> None:
    """Two ways of counting agree, tenant by tenant and for the engine."""
    counters = pool.core.scheduler.counters
    charges: Counter[tuple[str, str]] = Counter()
    for c in pool.charges():
        charges[(c.victim, c.reason)] += c.charged_s
    rows, queues = pool.requests(), pool.core.scheduler._waiting.queues
    for tenant in {r.tenant for r in rows}:
        mine = [r for r in rows if r.tenant == tenant]
        for reason in WAIT_REASONS:
            booked = pool.total(f"wait_{reason}_s", tenant)
            assert close(waited(mine, reason), booked), (tenant, reason)
            assert close(charges[(tenant, reason)], booked), (tenant, reason)
        stall_s = sum(r.stall_s or 0.0 for r in mine)
        assert close(stall_s, pool.total("stall_s", tenant)), tenant
        assert close(stall_s, charges[(tenant, "stall")]), tenant
        for column in ("output_tokens", "recomputed_tokens"):
            assert pool.total(column, tenant) == sum(getattr(r, column) for r in mine)
        service = pool.total("prompt_tokens", tenant) + 2 * pool.total("output_tokens", tenant)
        charged = counters.unlifted(tenant) * counters.weight(tenant)
        assert math.isclose(charged, service, rel_tol=1e-6, abs_tol=1e-6), tenant
        if tenant in queues._shared:
            inner = queues._shared[tenant]._counters
            groups = sum(inner.unlifted(g) for g in inner._accounts)
            assert math.isclose(groups, service, rel_tol=1e-6, abs_tol=1e-6), tenant
    for r in rows:
        if r.ttft_s is not None:
            parts = sum(getattr(r, f"wait_{x}_s") for x in WAIT_REASONS)
            assert close(r.wait_front_s + r.prefill_s + parts, r.ttft_s)
    engine = pool.engine()
    predicted = sum(e.predicted_s for e in engine)
    busy = sum(e.busy_s for e in engine)
    billed = pool.total("engine_seconds") + sum(e.base_cost_s for e in engine)
    assert close(billed, predicted)
    assert math.isclose(predicted + sum(e.capacity_s for e in engine), busy, rel_tol=1e-9)
    assert pool.total("slo_eligible") == pool.total("slo_met") + pool.total("slo_missed")


def assert_nothing_is_left(pool) -> None:
    """No page, reference, pin, row, level or name outlives the last request."""
    core, scheduler = pool.core, pool.core.scheduler
    status, holdings = core.status(), core._pool.holdings()
    assert (status.running, status.waiting) == (0, 0)
    assert (holdings.kv, holdings.adapters) == ({}, {})
    assert scheduler._residency.pinned_bytes() == 0
    cohort, tenants = scheduler._running.cohort, core.ledger._tenants
    assert cohort.context == len(cohort.rows) == len(cohort.adapters) == 0
    assert not cohort.rows_of.any()
    waiting = scheduler._waiting
    for those in (waiting.queues, waiting.examined, waiting.preempted, scheduler._endings.live):
        assert not those
    for levels in (tenants.waiting, tenants.running, tenants.kv, tenants.adapters):
        assert not (abs(levels.values) > 1e-3).any()
    assert all(g.population == 0 for g in core.ledger._matrix._groups.values())
    for key, book in core.ledger._adapters.items():
        assert book.resident.value == (scheduler._residency.place(key).found == "device")
        assert book.referenced.value == 0


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(stories())
def test_whatever_happens_every_request_ends_once_and_every_sum_closes(story):
    pool, ended = played(story)
    assert Counter(r.request_id for r in pool.requests()) == Counter(pool._asked)
    assert ended == Counter(pool._asked)
    assert_sums_close(pool)
    assert_nothing_is_left(pool)


def told(pool):
    """Rows by key, without those that rounding alone makes or leaves out."""
    rows = {("request", r.request_id): asdict(r) for r in pool.requests()}
    for row in (*pool.tenants(), *pool.engine()):
        rows[(type(row).__name__, row.bucket_start, getattr(row, "tenant", ""))] = asdict(row)
    for c in pool.charges():
        if c.charged_s > 1e-6:
            key = (c.bucket_start, c.victim, c.reason, c.holder_kind, c.holder)
            rows[("charge", *key)] = asdict(c)
    return rows


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(stories(plain=True))
def test_jumping_over_steps_tells_the_same_rows_as_stepping(story):
    jumped, stepped = (told(played(story, jumping)[0]) for jumping in (True, False))
    assert jumped.keys() == stepped.keys()
    for key, row in stepped.items():
        for column, value in row.items():
            if isinstance(value, float):
                near = math.isclose(jumped[key][column], value, rel_tol=1e-7, abs_tol=1e-6)
                assert near, (key, column)
            else:
                assert jumped[key][column] == value, (key, column)
