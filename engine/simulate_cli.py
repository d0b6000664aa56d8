"""`tenantscope simulate`: a workload or a trace through the real core in virtual time.

Owns options, the progress bar and what a person reads; decides nothing. stdout is data, stderr is
narration. Exit codes: 0 ok, 1 failed, 2 usage or a file that is refused, 130 interrupted.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.config import POLICIES, Tenant
from engine.errors import WorkloadError
from telemetry.finite_option import Finite
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from engine.simulation.results import Result
    from engine.simulation.setup import Setup
    from engine.simulation.simulate import Progress
    from engine.simulation.store_out import StoreOut
    from engine.simulation.traces.trace import Trace
    from engine.simulation.workload import Arrival, Workload

FORMATS = ("azure", "mooncake", "servegen", "vtc")
# As in engine/simulation/hardware.py, which takes too long to import for a page of help.
PRESET_NAMES = ("a10g-llama2-7b", "a100-80-llama2-13b", "4xh100-llama3-70b")
TRACE_ONLY = ("form", "from_s", "speed", "tenants")
BAR_CELLS, FEWEST_BAR_CELLS = 30, 8
BAR_EVERY_S = 0.1
MOST_TENANTS = 1_000_000
LARGEST_SEED = 1 << 53  # as in a file


class _Names(click.ParamType[tuple[str, ...]]):
    """Policies, with commas between."""

    name = "P,P,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(n.strip() for n in str(value).split(","))
        for name in names:
            if name not in POLICIES:
                self.fail(f"{name!r} is no policy: use {', '.join(POLICIES)}", param, ctx)
        if len(set(names)) != len(names):
            self.fail(f"{value!r} names a policy twice", param, ctx)
        return names


@click.command()
@click.argument("workload", type=NamedPath(path_type=Path), required=False)
@click.option("--policy", type=click.Choice(POLICIES), help="Instead of the workload's own.")
@click.option("--compare", type=_Names(), help="The same arrivals under each of these policies.")
@click.option("--trace", type=NamedPath(path_type=Path),
              help="Arrivals from a trace, in place of the workload's.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(FORMATS), help="The trace's format.")
@click.option("--from", "from_s", type=Finite(min=0), default=0.0, metavar="SECONDS",
              help="Begin so many seconds into the trace.")  # fmt: skip
@click.option("--speed", type=Finite(min=1e-3, max=1e6), default=1.0, metavar="TIMES",
              help="Play the trace so many times as fast.")  # fmt: skip
@click.option("--tenants", type=click.IntRange(1, MOST_TENANTS), default=8, metavar="N",
              help="Spread a trace that names no tenants over so many (8).")  # fmt: skip
@click.option("--preset", metavar="NAME",
              help="Hardware, model and pool sizes in place of the workload's: "
              f"{', '.join(PRESET_NAMES)}.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, LARGEST_SEED), metavar="N",
              help="Instead of the workload's own.")  # fmt: skip
@click.option("--until", "until_s", type=Finite(min=0, min_open=True), metavar="SECONDS",
              help="Cut at that simulated second; else all that came is served.")  # fmt: skip
@click.option("--store", type=NamedPath(path_type=Path), metavar="FOLDER",
              help="Write the engine's own telemetry to this new folder. A run that fails or is "
              "interrupted leaves none.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option("--top", type=click.IntRange(min=1), metavar="N",
              help="Show so many tenants, by service (20; with --json all).")  # fmt: skip
@click.pass_context
def simulate(
    ctx: click.Context,
    workload: Path | None,
    policy: str | None,
    compare: tuple[str, ...] | None,
    trace: Path | None,
    form: str | None,
    from_s: float,
    speed: float,
    tenants: int,
    preset: str | None,
    seed: int | None,
    until_s: float | None,
    store: Path | None,
    as_json: bool,
    top: int | None,
) -> None:
    """Try a pool, a policy or a limit without a GPU.

    The scheduler, the page pool, the quotas and the ledger are the engine's own; only the clock
    and the time a step takes are made up, by a cost model. The same inputs give the same result.

    \b
    Examples:
      tenantscope simulate workload.toml
          who got what, how long it took, what they waited for
      tenantscope simulate workload.toml --compare vtc,fcfs,round-robin
          the same arrivals under three policies, side by side
      tenantscope simulate workload.toml --policy fcfs --store night
      tenantscope postmortem report --store night
          a simulated incident, explained like a real one
      tenantscope simulate --preset a10g-llama2-7b --trace code.csv --format azure --tenants 20
          a trace, no workload file: tenants get no limits and weight 1
      tenantscope simulate workload.toml --json | jq '.runs[0].pools'

    A workload file names tenants with limits and SLOs, adapters, pools, streams of traffic,
    incidents and faults; sample_incidents/five-pm-fanout/workload.toml is one to begin with.
    """
    _refuse_idle_options(ctx, trace)
    if policy and compare:
        raise click.UsageError("--compare names the policies: leave out --policy", ctx)
    if store and compare and len(compare) > 1:
        raise click.UsageError(
            "--store holds one run: name one --policy, or run once for each", ctx
        )
    if workload is None and (trace is None or preset is None):
        raise click.UsageError(
            "name a WORKLOAD.toml; or --trace with its --format, and a --preset", ctx
        )
    if trace is not None and form is None:
        raise click.UsageError("--trace needs a --format", ctx)
    plan = _Plan(workload, trace, form, from_s, speed, tenants, preset, seed)
    results = []
    for name in compare or (policy or plan.workload.policy,):
        results.append(_run(plan, name, until_s, store))
        plan.tell_trace()
    if as_json:
        from engine.simulation.result_json import as_json as values

        runs = [values(result, top) for result in results]
        click.echo(json.dumps({"runs": runs}, indent=2, allow_nan=False))
    else:
        _show(results, top)
    if store is not None:
        explain = f"tenantscope postmortem report --store {shlex.quote(str(store))}"
        click.echo(f"the telemetry is in {store}; explain it with\n  {explain}", err=True)


class _Plan:
    """What the options say is to be simulated: the same for every policy."""

    def __init__(
        self,
        path: Path | None,
        trace: Path | None,
        form: str | None,
        from_s: float,
        speed: float,
        tenants: int,
        preset: str | None,
        seed: int | None,
    ) -> None:
        from engine.simulation.workload import read_workload

        self._path = path
        self._preset = None if preset is None else _preset(preset)
        self._trace_path = trace
        self._trace: Trace | None = None
        self._told = False
        workload = None if path is None else read_workload(path)
        if workload is not None and seed is not None:
            workload = replace(workload, seed=seed)
        if trace is not None and form is not None:
            from engine.simulation.traces.reader import read_trace
            from engine.simulation.traces.trace import TraceOptions

            options = TraceOptions(start_s=from_s, speed=speed, tenants=tenants, seed=seed or 0)
            self._trace = read_trace(trace, form, options)
        if workload is None:
            workload = _bare(trace.name if trace else "", self._preset, seed or 0)
        if self._trace is not None:
            known = {t.name for t in workload.tenants}
            new = tuple(Tenant(name) for name in self._trace.tenants if name not in known)
            workload = replace(workload, tenants=workload.tenants + new)
        self.workload: Workload = workload

    def setup(self, policy: str) -> Setup:
        from engine.simulation.setup import machine_of, make_setup

        preset = self._preset
        try:
            return make_setup(
                self.workload,
                machine=None if preset is None else machine_of(preset),
                limits=None if preset is None else preset.limits,
                policy=policy,
                prefixes=self._trace is not None and self._trace.format == "mooncake",
            )
        except WorkloadError as e:
            where = f"{self._path}: " if self._path is not None else ""
            on = f" (sizes are those of --preset {preset.name})" if preset is not None else ""
            raise WorkloadError(f"{where}{e}{on}") from None

    def arrivals(self) -> Iterator[Arrival]:
        """From the start, again for each policy. Raises WorkloadError for a trace of nothing."""
        if self._trace is None:
            return self.workload.stream()
        arrivals = iter(self._trace)
        first = next(arrivals, None)
        if first is None:
            raise WorkloadError(f"--trace {self._trace_path}: {self._trace.report.why_nothing()}")
        return itertools.chain((first,), arrivals)

    @property
    def end_s(self) -> float:
        """When the last arrival comes, as far as one can know; infinite = not."""
        return math.inf if self._trace is not None else self.workload.end_s

    def tell_trace(self) -> None:
        """What became of the trace's rows, once."""
        if self._trace is not None and not self._told:
            self._told = True
            for line in self._trace.report.lines():
                click.echo(line, err=True)


