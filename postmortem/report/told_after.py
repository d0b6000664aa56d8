"""Sections on what follows: worst requests, what-if, actions, questions, appendix. Words only."""

from __future__ import annotations

from datetime import tzinfo

from postmortem.report.actions import TO_FILL_IN
from postmortem.report.cells import big, number, seconds
from postmortem.report.document import Code, Grid, Part, Section
from postmortem.report.model import Report
from postmortem.report.parts import Prevented, Replayed
from telemetry.plain import clock


def worst(report: Report, zone: tzinfo | None) -> Section:
    if not report.worst:
        return Section("Worst requests", ("No row of a request is stored for this window.",))
    head = ("tenant", "arrived", "waited", "front", "slot", "budget", "kv", "adapter", "prefill",
            "outcome")  # fmt: skip
    rows = tuple(
        (s.tenant, clock(s.arrived, zone), seconds(s.waited_s), *(seconds(v) for _, v in s.waits),
         s.outcome)
        for s in report.worst
    )  # fmt: skip
    parts: list[Part] = [
        "The slowest to a first token (or to the end, without one) of those hurt, at most three a "
        "tenant, and what each waited for.",
        Grid(head, rows, frozenset(range(2, 9))),
        "Each one's life again, with who held meanwhile:",
        Code(tuple(s.command for s in report.worst)),
    ]
    return Section("Worst requests", tuple(parts))


def what_if(report: Report) -> Section:
    found = report.prevented
    if found is None:
        return Section(
            "What would have prevented it",
            (
                "No replay was run for this report (`--what-if` runs one). This command replays "
                "the incident under other policies and names the cheapest that keeps the SLOs:",
                Code((report.what_if,)),
            ),
        )
    # A remedy's sentence begins with its name, which is written as it is given to a command.
    said = found.sentence
    if found.remedy is None:
        said = said[:1].upper() + said[1:]
    parts: list[Part] = [f"{said}."]
    if found.claim is not None:
        parts.append(f"Counterfactual: {found.claim}.")
    parts.append(f"Is the replay true: {found.trust}.")
    if found.rows:
        head = ("", "cost", "missed", "p50", "p99", "goodput/s", "refused", "token/s", "SLO")
        parts.append(Grid(head, tuple(_replayed(r) for r in found.rows), frozenset(range(2, 8))))
        parts.append(
            "TTFT and misses of those hurt; refused: requests of those the remedy is aimed at. "
            "Arrivals are open-loop: nobody comes again, or stays away, because he was refused."
        )
    if found.settings is not None:
        parts += _settings(found)
    if found.notes:
        parts.append(found.notes)
    return Section("What would have prevented it", tuple(parts))


def _replayed(r: Replayed) -> tuple[str, ...]:
    kept = "" if r.restored is None else "kept" if r.restored else "missed"
    return (
        r.name,
        r.rank,
        f"{r.missed}/{r.eligible}",
        seconds(r.ttft_p50_s),
        seconds(r.ttft_p99_s),
        number(r.goodput),
        str(r.refused),
        big(r.tokens_per_s),
        "unsure" if r.problem is not None else kept,
    )


def _settings(found: Prevented) -> list[Part]:
    parts: list[Part] = [
        f"The settings that are the remedy {found.remedy}:",
        Code(tuple((found.settings or "").rstrip("\n").splitlines())),
    ]
    if found.command is not None:
        parts += ["Or on the running engine:", Code((found.command,))]
    return parts


def actions(report: Report) -> Section:
    if not report.actions:
        return Section("Action items", ("Nothing follows from the facts of this report.",))
    rows = tuple(
        (a.kind, TO_FILL_IN, TO_FILL_IN, f"{a.what} (because: {a.fact})") for a in report.actions
    )
    return Section(
        "Action items",
        (
            "From the facts of this report; people add owner and date, and what it cannot know.",
            Grid(("kind", "owner", "due", "what, and because of which fact"), rows),
        ),
    )


def questions(report: Report) -> Section:
    return Section(
        "For people to judge",
        (
            "No row answers these.",
            Grid(("question", "answer"), tuple((q, TO_FILL_IN) for q in report.questions)),
        ),
    )


def appendix(report: Report) -> Section:
    parts: list[Part] = ["The rows this was made of, and the commands that show them again."]
    for a in report.asked:
        parts += [f"{a.what}:", Code((a.command,))]
    return Section("Appendix: queries", tuple(parts))
