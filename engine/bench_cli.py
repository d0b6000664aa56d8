"""`tenantscope bench`: how fast the engine is here. Owns options and what a person reads.

Measures nothing itself. stdout is data, stderr is narration. Exit codes: 0 ok, 1 failed, 2 usage,
130 interrupted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from engine.model_options import model_options
from engine.threads import bound_spinning
from telemetry.finite_option import Finite

if TYPE_CHECKING:
    from engine.bench_figures import Figures, Load

MOST_STREAMS = 4096
_BUSY = 0.5  # of a load average: half a core of somebody else's work


class _Counts(click.ParamType[tuple[int, ...]]):
    """Numbers >= 1 with commas between, none twice."""

    name = "N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        out: list[int] = []
        for part in str(value).split(","):
            word = part.strip()
            if not word.isdecimal() or not 1 <= int(word) <= MOST_STREAMS:
                self.fail(f"{word!r}: expected numbers from 1 to {MOST_STREAMS}", param, ctx)
            if int(word) in out:
                self.fail(f"{value!r} names {word} twice", param, ctx)
            out.append(int(word))
        return tuple(out)


@click.group()
def bench() -> None:
    """How fast the engine is on this machine."""


@bench.command()
@model_options
@click.option(
    "--streams",
    type=_Counts(),
    default="1,8,32",
    show_default=True,
    help="Requests at once; each number is measured.",
)
@click.option(
    "--adapters",
    type=click.IntRange(0, 256),
    default=8,
    show_default=True,
    help="Synthetic adapters, dealt round over the streams; 0 = the base model only.",
)
@click.option("--rank", type=click.IntRange(1, 1024), default=16, show_default=True)
@click.option("--prompt-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--output-tokens", type=click.IntRange(1), default=64, show_default=True)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Each number of streams so often; medians are told.",
)
@click.option(
    "--temperature",
    type=Finite(0, 2),
    default=0.0,
    show_default=True,
    help="Above 0 tokens are drawn, which costs a little more.",
)
@click.option("--top-p", type=Finite(0.001, 1), default=1.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="For programs: every round, and medians.")
def throughput(
    model: str,
    dtype: str,
    streams: tuple[int, ...],
    adapters: int,
    rank: int,
    prompt_tokens: int,
    output_tokens: int,
    rounds: int,
    temperature: float,
    top_p: float,
    as_json: bool,
) -> None:
    """Tokens a second, with everything on but HTTP.

    The real core: scheduler, pool, ledger, and telemetry into a store process of its own. Prompts
    are random, every answer has its full length. DECODE counts the time in which all streams
    decode, END TO END the whole of it with the prompts.

    \b
      tenantscope bench throughput
      tenantscope bench throughput --streams 32 --adapters 16 --json
      tenantscope bench throughput --adapters 0          the base model only
    """
    bound_spinning()
    from engine.bench import throughput as measure
    from engine.bench_figures import Load

    load = Load(
        streams, adapters, rank, prompt_tokens, output_tokens, rounds,
        temperature=temperature, top_p=top_p,
    )  # fmt: skip
    figures = measure(model, load, dtype=dtype, say=lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps(figures.to_json()))
        return
    for line in table(figures):
        click.echo(line)


def table(figures: Figures) -> list[str]:
    """What a person reads."""
    from telemetry.plain import safe

    load = figures.load
    made_up = " (synthetic)" if figures.synthetic else ""
    dealt = f"{load.adapters} adapters of rank {load.rank}" if load.adapters else "no adapters"
    lines = [
        f"{safe(figures.model)}{made_up}, {figures.dtype}, {figures.threads} threads, {dealt}, "
        f"{load.prompt_tokens} tokens in, {load.output_tokens} out, {_drawn(load)}; "
        f"medians of {load.rounds}",
        f"computed by {figures.backend}",
        "",
        "STREAMS  DECODE tok/s  END TO END tok/s  STEP ms  OWN ms  PREFILL tok/s  TTFT ms",
    ]
    for at in figures.at:
        prefill = at.streams * load.prompt_tokens / at.prefill_s
        lines.append(
            f"{at.streams:7d}  {_number(at.decode_tokens_per_s):>12}  "
            f"{at.end_to_end_tokens_per_s:16.1f}  {_number(at.step_s, 1e3):>7}  "
            f"{_number(at.ours_s, 1e3, 2):>6}  {prefill:13.0f}  {at.ttft_s * 1e3:7.0f}"
        )
    told = figures.telemetry
    lines += [
        "",
        "STEP is one token of every stream; OWN is the part of it that is not the model's "
        "(plan, settle, ledger).",
        f"telemetry: {told.requests} requests, {told.bytes} bytes, {told.lost} lost ({told.where})",
    ]
    if figures.busy_before > _BUSY:
        lines.append(
            f"the machine was busy before the run (load average {figures.busy_before:.1f}): trust "
            "ratios, not these numbers"
        )
    if any(at.decode_tokens_per_s is None for at in figures.at):
        lines.append(
            "-: some streams ended before others had begun; raise --output-tokens to tell decode"
        )
    return lines


def _drawn(load: Load) -> str:
    if load.temperature == 0:
        return "greedy"
    nucleus = f", top_p {load.top_p:g}" if load.top_p < 1 else ""
    return f"temperature {load.temperature:g}{nucleus}"


def _number(value: float | None, times: float = 1.0, places: int = 1) -> str:
    return "-" if value is None else f"{value * times:.{places}f}"
