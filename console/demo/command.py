"""The command itself: options, watching, and the last page. Owns what a person reads."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from console.demo import result
from console.demo.director import Director
from console.demo.script import SCENARIOS, Played, Script
from console.demo.setup import Say, default_store, first_line, make_adapters, make_settings
from engine.errors import EngineError
from engine.simulation.workload import read_workload
from telemetry.finite_option import Finite
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from engine.serving.processes import ServeProcesses

INCIDENT = "five-pm-fanout"
FULL_S = 180.0
LOOK_S = 0.5  # how often a death among the processes is looked for
# What shapes a play has no part in a recording, and the other way round.
LIVE_ONLY = ("as_json", "policy", "duration", "scenario", "model", "port")
REPLAY_ONLY = ("speed",)


@click.command()
@click.option("--headless", is_flag=True, help="Plain lines instead of the console.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option(
    "--policy",
    type=click.Choice(["both", "fcfs", "vtc"]),
    default="both",
    show_default=True,
    help="Play the incident under one policy, or under both, switched live (fanout only; the "
    "other scenarios take fcfs unless told).",
)
@click.option(
    "--duration",
    type=Finite(min=20),
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
@click.option("--speed", type=Finite(min=0.1, max=100), default=1.0, show_default=True,
              help="Of a replay: seconds of the recording in one.")  # fmt: skip
@click.option("--store", type=NamedPath(path_type=Path),
              help="Folder the telemetry goes to (a new one by default); with --replay, the one "
              "to play.")  # fmt: skip
@click.option("--model", default="smollm2-135m", show_default=True,
              help="Or synthetic (random weights, no download), or a Llama model's folder.",
              )  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Front's port; 0 = any.")
@click.pass_context
def demo(
    ctx: click.Context,
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
    long contexts; under FCFS the others miss their targets, and the console says behind whom they
    wait. Then the same arrivals come again under VTC. About four minutes on two cores.

    \b
    Examples:
      tenantscope demo --replay                      a recorded run: nothing to download
      tenantscope demo --replay --speed 10 --headless
      tenantscope demo                               live; q ends it
      tenantscope demo --model synthetic --duration 30
      tenantscope demo --scenario slow --store slow-store
    """
    _refuse_idle_options(ctx, LIVE_ONLY if replay else REPLAY_ONLY, replay)
    # The console is drawn on stderr; what is left when it ends goes to stdout.
    terminal = all(f.isatty() for f in (sys.stdin, sys.stdout, sys.stderr))
    interactive = terminal and not headless and not as_json
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
        Path(os.path.realpath((store or default_store()).expanduser())),
        port,
    )
    say = _narrate(as_json)
    say(first_line(model, duration))
    say("Meanwhile, in another terminal: tenantscope demo --replay (a recorded run, no download).")
    try:
        played = _run(script, interactive, say)
    except KeyboardInterrupt:
        if script.store.is_dir():
            say(f"ended early: what was measured until then is in {script.store}")
        raise
    _close(script, played, as_json)


def _refuse_idle_options(ctx: click.Context, names: Iterable[str], replay: bool) -> None:
    """An option that would be ignored is a misunderstanding: say so instead."""
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if param.name in names and given:
            what = "has no part in a replay" if replay else "goes with --replay only"
            raise click.UsageError(f"{param.opts[0]} {what}", ctx)


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
        say(f"The same console from another terminal: {console_command(serve.store_address)}")
        director = Director(script, serve, keys)
        failure: list[BaseException] = []

        def work() -> None:
            try:
                director.play()
            except BaseException as e:
                failure.append(e)

        thread = threading.Thread(target=work, name="director")
        thread.start()
        over = threading.Event()
        threading.Thread(
            target=stop_at_failure, args=(serve, director, over), name="guard", daemon=True
        ).start()
        try:
            _watch(director, serve, thread, interactive, say)
        finally:
            over.set()
            director.stop()
            thread.join()
        # What died is the cause; that the director could not go on is its effect.
        broken = serve.failure()
        if broken is not None:
            raise EngineError(f"{broken}\nwhat was measured until then is in {script.store}")
        if failure:
            raise failure[0]
        say("stopping: the last minutes go to the store")
    return director.played


def console_command(store_address: str) -> str:
    """What opens the console on this demo, from another terminal."""
    return f"tenantscope console --connect {shlex.quote(store_address)}"


def stop_at_failure(serve: ServeProcesses, director: Director, over: threading.Event) -> None:
    """End the play as soon as a process it needs has died, and not when the script is through."""
    while not over.is_set():
        if serve.wait(LOOK_S) is not None:
            director.stop()
            return


def _watch(
    director: Director, serve: ServeProcesses, thread: threading.Thread, interactive: bool, say: Say
) -> None:
    """In the console, whose operator's keys work on this very engine, or as plain lines."""
    from console.command import opening
    from console.demo import watch
    from console.sight import LiveEdge

    opened = opening(serve.store_address)
    feed = watch.sight(opened, LiveEdge(), phase=lambda: director.phase)
    if not interactive:
        watch.watch_lines(feed, director, thread, say)
        return
    from console.act.desk import Desk
    from console.act.door import AdminDoor

    desk = Desk([AdminDoor(serve.admin_address)], store=serve.store_address)
    watch.watch_screen(watch.screen(feed, director.switch_policy, desk), thread)


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
                    "refused": played.refused,
                    "next": commands,
                },
                indent=2,
            )
        )
    else:
        click.echo("")
        for line in result.side_by_side(played.acts):
            click.echo(line)
        if played.refused:
            click.echo(f"refused by limits that were set meanwhile (429): {played.refused}")
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
