"""A what-if as the report shows it: few numbers, and nothing that names a tenant where it must not.
Pure; replays nothing."""

from __future__ import annotations

from postmortem.report.parts import Prevented, Replayed
from postmortem.whatif.judge import worst_s
from postmortem.whatif.model import CONCLUDED, RANKS, Counterfactual, Outcome, WhatIf
from telemetry.plain import percent


def prevented(found: WhatIf, claim: Counterfactual | None = None) -> Prevented:
    """What stands in the report. `claim` counts only where its replay holds."""
    rows: list[Replayed] = []
    if found.recorded is not None:
        rows.append(_row("recorded", "", found.recorded, found.culprits, None, None))
    for base in found.baselines:
        label = "replayed" if base.retries == "kept" else "replayed, no retries"
        rows.append(_row(label, "", base.outcome, found.culprits, None, None))
    rows += [
        _row(
            t.remedy.name if t.retries == "kept" else f"{t.remedy.name}, no retries",
            RANKS[t.remedy.rank],
            t.outcome,
            found.culprits,
            t.restored,
            t.problem,
        )
        for t in found.tried
    ]
    best = found.best
    holds = found.fidelity is not None and found.fidelity.holds
    return Prevented(
        found.conclusion,
        found.sentence,
        holds,
        _trust(found),
        tuple(rows),
        found.remedy,
        best.settings if best else None,
        best.command if best else None,
        claim.sentence if claim is not None and claim.holds else None,
        (*found.notes, *(f"not run, there was no time: {n}" for n in found.not_run[:6])),
    )


def unnamed(shown: Prevented) -> Prevented:
    """The same for a reader who must not learn who the others are: no free text, no settings."""
    if shown.conclusion == CONCLUDED:
        said = f"the remedy {shown.remedy} would have kept the SLOs of those hurt"
    elif shown.conclusion == "none restores":
        said = "none of the remedies tried restores those hurt"
    else:
        said = "no conclusion"
    return Prevented(
        shown.conclusion, said, shown.trusted, shown.trust,
        tuple(_plain(r) for r in shown.rows), shown.remedy, None, None, None, (),
    )  # fmt: skip


def _plain(row: Replayed) -> Replayed:
    return Replayed(
        row.name, row.rank, row.missed, row.eligible, row.ttft_p50_s, row.ttft_p99_s, row.goodput,
        row.refused, row.tokens_per_s, row.restored, None if row.problem is None else "unsure",
    )  # fmt: skip


def _row(
    label: str,
    rank: str,
    outcome: Outcome,
    culprits: tuple[str, ...],
    restored: bool | None,
    problem: str | None,
) -> Replayed:
    hurt = outcome.hurt
    aimed = [n for t in culprits if (n := outcome.of(t)) is not None]
    return Replayed(
        label,
        rank,
        hurt.missed,
        hurt.eligible,
        hurt.ttft_p50_s,
        worst_s(hurt),
        hurt.goodput,
        sum(n.refused for n in aimed),
        outcome.tokens_per_s,
        restored,
        problem,
    )


def _trust(found: WhatIf) -> str:
    if found.fidelity is None:
        return "nothing was replayed"
    errors = found.fidelity.errors
    if not errors:
        return "too few requests to compare the replay with what was recorded"
    off = set(found.fidelity.off)
    worst = max(max(e.p50_error, e.p99_error) for e in errors if e.tenant not in off)
    but = f" (but for {len(off)} of {len(errors) - 1}, see below)" if off else ""
    return (
        f"the replay of what happened is off by {percent(worst)} at most in TTFT p50 and p99 of "
        f"those hurt{but}; {percent(found.fidelity.imputed_share)} of the lengths are made up"
    )