def _preset(name: str) -> Any:
    from engine.simulation.hardware import PRESETS

    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise WorkloadError(f"--preset {name!r}: expected one of {', '.join(PRESETS)}{hint}")
    return PRESETS[name]


def _bare(name: str, preset: Any, seed: int) -> Workload:
    """A workload of nothing but the preset's pool, for a trace to be played on."""
    from engine.simulation.workload import Workload

    return Workload(name, name, seed, 0.0, 0.0, None, 60.0, 0.2, preset.limits, (), (), ())


def _refuse_idle_options(ctx: click.Context, trace: Path | None) -> None:
    """An option that would be ignored is a misunderstanding: say so instead."""
    if trace is not None:
        return
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "")
        if param.name in TRACE_ONLY and given is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{param.opts[0]} goes with --trace only", ctx)


def _run(plan: _Plan, policy: str, until_s: float | None, store: Path | None) -> Result:
    from contextlib import nullcontext

    from engine.simulation.simulate import simulate as run

    setup, arrivals = plan.setup(policy), plan.arrivals()
    cut = math.inf if until_s is None else until_s
    with (
        nullcontext() if store is None else _store(store) as rows,
        _Bar(policy, min(cut, plan.end_s)) as bar,
    ):
        return run(arrivals, setup, until_s=cut, rows=rows, progress=bar.told)


