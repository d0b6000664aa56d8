"""`tenantscope demo`: a real pool, a noisy neighbour, the table, the report. The director.

Starts the same three processes as `serve`, sends a workload over HTTP, switches the policy live
and measures both acts from the store. Owns the order of things; measures and draws nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import demo_result
from engine.config import Settings
from engine.errors import EngineError
from engine.simulation.workload import Arrival, Workload, read_workload

if TYPE_CHECKING:
    from console.live import LiveApp
    from engine.serving.faults import Faults
    from engine.serving.processes import ServeProcesses

INCIDENT = "five-pm-fanout"
FULL_S = 180.0
SCENARIOS = ("fanout", "quiet", "slow", "freeze")
PROVISIONAL_S = 1.0
HEADLESS_EVERY_S = 10.0
RECENT_S = 20.0  # two buckets without harm and the screen is quiet again

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Script:
    """What is to happen. `policies` are the acts; the first also sees the calm."""

    workload: Workload
    policies: tuple[str, ...]
    scenario: str
    scale: float  # of all times in the workload
    model: str
    store: Path
    port: int

    @property
    def calm_s(self) -> float:
        return self.workload.calm_s * self.scale

    @property
    def end_s(self) -> float:
        return (self.workload.calm_s + self.workload.incident_s) * self.scale

    def arrivals(self, pace: float = 1.0) -> list[Arrival]:
        """All of them, in the script's own time; without the flood where it plays no part.
        `pace` multiplies the rates, so that a slower machine is loaded as much, not more."""
        w = self.workload
        drawn = w.arrivals(0, w.calm_s + w.incident_s, pace)
        if self.scenario != "fanout":
            drawn = [a for a in drawn if not (a.tenant == w.suspect and a.prompt_tokens > 500)]
        return [replace(a, at_s=a.at_s * self.scale) for a in drawn]

    def faults(self) -> Faults:
        from engine.serving.faults import Faults

        if self.scenario == "slow":
            return Faults(slow_factor=4.0, slow_from_s=self.calm_s)
        if self.scenario == "freeze":
            return Faults(freeze_at_s=self.calm_s + 5, freeze_s=5.0)
        return Faults()


@dataclass(slots=True)
class Played:
    """What came of it."""

    acts: list[demo_result.Act] = field(default_factory=list)
    incident: tuple[float, float] | None = None  # unix seconds of the first act's incident
    errors: list[str] = field(default_factory=list)
    complete: bool = False


class Director:
    """Plays a script against running processes. One thread; `stop` from any."""

    def __init__(self, script: Script, serve: ServeProcesses, keys: dict[str, str]) -> None:
        from engine.serving.client import WorkerClient
        from telemetry.client import StoreClient

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
                self.played.incident = (began + script.calm_s, time.time())
                start = began + script.calm_s
                expected = sum(a.at_s >= script.calm_s for a in sent)
            else:
                await self._enter(f"the same arrivals again under {policy.upper()}")
                start = time.time()
                later = [a for a in arrivals if a.at_s >= script.calm_s]
                expected = len(await self._send(later, script.calm_s))
            if self._stop.is_set():
                return
            await self._measure(policy, start, expected)
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

    async def _send(self, arrivals: list[Arrival], offset_s: float) -> list[Arrival]:
        """Send them all; returns those that the pool took in or refused."""
        from engine.serving.load import Seen, Target, drive
        from engine.simulation.prompts import prompt

        assert self._stop is not None
        target = Target(
            self._serve.url,
            self.script.model,
            self._keys,
            lambda a: prompt(self._page, a.seed, a.prompt_tokens),
        )

        def note(seen: Seen) -> None:
            if seen.error:
                self.played.errors.append(f"{seen.arrival.tenant}: {seen.error}")

        seen = await drive(target, arrivals, offset_s, self._stop, note)
        return [s.arrival for s in seen if s.status]

    async def _measure(self, policy: str, began: float, expected: int) -> None:
        """Sum the act up when the store has the rows of all that were sent."""
        rows: list[Any] = []
        for _ in range(30):
            rows = await asyncio.to_thread(self._rows, "request", began)
            if len(rows) >= expected:
                break
            await asyncio.sleep(0.5)
        self.played.acts.append(demo_result.act(policy, rows, began))

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


def make_settings(
    script: Script, adapters: list[tuple[str, str]]
) -> tuple[Settings, dict[str, str]]:
    """Settings of the demo's pool, and a fresh API key a tenant (kept in memory only)."""
    from engine.serving.auth import new_key

    keys: dict[str, str] = {}
    tenants = []
    for tenant in script.workload.tenants:
        keys[tenant.name], digest = new_key()
        tenants.append(replace(tenant, key_sha256=(digest,)))
    settings = Settings(
        engine="demo",
        model=script.model,
        policy=script.policies[0],
        bucket_s=script.workload.bucket_s,
        provisional_s=PROVISIONAL_S,
        limits=script.workload.limits,
        tenants=tuple(tenants),
        adapters=tuple(adapters),
    )
    return settings, keys


