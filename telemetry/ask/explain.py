"""One request's life, and who held what while it waited. Asks a source; words nothing.

The matrix knows tenants, not requests: what is charged here is its tenant's waiting in the buckets
the request waited in, all of the tenant's requests together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from telemetry.conventions import CHARGE_REASONS, WAIT_REASONS
from telemetry.errors import QueryError, StoreError
from telemetry.plain import name as shown
from telemetry.records import RequestRecord
from telemetry.source import Source

_MOMENT_S = 1e-3  # a request that never waited still lies in one bucket


class UnknownRequest(StoreError):
    """No row of that id. A request has none before it has ended."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Holding:
    """Seconds charged to one holder for one reason; `share` is its part of that reason's."""

    reason: str
    holder_kind: str
    holder: str
    charged_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Targets:
    """The tenant's SLO, as its run was configured; None = no target."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    max_gap_s: float | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """`waited_from` and `waited_to` bound the waits; `buckets_from` and `buckets_to` the buckets
    that `held` is of (None where the matrix has no row). `policy` is the name of the version in
    force at the arrival, where it is stored. `partial`: what could not be read."""

    request: RequestRecord
    waited_from: float
    waited_to: float
    held: tuple[Holding, ...]
    buckets_from: float | None
    buckets_to: float | None
    targets: Targets | None
    policy: str | None
    partial: tuple[str, ...] = ()

    def waits(self) -> dict[str, float]:
        """Seconds by part of the time to the first token, in order; what is not known is absent."""
        row = self.request
        parts = {
            "front": row.wait_front_s,
            **{r: getattr(row, f"wait_{r}_s") for r in WAIT_REASONS},
            "prefill": row.prefill_s,
        }
        return {name: value for name, value in parts.items() if value is not None}

    def rewaits(self) -> dict[str, float]:
        """Seconds of waiting after the first token, by reason."""
        parts = {r: getattr(self.request, f"rewait_{r}_s") for r in WAIT_REASONS}
        return {name: value for name, value in parts.items() if value}

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "waits_s": self.waits(),
            "rewaits_s": self.rewaits(),
            "claim": "charged",
        }


def explain(source: Source, request_id: str, run_id: str | None = None) -> Life:
    """The life of the request. Raises UnknownRequest with ids that are near; QueryError when
    several runs have one of that id and none is chosen, or not the one chosen."""
    answer = source.query("request_find", request_id=request_id)
    found = answer.dicts()
    if not found:
        raise UnknownRequest(_unknown(source, request_id))
    mine = [f for f in found if run_id is None or f["run_id"] == run_id]
    if len(mine) != 1:
        listed = "; ".join(
            f"{shown(f['run_id'], 40)} ({shown(f['engine'])}, tenant {shown(f['tenant'])})"
            for f in found[:8]
        )
        if run_id is not None and not mine:
            raise QueryError(
                f"no run {shown(run_id, 40)} has a request {shown(request_id, 60)}: give --run one "
                f"of the runs {listed}"
            )
        raise QueryError(
            f"{len(found)} requests are called {shown(request_id, 60)}, in the runs {listed}: "
            "name one with --run"
        )
    row = _row(source, request_id, mine[0])
    start, end = _waited(row)
    held = source.query(
        "held_while", start=start, end=end, tenant=row.tenant, engine=row.engine,
        run_id=row.run_id, pool=row.pool,
    )  # fmt: skip
    rows = held.dicts()
    return Life(
        row,
        start,
        end,
        _holdings(rows),
        min((r["first_bucket_start"] for r in rows), default=None),
        max((r["last_bucket_end"] for r in rows), default=None),
        _targets(source, row),
        _policy(source, row),
        tuple(dict.fromkeys((*answer.partial, *held.partial))),
    )


def _row(source: Source, request_id: str, found: dict[str, Any]) -> RequestRecord:
    at = found["arrived"]
    for row in source.read("request", at - _MOMENT_S, at + _MOMENT_S):
        if (row.request_id, row.run_id, row.engine) == (
            request_id, found["run_id"], found["engine"],
        ) and row.pool == found["pool"]:  # fmt: skip
            request: RequestRecord = row
            return request
    raise StoreError(f"the row of {shown(request_id, 60)} went away while it was read: ask again")


def _waited(row: RequestRecord) -> tuple[float, float]:
    """From the arrival to the first token; to the end, if it had none or waited again after it."""
    later = any(getattr(row, f"rewait_{r}_s") for r in WAIT_REASONS) or row.stall_s
    ends = (row.ended, row.last_token) if later or row.first_token is None else (row.first_token,)
    end = max((e for e in ends if e is not None), default=row.arrived)
    return row.arrived, max(end, row.arrived + _MOMENT_S)


def _holdings(rows: list[dict[str, Any]]) -> tuple[Holding, ...]:
    whole: dict[str, float] = {}
    for r in rows:
        whole[r["reason"]] = whole.get(r["reason"], 0.0) + r["charged_s"]
    held = [
        Holding(
            r["reason"],
            r["holder_kind"],
            r["holder"],
            r["charged_s"],
            r["charged_s"] / whole[r["reason"]] if whole[r["reason"]] else 0.0,
        )
        for r in rows
    ]
    order = {reason: i for i, reason in enumerate(CHARGE_REASONS)}
    return tuple(
        sorted(held, key=lambda h: (order.get(h.reason, len(order)), h.reason, -h.charged_s))
    )


def _of_run(rows: Iterable[Any], row: RequestRecord) -> list[Any]:
    key = (row.engine, row.run_id, row.pool)
    return [r for r in rows if (r.engine, r.run_id, r.pool) == key]


def _targets(source: Source, row: RequestRecord) -> Targets | None:
    """From the run's stored settings; None where they do not say."""
    for run in _of_run(source.read("engine_run", float("-inf"), float("inf")), row):
        try:
            tenants = json.loads(run.config or "{}").get("tenants", ())
            slo = next((t.get("slo") for t in tenants if t.get("name") == row.tenant), None)
        except (ValueError, AttributeError, TypeError):
            return None  # settings of another form
        if isinstance(slo, dict):
            names = ("ttft_s", "tpot_s", "max_gap_s")
            return Targets(
                *(v if isinstance(v := slo.get(n), int | float) else None for n in names)
            )
    return None


def _policy(source: Source, row: RequestRecord) -> str | None:
    if row.policy_version is None:
        return None
    versions = _of_run(source.read("policy", float("-inf"), row.arrived + _MOMENT_S), row)
    return next((p.policy for p in versions if p.version == row.policy_version), None)


def _unknown(source: Source, request_id: str) -> str:
    near = source.query("request_near", request_id=request_id).dicts()
    says = f"no request {shown(request_id, 60)} is stored; one that has not ended has no row yet"
    if not near:
        return f"{says}, and no id is near it"
    return f"{says}. Near it: {', '.join(shown(n['request_id'], 60) for n in near)}"
