"""Who used how much, a day or a month, and whether it adds up to the engines' time. Pure over rows.

    billed + base + capacity + idle - early = observed

`billed` is the tenants' engine-seconds, the modelled cost of their own work; base (a step's fixed
cost), capacity (what steps took beyond the model) and idle are billed to nobody; `early` is what
steps took less than the model expects: it is in the bills and was never spent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from telemetry.errors import StoreError
from telemetry.plain import name as shown
from telemetry.source import Source

PERIODS = ("day", "month")
# Beyond this part of the observed time a difference is said to be one: floats, and a step that was
# under way at a bucket's end, stay below it.
CLOSE = 1e-3


class UnknownTenant(StoreError):
    """Nothing of that tenant is stored in the window."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Use:
    """One tenant in one period."""

    tenant: str
    offered_requests: int
    admitted_requests: int
    finished: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    recomputed_tokens: int
    engine_seconds: float


@dataclass(frozen=True, slots=True)
class EngineTime:
    """Where the engines' time of a period went, seconds."""

    billed_s: float
    base_s: float
    capacity_s: float
    idle_s: float
    early_s: float
    observed_s: float

    @property
    def difference_s(self) -> float:
        accounted = self.billed_s + self.base_s + self.capacity_s + self.idle_s - self.early_s
        return accounted - self.observed_s

    @property
    def closes(self) -> bool:
        return abs(self.difference_s) <= max(1e-6, CLOSE * self.observed_s)


@dataclass(frozen=True, slots=True)
class Period:
    """A UTC day or month: `uses` by engine-seconds, all tenants unless one was asked for; `time`
    is over all tenants, None where no engine was heard. `open`: an open bucket is in it."""

    period: str
    uses: tuple[Use, ...]
    time: EngineTime | None
    open: bool


@dataclass(frozen=True, slots=True)
class Usage:
    by: str
    periods: tuple[Period, ...]
    partial: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "periods": [
                {
                    "period": p.period,
                    "open": p.open,
                    "tenants": [asdict(u) for u in p.uses],
                    "engine_time": None
                    if p.time is None
                    else asdict(p.time)
                    | {"difference_s": p.time.difference_s, "closes": p.time.closes},
                }
                for p in self.periods
            ],
            "partial": list(self.partial),
        }


def usage(source: Source, by: str, *, start: float, end: float, tenant: str | None = None) -> Usage:
    """Usage over the buckets that start in [start, end). Raises UnknownTenant."""
    used = source.query("usage", start=start, end=end, by=by)
    spent = source.query("engine_time", start=start, end=end, by=by)
    partial = tuple(dict.fromkeys((*used.partial, *spent.partial)))
    found = periods(used.dicts(), spent.dicts(), tenant)
    if tenant is not None and not any(p.uses for p in found):
        names = sorted({r["tenant"] for r in used.dicts()})
        known = ", ".join(shown(n) for n in names[:10]) + (", ..." if len(names) > 10 else "")
        raise UnknownTenant(
            f"nothing of tenant {shown(tenant, 60)} is stored in that window"
            + (f"; there is of {known}" if names else ", nor of any other")
        )
    return Usage(by, found, partial)


def periods(
    used: Iterable[dict[str, Any]], spent: Iterable[dict[str, Any]], tenant: str | None = None
) -> tuple[Period, ...]:
    """Rows of the queries `usage` and `engine_time` put together."""
    by_period: dict[str, list[dict[str, Any]]] = {}
    for row in used:
        by_period.setdefault(row["period"], []).append(row)
    engines = {row["period"]: row for row in spent}
    out = []
    for period in sorted({*by_period, *engines}):
        rows, engine = by_period.get(period, []), engines.get(period)
        uses = tuple(
            Use(**{n: row[n] for n in Use.__slots__})
            for row in rows
            if tenant is None or row["tenant"] == tenant
        )
        both = [*rows, *([engine] if engine else [])]
        out.append(
            Period(
                period,
                uses,
                None if engine is None else _time(sum(r["engine_seconds"] for r in rows), engine),
                any(bool(r["provisional"]) for r in both),
            )
        )
    return tuple(out)


def _time(billed_s: float, row: dict[str, Any]) -> EngineTime:
    return EngineTime(
        billed_s,
        row["base_cost_s"],
        row["capacity_s"],
        row["idle_s"],
        row["early_s"],
        row["observed_s"],
    )
