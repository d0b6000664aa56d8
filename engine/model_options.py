"""The options that name a model and the dtype it computes in, for every command that loads one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from engine.config_values import DTYPES

Command = Callable[..., Any]


def model_options(command: Command) -> Command:
    """--model and --dtype, in this order."""
    named = click.option(
        "--model", default="smollm2-135m", show_default=True, help="As in the settings."
    )
    computed = click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        default="auto",
        show_default=True,
        help="Of weights and KV; auto: what this machine is fast in.",
    )
    return named(computed(command))
