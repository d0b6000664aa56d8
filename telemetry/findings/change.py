"""Change: did anything that decides change shortly before the onset? Tested first."""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import clip, name, safe, span_s
from telemetry.window import Window

BEFORE_S = 600.0
KINDS = ("start", "stop", "policy", "config", "fault", "admin")
SAME_S = 2.0  # a policy's event and its own row, one change


@dataclass(frozen=True, slots=True)
class Change:
    """Something that decides, or serves, became another."""

    at: float
    kind: str
    what: str


def changes(window: Window, start: float, end: float) -> tuple[Change, ...]:
    """Policy versions after the first, starts and other changes in [start, end], oldest first."""
    out = [
        Change(p.at, "policy", _policy(p.previous, p.policy, p.version, p.who))
        for p in window.policies
        if p.version > 1 and start <= p.at <= end
    ]
    for r in window.runs:
        if start <= r.started <= end:
            out.append(Change(r.started, "start", f"engine {name(r.engine)} started"))
    for e in window.events:
        if e.kind not in KINDS or not start <= e.at <= end:
            continue
        if any(c.kind == e.kind and abs(c.at - e.at) <= SAME_S for c in out):
            continue
        out.append(Change(e.at, e.kind, clip(safe(e.detail or e.kind), 60)))
    return tuple(sorted(out, key=lambda c: c.at))


def _policy(previous: str | None, policy: str, version: int, who: str | None) -> str:
    by = f" by {name(who)}" if who else ""
    return f"policy {name(previous or '?')} to {name(policy)}{by} (v{version})"


def _heard_before(window: Window, at: float) -> bool:
    """A start that nothing was heard before is where the record begins: nothing became another."""
    return any(b.known and b.end <= at for b in window.buckets)


def _recorded(case: Case) -> bool:
    """Whether changes would stand in the rows at all: an engine writes its policy's version into
    every minute, an imported log does not."""
    rows = [b.engine for b in case.buckets if b.engine is not None]
    return not rows or bool(case.window.policies) or any(r.policy_version is not None for r in rows)


def change(case: Case) -> Finding:
    """Holds where a change lies at most 10 minutes before the onset."""
    if not _recorded(case):
        return missing("change", "the rows do not say which policy was in force")
    if case.incident is None:
        none = (Evidence("onsets to compare it with", 0.0, "1"),)
        said = "NOT a change: 0 onsets to compare it with"
        return Finding("change", Holds.NO, said, None, None, none)
    onset, precision = case.incident.onset, case.incident.bucket_s
    found = [
        c
        for c in changes(case.window, onset - BEFORE_S, onset + precision)
        if c.kind != "start" or _heard_before(case.window, c.at)
    ]
    evidence = (Evidence("changes before the onset", float(len(found)), "1"),)
    if not found:
        return Finding(
            "change", Holds.NO, "NOT a change: none in the 10 min before the onset", None, None,
            evidence,
        )  # fmt: skip
    last = found[-1]
    ahead = onset - last.at
    when = f"{span_s(ahead)} before the onset" if ahead > 0 else "in the bucket of the onset"
    more = f", {len(found) - 1} more in the 10 min before" if len(found) > 1 else ""
    return Finding(
        "change",
        Holds.YES,
        f"CHANGE {when}: {last.what}{more}",
        Strength.ASSOCIATED,
        None,
        (*evidence, Evidence("seconds before the onset", ahead, "s")),
    )
