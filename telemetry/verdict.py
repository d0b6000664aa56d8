"""The verdict: what the findings come to, in one value and in the words every face uses.

Who is named is `telemetry.deciding`'s; *culprit* is said only with high confidence. What is missing
is said beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from telemetry.attribution import Line, Reckoning
from telemetry.baseline import Baseline
from telemetry.case import Case, Victim, open_case
from telemetry.deciding import (
    CAPACITY,
    EVERYONE,
    HIGH,
    KINDS,
    LOW,
    MEDIUM,
    NO_SINGLE,
    OUTSIDE,
    QUIET,
    SELF,
    TENANT,
    UNKNOWN,
    Call,
    Named,
    capacity_of,
    decide,
)
from telemetry.evidence import OPEN, doubts
from telemetry.findings import examine
from telemetry.findings.finding import Finding, Holds, Strength
from telemetry.findings.holder import CLOSES, charged_to, describe
from telemetry.findings.hurt import one
from telemetry.findings.ranked import Cause, ranked
from telemetry.plain import clock, local, percent
from telemetry.window import Window

__all__ = [
    "CAPACITY", "EVERYONE", "HIGH", "KINDS", "LOW", "MEDIUM", "NO_SINGLE", "OUTSIDE", "QUIET",
    "SELF", "TENANT", "UNKNOWN", "Named", "Verdict", "judge", "judge_case", "when",
]  # fmt: skip

# Said beside the verdict where they hold.
_ALSO = ("change", "lost_engine", "frozen", "adapter_thrash", "retry_storm", "fixed_window")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind` is one of KINDS; `tenant` is set only where one is named (kind tenant, or self).
    `culprits` are all that are named with their shares: one, or those of no single tenant.

    `share` and `capacity_share` are of the victims' excess, None where there is none. `onset` and
    `end` are unix seconds with the precision of `bucket_s`. `heard` of `engines` engines were heard
    in the judged buckets. `headline` is the first of `sentences`; `exclusions` are the causes that
    were looked at and do not hold; each is one line of plain text.
    """

    kind: str
    tenant: str | None
    strength: Strength | None
    confidence: str | None
    share: float | None
    capacity_share: float | None
    onset: float | None
    end: float | None
    bucket_s: float
    hurt: tuple[Victim, ...]
    heard: int
    engines: int
    sentences: tuple[str, ...]
    exclusions: tuple[str, ...]
    findings: tuple[Finding, ...]
    culprits: tuple[Named, ...] = ()
    causes: tuple[Cause, ...] = ()

    @property
    def headline(self) -> str:
        return self.sentences[0]

    @property
    def victims(self) -> tuple[Victim, ...]:
        return tuple(v for v in self.hurt if not v.self_inflicted)

    @property
    def culprit(self) -> str | None:
        """The tenant that may be called so: charged, with high confidence."""
        named = self.kind == TENANT and self.strength is not Strength.ASSOCIATED
        return self.tenant if named and self.confidence == HIGH else None

    @property
    def level(self) -> str:
        """For lamps and colours: `ok`, `note` (nobody else is hurt, or not known), `hurt`."""
        if self.kind == QUIET:
            return "ok"
        return "hurt" if self.victims or self.kind == CAPACITY else "note"

    def lines(self) -> tuple[str, ...]:
        """All that is said: the sentences, then the exclusions."""
        return (*self.sentences, *self.exclusions)


def judge(
    window: Window,
    baseline: Baseline | None = None,
    *,
    zone: tzinfo | None = None,
    reckoned: Reckoning | None = None,
) -> Verdict:
    """Judge a window. `baseline` may be one computed before (a live face keeps it for a while),
    `reckoned` what was added up of the window; times in the sentences are in `zone`, None = the
    machine's."""
    case = open_case(window, baseline, reckoned)
    return judge_case(case, examine(case), zone=zone)


def judge_case(case: Case, findings: dict[str, Finding], *, zone: tzinfo | None = None) -> Verdict:
    """The verdict on a case whose findings are at hand already."""
    call = decide(case, findings)
    lines = case.lines
    whole = sum(x.excess_s for x in lines)
    incident = case.incident
    heard = len({e for b in case.buckets for e in b.engines})
    return Verdict(
        call.kind,
        call.tenant,
        call.strength,
        call.confidence,
        _share_of(lines, call.tenant) if whole and call.kind == TENANT else None,
        capacity_of(lines) if whole else None,
        incident.onset if incident else None,
        incident.end if incident else None,
        incident.bucket_s if incident else case.window.bucket_s,
        case.hurt,
        heard,
        len(case.window.engines),
        tuple(_sentences(case, findings, call, heard, zone)),
        tuple(_exclusions(findings, call)),
        tuple(findings.values()),
        call.culprits,
        ranked(case, findings) if call.kind not in (QUIET, UNKNOWN) else (),
    )


