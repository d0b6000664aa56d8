"""The stream between front and worker: what goes over it, and what happens when one side dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from serving_fakes import EOS, FakeCore, FakeWorker, ending, short_folder, step

from engine.errors import EngineError
from engine.serving.client import WorkerClient
from engine.serving.link import End, Flight, WorkerDown, WorkerLink
from telemetry.proto import tenantscope_pb2 as pb

WAIT_S = 10.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


@asynccontextmanager
async def linked(worker: FakeWorker) -> AsyncIterator[WorkerLink]:
    link = WorkerLink(worker.address)
    link.start()
    try:
        assert await link.wait_up(WAIT_S)
        yield link
    finally:
        await link.close()


def ask(request_id: str = "r1", **more: object) -> pb.Ask:
    fields = {"tenant": "alice", "prompt": [1, 2, 3], "max_tokens": 8} | more
    return pb.Ask(request_id=request_id, **fields)


async def gather(flight: Flight) -> tuple[list[int], End]:
    tokens: list[int] = []
    async with asyncio.timeout(WAIT_S):
        while True:
            news = await flight.next()
            assert news is not None
            tokens += news[0]
            if news[1] is not None:
                return tokens, news[1]


def test_tokens_arrive_in_order_and_the_end_comes_once(folder: Path) -> None:
    worker = FakeWorker(FakeCore(lambda a: [10, 11, 12, 13]), folder)
    ends: list[End] = []

    async def run() -> None:
        async with linked(worker) as link:
            flight = link.send(ask(), lambda f, end: ends.append(end))
            tokens, end = await gather(flight)
            assert tokens == [10, 11, 12, 13]
            assert (end.outcome, end.reason, end.output_tokens) == ("finished", "length", 4)
            assert link.open_requests == 0

    asyncio.run(run())
    worker.stop()
    assert len(ends) == 1


def test_an_ask_reaches_the_core_whole(folder: Path) -> None:
    core = FakeCore()
    worker = FakeWorker(core, folder)

    async def run() -> None:
        async with linked(worker) as link:
            link.send(
                ask(
                    adapter="ada",
                    arrived_s=1.25,
                    admitted_s=1.5,
                    temperature=0.5,
                    seed=0,
                    is_retry=True,
                    key_id="0123456789ab",
                    queue_timeout_s=1.5,
                    deadline_s=30.0,
                ),
                lambda f, e: None,
            )
            link.send(ask("r2", ignore_eos=True), lambda f, e: None)
            await asyncio.to_thread(core.wait_for, lambda: len(core.asks) == 2)

    asyncio.run(run())
    worker.stop()
    first, second = core.asks
    assert (first.adapter, first.adapter_name) == ("hash-of-ada", "ada")
    assert (first.prompt, first.max_tokens) == ((1, 2, 3), 8)
    assert (first.arrived_s, first.admitted_s) == (1.25, 1.5)
    assert (first.temperature, first.seed, first.is_retry) == (0.5, 0, True)
    assert first.stop_tokens == frozenset({EOS})
    assert (first.key_id, first.queue_timeout_s, first.deadline_s) == ("0123456789ab", 1.5, 30.0)
    assert (second.adapter, second.seed, second.stop_tokens) == (None, None, frozenset())
    assert (second.key_id, second.queue_timeout_s, second.deadline_s) == (None, None, None)


def test_one_step_is_one_message_at_most_however_many_requests_it_serves(folder: Path) -> None:
    core = FakeCore()
    worker = FakeWorker(core, folder)

    async def run() -> list[pb.WorkerMessage]:
        async with linked(worker) as link:
            heard: list[pb.WorkerMessage] = []
            dispatch = link._dispatch
            link._dispatch = lambda m: (heard.append(m), dispatch(m))[1]  # type: ignore[method-assign]
            flights = [link.send(ask(f"r{i}"), lambda f, e: None) for i in range(32)]
            await asyncio.to_thread(core.wait_for, lambda: len(core.asks) == 32)
            core.publish(step([(f"r{i}", i) for i in range(32)]))
            core.publish(step(ended=[ending(f"r{i}", output_tokens=1) for i in range(32)]))
            for i, flight in enumerate(flights):
                assert (await gather(flight))[0] == [i]
            return heard

    heard = asyncio.run(run())
    worker.stop()
    assert [len(m.tokens) for m in heard if m.tokens] == [32]
    assert [len(m.ended) for m in heard if m.ended] == [32], "with the tokens, or by themselves"


def test_what_is_asked_faster_than_it_is_written_arrives_in_order_aborts_and_charges_too(
    folder: Path,
) -> None:
    core = FakeCore()
    charges: list[dict[str, float]] = []
    core.charged_elsewhere = charges.append  # type: ignore[attr-defined]
    worker = FakeWorker(core, folder)

    async def run() -> None:
        async with linked(worker) as link:
            for i in range(100):
                link.send(ask(f"r{i}"), lambda f, e: None)
                link.charge({"alice": 1.0, "bob": 0.5})
                if i % 10 == 0:
                    link.abort(f"r{i}")
            await asyncio.to_thread(core.wait_for, lambda: len(core.aborted) == 10)
            await asyncio.to_thread(core.wait_for, lambda: len(core.asks) == 100)

    asyncio.run(run())
    worker.stop()
    assert [a.request_id for a in core.asks] == [f"r{i}" for i in range(100)]
    assert core.aborted[:10] == [f"r{i}" for i in range(0, 100, 10)]
    assert sum(c["alice"] for c in charges) == 100.0
    assert sum(c["bob"] for c in charges) == 50.0
    assert len(charges) < 100, "what waits is added up"


def test_an_unknown_adapter_fails_that_request_and_is_never_the_base_model(folder: Path) -> None:
    core = FakeCore(lambda a: [10])
    worker = FakeWorker(core, folder)

    async def run() -> End:
        async with linked(worker) as link:
            return (await gather(link.send(ask(adapter="gone"), lambda f, e: None)))[1]

    end = asyncio.run(run())
    worker.stop()
    assert end.outcome == "failed"
    assert "'gone'" in end.reason
    assert core.asks == []


def test_what_the_core_refuses_ends_that_request_with_its_reason(folder: Path) -> None:
    core = FakeCore()

    def refuse(a: object) -> None:
        raise EngineError("no room for that")

    core.submit = refuse  # type: ignore[method-assign]
    worker = FakeWorker(core, folder)

    async def run() -> End:
        async with linked(worker) as link:
            return (await gather(link.send(ask(), lambda f, e: None)))[1]

    assert asyncio.run(run()).reason == "no room for that"
    worker.stop()


def test_an_abort_reaches_the_core_and_the_end_still_comes(folder: Path) -> None:
    core = FakeCore()
    worker = FakeWorker(core, folder)

    async def run() -> End:
        async with linked(worker) as link:
            flight = link.send(ask(), lambda f, e: None)
            link.abort("r1")
            link.abort("nobody's")
            return (await gather(flight))[1]

    assert asyncio.run(run()).outcome == "aborted"
    worker.stop()
    assert core.aborted == ["r1"]


def test_a_dead_worker_ends_every_open_request_as_lost_and_refuses_new_ones(folder: Path) -> None:
    core = FakeCore()
    worker = FakeWorker(core, folder)

    async def run() -> list[End]:
        async with linked(worker) as link:
            flights = [link.send(ask(f"r{i}"), lambda f, e: None) for i in range(3)]
            await asyncio.to_thread(core.wait_for, lambda: len(core.asks) == 3)
            core.publish(step([("r0", 7)]))
            assert (await flights[0].next()) == ([7], None)
            worker.die()
            ends = [(await gather(f))[1] for f in flights]
            assert not link.is_up
            with pytest.raises(WorkerDown):
                link.send(ask("late"), lambda f, e: None)
            return ends

    ends = asyncio.run(run())
    assert all(e.lost and e.outcome == "failed" for e in ends)
    assert [e.output_tokens for e in ends] == [1, 0, 0]


def test_the_link_finds_a_worker_that_was_started_again(folder: Path) -> None:
    worker = FakeWorker(FakeCore(lambda a: [5]), folder)
    runs: list[str] = []

    async def run() -> list[int]:
        link = WorkerLink(worker.address, on_up=lambda status: runs.append(status.run_id))
        link.start()
        assert await link.wait_up(WAIT_S)
        await asyncio.to_thread(worker.die)
        assert await link.wait_down(WAIT_S)
        await asyncio.to_thread(worker.start, "run-2")
        assert await link.wait_up(WAIT_S)
        tokens, _ = await gather(link.send(ask(), lambda f, e: None))
        await link.close()
        return tokens

    assert asyncio.run(run()) == [5]
    worker.stop()
    assert runs == ["run-1", "run-2"]


def test_a_front_that_goes_away_leaves_nothing_running(folder: Path) -> None:
    core = FakeCore()
    worker = FakeWorker(core, folder)

    async def run() -> None:
        async with linked(worker) as link:
            link.send(ask("left-open"), lambda f, e: None)
            await asyncio.to_thread(core.wait_for, lambda: len(core.asks) == 1)

    asyncio.run(run())
    assert core.wait_for(lambda: core.aborted == ["left-open"])
    worker.stop()


def test_two_fronts_hear_only_of_their_own_requests(folder: Path) -> None:
    core = FakeCore()
    worker = FakeWorker(core, folder)

    async def run() -> None:
        async with linked(worker) as one, linked(worker) as two:
            mine = one.send(ask("a"), lambda f, e: None)
            theirs = two.send(ask("b"), lambda f, e: None)
            await asyncio.to_thread(core.wait_for, lambda: len(core.asks) == 2)
            two.abort("a")  # not two's to give up
            core.publish(step([("a", 1), ("b", 2)]))
            core.publish(step(ended=[ending("a", output_tokens=1), ending("b", output_tokens=1)]))
            assert (await gather(mine))[0] == [1]
            assert (await gather(theirs))[0] == [2]

    asyncio.run(run())
    worker.stop()
    assert core.aborted == []


def test_a_stopping_worker_delivers_what_is_queued_and_admits_no_more(folder: Path) -> None:
    core = FakeCore()
    worker = FakeWorker(core, folder)

    async def run() -> tuple[list[int], End]:
        async with linked(worker) as link:
            flight = link.send(ask(), lambda f, e: None)
            await asyncio.to_thread(core.wait_for, lambda: len(core.asks) == 1)
            core.publish(step([("r1", 9)]))
            worker.service.stop_admitting()
            late.append(link.send(ask("late"), lambda f, e: None))
            return await gather(flight)

    late: list[Flight] = []
    tokens, end = asyncio.run(run())
    worker.stop()
    assert tokens == [9]
    assert end.lost
    # Not failed: it is to be asked elsewhere, or later.
    assert late[0].end is not None
    assert late[0].end.lost
    assert len(core.asks) == 1


def test_a_fault_in_booking_an_end_costs_no_other_flight_its_own(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = FakeWorker(FakeCore(lambda a: [5]), folder)
    ends: list[End] = []

    def broken(flight: Flight, end: End) -> None:
        raise ValueError("a fault of ours")

    async def run() -> list[int]:
        async with linked(worker) as link:
            assert (await gather(link.send(ask("r1"), broken)))[0] == [5]
            assert (await gather(link.send(ask("r2"), lambda f, e: None)))[0] == [5]
            worker.core.reply = None
            link.send(ask("r3"), broken)
            flight = link.send(ask("r4"), lambda f, e: ends.append(e))
            await asyncio.to_thread(worker.core.wait_for, lambda: len(worker.core.asks) == 4)
            await asyncio.to_thread(worker.die)
            return (await gather(flight))[0]

    assert asyncio.run(run()) == []
    assert [e.lost for e in ends] == [True]
    assert "could not be booked: ValueError at" in caplog.text
    assert "a fault of ours" not in caplog.text


def test_the_client_reads_status_switches_policy_and_fetches_the_last_hour(folder: Path) -> None:
    worker = FakeWorker(FakeCore(), folder)
    with WorkerClient(worker.address) as client:
        status = client.status()
        assert (status.engine, status.run_id, status.pool) == ("e", "run-1", "main")
        assert (status.policy, status.policy_version, status.steps) == ("fcfs", 1, 7)
        change = client.set_policy("vtc", who="op", why="fan-out")
        assert (change.version, change.previous) == (2, "fcfs")
        assert client.recent(0.0, 1.0) == ([b"metrics"], [b"logs"])
    worker.stop()


def test_a_refused_policy_keeps_the_cores_words(folder: Path) -> None:
    worker = FakeWorker(FakeCore(), folder)
    with WorkerClient(worker.address) as client:
        with pytest.raises(EngineError, match="expected one of vtc, fcfs"):
            client.set_policy("lottery", who="op", why="luck")
        with pytest.raises(EngineError, match="version 9 is not in force, 1 is"):
            client.set_policy("vtc", who="op", why="late", if_version=9)
    worker.stop()


def test_a_client_without_a_worker_says_what_to_check(folder: Path) -> None:
    with (
        WorkerClient(f"unix:{folder / 'nobody.sock'}", timeout_s=2.0) as client,
        pytest.raises(EngineError, match="still running"),
    ):
        client.status()
