"""A made-up pool with everything the pages tell: odd names, lives of all parts, changes, alerts."""

from __future__ import annotations

import atexit
import json
from dataclasses import replace
from datetime import UTC
from functools import cache
from typing import Any

from console.act.values import EngineState
from console.detail import NOTHING, Asks, Detail, fetch
from console.frame import screen_lines
from console.lines import Line
from console.overview import Look
from console.pages import PAGES
from console.panels import Snapshot
from console.rows import Rows
from console.screens import Place, Scene
from telemetry.conventions import Emitter
from telemetry.otlp import encode
from telemetry.records import Batch
from telemetry.source import MemorySource
from tests.console import rows as made
from tests.console.places import memory
from tests.console.screens import picture

END = made.T0 + 180.0
ODD = (
    "[red]x",
    "[/]",
    "👩\u200d👩\u200d👧 family",
    "\u202eevil\u202c",
    "n" * 300,
    "",
    "\x1b]52;c;aGk=\x07osc",
    "%_'\"/~$.",
)
ODD_WORD = "\x1b[31m\u202e日本語 [b]word"  # of an engine of another version, or a tampered store
SIZES = ((160, 50), (120, 40), (80, 24), (60, 20))
LIMITS = {"weight": 1.0, "tier": 0, "rpm": 60, "tpm": None, "concurrency": 16}


def _request(tenant: str, at: float, **columns: Any) -> Any:
    """One that ended at `at` after a life of 10 s with a part of every kind."""
    usual: dict[str, Any] = {
        "adapter": f"{tenant}-chat",
        "adapter_state": "device",
        "first_token": at - 4.0,
        "last_token": at,
        "ended": at,
        "prompt_tokens": 1192,
        "cached_tokens": 64,
        "max_tokens": 32,
        "output_tokens": 19,
        "preemptions": 1,
        "wait_front_s": 0.5,
        "wait_slot_s": 1.0,
        "wait_budget_s": 1.0,
        "wait_kv_s": 2.0,
        "wait_adapter_s": 0.5,
        "prefill_s": 1.0,
        "rewait_kv_s": 1.5,
        "is_retry": False,
        "slo_met": False,
        "missed_ttft": True,
    }
    whole = replace(made.request(tenant, at, 6.0), arrived=at - 10.0, **{**usual, **columns})
    return replace(whole, request_id=columns.get("request_id", f"{tenant}-{at}"))


def _requests() -> list[Any]:
    out = []
    for i in range(24):  # globex hits, and pays for what is cold
        cold = i % 6 == 0
        out.append(
            _request("globex", END - 60.0 + i, ttft_s=2.0 if cold else 0.05,
                     adapter_state="disk" if cold else "device", request_id=f"g{i}",
                     is_retry=i == 3, slo_met=not cold, missed_ttft=cold)
        )  # fmt: skip
    out.append(_request("acme", END - 5.0, outcome="rejected", reject_reason="rpm", request_id="r1",
                        first_token=None, last_token=None, ttft_s=None, wait_front_s=None,
                        wait_slot_s=None, wait_budget_s=None, wait_kv_s=None, wait_adapter_s=None,
                        prefill_s=None, rewait_kv_s=None, preemptions=None, slo_met=None,
                        missed_ttft=None))  # fmt: skip
    words = {0: {"outcome": ODD_WORD}, 1: {"adapter_state": ODD_WORD},
             4: {"outcome": ODD_WORD, "adapter_state": ODD_WORD},
             5: {"outcome": "rejected", "reject_reason": ODD_WORD}}  # fmt: skip
    out += [_request(name, END - 30.0 + i, request_id=f"odd{i}", **words.get(i, {}))
            for i, name in enumerate(ODD)]  # fmt: skip
    return out


def _policies() -> list[Any]:
    names = (*made.TENANTS, *ODD)
    start = dict.fromkeys(names, LIMITS)
    capped = start | {"globex": LIMITS | {"rpm": 30}}
    weighed = capped | {"globex": LIMITS | {"rpm": 30, "weight": 2.0}}
    told = [(1, 0.0, start, "start"), (2, 60.0, capped, "bob"), (3, 90.0, weighed, "ann")]
    return [
        made.policy(made.T0 + at, "vtc", v, previous=None if v == 1 else "vtc", who=who,
                    why="too much at once", parameters=json.dumps(p))
        for v, at, p, who in told
    ]  # fmt: skip


