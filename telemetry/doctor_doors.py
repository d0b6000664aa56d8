"""The doctor's look at the doors: listeners that answer, certificates that last, senders that lose.

Pure judgements of what `telemetry.doctor` found out; each gives (level, what it says, what to do).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telemetry.plain import name, safe

OK, WARN, BAD = "ok", "warn", "bad"
_DAY_S = 86_400.0
_SOON_DAYS, _NOW_DAYS = 21.0, 3.0

Judgement = tuple[str, str, str]


def ports(listeners: Sequence[Mapping[str, Any]] | None) -> Judgement:
    """`answers` says whether a connection was taken at each address."""
    if listeners is None:
        return OK, "known only while a store process runs", ""
    silent = [safe(one["address"]) for one in listeners if not one["answers"]]
    if silent:
        do = "see whether a firewall, or another network, is between; the store's log names its own"
        return BAD, f"no connection is taken at {', '.join(silent)}", do
    return OK, f"{len(listeners)} answer: {', '.join(safe(o['address']) for o in listeners)}", ""


def certificates(listeners: Sequence[Mapping[str, Any]] | None, now_unix_s: float) -> Judgement:
    """By the days that are left of the certificate of each listener with TLS."""
    ends = {
        safe(one["address"]): one["certificate_ends_unix_s"]
        for one in listeners or ()
        if one["tls"]
    }
    if not ends:
        return (
            OK,
            "no listener shows one" if listeners is not None else "known only while it runs",
            "",
        )
    unknown = [where for where, end in ends.items() if end is None]
    if unknown:
        return BAD, f"of {', '.join(unknown)} cannot be read", "see the store's log for the file"
    days = {where: (end - now_unix_s) / _DAY_S for where, end in ends.items()}
    where, left = min(days.items(), key=lambda item: item[1])
    says = f"{where}: {left:.0f} days left" if left >= 0 else f"{where}: ended {-left:.0f} days ago"
    do = "put the renewed certificate and key in place of the files; they are read by themselves"
    if left < _NOW_DAYS:
        return BAD, says, do
    return (WARN, says, do) if left < _SOON_DAYS else (OK, says, "")


def senders(lost: Sequence[Mapping[str, Any]]) -> Judgement:
    """What senders had to give up, by their own word."""
    if not lost:
        return OK, "no sender told of a loss in the last day of rows", ""
    by_engine: dict[str, int] = {}
    for row in lost:
        by_engine[row["engine"]] = by_engine.get(row["engine"], 0) + row["batches"]
    said = ", ".join(f"{name(e)} {n}" for e, n in sorted(by_engine.items(), key=_most))
    newest = max(lost, key=lambda row: float(row["last_at"]))
    says = f"batches given up: {said}; the last: {safe(newest['detail'] or '?')}"
    do = "those minutes miss rows; see why the store was not reached: tenantscope query lost"
    return WARN, says, do


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
