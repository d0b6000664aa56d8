"""The worker's side of an operator's act: names and core change together, or neither does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.admin.adapters import AdapterNames
from engine.admin.worker import Operator
from engine.between_steps import StepStuck
from engine.chronicle import KnownAdapter
from engine.config import Settings, Tenant
from telemetry.proto import tenantscope_pb2 as pb
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


class Worker:
    def __init__(self) -> None:
        self.core = make_pool(("a",), adapters={"x": 10}, max_context=1024).core
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
