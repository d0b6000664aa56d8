"""The doctor's look at the doors: who is let in, what senders lost, what is handed on and what not.

Pure judgements of what `telemetry.doctor` found out; each gives (level, what it says, what to do).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from telemetry.plain import name, safe, span_s

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


def exports(lanes: Sequence[Mapping[str, Any]] | None, now_unix_s: float) -> Judgement:
    """What the store hands on by OTLP: an endpoint and signal each, what was dropped, and why."""
    if lanes is None:
        return OK, "known only while a store process runs", ""
    if not lanes:
        return OK, "nothing is handed on by OTLP", ""
    dropped = [one for one in lanes if one["dropped"]]
    failing = [one for one in lanes if one["last_error"]]
    if not dropped and not failing:
        total = sum(one["sent"] for one in lanes)
        return OK, f"{total} points and spans handed on, none dropped", ""
    said = [
        f"{_lane(one)}: {one['dropped']} dropped ({safe(one['why'] or '?')})" for one in dropped
    ]
    said += [f"{_lane(one)}: {_since(one, now_unix_s)}{safe(one['last_error'])}" for one in failing]
    do = (
        "what was dropped is in the store, not there: see that the endpoint is up and takes it; "
        "queue in its [[export]] of the store's settings.toml says how much may wait"
    )
    return WARN, "; ".join(said), do


def _lane(one: Mapping[str, Any]) -> str:
    return f"{one['signal']} to {safe(one['endpoint'])}" if one["endpoint"] else safe(one["signal"])


def _since(one: Mapping[str, Any], now_unix_s: float) -> str:
    last = one["last_ok_unix_s"]
    return "never taken: " if last is None else f"not for {span_s(max(0.0, now_unix_s - last))}: "


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
