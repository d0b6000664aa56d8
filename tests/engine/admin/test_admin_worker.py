"""The worker's side of an operator's act: names and core change together, or neither does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.admin.adapters import AdapterNames
from engine.admin.worker import Operator
from engine.between_steps import StepStuck
from engine.chronicle import KnownAdapter
from engine.config import Settings, Slo, Tenant
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.records import EngineRun, EventRecord
from tests.engine.worlds import PAGE_BYTES, make_pool

BASE = Settings(tenants=(Tenant("a", adapters=("x",)),), adapters=(("x", "/adapters/x"),))
WITH_Y = replace(BASE, adapters=(*BASE.adapters, ("y", "/adapters/y")))


def known(name: str, key: str, pages: int = 10) -> KnownAdapter:
    return KnownAdapter(key, name, pages, pages * PAGE_BYTES, 8, True)


class Shelf:
    """Every folder holds an adapter; its content is the folder's name and `edition`."""

    edition = ""

    def read(self, name: str, folder: Path) -> KnownAdapter:
        return known(name, f"key-{folder.name}{self.edition}")

    def keep(self, known: KnownAdapter, folder: Path) -> None:
        """Keeps nothing: no byte is moved here."""


class AtOnce:
    """Between steps all the time; `stuck_at`: that order (from 1) finds no step that ends."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.orders = 0
        self.stuck_at = 0

    def do(self, act: Callable[[Any], Any], timeout_s: float) -> Any:
        self.orders += 1
        if self.orders == self.stuck_at:
            raise StepStuck("no step ends")
        with self.core.ledger.lock:
            return act(self.core.scheduler)

    def __bool__(self) -> bool:
        return False  # nothing is ever left to be done

    def carry_out(self, scheduler: Any) -> None:
        """Nothing is queued."""


class Worker:
    def __init__(self) -> None:
        self.pool = make_pool(("a",), adapters={"x": 10}, max_context=1024)
        self.core = self.pool.core
        self.between = self.core.between_steps = AtOnce(self.core)  # type: ignore[assignment]
        self.names = AdapterNames(self.core.adapters, dict(BASE.adapters))
        self.shelf = Shelf()
        self.operator = Operator(self.core, BASE, self.names, self.shelf)

    def be(self, settings: Settings, pinned: tuple[str, ...] = (), **more: Any) -> pb.OperateReply:
        desired = pb.Desired(settings=settings.dump(), pinned=pinned, **more)
        return self.operator.operate(pb.OperateRequest(who="op", what="w", desired=desired))

    def all_known(self) -> bool:
        """Whether each name leads to what the core knows."""
        residency = self.core.scheduler.orders._residency
        return all(residency.knows(self.names[n].key) for n in self.names)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.mark.parametrize("after", [WITH_Y, replace(BASE, adapters=(), tenants=(Tenant("a"),))])
def test_a_step_that_hangs_at_any_point_changes_nothing_and_the_next_try_does_all(
    after: Settings,
) -> None:
    for stuck_at in (1, 2, 3):
        worker = Worker()
        worker.between.stuck_at = stuck_at
        with pytest.raises(StepStuck):
            worker.be(after)
        assert list(worker.names) == ["x"]
        assert worker.core.adapter_key("y") is None
        assert worker.be(after).ok
        assert list(worker.names) == [n for n, _ in after.adapters]
        assert [a.name for a in worker.core.adapters] == list(worker.names)


def test_at_no_instant_does_a_name_lead_to_what_the_core_does_not_know(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, seen = worker.names.change, []

    def watched(*args: Any) -> list[str]:
        gone = change(*args)
        seen.append(worker.all_known())
        return gone

    monkeypatch.setattr(worker.names, "change", watched)
    worker.be(WITH_Y)
    worker.shelf.edition = "-2"
    reply = worker.operator.operate(pb.OperateRequest(who="op", reload_adapter="x"))
    assert reply.ok
    assert worker.names["x"].key == "key-x-2"
    assert seen == [True, True]


def test_pins_that_no_longer_fit_are_let_go_at_a_start_and_that_is_said(worker: Worker) -> None:
    orders = worker.core.scheduler.orders
    assert worker.be(BASE, ("x",)).ok
    assert orders.held == {"key-x"}
    orders.most_pinned_pages = lambda largest: 0  # type: ignore[method-assign]
    assert not worker.be(BASE, ("x",)).ok
    reply = worker.be(BASE, ("x",), lenient=True)
    assert reply.ok
    assert "nothing is pinned" in reply.detail
    assert not orders.held


# -- a tenant that comes from another pool, or goes to one


COMES = Tenant("m", weight=2.0, tier=1, slo=Slo(ttft_s=0.001), share_by="adapter", adapters=("y",))
WITH_M = replace(WITH_Y, tenants=(*BASE.tenants, COMES))


def test_a_tenant_that_comes_is_judged_by_what_it_was_promised(worker: Worker) -> None:
    assert worker.be(WITH_M).ok
    worker.pool.ask(1.0, "m", 40, 4)
    worker.pool.run()
    assert worker.pool.total("slo_missed_ttft", "m") == 1
    assert worker.core.scheduler.orders._rights.share_by == {"m": "adapter"}


def test_who_comes_is_written_into_the_runs_row_and_stays_in_it(worker: Worker) -> None:
    run = EngineRun(engine="test", run_id="run", pool="main", started=0.0, model="m", config="{}")
    worker.core.announce(run)
    worker.be(WITH_M)
    worker.be(BASE)
    worker.pool.run()
    config = worker.pool.logs(EngineRun)[-1].config
    assert config is not None
    assert [t["name"] for t in json.loads(config)["tenants"]] == ["a", "m"]


def test_a_tenant_that_goes_ends_what_it_has_here_by_the_rights_it_had(worker: Worker) -> None:
    worker.be(WITH_M)
    worker.pool.ask(1.0, "m", 40, 4)
    worker.pool.ask(1.0, "a", 40, 4)
    left = worker.be(BASE)
    assert "tenant 'm' is no longer served here; it has nothing under way" in left.detail
    assert worker.core.scheduler.orders._rights.tiers == {"m": 1}
    worker.pool.run()
    assert [r.outcome for r in worker.pool.requests()] == ["finished"] * 2


def test_what_is_odd_about_an_adapter_is_in_the_answer_and_an_event(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = replace(known("y", "key-y"), warnings=("B is zero: no effect",))
    monkeypatch.setattr(worker.shelf, "read", lambda name, folder: odd)
    assert (
        "adapter 'y': rank 8, 10 pages; warning: B is zero: no effect" in worker.be(WITH_Y).detail
    )
    worker.pool.run()
    faults = [e for e in worker.pool.logs(EventRecord) if e.kind == "fault"]
    assert [(e.adapter, e.detail) for e in faults] == [
        ("key-y", "adapter 'y': B is zero: no effect")
    ]


def test_a_note_is_an_event_at_the_instant_it_is_about(worker: Worker) -> None:
    note = pb.OperateRequest(
        who="tenantscope", why="its time is over", note="over", at_unix_s=7.0, tenant="a"
    )
    assert worker.operator.operate(note).ok
    worker.pool.run()
    event = worker.pool.logs(EventRecord)[-1]
    assert (event.kind, event.at, event.tenant) == ("admin", 7.0, "a")
    assert event.detail == "over by tenantscope: its time is over"


def test_what_another_replica_has_written_down_is_no_second_event(worker: Worker) -> None:
    more = replace(BASE, tenants=(replace(BASE.tenants[0], weight=3.0),))
    for settings in (more, replace(more, tenants=more.tenants)):
        desired = pb.Desired(settings=settings.dump())
        request = pb.OperateRequest(who="op", what="w", desired=desired, is_told=True)
        assert worker.operator.operate(request).ok
    worker.pool.run()
    assert worker.pool.logs(EventRecord) == []
    assert worker.core.scheduler.policy_version == 2
