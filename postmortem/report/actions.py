"""What is to be done, filled in from facts; and the questions that only people can answer. Pure.

An action names a fact of the report and no more: who does it, and until when, is left blank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postmortem.report.model import Coverage
from postmortem.report.parts import Action, Noticed, Prevented
from telemetry.attribution import Rise
from telemetry.case import Case
from telemetry.findings.finding import Finding, Holds
from telemetry.plain import name, percent, span_s, times
from telemetry.verdict import CAPACITY, EVERYONE, NO_SINGLE, SELF, TENANT, Verdict

TO_FILL_IN = "[to fill in]"
LATE_S = 300.0  # from the onset to the first signal: later than this is late

QUESTIONS: tuple[str, ...] = (
    "Status, authors, reviewed by",
    "Severity, as agreed",
    "Root cause behind the cause (why could it happen at all)",
    "What went well",
    "What went wrong",
    "Where we got lucky",
    "What customers were told, and when",
)


def actions(
    case: Case,
    verdict: Verdict,
    findings: Mapping[str, Finding],
    noticed: Sequence[Noticed],
    coverage: Coverage,
    prevented: Prevented | None,
) -> tuple[Action, ...]:
    """In the order in which they matter: prevent, mitigate, detect, data."""
    out = [
        *_prevent(case, verdict, prevented),
        *_by_finding(findings),
        *_detect(noticed),
        *_data(coverage, findings, verdict),
    ]
    return tuple(out)


def _prevent(case: Case, verdict: Verdict, prevented: Prevented | None) -> list[Action]:
    if prevented is not None and prevented.remedy is not None:
        fact = prevented.sentence.split(": ", 1)[0]
        return [Action("prevent", f"Apply the remedy {prevented.remedy}", fact)]
    if verdict.kind == TENANT and verdict.tenant is not None:
        who = verdict.tenant
        rose = [r for r in case.rises if r.tenant == who and r.rose]
        fact = "; ".join(_rise(r) for r in rose[:2]) or "it holds most of the excess"
        return [Action("prevent", f"Limit {name(who)}, or give it less weight, and size the limit "
                       "by `postmortem whatif`", fact)]  # fmt: skip
    if verdict.kind == SELF and verdict.hurt:
        who = verdict.tenant or verdict.hurt[0].tenant
        return [Action("prevent", f"Talk to {name(who)}: it waits behind its own requests",
                       "self-inflicted: nobody else holds its excess")]  # fmt: skip
    if verdict.kind == EVERYONE:
        return [Action("prevent", "Add capacity, or agree who is to be served last",
                       f"common growth {times(case.accounts.growth.factor)}")]  # fmt: skip
    if verdict.kind == NO_SINGLE:
        return [Action("prevent", "Share the pool by weight (VTC), whoever floods next",
                       "no single tenant holds the excess")]  # fmt: skip
    if verdict.kind == CAPACITY:
        return [Action("prevent", "Find why the engine lost capacity", verdict.headline)]
    return []


def _rise(rise: Rise) -> str:
    grew = "rose from nothing" if rise.ratio is None else f"rose {times(rise.ratio)}"
    return f"its {rise.resource} {grew}, to {percent(rise.pool_share)} of the pool's"


# A finding that holds, and what follows from it whoever was named.
_FOLLOWS: Mapping[str, tuple[str, str]] = {
    "change": ("mitigate", "Decide whether the change is put back"),
    "engine": ("prevent", "Find why steps were slower than usual"),
    "frozen": ("prevent", "Find what froze the engine"),
    "adapter_thrash": ("prevent", "Give adapters a floor in the pool, or pin those in use"),
}


def _by_finding(findings: Mapping[str, Finding]) -> list[Action]:
    return [
        Action(kind, what, findings[key].sentence)
        for key, (kind, what) in _FOLLOWS.items()
        if key in findings and findings[key].holds is Holds.YES
    ]


def _detect(noticed: Sequence[Noticed]) -> list[Action]:
    by = {n.step: n for n in noticed}
    if not by:
        return []
    out: list[Action] = []
    signal, alert = by["first signal"], by["alert"]
    if signal.at is None:
        out.append(Action("detect", "Run the store's process, with somebody told by webhook",
                          "no signal is stored for this incident"))  # fmt: skip
    elif signal.lag_s is not None and signal.lag_s > LATE_S:
        out.append(Action("detect", "Signal sooner: lower the limits of `[alerts]`",
                          f"the first came {span_s(signal.lag_s)} after the onset"))  # fmt: skip
    elif alert.at is None:
        out.append(Action("detect", "Decide whether this should have alerted",
                          "a signal was raised, and no alert"))  # fmt: skip
    return out


def _data(coverage: Coverage, findings: Mapping[str, Finding], verdict: Verdict) -> list[Action]:
    out: list[Action] = []
    missing = sum(g.buckets for g in coverage.gaps)
    if missing:
        out.append(
            Action("data", "Find why minutes are missing", f"{missing} buckets not observed")
        )
    unknown = [f for f in findings.values() if f.holds is Holds.UNKNOWN]
    # Without a verdict they are unknown for one reason, and it is said already.
    if unknown and verdict.onset is not None:
        fact = "; ".join(f.sentence for f in unknown[:3])
        out.append(Action("data", "Record what these findings lack", fact))
    return out
