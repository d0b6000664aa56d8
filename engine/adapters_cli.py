"""`tenantscope adapters`: makes synthetic adapters to try a pool with. Reads no weights."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def adapters() -> None:
    """LoRA adapters: make synthetic ones to try things with."""


@adapters.command()
@click.argument("folder", type=click.Path(path_type=Path))
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
@click.option("--seed", default=0, show_default=True, help="Seed of the first; the next add one.")
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

    config = model_config(model)
    chosen = MODULES if modules is None else tuple(m.strip() for m in modules.split(","))
    targets = [folder] if count == 1 else [folder / f"adapter-{i:03d}" for i in range(count)]
    for target in targets:
        if (target / "adapter_config.json").exists() and not force:
            raise AdapterError(f"{target} holds an adapter already; --force overwrites it")
    for i, target in enumerate(targets):
        rank = ranks[i % len(ranks)]
        make_adapter(target, config, rank, chosen, seed + i, base_model=model)
        size = (target / "adapter_model.safetensors").stat().st_size
        click.echo(f"{target}: rank {rank}, {len(chosen)} modules, {size / 1e6:.1f} MB")
    click.echo(f"{len(targets)} synthetic adapter(s) for {model}: random weights, no training.")