def _events() -> list[Any]:
    act = json.dumps({"act": "note", "incident": "main-7", "who": "bob", "text": "[b]looking"})
    store = {"engine": "store", "run_id": "store"}
    told = made.event(made.T0 + 60.0, "policy", "tenant 'globex': rpm 60 -> 30 by bob")
    return [
        told,  # of version 2; nothing tells of version 3 but its row
        replace(made.event(made.T0 + 150.0, "incident", "main-7 opened (page): globex"), **store),
        replace(made.event(made.T0 + 160.0, "incident_act", act), **store),
        replace(made.event(made.T0 + 150.0, "incident_state", "{}"), **store),
        made.event(made.T0 + 161.0, "evict", None, tenant="globex", adapter="chat",
                   cause_tenant="acme"),
        made.event(made.T0 + 162.0, "fault", "\x1b[31ma step failed"),
        made.event(END + 5.0, "mark", "what comes later"),
    ]  # fmt: skip


@cache
def rows() -> Rows:
    """`incident`, with more of everything that a page of its own tells."""
    base = made.incident(victims=("globex", "initech", "umbrella"))
    bucket = END - made.BUCKET_S
    more = []
    for row in base.tenants:
        if row.tenant == "globex":
            row = replace(
                row, adapter_lookups=10, found_device=8, found_disk=2, swap_in_bytes=10 << 20,
                wait_front_s=0.5, stall_s=2.0, quota_rpm_level=0.0, concurrency_in_use=4.0,
                rejected_rpm_requests=3, slo_missed_ttft=row.slo_missed, admitted_requests=3,
            )  # fmt: skip
        more.append(row)
    odd = [made.tenant(bucket, n, service=10.0, wait_slot_s=1.0, backlogged_s=1.0) for n in ODD]
    charges = [made.charge(bucket, n, "slot", "tenant", "globex", 1.0) for n in ODD]
    charges.append(made.charge(bucket, "globex", "slot", "tenant", "capacity", 3.0))
    config = {"policy": "vtc", "tenants": [{"name": n, **LIMITS} for n in (*made.TENANTS, *ODD)]}
    return replace(
        base,
        tenants=(*more, *odd),
        # One bucket that nobody heard, one that is open still.
        engines=tuple(e for e in base.engines if e.bucket_start != made.T0 + 30.0),
        interference=(*base.interference, *charges),
        requests=tuple(_requests()),
        events=(*base.events, *_events()),
        policies=tuple(_policies()),
        runs=(made.run(config=json.dumps(config)),),
    )


@cache
def source() -> MemorySource:
    all_rows = rows()
    stores = tuple(e for e in all_rows.events if e.engine == "store")
    mine = tuple(e for e in all_rows.events if e.engine != "store")
    held = memory(replace(all_rows, events=mine))
    metrics, logs = encode(Batch("store", "store", "main", Emitter.WORKER, True, 1, logs=stores))
    held.feed([metrics] if metrics else [], [logs] if logs else [])
    atexit.register(held.close)
    return held


@cache
def now() -> Snapshot:
    return picture(rows(), END, made.verdict())


@cache
def answered(asks: Asks) -> Detail:
    return fetch(source(), asks) if asks else NOTHING


def heard(page: str, place: Place, s: Snapshot | None = None) -> Detail:
    """What the source answers to a page's questions."""
    return answered(PAGES[page].wants(s or now(), place))


def scene(
    page: str,
    place: Place | None = None,
    size: tuple[int, int] = (80, 24),
    *,
    engines: tuple[EngineState, ...] = (),
    s: Snapshot | None = None,
    **look: Any,
) -> Scene:
    place, s = place or Place(), s or now()
    return Scene(s, place, *size, Look(tz=UTC, **look), heard(page, place, s), engines=engines)


def lines(page: str, place: Place | None = None, size: tuple[int, int] = (80, 24),
          **more: Any) -> tuple[Line, ...]:  # fmt: skip
    at = scene(page, place, size, **more)
    return screen_lines(PAGES[page], at, PAGES[page].wants(at.picture, at.place))


def text(page: str, place: Place | None = None, size: tuple[int, int] = (80, 24),
         **more: Any) -> list[str]:  # fmt: skip
    """A page's whole screen, as it reads."""
    return [line.plain.rstrip() for line in lines(page, place, size, **more)]
