"""The command itself: options, watching, and the last page. Owns what a person reads."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.demo import result
from console.demo.director import Director
from console.demo.script import SCENARIOS, Played, Script
from console.demo.setup import Say, default_store, first_line, make_adapters, make_settings
from engine.errors import EngineError
from engine.simulation.workload import read_workload

if TYPE_CHECKING:
    from console.live import LiveApp
    from engine.serving.processes import ServeProcesses

INCIDENT = "five-pm-fanout"
FULL_S = 180.0
HEADLESS_EVERY_S = 10.0
RECENT_S = 20.0  # two buckets without harm and the screen is quiet again


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
        from console.demo.replay import play_recording

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
        for line in result.side_by_side(played.acts):
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
    return shlex.quote(str(path))
