"""Gathers the report's numbers from a window. Pure; reads no store and words nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo

import numpy as np

from postmortem.report.actions import QUESTIONS, actions
from postmortem.report.appendix import asked, what_if_command
from postmortem.report.curve import curve, heat, reasons
from postmortem.report.detection import detection
from postmortem.report.minutes import minutes
from postmortem.report.model import Accounts, Coverage, Impact, Reconciled, Report, Waited
from postmortem.report.parts import Context, Prevented
from postmortem.report.profile import profile
from postmortem.report.requests import NONE, Gather, Requests, of_rows, samples
from postmortem.report.timeline import timeline
from telemetry.case import Case, open_case
from telemetry.charged import Cell, Charges
from telemetry.conventions import REJECT_REASONS, WAIT_REASONS
from telemetry.findings import examine
from telemetry.grid import Part
from telemetry.verdict import Verdict, judge_case
from telemetry.window import Window, observed_s


def build_report(
    window: Window,
    *,
    zone: tzinfo | None = None,
    gather: Gather = of_rows,
    prevented: Prevented | None = None,
    context: Context = Context(),
) -> Report:
    """Judge a window and gather what the report says of it. `gather` says what the requests were:
    from the window's rows, or asked of a store. Times in sentences are in `zone` (None = the
    machine's)."""
    case = open_case(window)
    findings = examine(case)
    verdict = judge_case(case, findings, zone=zone)
    part = window.part(window.asked)
    top = _top(case, verdict, part)
    requests = gather(case)
    noticed = detection(case)
    coverage = _coverage(case)
    return Report(
        window.pool,
        window.start,
        window.end,
        case.start,
        case.end,
        tuple(sorted({r.model for r in window.runs})),
        any(r.synthetic for r in window.runs),
        verdict,
        case.accounts.growth,
        _accounts(case),
        tuple(r for r in case.rises if r.rose),
        _impacts(case, requests, part),
        timeline(case),
        tuple(findings.values()),
        top,
        minutes(case, part, top),
        coverage,
        _reconcile(window, requests, part),
        curve(case, verdict.tenant),
        reasons(case),
        heat(case),
        profile(case),
        samples(requests, context),
        noticed,
        what_if_command(case, context),
        prevented,
        actions(case, verdict, findings, noticed, coverage, prevented),
        QUESTIONS,
        asked(case, context),
    )


def _accounts(case: Case) -> Accounts:
    """Of those hurt: of all others there is nothing to say."""
    basis = case.basis
    hurt = [basis.accounts[v.tenant] for v in case.hurt if v.tenant in basis.accounts]
    return Accounts(
        basis.observed_s,
        basis.usual_pace,
        basis.reasons,
        case.lines,
        {
            a.tenant: Waited(a.tenant, a.waited_s, a.usual_s, a.charged_s, a.excess_s, a.lines)
            for a in hurt
        },
        basis.charges_missing,
    )


def _top(case: Case, verdict: Verdict, part: Part) -> str | None:
    """The tenant whose share the minutes show: the one named, else the largest by service."""
    if verdict.tenant is not None:
        return verdict.tenant
    service = {t: part.total(t, "service") or 0.0 for t in part.active()}
    return max(sorted(service), key=lambda t: service[t], default=None)


# ---------------------------------------------------------------- impact


def _impacts(case: Case, requests: Requests, part: Part) -> tuple[Impact, ...]:
    usual = case.window.part(case.baseline.buckets)
    hurt = {v.tenant for v in case.victims}
    return tuple(_impact(case, t, t in hurt, part, usual, requests) for t in part.active())


def _impact(
    case: Case, tenant: str, hurt: bool, part: Part, usual: Part, requests: Requests
) -> Impact:
    base = case.baseline
    missed = int(part.total(tenant, "slo_missed") or 0)
    offered = part.total(tenant, "offered_requests")
    goodput = part.total(tenant, "goodput_tokens")
    before = usual.total(tenant, "goodput_tokens") if base.usable else None
    return Impact(
        tenant,
        hurt,
        None if offered is None else int(offered),
        sum(int(part.total(tenant, c) or 0) for c in _REJECTED),
        max(missed, int(part.total(tenant, "slo_eligible") or 0)),
        missed,
        base.miss_share.get(tenant) if base.usable else None,
        requests.now.get(tenant, NONE),
        requests.usual.get(tenant, NONE),
        goodput / part.observed_s if goodput is not None and part.observed_s else None,
        before / usual.observed_s if before is not None and usual.observed_s else None,
        sum(part.total(tenant, c) or 0.0 for c in _WAITED),
    )


_REJECTED = tuple(f"rejected_{r}_requests" for r in REJECT_REASONS)
_WAITED = tuple(f"wait_{r}_s" for r in WAIT_REASONS)


# ---------------------------------------------------------------- coverage and reconciliation


def _coverage(case: Case) -> Coverage:
    window, base = case.window, case.baseline
    asked = [b for b in window.asked if b.known]
    gaps = window.gaps()
    return Coverage(
        len(asked) + sum(g.buckets for g in gaps),
        len(asked),
        sum(b.short for b in asked),
        gaps,
        observed_s(asked),
        tuple(sorted({e for b in asked for e in b.engines})),
        len({r.run_id for r in window.runs if r.started < window.end}),
        len(base.buckets),
        base.start,
        base.end,
        base.inside,
        base.left_out,
        base.problem,
        any(r.offered_requests is not None for b in window.asked for r in b.tenants.values()),
    )


def _reconcile(window: Window, requests: Requests, part: Part) -> Reconciled:
    def whole(column: str) -> int | None:
        sums = part.totals(column)
        known = sums[~np.isnan(sums)]
        return int(known.sum()) if len(known) else None

    return Reconciled(
        whole("offered_requests"),
        whole("admitted_requests"),
        sum(whole(c) or 0 for c in _REJECTED),
        requests.count,
        whole("prompt_tokens"),
        requests.prompt_tokens,
        whole("output_tokens"),
        requests.output_tokens,
        sum(float(np.nansum(part.totals(c))) for c in _WAITED),
        sum(_charged(b.matrix) for b in window.asked),
    )


def _charged(matrix: Mapping[Cell, float]) -> float:
    """Seconds of waits in one bucket's matrix; a stall is no wait."""
    if not isinstance(matrix, Charges):
        return sum(s for c, s in matrix.items() if c.reason in WAIT_REASONS)
    listed = matrix.catalogue.listed("reason")
    waits = np.array([r in WAIT_REASONS for r in listed], dtype=bool)
    if not len(waits):
        return 0.0
    return float(matrix.seconds[waits[matrix.catalogue.codes().reason[matrix.places]]].sum())
