"""A what-if as text for eighty columns, and as JSON. Owns words and columns, no numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from postmortem.report.json import plain
from postmortem.whatif.judge import worst_s
from postmortem.whatif.model import (
    CONCLUDED,
    RANKS,
    Baseline,
    Counterfactual,
    Fidelity,
    FitError,
    Outcome,
    TenantNumbers,
    Tried,
    WhatIf,
)
from telemetry.plain import cells, clip, percent, safe, span_s, wrap
from telemetry.verdict import when

VERSION = 1
WIDTH = 80
_NAME = 16
_MOST_COMPARED = 12  # tenants whose recorded and replayed TTFT stand side by side
_INDENT = "  "


def as_json(found: WhatIf | Counterfactual) -> str:
    """One JSON object, no NaN; `format` counts its versions. Shares and errors that are computed
    stand beside the numbers they come from."""
    body = {"format": VERSION, **plain(found)}
    if body.get("fidelity") is not None and found.fidelity is not None:
        body["fidelity"]["holds"] = found.fidelity.holds
        for shown, error in zip(body["fidelity"]["errors"], found.fidelity.errors, strict=True):
            shown |= {"p50_error": error.p50_error, "p99_error": error.p99_error}
            shown["holds"] = error.holds
    for name in ("asked_start", "asked_end"):
        if name in body:
            body[f"{name}_utc"] = plain_utc(body[name])
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def plain_utc(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat()


def lines(found: WhatIf, width: int = WIDTH) -> Iterator[str]:
    """The whole answer."""
    yield from _wrapped(
        f"What if: pool {safe(found.pool)}, {when(found.start)} to {when(found.end)}", width, ""
    )
    yield ""
    head = "REMEDY" if found.conclusion == CONCLUDED else found.conclusion.upper()
    text = found.sentence.removeprefix("no conclusion: ")
    yield from _wrapped(f"{head}: {text}", width, "")
    if found.victims:
        yield ""
        yield from _wrapped(f"hurt: {_names(found.victims)}", width)
        yield from _wrapped(f"remedies are aimed at: {_names(found.culprits) or 'nobody'}", width)
    yield from _trust(found.fit, found.fidelity, width)
    if found.recorded is not None and found.baselines:
        yield ""
        yield from _table(found)
    best = found.best
    if best is not None:
        yield from _apply(best, width)
    if found.notes or found.not_run:
        yield ""
        yield "HOW IT WAS MADE"
        for note in found.notes:
            yield from _wrapped(f"- {note}", width, "  ")
        if found.not_run:
            shown = ", ".join(found.not_run[:6])
            more = f" and {len(found.not_run) - 6} more" if len(found.not_run) > 6 else ""
            yield from _wrapped(f"- not run, there was no time: {shown}{more}", width, "  ")


def _names(tenants: Sequence[str]) -> str:
    shown = ", ".join(clip(safe(t) or '""', 24) for t in tenants[:5])
    return shown + (f" and {len(tenants) - 5} more" if len(tenants) > 5 else "")


def _trust(fit: FitError | None, fidelity: Fidelity | None, width: int) -> Iterator[str]:
    if fit is None:
        return
    yield ""
    yield "IS THE REPLAY TRUE"
    yield from _wrapped(
        f"cost model: fitted to {fit.fitted_steps:,} steps of odd buckets; on {fit.tested_steps:,} "
        f"of even ones off by {percent(fit.median)} at the median, {percent(fit.p95)} at p95, slow "
        "stretches included",
        width,
    )
    if fidelity is None:
        return
    rows: list[tuple[str, ...]] = [
        ("TTFT", "n", "p50 was", "replay", "off", "p99 was", "replay", "off", "")
    ]
    shown = sorted(fidelity.errors[1:], key=lambda e: e.holds)[:_MOST_COMPARED]
    for e in (*fidelity.errors[:1], *shown):
        rows.append(
            (
                clip(safe(e.tenant), _NAME) if e.tenant else "all hurt",
                f"{e.n:,}",
                span_s(e.recorded_p50_s),
                span_s(e.replayed_p50_s),
                percent(e.p50_error),
                span_s(e.recorded_p99_s),
                span_s(e.replayed_p99_s),
                percent(e.p99_error),
                "holds" if e.holds else "OFF",
            )
        )
    yield from _aligned(rows)
    if fidelity.off:
        yield from _wrapped(
            f"{len(fidelity.off)} of {len(fidelity.errors) - 1} victims OFF; between two replays "
            f"of the same {fidelity.by_chance} are: chance, and nothing is claimed of them",
            width,
        )
    left = len(fidelity.errors) - 1 - len(shown)
    if left > 0:
        off = sum(not e.holds for e in fidelity.errors) - sum(r[-1] == "OFF" for r in rows)
        yield f"{_INDENT}and {left:,} more tenants, {off:,} of them off"
    yield f"{_INDENT}made-up lengths: {percent(fidelity.imputed_share)} of the requests served"


def _table(found: WhatIf) -> Iterator[str]:
    """Those hurt together, those aimed at together, the pool; a line a run."""
    yield "REPLAYS: those hurt, then those aimed at (a:), then the pool"
    rows: list[tuple[str, ...]] = [
        ("", "miss", "p50", "p99", "good/s", "a:ref", "a:p99", "tok/s", "SLO", "calm")
    ]
    if found.recorded is not None:
        rows.append(_row("recorded", found.recorded, found.culprits, "", ""))
    for base in found.baselines:
        label = "replayed" + ("" if base.retries == "kept" else " -r")
        rows.append(_row(label, base.outcome, found.culprits, "", ""))
    for t in found.tried:
        label = t.remedy.name + ("" if t.retries == "kept" else " -r")
        said = "kept" if t.restored else "missed"
        if t.problem is not None:
            said = "unsure"
        calm = "" if t.calm is None else f"{t.calm.refused}/{t.calm.offered}"
        rows.append(_row(label, t.outcome, found.culprits, said, calm))
    yield from _aligned(rows)
    yield f"{_INDENT}a:ref: refused; calm: refused of those offered in normal hours"
    if any(b.retries != "kept" for b in found.baselines):
        yield f"{_INDENT}-r: without the recorded retries"
    yield from _spreads(found.baselines, found.tried)


def _row(
    label: str, outcome: Outcome, culprits: Sequence[str], said: str, calm: str
) -> tuple[str, ...]:
    hurt = outcome.hurt
    aimed = [n for t in culprits if (n := outcome.of(t)) is not None]
    worst = [s for n in aimed if (s := worst_s(n)) is not None]
    return (
        label,
        f"{hurt.missed}/{hurt.eligible}",
        _s(hurt.ttft_p50_s),
        _s(worst_s(hurt)),
        f"{_goodput(hurt)}",
        f"{sum(n.refused for n in aimed):,}",
        _s(max(worst, default=None)),
        f"{outcome.tokens_per_s:,.0f}",
        said,
        calm,
    )


def _goodput(numbers: TenantNumbers) -> str:
    return f"{numbers.goodput:,.1f}" if numbers.goodput < 100 else f"{numbers.goodput:,.0f}"


def _s(value: float | None) -> str:
    return "-" if value is None else span_s(value)


def _spreads(baselines: Sequence[Baseline], tried: Sequence[Tried]) -> Iterator[str]:
    named = [("replayed", b.spread) for b in baselines if b.retries == "kept"]
    named += [(t.remedy.name, t.spread) for t in tried if t.retries == "kept"]
    some = [(n, s) for n, s in named if s.seeds > 1]
    if not some:
        return
    yield ""
    yield "OVER THE SEEDS (arrivals a moment sooner or later; the worst of those hurt)"
    rows = [("", "seeds", "p99 from", "to", "misses from", "to")]
    for name, s in some:
        rows.append(
            (name, f"{s.seeds}", _s(s.least_p99_s), _s(s.most_p99_s), f"{s.least_missed}",
             f"{s.most_missed}")
        )  # fmt: skip
    yield from _aligned(rows)


def _apply(best: Tried, width: int) -> Iterator[str]:
    yield ""
    yield f"TO APPLY {best.remedy.name} ({RANKS[best.remedy.rank]})"
    yield from _wrapped(best.remedy.what, width)
    yield f"{_INDENT}in the settings file:"
    for line in best.settings.rstrip("\n").splitlines():
        yield f"{_INDENT}  {safe(line)}"
    if best.command is not None:
        yield f"{_INDENT}or on the running engine, for an hour (--ttl says otherwise):"
        yield f"{_INDENT}  {safe(best.command)}"


def _wrapped(text: str, width: int, indent: str = _INDENT) -> list[str]:
    lead = "" if not indent or text.startswith("- ") else indent
    return wrap(lead + text, width, indent)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Names to the left, numbers to the right, by cells."""
    widths = [max(cells(r[i]) for r in rows) for i in range(len(rows[0]))]
    for row in rows:
        first = row[0] + " " * (widths[0] - cells(row[0]))
        rest = "  ".join(" " * (w - cells(c)) + c for c, w in zip(row[1:], widths[1:], strict=True))
        yield f"{_INDENT}{first}  {rest}".rstrip()
