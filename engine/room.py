"""How big a pool must be for what is known beforehand. Pure arithmetic; owns no memory."""

from __future__ import annotations

from dataclasses import replace

from engine.config import Limits
from engine.model.loaders import LoadedModel
from engine.runner.arena import kv_page_bytes

_SPARE = 1.25  # rows of adapter blocks are padded, and pages are not filled to the end


def limits_for(
    model: LoadedModel,
    *,
    streams: int,
    context: int,
    adapters: int,
    adapter_bytes: int,
    least: Limits,
) -> Limits:
    """`least`, made large enough for so many sequences of `context` tokens at once, and as many
    adapters of `adapter_bytes` together, in the model's dtype."""
    page = kv_page_bytes(model.config, least.page_tokens, model.dtype)
    kv = streams * (context // least.page_tokens + 2) * page
    held = int(_SPARE * adapter_bytes) + adapters * page
    return replace(
        least,
        slots=max(least.slots, streams),
        adapters_per_step=max(least.adapters_per_step, adapters),
        max_context=max(least.max_context, context),
        pool_bytes=max(least.pool_bytes, 2 * (kv + held)),
    )
