"""What a demo needs before it starts: adapters, keys, settings, and what will be downloaded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from console.demo.script import Script
from engine.config import Settings
from engine.errors import ConfigError
from engine.simulation.workload import Workload

PROVISIONAL_S = 1.0
DRAINED = 1.33  # start, warm-up and drains come on top of the play itself

Say = Callable[[str], None]


def make_settings(
    script: Script, adapters: list[tuple[str, str]]
) -> tuple[Settings, dict[str, str]]:
    """Settings of the demo's pool, and a fresh API key a tenant (kept in memory only)."""
    from engine.serving.api.auth import new_key

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
    from engine.model.config import ATTENTION_MODULES, MODULES, model_config
    from engine.model.made_adapters import make_adapter, shape_key

    config = model_config(model)
    # Two models may have one name: what an adapter must fit stands beside it.
    folder = cache_folder() / "synthetic-adapters" / f"{Path(model).name}-{shape_key(config)}"
    made = 0
    out = []
    for spec in workload.adapters:
        is_whole = spec.targets == "all"
        name = f"rank{spec.rank}-seed{spec.seed}{'' if is_whole else f'-{spec.targets}'}"
        place = folder / name
        if not (place / "adapter_config.json").exists():  # written last: what was cut off has none
            modules = MODULES if is_whole else ATTENTION_MODULES
            make_adapter(place, config, spec.rank, modules, seed=spec.seed)
            made += 1
        out.append((spec.name, str(place)))
    if made:
        say(f"made {made} synthetic LoRA adapters (random weights) in {folder}")
    return out


def first_line(model: str, duration_s: float = 180.0) -> str:
    """What will be downloaded, how big, how long; or that nothing will. Raises ModelError for a
    model there is none of."""
    from engine.model.config import model_config
    from engine.model.fetch import plan_download

    model_config(model)
    minutes = max(1, round(duration_s * DRAINED / 60))
    takes = f"takes about {minutes} minute{'s' if minutes > 1 else ''}"
    if model == "synthetic":
        what = "--model synthetic makes up a small random model"
        return f"Nothing will be downloaded: {what}. This {takes}."
    plan = plan_download(model)
    if plan is None:
        what = "is in the cache" if model == "smollm2-135m" else "is on this disk"
        return f"Nothing will be downloaded: {model} {what}. This {takes}."
    return (
        f"Downloads {plan.what} ({plan.bytes / 1e6:.1f} MB) to {plan.to}, once: about "
        f"{plan.bytes / 1e6 * 8 / 50:.0f} s at 50 Mbit/s. Then this {takes}."
    )


def default_store() -> Path:
    """Raises ConfigError for a user without a home."""
    try:
        data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    except RuntimeError:
        raise ConfigError("this user has no home folder: say where with --store DIR") from None
    return Path(data) / "tenantscope" / time.strftime("demo-%Y%m%d-%H%M%S")