def _store(folder: Path) -> StoreOut:
    from engine.simulation.store_out import StoreOut

    return StoreOut(folder)


def bar_line(label: str, end_s: float, progress: Progress, width: int) -> str:
    """How far it is, in less than `width` cells: what wraps could not be erased again."""
    said = (
        f"{progress.now_s:,.0f} s simulated, {progress.offered:,} requests, "
        f"{progress.under_way:,} under way"
    )
    head = f"{label}  "
    if 0 < end_s < math.inf:  # else no end is known: it tells only how far it is
        part = min(1.0, progress.now_s / end_s)
        percent = f"{100 * part:3.0f}%  "
        room = min(BAR_CELLS, width - 1 - len(head) - len(percent) - len(said) - 3)
        if room >= FEWEST_BAR_CELLS:
            done = int(part * room)
            head += f"[{'#' * done}{'.' * (room - done)}] "
        head += percent
    return (head + said)[: max(0, width - 1)]


class _Bar:
    """A line on stderr that tells how far it is, when somebody looks. Erased at the end."""

    def __init__(self, label: str, end_s: float) -> None:
        self._label, self._end_s = label, end_s
        self._next = 0.0
        self._drawn = False
        self.told: Callable[[Progress], None] | None = self._show if sys.stderr.isatty() else None

    def _show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + BAR_EVERY_S
        self._drawn = True
        line = bar_line(self._label, self._end_s, progress, shutil.get_terminal_size().columns)
        click.echo(f"\r\x1b[K{line}", err=True, nl=False)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            click.echo("\r\x1b[K", err=True, nl=False)


def _show(results: list[Result], top: int | None) -> None:
    from engine.simulation.tables import TOP, comparison, report

    tty = sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns
    fold = tty or "COLUMNS" in os.environ  # in a file or a pipe a row stays one line
    colour = tty and not os.environ.get("NO_COLOR")
    try:
        "⣿└".encode(sys.stdout.encoding or "ascii")
        plain = False
    except (UnicodeEncodeError, LookupError):
        plain = True
    if len(results) > 1:
        lines = comparison(results, top=top or TOP, width=width if fold else 0)
    else:
        lines = report(
            results[0], top=top or TOP, width=width, fold=fold, colour=colour, plain=plain
        )
    for line in lines:
        click.echo(line)
