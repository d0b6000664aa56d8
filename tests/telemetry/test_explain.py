"""One request's life: milestones, waits, verdict, and who held what in the minutes it waited."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.cli import FAILED, OK, USAGE, invoke
from telemetry.ask.explain import Targets, UnknownRequest, explain
from telemetry.ask.explain_text import WIDTH, lines
from telemetry.conventions import WAIT_REASONS
from telemetry.errors import QueryError
from telemetry.otlp import encode
from telemetry.plain import cells
from telemetry.records import Batch, EngineRun, PolicyRecord
from telemetry.service.process import StoreServer
from telemetry.source import MemorySource, open_source
from telemetry.store.store import Store
from tests.telemetry.delivered import ODD_NAMES, RUN, T0, batch, deliver, request
from tests.telemetry.simulated import simulated
from tests.telemetry.synthetic_rows import CAPACITY, SELF, Pool

RUN_ROW = EngineRun(
    started=T0,
    model="tiny",
    config=json.dumps({"tenants": [{"name": "y", "slo": {"ttft_s": 3.0, "tpot_s": None}}]}),
    **RUN,
)
POLICY_ROW = PolicyRecord(version=2, at=T0, policy="fcfs", **RUN)

# It waited from bucket 1 into bucket 2, missed its TTFT, and was preempted afterwards.
LONG = request(
    17, T0 + 15, tenant="y", adapter="fr-legal", adapter_state="disk", policy_version=2,
    admitted=T0 + 15.1, first_scheduled=T0 + 23, first_token=T0 + 25, last_token=T0 + 31,
    ended=T0 + 31, prompt_tokens=512, cached_tokens=128, output_tokens=20, max_tokens=100,
    preemptions=1, recomputed_tokens=77, wait_front_s=0.1, wait_slot_s=6.0, wait_budget_s=1.0,
    wait_kv_s=0.9, wait_adapter_s=0.0, prefill_s=2.0, ttft_s=10.0, rewait_kv_s=1.5, stall_s=0.25,
    tpot_s=0.3, max_gap_s=2.0, slo_met=False, missed_ttft=True, missed_tpot=False,
)  # fmt: skip


def pool() -> Pool:
    """Buckets 0 to 4 of ten seconds; in 1 and 2 y waits behind x."""
    made = Pool(bucket_s=10.0)
    for i in range(5):
        made.engine(i)
        held: dict[str, Any] = {"slot": {"x": 1.0, SELF: 1.0}}
        if i in (1, 2):
            held = {
                "slot": {"x": 6.0, SELF: 1.0, CAPACITY: 1.0, **{f"t{n}": 0.4 for n in range(5)}},
                "kv": {ODD_NAMES[2]: 3.0},
            }
        made.tenant(i, "y", waits=held)
        made.tenant(i, "x", waits={"slot": {"y": 50.0}})
    return made


def source_of(*rows: Any) -> MemorySource:
    made = pool()
    stored = [r for table in made.rows.values() for r in table]
    metrics, logs = encode(batch(*stored, *rows))
    assert metrics is not None
    return MemorySource([metrics], [logs] if logs is not None else [])


def test_a_life_has_its_waits_its_holders_and_its_targets() -> None:
    source = source_of(LONG, RUN_ROW, POLICY_ROW)
    life = explain(source, "q17")
    assert life.request == LONG
    assert life.waits() == {
        "front": 0.1, "slot": 6.0, "budget": 1.0, "kv": 0.9, "adapter": 0.0, "prefill": 2.0,
    }  # fmt: skip
    assert sum(life.waits().values()) == LONG.ttft_s
    assert life.rewaits() == {"kv": 1.5}
    assert (life.targets, life.policy) == (Targets(3.0, None, None), "fcfs")
    source.close()


def test_who_held_it_is_of_its_tenant_and_of_the_buckets_it_waited_in() -> None:
    source = source_of(LONG)
    life = explain(source, "q17")
    # It waited again after its first token, so the buckets go on to its end, into the third.
    assert (life.buckets_from, life.buckets_to) == (T0 + 10, T0 + 40)
    slot = {(h.holder_kind, h.holder): h for h in life.held if h.reason == "slot"}
    assert slot["tenant", "x"].charged_s == 13.0
    assert slot["self", ""].charged_s == 3.0
    assert slot["tenant", "x"].share == pytest.approx(13.0 / 22.0)
    for reason in ("slot", "kv"):
        assert sum(h.share for h in life.held if h.reason == reason) == pytest.approx(1.0)
    assert not [h for h in life.held if h.holder == "y"]
    source.close()


def test_the_text_says_the_life_the_verdict_and_the_holders() -> None:
    source = source_of(LONG, RUN_ROW, POLICY_ROW)
    text = "\n".join(lines(explain(source, "q17")))
    for said in (
        "REQUEST q17 of y: finished",
        "adapter fr-legal, found at arrival on: disk",
        "512 tokens (128 of them cached)",
        "20 of at most 100 tokens out",
        "policy fcfs v2",
        "+10.0s  first token",
        "TO THE FIRST TOKEN: 10.0s",
        "slot         6.0s    60%  ##################",
        "Waited again after its first token: kv 1.5s.",
        "Stalled 0.25s",
        "Preempted once, 77 tokens computed again.",
        "SLO missed: TTFT 10.0s (target 3.0s) MISSED, TPOT 0.30s, longest gap 2.0s",
        "(this request 6.0s): tenant x 59%",
        "(this request 2.4s): tenant xxxxxxxxxxxxxxxxxxxxxxx",
    ):
        assert said in text or said in " ".join(text.split())
    assert "accusation" in text
    source.close()


def test_lines_keep_to_the_width_whatever_names_hold() -> None:
    for name in (*ODD_NAMES, "\x1b[2J", "名" * 60):
        row = replace(LONG, tenant=name, adapter=name, request_id="q" * 100)
        source = source_of(row)
        found = list(lines(explain(source, row.request_id)))
        assert all(cells(line) <= WIDTH and line.isprintable() for line in found)
        source.close()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (request(1, T0, outcome="rejected", reject_reason="rpm", ended=T0), "rejected (rpm)"),
        (request(1, T0, outcome="timed_out", ended=T0 + 9, wait_slot_s=9.0, missed_ttft=True,
                 slo_met=False), "NO FIRST TOKEN: 9.0s until the end"),
        (request(1, T0, outcome="aborted", ended=T0 + 1), "It waited for nothing that is stored."),
        (request(1, T0, outcome="aborted"), "first token: never, or not stored"),
    ],
)  # fmt: skip
def test_a_life_cut_short_is_told_as_far_as_it_went(row: Any, says: str) -> None:
    source = source_of(row)
    text = "\n".join(lines(explain(source, "q1")))
    assert says in text
    assert "Nothing is charged to a's waiting" in text
    source.close()


def test_an_unknown_id_is_a_sentence_with_ids_that_are_near() -> None:
    source = source_of(*(replace(LONG, request_id=i) for i in ("cmpl-aaaa", "cmpl-xyzw", "zz")))
    with pytest.raises(
        UnknownRequest, match=r"no request cmpl-aaab is stored.*Near it: cmpl-aaaa$"
    ):
        explain(source, "cmpl-aaab")
    with pytest.raises(UnknownRequest, match=r"Near it: cmpl-.*, cmpl-"):
        explain(source, "cmpl")
    with pytest.raises(UnknownRequest, match=r"no id is near it$"):
        explain(source, "'; drop table request; --")
    assert explain(source, "zz").request.request_id == "zz"
    source.close()


def test_of_several_with_one_id_the_run_is_to_be_named() -> None:
    both = [
        encode(Batch("e1", run, "main", batch().emitter, True, 1,
                     logs=(replace(LONG, run_id=run, ttft_s=ttft),)))[1]
        for run, ttft in (("r1", 1.0), ("r2", 2.0))
    ]  # fmt: skip
    source = MemorySource((), [b for b in both if b is not None])
    with pytest.raises(QueryError, match=r"2 requests are called q17.*r1 .*r2 .*--run"):
        explain(source, "q17")
    with pytest.raises(QueryError, match=r"no run r3 has a request q17: give .*r1 .*r2 "):
        explain(source, "q17", "r3")
    assert explain(source, "q17", "r2").request.ttft_s == 2.0
    source.close()


def test_settings_of_another_form_leave_the_targets_out() -> None:
    for config in (None, "{", "[]", '{"tenants": 3}', '{"tenants": [{"name": "y", "slo": 7}]}'):
        source = source_of(LONG, replace(RUN_ROW, config=config))
        assert explain(source, "q17").targets is None
        source.close()


# --- a real run, by the command ------------------------------------------------------------------


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("flood"))


def test_a_real_request_waited_behind_whom_the_matrix_says(
    flood: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = open_source(flood)
    stored = source.read("request", float("-inf"), float("inf"))
    worst = max((r for r in stored if r.tenant == "light"), key=lambda r: r.ttft_s or 0.0)
    assert invoke(["explain", worst.request_id, "--store", str(flood), "--json"]) == OK
    life = json.loads(capsys.readouterr().out)
    waits = life["waits_s"]
    assert sum(waits.values()) == pytest.approx(worst.ttft_s, rel=1e-9)
    assert life["request"]["missed_ttft"] is True
    assert life["targets"]["ttft_s"] == 1.0
    for reason in WAIT_REASONS:
        charged = sum(h["charged_s"] for h in life["held"] if h["reason"] == reason)
        assert charged >= waits[reason] - 1e-6  # of all its tenant's requests, this one included
    top = max(life["held"], key=lambda h: h["charged_s"])
    assert (top["holder_kind"], top["holder"]) == ("tenant", "heavy")


def test_live_and_closed_stores_explain_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    store = Store.open(folder)
    deliver(store, batch(LONG, RUN_ROW, *[r for t in pool().rows.values() for r in t]))
    server = StoreServer(store, f"unix:{tmp_path}/s")
    server.start()
    assert invoke(["explain", "q17", "--store", str(folder)]) == OK
    live = capsys.readouterr().out
    assert invoke(["explain", "q18", "--connect", server.address]) == FAILED
    assert "Near it: q17" in capsys.readouterr().err
    server.stop(0.2)
    assert invoke(["explain", "q17", "--store", str(folder)]) == OK
    assert capsys.readouterr().out == live
    assert "tenant x 59%" in live


def test_the_command_needs_one_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["explain", "q17"]) == USAGE
    assert "--store DIR or --connect" in capsys.readouterr().err
