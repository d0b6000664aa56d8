"""The verdict: what the findings come to, in one value and in the words every face uses.

`judge` names a tenant only where its own use rose and most of the victims' excess wait is charged
to it, or handed on to it from those that only waited longer behind it; *culprit* is said only where
that is so with high confidence. Whether everyone grew is asked before anybody is named. It never
guesses: without a baseline it abstains, and missing evidence is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from telemetry.attribution import ASKED, CAPACITY_HELD, SELF_HELD, Line
from telemetry.baseline import Baseline, demand_growths
from telemetry.case import Case, Victim, open_case
from telemetry.evidence import OPEN, doubts
from telemetry.findings import examine
from telemetry.findings.causes import ENGINE, SOME, shares
from telemetry.findings.finding import Finding, Holds, Strength
from telemetry.findings.holder import CLOSES, charged_to, culprits, describe
from telemetry.findings.hurt import one
from telemetry.findings.ranked import Cause, ranked
from telemetry.plain import clock, local, name, percent
from telemetry.window import Window, tenants_of, total

QUIET, TENANT, CAPACITY, SELF = "quiet", "tenant", "capacity", "self"
EVERYONE, NO_SINGLE, OUTSIDE, UNKNOWN = "everyone", "no_single", "outside", "unknown"
KINDS = (QUIET, TENANT, CAPACITY, SELF, EVERYONE, NO_SINGLE, OUTSIDE, UNKNOWN)
HIGH, MEDIUM, LOW = "high", "medium", "low"

HIGH_SHARE = 0.6  # of the victims' excess, for high confidence
MATTERS = 0.2  # of the pool's use: a smaller tenant's rise does not speak against a lost engine
HIGH_CAPACITY = SOME  # at most this part lost to capacity, for high confidence
HIGH_CHARGED = SOME  # at least this part charged to it in the matrix itself, for high confidence
OUTGREW = 3.0  # times what everyone grew: then it is more than one of them

# Said beside the verdict where they hold.
_ALSO = ("change", "lost_engine", "frozen", "adapter_thrash", "retry_storm", "fixed_window")


@dataclass(frozen=True, slots=True)
class Named:
    """A tenant that is named, with the part of the excess that is charged to it."""

    tenant: str
    share: float


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


@dataclass(frozen=True, slots=True)
class _Call:
    """The decision, before it is put into words."""

    kind: str
    tenant: str | None = None
    strength: Strength | None = None
    confidence: str | None = None
    words: str = ""
    culprits: tuple[Named, ...] = ()


def judge(
    window: Window, baseline: Baseline | None = None, *, zone: tzinfo | None = None
) -> Verdict:
    """Judge a window. `baseline` may be one computed before (a live face keeps it for a while);
    times in the sentences are in `zone`, None = the machine's."""
    case = open_case(window, baseline)
    return judge_case(case, examine(case), zone=zone)


def judge_case(case: Case, findings: dict[str, Finding], *, zone: tzinfo | None = None) -> Verdict:
    """The verdict on a case whose findings are at hand already."""
    call = _decide(case, findings)
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
        _capacity(lines) if whole else None,
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


def _capacity(lines: tuple[Line, ...]) -> float:
    return sum(x.share for x in lines if x.holder == CAPACITY_HELD)


# ---------------------------------------------------------------- the decision


def _decide(case: Case, findings: dict[str, Finding]) -> _Call:
    hurt, holder, engine = findings["hurt"], findings["holder"], findings["engine"]
    frozen = findings["frozen"].holds is Holds.YES
    if hurt.holds is Holds.UNKNOWN:
        return _Call(UNKNOWN, words=f"NO VERDICT: {hurt.sentence.partition(': ')[2]}")
    if frozen and not case.hurt:
        return _Call(CAPACITY, None, Strength.CHARGED, HIGH, findings["frozen"].sentence)
    if not case.hurt:
        return _Call(QUIET, words=_quiet(case))
    lines = case.lines
    capacity = _capacity(lines)
    own = sum(x.share for x in lines if x.holder == SELF_HELD)
    everyone = findings["everyone"].holds is Holds.YES
    if holder.holds is Holds.YES and holder.tenant is not None:
        if everyone and not _outgrew(case, findings["everyone"], holder.tenant):
            return _everyone(findings)
        return _name(case, holder, capacity)
    if findings["lost_engine"].holds is Holds.YES:
        why = findings["lost_engine"]
        sure = HIGH if _nobody_asks_more(case) else MEDIUM
        return _Call(CAPACITY, None, Strength.CHARGED, sure, f"LOST CAPACITY: {why.sentence}")
    part = shares(case).get(ENGINE)
    slow = engine.holds is Holds.YES and (part is None or part > SOME)
    if (frozen and capacity > SOME) or slow:
        sure = HIGH if frozen or _nobody_rose(case) or capacity >= HIGH_SHARE else MEDIUM
        why = findings["frozen"] if frozen and capacity > SOME else engine
        return _Call(CAPACITY, None, Strength.CHARGED, sure, f"LOST CAPACITY: {why.sentence}")
    if not case.victims:
        worst = case.hurt[0]
        sole = worst.tenant if len(case.hurt) == 1 else None
        words = f"SELF-INFLICTED: {one(worst)}, {percent(own)} of it behind itself"
        return _Call(SELF, sole, Strength.CHARGED, HIGH if own >= HIGH_SHARE else MEDIUM, words)
    if everyone:
        return _everyone(findings)
    if findings["outside"].holds is Holds.YES:
        f = findings["outside"]
        return _Call(OUTSIDE, None, f.strength, MEDIUM, f.sentence)
    if holder.holds is Holds.UNKNOWN:
        return _Call(UNKNOWN, words=f"NO VERDICT: {holder.sentence.partition(': ')[2]}")
    several = tuple(Named(t, s) for t, s in culprits(case))
    if len(several) > 1:
        said = ", ".join(f"{name(n.tenant)} {percent(n.share)}" for n in several)
        words = f"NO SINGLE TENANT holds the excess, {len(several)} do: {said}"
        return _Call(NO_SINGLE, None, Strength.CHARGED, MEDIUM, words, several)
    return _Call(NO_SINGLE, None, Strength.CHARGED, LOW, _no_single(lines))


