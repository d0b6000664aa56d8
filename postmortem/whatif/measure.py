"""Numbers of the window's requests, the same from recorded rows and from a replay's columns.

Owns percentiles, misses and goodput; runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config import Slo
from engine.simulation.columns import OUTCOMES, Columns
from postmortem.whatif.arrivals import Offered
from postmortem.whatif.model import FEW, Outcome, TenantNumbers
from telemetry.records import RequestRecord

Floats = NDArray[np.float64]
_FINISHED = OUTCOMES.index("finished")
_FAILED = (OUTCOMES.index("failed"), OUTCOMES.index("timed_out"))
_NO_SLO = Slo()


@dataclass(frozen=True, slots=True)
class Served:
    """Requests let in, as columns of one length. NaN = never reached."""

    tenant: NDArray[np.int64]
    ttft_s: Floats  # first token, else until it ended
    tpot_s: Floats
    gap_s: Floats
    ended_s: Floats  # since the window's start
    output: Floats
    tokens: Floats  # prompt and output
    finished: NDArray[np.bool_]
    failed: NDArray[np.bool_]


def of_rows(
    rows: Iterable[RequestRecord],
    start: float,
    end: float,
    slos: Mapping[str, Slo],
    of: Collection[str],
    hurt: Collection[str],
) -> Outcome:
    """What was recorded of requests that arrived in [start, end). `of`: the tenants shown, `hurt`:
    those counted together."""
    here = [r for r in rows if start <= r.arrived < end]
    names = sorted({r.tenant for r in here} | {*of})
    index = {t: i for i, t in enumerate(names)}
    offered = np.bincount([index[r.tenant] for r in here], minlength=len(names))
    let_in = [r for r in here if r.outcome != "rejected"]
    nan = math.nan

    def column(values: Iterable[float | None]) -> Floats:
        return np.array([nan if v is None else float(v) for v in values], dtype=np.float64)

    served = Served(
        np.array([index[r.tenant] for r in let_in], dtype=np.int64),
        column(_ttft(r) for r in let_in),
        column(r.tpot_s for r in let_in),
        column(r.max_gap_s for r in let_in),
        column(None if r.ended is None else r.ended - start for r in let_in),
        column(r.output_tokens or 0 for r in let_in),
        column((r.prompt_tokens or 0) + (r.output_tokens or 0) for r in let_in),
        np.array([r.outcome == "finished" for r in let_in], dtype=bool),
        np.array([r.outcome in ("failed", "timed_out") for r in let_in], dtype=bool),
    )
    return _outcome(served, names, offered, slos, of, hurt, end - start, 0.0)


def _ttft(r: RequestRecord) -> float | None:
    if r.ttft_s is not None:
        return r.ttft_s
    return None if r.ended is None else r.ended - r.arrived


def of_columns(
    columns: Columns,
    offered: Sequence[Offered],
    begins_s: float,
    window_s: float,
    slos: Mapping[str, Slo],
    of: Collection[str],
    hurt: Collection[str],
) -> Outcome:
    """What became of the judged arrivals in a replay; `begins_s` is the window's start on the
    replay's clock. An arrival without a row was refused: a replay runs until all have ended."""
    names = sorted({o.tenant for o in offered if o.judged} | {*of})
    index = {t: i for i, t in enumerate(names)}
    at = np.array([o.at_s for o in offered], dtype=np.float64)
    judged = np.array([o.judged for o in offered], dtype=bool)
    imputed = np.array([o.imputed for o in offered], dtype=bool)
    front = np.array([o.front_s for o in offered], dtype=np.float64)
    whose = np.array([index.get(o.tenant, -1) for o in offered], dtype=np.int64)
    counts = np.bincount(whose[judged], minlength=len(names))
    arrived = np.asarray(columns.arrived_s, dtype=np.float64)
    place = np.searchsorted(at, arrived)
    made_up = float(imputed[place].mean()) if len(place) else 0.0
    kept = judged[place] if len(place) else np.zeros(0, dtype=bool)
    place = place[kept]

    def column(values: object) -> Floats:
        here: Floats = np.asarray(values, dtype=np.float64)[kept]
        return here

    ended = column(columns.ended_s)
    ttft = column(columns.ttft_s)
    waited = np.where(np.isnan(ttft), ended - arrived[kept], ttft) + front[place]
    outcome = np.asarray(columns.outcome, dtype=np.int64)[kept]
    output = column(columns.output)
    served = Served(
        whose[place],
        waited,
        column(columns.tpot_s),
        column(columns.max_gap_s),
        ended - begins_s,
        output,
        column(columns.prompt) + output,
        outcome == _FINISHED,
        np.isin(outcome, _FAILED),
    )
    return _outcome(served, names, counts, slos, of, hurt, window_s, made_up)


