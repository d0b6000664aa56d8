"""A request's life as a person reads it: eighty columns of plain text. Owns words, no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from telemetry.ask.explain import Holding, Life
from telemetry.conventions import TENANT
from telemetry.plain import name, percent, safe, span_s, wrap

WIDTH = 80
_BAR_CELLS = 30
_TOP_HOLDERS = 4


def lines(life: Life) -> Iterator[str]:
    """The whole answer, a line at a time."""
    row = life.request
    how = f"{row.outcome} ({row.reject_reason})" if row.reject_reason else row.outcome
    yield from wrap(f"REQUEST {name(row.request_id, 60)} of {name(row.tenant, 40)}: {how}", WIDTH)
    yield from wrap(f"{_asked(life)}.", WIDTH)
    yield from wrap(
        f"engine {name(row.engine, 30)}, run {name(row.run_id, 40)}, pool {name(row.pool, 30)}",
        WIDTH,
    )
    yield ""
    yield f"LIFE ({datetime.fromtimestamp(row.arrived, UTC):%Y-%m-%d}, UTC)"
    yield from _milestones(life)
    yield ""
    yield from _to_first_token(life)
    yield from _after(life)
    yield from _verdict(life)
    yield ""
    yield from _who(life)


def _asked(life: Life) -> str:
    row = life.request
    says = [f"adapter {name(row.adapter, 40)}" if row.adapter else "the base model"]
    if row.adapter_state:
        says[0] += f", found at arrival on: {safe(row.adapter_state)}"
    if row.prompt_tokens is not None:
        cached = f" ({row.cached_tokens} of them cached)" if row.cached_tokens else ""
        says.append(f"a prompt of {row.prompt_tokens} tokens{cached}")
    if row.output_tokens is not None:
        most = f" of at most {row.max_tokens}" if row.max_tokens is not None else ""
        says.append(f"{row.output_tokens}{most} tokens out")
    if row.is_retry:
        says.append("a retry")
    if row.policy_version is not None:
        policy = f"{life.policy} " if life.policy else ""
        says.append(f"arrived under policy {safe(policy)}v{row.policy_version}")
    return "; ".join(says)


def _milestones(life: Life) -> Iterator[str]:
    row = life.request
    end = row.outcome.replace("_", " ")
    for word, at in (
        ("arrived", row.arrived),
        ("handed to the pool", row.admitted),
        ("first prefill chunk", row.first_scheduled),
        ("first token", row.first_token),
        ("last token", row.last_token),
        (end, row.ended),
    ):
        if at is None:
            yield f"{'-':>12}  {'':>9}  {word}: never, or not stored"
        else:
            yield f"{_clock(at):>12}  {'+' + span_s(at - row.arrived):>9}  {word}"


def _to_first_token(life: Life) -> Iterator[str]:
    row, parts = life.request, life.waits()
    if not parts:
        yield "It waited for nothing that is stored."
        return
    whole = row.ttft_s if row.ttft_s is not None else sum(parts.values())
    if row.ttft_s is not None:
        yield f"TO THE FIRST TOKEN: {span_s(row.ttft_s)}"
    else:
        yield f"NO FIRST TOKEN: {span_s(whole)} until the end"
    for reason, value in parts.items():
        share = value / whole if whole > 0 else 0.0
        bar = "#" * max(round(share * _BAR_CELLS), 1 if value > 0 else 0)
        yield f"  {reason:<9}{span_s(value):>8}  {percent(share):>5}  {bar}".rstrip()


def _after(life: Life) -> Iterator[str]:
    row, again = life.request, life.rewaits()
    if again:
        listed = ", ".join(f"{reason} {span_s(value)}" for reason, value in again.items())
        yield f"Waited again after its first token: {listed}."
    if row.stall_s:
        yield f"Stalled {span_s(row.stall_s)}: others' prefill inside its steps (part of the rest)."
    if row.preemptions:
        redone = f", {row.recomputed_tokens} tokens computed again" if row.recomputed_tokens else ""
        times = "once" if row.preemptions == 1 else f"{row.preemptions} times"
        yield f"Preempted {times}{redone}."


def _verdict(life: Life) -> Iterator[str]:
    row, targets = life.request, life.targets
    judged = (
        ("TTFT", row.ttft_s, targets.ttft_s if targets else None, row.missed_ttft),
        ("TPOT", row.tpot_s, targets.tpot_s if targets else None, row.missed_tpot),
        ("longest gap", row.max_gap_s, targets.max_gap_s if targets else None, row.missed_gap),
    )
    words = []
    for what, value, target, missed in judged:
        if value is None and not missed:
            continue
        word = f"{what} {span_s(value) if value is not None else 'none'}"
        if target is not None:
            word += f" (target {span_s(target)})"
        words.append(word + (" MISSED" if missed else ""))
    verdict = {True: "met", False: "missed", None: "not judged"}[row.slo_met]
    yield from wrap(f"SLO {verdict}{': ' if words else '.'}{', '.join(words)}", WIDTH, "  ")


def _who(life: Life) -> Iterator[str]:
    row = life.request
    yield "WHO HELD IT"
    if not life.held or life.buckets_from is None or life.buckets_to is None:
        yield from wrap(
            f"Nothing is charged to {name(row.tenant, 40)}'s waiting in the minutes this request "
            f"waited ({_clock(life.waited_from)} to {_clock(life.waited_to)}).",
            WIDTH,
        )
        yield from _partial(life)
        return
    yield from wrap(
        f"Charged to the waiting of {name(row.tenant, 40)}, all its requests together, in the "
        f"buckets from {_clock(life.buckets_from)} to {_clock(life.buckets_to)}. Charged says who "
        "held it, it is no accusation.",
        WIDTH,
    )
    for reason in dict.fromkeys(h.reason for h in life.held):
        held = [h for h in life.held if h.reason == reason]
        whole = sum(h.charged_s for h in held)
        own = life.waits().get(reason, 0.0) + life.rewaits().get(reason, 0.0)
        if reason == "stall":
            own = row.stall_s or 0.0
        top = ", ".join(f"{_holder(h)} {percent(h.share)}" for h in held[:_TOP_HOLDERS])
        rest = sum(h.share for h in held[_TOP_HOLDERS:])
        more = f", {len(held) - _TOP_HOLDERS} more {percent(rest)}" if rest > 0 else ""
        said = f"{safe(reason):<8}{span_s(whole):>7} (this request {span_s(own)}): {top}{more}"
        yield from (f"  {part}" for part in wrap(said, WIDTH - 2, "  "))
    yield from _partial(life)


def _partial(life: Life) -> Iterator[str]:
    for lack in life.partial:
        yield from wrap(f"PARTIAL: {safe(lack)}", WIDTH)


def _holder(held: Holding) -> str:
    if held.holder_kind == TENANT:
        return f"tenant {name(held.holder, 24)}"
    return safe(held.holder_kind)


def _clock(unix_s: float) -> str:
    """HH:MM:SS.mmm, UTC; the day stands above."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%H:%M:%S.%f")[:-3]