def _everyone(findings: dict[str, Finding]) -> _Call:
    return _Call(EVERYONE, None, Strength.ASSOCIATED, MEDIUM, findings["everyone"].sentence)


def _outgrew(case: Case, everyone: Finding, tenant: str) -> bool:
    """Whether it asks for far more than the growth that all share explains, or is charged most of
    the excess all the same: what many do together no one holds alone."""
    if charged_to(case, tenant) >= HIGH_SHARE:
        return True
    own = demand_growths(case.buckets, case.baseline, part=case.part).get(tenant)
    middle = everyone.value("median growth of demand")
    return own is None or middle is None or own >= OUTGREW * middle


def _nobody_asks_more(case: Case) -> bool:
    return not any(r.rose for r in case.rises if r.resource in ASKED and r.pool_share >= MATTERS)


def _nobody_rose(case: Case) -> bool:
    return not any(r.rose for r in case.rises if r.pool_share >= MATTERS)


def _name(case: Case, holder: Finding, capacity: float) -> _Call:
    share = holder.value("share") or 0.0
    closes = holder.value("accounted for")
    complete = closes is not None and closes >= CLOSES and not case.basis.charges_missing
    who = holder.tenant or ""
    direct = charged_to(case, who) >= HIGH_CHARGED
    sure = share >= HIGH_SHARE and capacity <= HIGH_CAPACITY and complete and direct
    what = "stall" if case.stalled else "wait"
    word = "CULPRIT" if sure else "LIKELY"
    words = f"{word} {name(who)}: {percent(share)} of the excess {what} charged to it"
    named = (Named(who, share),)
    return _Call(TENANT, who, Strength.CHARGED, HIGH if sure else MEDIUM, words, named)


# ---------------------------------------------------------------- the words


def _claim(call: _Call) -> str:
    if call.strength is None or call.confidence is None:
        return call.words
    return f"{call.words} ({call.strength.value}, {call.confidence})"


def _no_single(lines: tuple[Line, ...]) -> str:
    parts = [x for x in sorted(lines, key=lambda x: -x.excess_s) if x.excess_s][:3]
    listed = ", ".join(f"{_holder_name(x)} {percent(x.share)}" for x in parts)
    return f"NO SINGLE TENANT holds the excess: {listed}"


def _holder_name(line: Line) -> str:
    return name(line.holder.name) if line.holder.is_tenant else f"({line.holder.kind})"


def _quiet(case: Case) -> str:
    asked = case.window.asked
    service = {t: total(asked, t, "service") or 0.0 for t in tenants_of(asked)}
    whole = sum(service.values())
    if not whole:
        return "QUIET: nobody is hurt, and nothing ran"
    busiest = max(sorted(service), key=lambda t: service[t])
    return (
        f"QUIET: nobody is hurt; busiest: {name(busiest)} {percent(service[busiest] / whole)} "
        f"of the service (fair {percent(_fair(case, busiest))})"
    )


def _fair(case: Case, tenant: str) -> float:
    """Weight over the weights of those active; 1 each where no weight was recorded."""
    weights: dict[str, float] = {}
    for b in case.window.asked:
        for t, row in b.tenants.items():
            weights[t] = row.weight if row.weight is not None else weights.get(t, 1.0)
    whole = sum(weights.values())
    return weights.get(tenant, 0.0) / whole if whole else 0.0


def _sentences(
    case: Case, findings: dict[str, Finding], call: _Call, heard: int, zone: tzinfo | None
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


def _exclusions(findings: dict[str, Finding], call: _Call) -> list[str]:
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
