"""`tenantscope adapters`: tells what is in an adapter's folder, makes synthetic ones to try with.

Loads no base model's weights. Exit codes: 0 it would be served (or was made), 1 it is refused,
2 usage. stdout is data.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from engine.model.adapter_report import Base, Report

_COLUMNS = ("module", "layers", "linears", "out", "in", "rank", "alpha", "scale")


@click.group()
def adapters() -> None:
    """LoRA adapters: what is in a folder, and synthetic ones to try things with.

    \b
    For example:
      tenantscope adapters inspect adapters/acme-v2 --model smollm2-135m
      tenantscope adapters make adapters/try --rank 8 --count 4
    """


@adapters.command()
@click.argument("folder", type=NamedPath(path_type=Path))
@click.option(
    "--model",
    default=None,
    metavar="NAME",
    help="Base model to hold it against; without one its shapes are not checked.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
    help="Type that the model is served in: what the adapter takes on the device.",
)
@click.option(
    "--page-tokens",
    type=click.IntRange(1, 4096),
    default=16,
    show_default=True,
    help="limits.page_tokens of the pool: how large its pages are.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the table.")
def inspect(folder: Path, model: str | None, dtype: str, page_tokens: int, as_json: bool) -> None:
    """Say what the adapter in FOLDER is, what is odd about it, and whether it would be served.

    Every check of a worker is made; no code of the folder is run. Exit code 1: it is refused.

    \b
    For example:
      tenantscope adapters inspect adapters/acme-v2
      tenantscope adapters inspect adapters/acme-v2 --model models/llama-3.2-1b --json
    """
    from engine.model.adapter_report import examine

    report = examine(folder, None if model is None else _base(model, dtype, page_tokens))
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report)
    if report.refusal is not None:
        raise SystemExit(1)


def _base(model: str, dtype: str, page_tokens: int) -> Base:
    """A model's sizes and its pages'. Its weights are not read. Raises ModelError."""
    from engine.model.adapter_report import Base
    from engine.model.config import model_config
    from engine.model.loaders import pick_dtype
    from engine.runner.arena import kv_page_bytes

    config = model_config(model, lambda text: click.echo(text, err=True))
    kind = pick_dtype(dtype)
    return Base(model, config, kind, kv_page_bytes(config, page_tokens, kind))


def _print(report: Report) -> None:
    from telemetry.ask.reading import Result
    from telemetry.cli import table
    from telemetry.plain import safe

    click.echo(safe(report.folder))
    if report.modules:
        scale = "alpha / sqrt(rank), rsLoRA" if report.rslora else "alpha / rank"
        click.echo(f"plain LoRA, scaled by {scale}{', synthetic' if report.synthetic else ''}")
        if report.base_model:
            click.echo(f"made for {safe(repr(report.base_model))}, it says")
        rows = tuple(
            (m.module, m.layers, m.linears, *m.shape, _few(m.ranks), _few(m.alphas), _few(m.scales))
            for m in report.modules
        )
        click.echo(table(Result(_COLUMNS, rows)))
        stored = f"{report.stored_bytes / 1e6:.2f} MB of {', '.join(report.stored_types)}"
        device = f"{(report.device_bytes or 0) / 1e6:.2f} MB as {report.dtype}"
        pages = f", {report.pages} pages of {report.page_bytes} bytes" if report.pages else ""
        click.echo(f"stored {stored}; on the device {device}{pages}")
    for warning in report.warnings:
        click.echo(f"warning: {safe(warning)}")
    if report.refusal is not None:
        click.echo(f"refused: {safe(report.refusal)}")
    elif report.model is not None:
        click.echo(f"would be served on {safe(report.model)}")
    else:
        click.echo("nothing speaks against it; its shapes were not checked: name a --model")


def _few(numbers: tuple[float, ...]) -> str:
    """One number, or the range of several."""
    low, high = f"{numbers[0]:g}", f"{numbers[-1]:g}"
    return low if low == high else f"{low} to {high}"


@adapters.command()
@click.argument("folder", type=NamedPath(path_type=Path))
@click.option(
    "--rank",
    "ranks",
    type=click.IntRange(1, 1024),
    multiple=True,
    default=(16,),
    show_default=True,
    help="Rank; given several times, the adapters take turns.",
)
@click.option(
    "--modules", default=None, help="Comma-separated, e.g. q_proj,v_proj; all by default."
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 63) - 1),
    default=0,
    show_default=True,
    help="Seed of the first; the next add one.",
)
@click.option("--model", default="smollm2-135m", show_default=True, help="Base model to fit.")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="More than one: FOLDER holds adapter-000, adapter-001, ...",
)
@click.option("--force", is_flag=True, help="Overwrite adapters that are there.")
def make(
    folder: Path,
    ranks: tuple[int, ...],
    modules: str | None,
    seed: int,
    model: str,
    count: int,
    force: bool,
) -> None:
    """Write synthetic PEFT adapters to FOLDER. They are random: they teach the model nothing."""
    from engine.errors import AdapterError
    from engine.model.config import MODULES, model_config
    from engine.model.made_adapters import make_adapter
    from telemetry.plain import safe

    config = model_config(model, lambda text: click.echo(text, err=True))
    chosen = MODULES if modules is None else tuple(m.strip() for m in modules.split(","))
    targets = [folder] if count == 1 else [folder / f"adapter-{i:03d}" for i in range(count)]
    for target in targets:
        if (target / "adapter_config.json").exists() and not force:
            raise AdapterError(f"{target} holds an adapter already; --force overwrites it")
    for i, target in enumerate(targets):
        rank = ranks[i % len(ranks)]
        make_adapter(target, config, rank, chosen, seed + i, base_model=model)
        size = (target / "adapter_model.safetensors").stat().st_size
        click.echo(f"{safe(str(target))}: rank {rank}, {len(chosen)} modules, {size / 1e6:.1f} MB")
    click.echo(
        f"{len(targets)} synthetic adapter(s) for {safe(model)}: random weights, no training."
    )