def make_adapters(workload: Workload, model: str, say: Say) -> list[tuple[str, str]]:
    """The workload's synthetic adapters, made once and kept in the cache."""
    from engine.model.cache import cache_folder
    from engine.model.config import model_config
    from engine.model.made_adapters import make_adapter

    config = model_config(model)
    folder = cache_folder() / "synthetic-adapters" / Path(model).name
    made = 0
    out = []
    for spec in workload.adapters:
        place = folder / f"rank{spec.rank}-seed{spec.seed}"
        if not (place / "adapter_model.safetensors").exists():
            make_adapter(place, config, spec.rank, seed=spec.seed)
            made += 1
        out.append((spec.name, str(place)))
    if made:
        say(f"made {made} synthetic LoRA adapters (random weights) in {folder}")
    return out


def first_line(model: str) -> str:
    """What will be downloaded, how big, how long; or that nothing will."""
    from engine.model.fetch import plan_download

    if model == "synthetic":
        return "Nothing will be downloaded: --model synthetic makes up a small random model."
    plan = plan_download(model)
    if plan is None:
        return f"Nothing will be downloaded: {model} is in the cache. This takes about 4 minutes."
    return (
        f"Downloads {plan.what} ({plan.bytes / 1e6:.1f} MB) to {plan.to}, once: about "
        f"{plan.bytes / 1e6 * 8 / 50:.0f} s at 50 Mbit/s. Then this takes about 4 minutes."
    )


def default_store() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "tenantscope" / time.strftime("demo-%Y%m%d-%H%M%S")


def next_commands(script: Script, played: Played) -> list[str]:
    """Three exact commands to go on with."""
    store = _quoted(script.store)
    if played.incident is None:
        return [
            f"tenantscope store info {store}",
            "tenantscope demo --replay",
            "tenantscope --help",
        ]
    begin, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(t)) for t in played.incident)
    span = f"--from {begin} --to {end}"
    return [
        f"tenantscope postmortem report --store {store} {span}",
        f"tenantscope query tenants_now --store {store} {span}",
        f"tenantscope demo --replay --store {store}",
    ]


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


@click.command()
@click.option("--headless", is_flag=True, help="Plain lines instead of the live table.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option(
    "--policy",
    type=click.Choice(["both", "fcfs", "vtc"]),
    default="both",
    show_default=True,
    help="Play the incident under one policy, or under both, switched live.",
)
@click.option(
    "--duration",
    type=click.FloatRange(min=20),
    default=FULL_S,
    show_default=True,
    help="Seconds of the whole play; everything in it is scaled.",
)
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    default="fanout",
    show_default=True,
    help="fanout: one tenant floods the pool; quiet: nobody does; slow, freeze: the engine is at "
    "fault, on purpose. The report must tell them apart.",
)
@click.option("--replay", is_flag=True, help="Play a recorded run; no model, no download.")
@click.option("--speed", type=click.FloatRange(min=0.1, max=100), default=1.0, show_default=True)
@click.option("--store", type=click.Path(path_type=Path), help="Where the telemetry goes.")
@click.option("--model", default="smollm2-135m", show_default=True, help="Or: synthetic.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Front's port; 0 = any.")
def demo(
    headless: bool,
    as_json: bool,
    policy: str,
    duration: float,
    scenario: str,
    replay: bool,
    speed: float,
    store: Path | None,
    model: str,
    port: int,
) -> None:
    """One command to an explained incident.

    Four tenants with twelve LoRA adapters share a small real model. At five o'clock acme fans out
    long contexts; under FCFS the others miss their targets, and the table says behind whom they
    wait. Then the same arrivals come again under VTC. About four minutes on two cores.
    """
    interactive = sys.stdout.isatty() and sys.stdin.isatty() and not headless and not as_json
    if replay:
        from console.demo_replay import play_recording

        play_recording(store, speed, interactive)
        return
    from sample_incidents import incident_path

    workload = read_workload(incident_path(INCIDENT) / "workload.toml")
    both = ("fcfs", "vtc") if policy == "both" else (policy,)
    script = Script(
        workload,
        both if scenario == "fanout" else both[:1],
        scenario,
        duration / FULL_S,
        model,
        (store or default_store()).expanduser().resolve(),
        port,
    )
    say = _narrate(as_json)
    say(first_line(model))
    say("Meanwhile, in another terminal: tenantscope demo --replay (a recorded run, no download).")
    played = _run(script, interactive, say)
    _close(script, played, as_json)


