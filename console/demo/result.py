"""What a demo showed, in numbers: one act a policy, side by side. Pure functions of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from telemetry.records import RequestRecord

FEW = 20  # below this many samples the maximum is told instead of a 99th percentile


@dataclass(frozen=True, slots=True)
class TenantResult:
    """One tenant in one act. Seconds; None = nothing to measure."""

    tenant: str
    requests: int
    finished: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None  # the maximum below 20 samples
    max_gap_s: float | None
    eligible: int
    met: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Act:
    """The incident's arrivals under one policy, until all have drained."""

    policy: str
    began: float
    ended: float
    tenants: tuple[TenantResult, ...]
    prompt_tokens: int
    output_tokens: int

    @property
    def drained_s(self) -> float:
        return self.ended - self.began

    @property
    def output_per_s(self) -> float:
        return self.output_tokens / self.drained_s if self.drained_s > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "drained_s": self.drained_s, "output_per_s": self.output_per_s}


def percentile(values: Iterable[float], share: float) -> float | None:
    """Nearest rank: the smallest value that `share` of them do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def act(policy: str, requests: Sequence[RequestRecord], began: float) -> Act:
    """Sum up the requests that arrived in an act; it lasts until the last of them has ended."""
    tenants = sorted({r.tenant for r in requests})
    ended = max((r.ended for r in requests if r.ended is not None), default=began)
    return Act(
        policy,
        began,
        ended,
        tuple(_tenant(t, [r for r in requests if r.tenant == t]) for t in tenants),
        sum(r.prompt_tokens or 0 for r in requests if r.outcome == "finished"),
        sum(r.output_tokens or 0 for r in requests),
    )


def _tenant(tenant: str, requests: list[RequestRecord]) -> TenantResult:
    ttfts = [r.ttft_s for r in requests if r.ttft_s is not None]
    gaps = [r.max_gap_s for r in requests if r.max_gap_s is not None]
    judged = [r.slo_met for r in requests if r.slo_met is not None]
    return TenantResult(
        tenant,
        len(requests),
        sum(r.outcome == "finished" for r in requests),
        percentile(ttfts, 0.5),
        percentile(ttfts, 0.99) if len(ttfts) >= FEW else max(ttfts, default=None),
        max(gaps, default=None),
        len(judged),
        sum(judged),
        sum(r.output_tokens or 0 for r in requests),
    )


def side_by_side(acts: Sequence[Act]) -> list[str]:
    """A table, 80 columns: a row a tenant, a group of columns a policy."""
    if not acts:
        return ["nothing was measured"]
    names = list(dict.fromkeys(t.tenant for a in acts for t in a.tenants))
    head = " " * 12 + "".join(f"|{a.policy.upper():^32}" for a in acts)
    columns = f"{'tenant':<12}" + "| TTFT p50    p99  gap   SLO met  " * len(acts)
    lines = [head, columns, "-" * len(columns)]
    for name in names:
        cells = [f"{_cut(name, 12):<12}"]
        for a in acts:
            t = next((t for t in a.tenants if t.tenant == name), None)
            cells.append("| " + (_cells(t) if t else f"{'-':^31}"))
        lines.append("".join(cells))
    lines.append("-" * len(columns))
    for a in acts:
        lines.append(
            f"{a.policy.upper():<5} {a.output_tokens} tokens out and {a.prompt_tokens} in, "
            f"drained in {a.drained_s:.1f} s: {a.output_per_s:.1f} tokens/s"
        )
    if len(acts) == 2 and acts[0].output_per_s:
        change = acts[1].output_per_s / acts[0].output_per_s - 1
        lines.append(
            f"throughput under {acts[1].policy.upper()} against {acts[0].policy.upper()}: "
            f"{change:+.1%}"
        )
    return lines


def _cells(t: TenantResult) -> str:
    met = f"{t.met}/{t.eligible}" if t.eligible else "-"
    share = f"{t.met / t.eligible:.0%}" if t.eligible else "-"
    return (
        f"{_seconds(t.ttft_p50_s):>8} {_seconds(t.ttft_p99_s):>6} {_seconds(t.max_gap_s):>4} "
        f"{met:>6} {share:>4}"
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _cut(text: str, cells: int) -> str:
    shown = "".join(c if c.isprintable() else "�" for c in text)
    return shown if len(shown) <= cells else shown[: cells - 1] + "…"