def _outcome(
    served: Served,
    names: Sequence[str],
    offered: NDArray[np.int64],
    slos: Mapping[str, Slo],
    of: Collection[str],
    hurt: Collection[str],
    window_s: float,
    made_up: float,
) -> Outcome:
    missed, judged = _judged(served, [slos.get(n, _NO_SLO) for n in names])
    met = served.finished & ~missed
    whole = _Columns(served.ttft_s, missed, judged, np.where(met, served.output, 0.0))
    # Sorted by tenant once: a thousand of them, each looking through all requests, is minutes.
    order = np.argsort(served.tenant, kind="stable")
    sorted_ = whole.of(order)
    ends_at = np.cumsum(np.bincount(served.tenant, minlength=len(names))).tolist()
    tenants = tuple(
        _numbers(
            n,
            int(offered[i]),
            sorted_.of(slice(ends_at[i - 1] if i else 0, ends_at[i])),
            window_s,
        )
        for i, n in enumerate(names)
        if n in of
    )

    def together(which: Collection[str]) -> TenantNumbers:
        places = [i for i, n in enumerate(names) if n in which]
        count = int(offered[places].sum()) if places else 0
        return _numbers("", count, whole.of(np.isin(served.tenant, places)), window_s)

    ends = served.ended_s[~np.isnan(served.ended_s)]
    span_s = max(window_s, float(ends.max())) if len(ends) else window_s
    return Outcome(
        tenants, together(hurt), together(names), float(served.tokens.sum()) / span_s, made_up
    )


def _judged(served: Served, slos: Sequence[Slo]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(missed, eligible), as the ledger judges: a target passed, a failure or a timeout misses;
    one given up before a target passed is neither."""

    def target(values: list[float | None]) -> Floats:
        made = np.array([math.inf if v is None else v for v in values], dtype=np.float64)
        return made[served.tenant] if len(made) else np.zeros(0)

    missed = served.ttft_s > target([s.ttft_s for s in slos])
    missed |= served.tpot_s > target([s.tpot_s for s in slos])  # NaN passes no target
    missed |= served.gap_s > target([s.max_gap_s for s in slos])
    missed |= served.failed
    return missed, missed | served.finished


@dataclass(frozen=True, slots=True)
class _Columns:
    """What a tenant's numbers are made of, a value a request; `good`: output tokens that count."""

    ttft_s: Floats
    missed: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    good: Floats

    def of(self, which: slice | NDArray[Any]) -> _Columns:
        return _Columns(
            self.ttft_s[which], self.missed[which], self.judged[which], self.good[which]
        )


def _numbers(tenant: str, offered: int, mine: _Columns, window_s: float) -> TenantNumbers:
    times = np.sort(mine.ttft_s[~np.isnan(mine.ttft_s)])
    n = len(mine.ttft_s)
    enough = len(times) >= FEW
    return TenantNumbers(
        tenant,
        offered,
        max(0, offered - n),
        n,
        rank(times, 0.50) if enough else None,
        rank(times, 0.99) if enough else None,
        float(times[-1]) if len(times) else None,
        int(mine.judged.sum()),
        int(mine.missed.sum()),
        float(mine.good.sum()) / window_s,
    )


def rank(ordered: Floats, part: float) -> float:
    """Nearest-rank percentile of sorted values, as the report's."""
    return float(ordered[max(0, math.ceil(part * len(ordered)) - 1)])
