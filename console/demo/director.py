"""Plays a script against running processes: sends, switches, marks, measures. Draws nothing.

Sends the workload over HTTP, switches the policy live and sums both acts up from the store.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

from console.demo import result
from console.demo.script import Played, Script
from engine.errors import EngineError
from engine.simulation.workload import Arrival

if TYPE_CHECKING:
    from engine.serving.load import Seen
    from engine.serving.processes import ServeProcesses

CLOCKS_S = 5.0  # so far the engine's clock and this one's may be apart


class Director:
    """Plays a script against running processes. One thread; `stop` from any."""

    def __init__(self, script: Script, serve: ServeProcesses, keys: dict[str, str]) -> None:
        from engine.serving.client import WorkerClient
        from telemetry.service.client import StoreClient

        self.script = script
        self.phase: str | None = None
        self.pace = 1.0
        self.played = Played()
        self._serve = serve
        self._keys = keys
        self._worker = WorkerClient(serve.worker_address)
        self._store = StoreClient(serve.store_address)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._loop_lock = threading.Lock()
        self._stopped = threading.Event()
        self._marks = 0
        self._page = self._read_page()

    def stop(self) -> None:
        """End the play early; what has been measured stays."""
        with self._loop_lock:
            self._stopped.set()
            if self._loop is not None and self._stop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)

    def switch_policy(self) -> str:
        """The key's action: the other policy, live."""
        now = self._worker.status().policy
        other = "fcfs" if now == "vtc" else "vtc"
        self._worker.set_policy(other, who="demo", why="switched by hand")
        return f"policy {now} -> {other}, in force from the next step"

    def play(self) -> Played:
        try:
            asyncio.run(self._play())
        finally:
            self._worker.close()
            self._store.close()
        return self.played

    async def _play(self) -> None:
        with self._loop_lock:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            if not self._stopped.is_set():
                await self._acts()
        finally:
            with self._loop_lock:
                self._loop = None

    async def _acts(self) -> None:
        assert self._stop is not None
        script = self.script
        self.pace = pace = await asyncio.to_thread(self._measure_pace)
        arrivals = script.arrivals(pace)
        for number, policy in enumerate(script.policies):
            await self._use(policy, first=number == 0)
            if number == 0:
                await self._enter(f"calm: everyday traffic under {policy.upper()}")
                began = time.time()
                incident = asyncio.create_task(self._announce(policy, script.calm_s))
                sent = await self._send(arrivals, 0.0)
                incident.cancel()
                start, end = began + script.calm_s, time.time()
                if end > start:  # else it was left in the calm: there is nothing to explain
                    self.played.incident = (start, end)
                sent = [s for s in sent if s.arrival.at_s >= script.calm_s]
            else:
                await self._enter(f"the same arrivals again under {policy.upper()}")
                start = time.time()
                later = [a for a in arrivals if a.at_s >= script.calm_s]
                sent = await self._send(later, script.calm_s)
            if self._stop.is_set():
                return
            await self._measure(policy, start, {s.request_id for s in sent if s.request_id})
        await self._enter("done")
        self.played.complete = True

    def _measure_pace(self) -> float:
        """How fast this machine is, from the cost model of the worker's warm-up."""
        from engine.costs import CostModel

        for _ in range(40):
            runs = self._rows("engine_run")
            if runs:
                costs = CostModel(**json.loads(runs[-1].costs))
                return self.script.workload.pace(costs)
            time.sleep(0.25)  # the worker announces its run within a second of its start
        raise EngineError("the worker's run did not reach the store: see what it says above")

    async def _announce(self, policy: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        what = {
            "fanout": self.script.workload.title,
            "quiet": "nothing happens",
            "slow": "the engine becomes slow",
            "freeze": "the engine will freeze for 5 s",
        }[self.script.scenario]
        await self._enter(f"{what}, under {policy.upper()}")

    async def _enter(self, phase: str) -> None:
        """Set the phase and write a mark into the store, so that a replay knows it too."""
        from engine.clock import ClockBase
        from telemetry.conventions import Emitter
        from telemetry.otlp import encode
        from telemetry.records import Batch, EventRecord

        self.phase = phase
        self._marks += 1
        s = self._serve
        clock: ClockBase = s.clock
        mark = EventRecord(
            engine=s.settings.engine,
            run_id=s.run_id,
            pool=s.settings.pool,
            event_id=f"demo{self._marks}",
            at=clock.unix(time.monotonic() - clock.monotonic_s),
            kind="mark",
            detail=phase,
        )
        batch = Batch(
            mark.engine, mark.run_id, mark.pool, Emitter.FRONT, True, self._marks, (), (mark,)
        )
        await asyncio.to_thread(self._store.export, *encode(batch))

    async def _use(self, policy: str, *, first: bool) -> None:
        if first and self._worker.status().policy == policy:
            return
        why = "the same arrivals under another policy"
        await asyncio.to_thread(self._worker.set_policy, policy, who="demo", why=why)

    async def _send(self, arrivals: list[Arrival], offset_s: float) -> list[Seen]:
        """Send them all; returns what became of those that the pool took in or refused."""
        from engine.serving.load import Target, drive
        from engine.simulation.prompts import prompt

        assert self._stop is not None
        target = Target(
            self._serve.url,
            self.script.model,
            self._keys,
            lambda a: prompt(self._page, a.seed, a.prompt_tokens),
        )

        def note(seen: Seen) -> None:
            self.played.note(seen.arrival.tenant, seen.status, seen.error)

        seen = await drive(target, arrivals, offset_s, self._stop, note)
        return [s for s in seen if s.status]

    async def _measure(self, policy: str, began: float, sent: set[str]) -> None:
        """Sum the act up when the store has the rows of all that were sent in it."""
        own: list[Any] = []
        for _ in range(30):
            rows = await asyncio.to_thread(self._rows, "request", began - CLOCKS_S)
            # By name: a calm request that got in late is not one of the act's.
            own = [r for r in rows if r.request_id in sent]
            if len(own) >= len(sent):
                break
            await asyncio.sleep(0.5)
        self.played.acts.append(result.act(policy, own, began))

    def _rows(self, table: str, began: float = 0.0) -> list[Any]:
        from telemetry.source import open_source

        source = open_source(self._serve.store_address)
        try:
            return source.read(table, began, time.time() + 1)
        finally:
            source.close()

    def _read_page(self) -> tuple[int, ...]:
        from engine.model.text import load_tokenizer
        from engine.simulation.prompts import page_tokens

        return page_tokens(load_tokenizer(self.script.model).encode)
