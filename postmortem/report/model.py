"""The report's numbers: everything it will say, as values. Knows no rows and no format.

Impact, minutes and coverage are over the window asked for; holders are over the judged buckets
(the incident), because excess belongs to an incident.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.attribution import Attribution, Rise
from telemetry.baseline import Growth
from telemetry.findings.finding import Finding
from telemetry.verdict import Verdict
from telemetry.window import Gap

FEW = 20  # under so many samples a percentile is not said, the maximum is


@dataclass(frozen=True, slots=True)
class Latency:
    """TTFT and gaps of requests that arrived in a span. `p50_s` and `p99_s` (nearest rank) are
    None under 20 samples; `none_yet` requests had no first token (their wait is in no number)."""

    n: int
    p50_s: float | None
    p99_s: float | None
    max_s: float | None
    max_gap_s: float | None
    none_yet: int


@dataclass(frozen=True, slots=True)
class Impact:
    """One tenant over the window. `goodput` is output tokens a second of requests that met every
    target, with its usual value; None where the column was not written."""

    tenant: str
    hurt: bool
    offered: int | None
    rejected: int
    eligible: int
    missed: int
    usual_miss_share: float | None
    now: Latency
    usual: Latency
    goodput: float | None
    usual_goodput: float | None
    waited_s: float


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of the timeline."""

    at: float
    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Minute:
    """One bucket of the pool; None = unknown. `state`: observed, short or gap."""

    start: float
    length_s: float
    state: str
    offered: int | None
    rejected: int | None
    share: float | None  # of the service, by `Report.top_tenant`
    waits: tuple[tuple[str, float | None], ...]
    missed: int | None
    kv_share: float | None
    step_s: float | None
    expected_step_s: float | None
    last_token_age_s: float | None
    in_incident: bool
    in_baseline: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was observed of the window."""

    buckets: int
    observed: int
    short: int
    gaps: tuple[Gap, ...]
    observed_s: float
    engines: tuple[str, ...]
    runs: int
    baseline_buckets: int
    baseline_start: float | None
    baseline_end: float | None
    baseline_inside: bool
    baseline_left_out: int
    baseline_problem: str | None
    front_heard: bool


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Numbers that must agree, side by side. `by_minute` from tenant-minutes, `by_request` from
    the rows of requests that arrived in the window (lives across its edges make them differ), of
    which there are `requests`."""

    offered: int | None
    admitted: int | None
    rejected: int
    requests: int
    prompt_tokens: int | None
    prompt_tokens_by_request: int
    output_tokens: int | None
    output_tokens_by_request: int
    waited_s: float
    charged_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    pool: str
    start: float
    end: float
    judged_start: float
    judged_end: float
    models: tuple[str, ...]
    synthetic: bool
    verdict: Verdict
    growth: Growth
    accounts: Attribution
    rises: tuple[Rise, ...]
    impact: tuple[Impact, ...]
    timeline: tuple[Moment, ...]
    findings: tuple[Finding, ...]
    top_tenant: str | None
    minutes: tuple[Minute, ...]
    coverage: Coverage
    reconciled: Reconciled