def _share_of(lines: tuple[Line, ...], tenant: str | None) -> float:
    return sum(x.share for x in lines if x.holder.is_tenant and x.holder.name == tenant)


# ---------------------------------------------------------------- the words


def _claim(call: Call) -> str:
    if call.strength is None or call.confidence is None:
        return call.words
    return f"{call.words} ({call.strength.value}, {call.confidence})"


def _sentences(
    case: Case, findings: dict[str, Finding], call: Call, heard: int, zone: tzinfo | None
) -> list[str]:
    out: list[str] = []
    victims, incident = case.victims, case.incident
    if victims and incident:
        worst = max(victims, key=lambda v: (v.missed, v.excess_s))
        out.append(f"{len(victims)} HURT since {clock(incident.onset, zone)}: {one(worst)}")
    elif incident and call.kind == SELF:
        out.append(f"nobody else is hurt since {clock(incident.onset, zone)}")
    out.append(_claim(call))
    if call.kind == TENANT and call.tenant is not None:
        out.append(f"why: {_why(case, call.tenant)}")
    holder = findings["holder"]
    if call.kind in (NO_SINGLE, CAPACITY) and holder.holds is Holds.NO and victims:
        out.append(holder.sentence)
    for other in (
        "change",
        "lost_engine",
        "frozen",
        "adapter_thrash",
        "retry_storm",
        "fixed_window",
    ):
        finding = findings[other]
        said = any(finding.sentence in s for s in out)
        if finding.holds is Holds.YES and not said:
            weak = finding.strength is Strength.ASSOCIATED
            out.append(finding.sentence + (" (associated)" if weak else ""))
    out += _doubts(case, heard, zone)
    # A live face's last bucket is always open: a report says so in its coverage.
    out += [d.sentence for d in doubts(case.window, case.buckets) if d.kind != OPEN]
    return out


def _why(case: Case, tenant: str) -> str:
    line = next(x for x in case.lines if x.holder.is_tenant and x.holder.name == tenant)
    held = ", ".join(f"{r} {percent(s / line.excess_s)}" for r, s in line.reasons[:3])
    said = [f"waits for {held}", describe(case.rose(tenant))]
    if line.handed_s:
        said.append(f"{percent(charged_to(case, tenant))} held by itself")
    return "; ".join(said)


def _doubts(case: Case, heard: int, zone: tzinfo | None) -> list[str]:
    """What is missing, said rather than guessed."""
    out: list[str] = []
    if heard < len(case.window.engines):
        out.append(f"MISSING: only {heard} of {len(case.window.engines)} engines were heard")
    gaps = case.window.gaps()
    if gaps and any(b.known for b in case.window.asked):
        count = sum(g.buckets for g in gaps)
        plural = "buckets" if count > 1 else "bucket"
        when = clock(gaps[0].start, zone)
        out.append(f"MISSING: {count} {plural} not observed, the first at {when}")
    if case.basis.charges_missing:
        out.append(f"MISSING: {case.basis.charges_missing} charges carry no number")
    accounts = [case.basis.accounts[v.tenant] for v in case.victims]
    waited = sum(a.waited_s for a in accounts)
    charged = sum(a.charged_s for a in accounts)
    if waited and charged < CLOSES * waited:
        out.append(f"MISSING: the matrix accounts for {percent(charged / waited)} of the waits")
    return out


def _exclusions(findings: dict[str, Finding], call: Call) -> list[str]:
    if call.kind in (QUIET, UNKNOWN):
        wanted: tuple[str, ...] = ("engine", "frozen")
    else:
        wanted = ("change", "engine", "frozen", "adapter_thrash", "everyone")
    return [
        findings[f].sentence
        for f in wanted
        if findings[f].holds is not Holds.YES and findings[f].sentence
    ]


def when(unix_s: float, zone: tzinfo | None = None) -> str:
    """Date, time and zone of an instant, as the faces print it."""
    return local(unix_s, zone).strftime("%Y-%m-%d %H:%M:%S %Z")
