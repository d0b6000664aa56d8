"""Between front and worker: how a request's distribution is shaped, to its proto and back. Pure."""

from __future__ import annotations

from typing import Any

from engine.scheduling.shaping import PLAIN, Shaping
from telemetry.proto import tenantscope_pb2 as pb


def to_fields(shaping: Shaping) -> dict[str, Any]:
    """Fields of a `pb.Ask`; none where nothing is asked for."""
    if shaping == PLAIN:
        return {}
    return {
        "top_k": shaping.top_k,
        "min_p": shaping.min_p,
        "presence_penalty": shaping.presence_penalty,
        "frequency_penalty": shaping.frequency_penalty,
        "repetition_penalty": shaping.repetition_penalty,
        "logit_bias": [pb.LogitBias(token=t, added=by) for t, by in shaping.logit_bias],
    }


def of_proto(ask: pb.Ask) -> Shaping:
    """The inverse."""
    shaping = Shaping(
        top_k=ask.top_k,
        min_p=ask.min_p,
        presence_penalty=ask.presence_penalty,
        frequency_penalty=ask.frequency_penalty,
        repetition_penalty=ask.repetition_penalty or 1.0,
        logit_bias=tuple((b.token, b.added) for b in ask.logit_bias),
    )
    return PLAIN if shaping == PLAIN else shaping