def _narrate(as_json: bool) -> Say:
    return lambda text: click.echo(text, err=as_json)


def _run(script: Script, interactive: bool, say: Say) -> Played:
    from engine.serving.processes import ServeProcesses

    adapters = make_adapters(script.workload, script.model, say)
    settings, keys = make_settings(script, adapters)
    serve = ServeProcesses(
        settings,
        script.store,
        port=script.port,
        faults=script.faults(),
        progress=say,
    )
    with serve:
        say(f"serving {script.model} for {len(keys)} tenants at {serve.url}")
        director = Director(script, serve, keys)
        failure: list[BaseException] = []

        def work() -> None:
            try:
                director.play()
            except BaseException as e:
                failure.append(e)

        thread = threading.Thread(target=work, name="director")
        watch = _watch_live if interactive else _watch_lines
        thread.start()
        try:
            watch(director, serve, thread, say)
        finally:
            director.stop()
            thread.join()
        if failure:
            raise failure[0]
        broken = serve.failure()
        if broken is not None:
            raise EngineError(broken)
        say("stopping: the last minutes go to the store")
    return director.played


def _feed(director: Director, serve: ServeProcesses) -> Any:
    from console.feed import SourceFeed
    from console.judge import LiveJudge
    from telemetry.source import open_source

    return SourceFeed(
        open_source(serve.store_address),
        window_s=30,
        judge=LiveJudge(recent_s=RECENT_S),
        phase=lambda: director.phase,
    )


def _watch_live(
    director: Director, serve: ServeProcesses, thread: threading.Thread, say: Say
) -> None:
    from console.live import LiveApp

    app: LiveApp = LiveApp(_feed(director, serve), director)

    def leave() -> None:
        thread.join()
        app.call_from_thread(app.exit)

    threading.Thread(target=leave, name="curtain", daemon=True).start()
    app.run()


def _watch_lines(
    director: Director, serve: ServeProcesses, thread: threading.Thread, say: Say
) -> None:
    from console.lines import glyphs_for
    from console.text import render_text, summary_line

    feed = _feed(director, serve)
    glyphs = glyphs_for(sys.stdout.encoding)
    phase, next_at = None, 0.0
    while thread.is_alive():
        thread.join(0.5)
        if director.phase == phase and time.monotonic() < next_at:
            continue
        snapshot = feed.snapshot()
        if director.phase != phase:
            phase = director.phase
            say(f"== {phase}")
        elif snapshot.tenants:
            say(render_text(snapshot, glyphs=glyphs))
            say(summary_line(snapshot))
        next_at = time.monotonic() + HEADLESS_EVERY_S


def _close(script: Script, played: Played, as_json: bool) -> None:
    commands = next_commands(script, played)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "complete": played.complete,
                    "scenario": script.scenario,
                    "model": script.model,
                    "store": str(script.store),
                    "incident": played.incident,
                    "acts": [a.as_json() for a in played.acts],
                    "errors": played.errors,
                    "next": commands,
                },
                indent=2,
            )
        )
    else:
        click.echo("")
        for line in demo_result.side_by_side(played.acts):
            click.echo(line)
        for error in played.errors[:3]:
            click.echo(f"a request failed: {error}")
        if not played.complete:
            click.echo("ended early: what was measured until then is in the store")
        click.echo(f"\nThe telemetry of this run is in {script.store}. Go on with:")
        for command in commands:
            click.echo(f"  {command}")
    if played.errors:
        sys.exit(1)
