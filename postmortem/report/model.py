"""The report's numbers: everything it will say, as values. Knows no rows and no format.

Impact, minutes and coverage are over the window asked for; holders are over the judged buckets
(the incident), because excess belongs to an incident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from postmortem.report.parts import (
    Action,
    Asked,
    Curve,
    Heat,
    Noticed,
    Prevented,
    Profile,
    ReasonWait,
    Sample,
)
from telemetry.attribution import Line, Rise
from telemetry.findings.finding import Finding
from telemetry.growth import Growth
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
    """An entry of the timeline. `source`: the table whose rows say so, or the finding."""

    at: float
    kind: str
    what: str
    source: str


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
class Waited:
    """One hurt tenant's waits (or stalls) over the judged buckets; `charged_s` from the matrix.
    `lines`: by holder, tenants by excess, then self, capacity, policy and others."""

    tenant: str
    waited_s: float
    usual_s: float
    charged_s: float
    excess_s: float
    lines: tuple[Line, ...]

    @property
    def top(self) -> Line | None:
        """The line with the largest excess; None where there is no excess."""
        best = max(self.lines, key=lambda x: x.excess_s, default=None)
        return best if best is not None and best.excess_s > 0 else None


@dataclass(frozen=True, slots=True)
class Accounts:
    """Of those hurt, by tenant: what they waited (or stalled: `reasons`) behind whom, over
    `observed_s` seconds. `pool` is the victims' lines added up. `usual_pace`: how much longer than
    modelled calm steps take."""

    observed_s: float
    usual_pace: float
    reasons: tuple[str, ...]
    pool: tuple[Line, ...]
    accounts: Mapping[str, Waited]
    charges_missing: int


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. `one_for`: the tenant for whom the others' names were taken away. `what_if` is
    the command that runs a what-if, `prevented` what came of one."""

    pool: str
    start: float
    end: float
    judged_start: float
    judged_end: float
    models: tuple[str, ...]
    synthetic: bool
    verdict: Verdict
    growth: Growth
    accounts: Accounts
    rises: tuple[Rise, ...]
    impact: tuple[Impact, ...]
    timeline: tuple[Moment, ...]
    findings: tuple[Finding, ...]
    top_tenant: str | None
    minutes: tuple[Minute, ...]
    coverage: Coverage
    reconciled: Reconciled
    curve: Curve
    reasons: tuple[ReasonWait, ...]
    heat: Heat
    profile: Profile
    worst: tuple[Sample, ...]
    detection: tuple[Noticed, ...]
    what_if: str
    prevented: Prevented | None
    actions: tuple[Action, ...]
    questions: tuple[str, ...]
    asked: tuple[Asked, ...]
    one_for: str | None = None
