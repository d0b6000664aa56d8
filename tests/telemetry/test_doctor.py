"""`doctor` says of each thing whether it is well, and what to do where it is not."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from telemetry import doctor
from telemetry.commands.doctor import doctor as command
from telemetry.errors import StoreError
from telemetry.outbound.lane import LaneStats
from telemetry.outbound.outbound import OutboundStats
from telemetry.outbound.told import told
from telemetry.service import liveness
from telemetry.service.process import StoreServer
from telemetry.source import FileSource
from telemetry.store import migrations, owner, sizes
from telemetry.store.store import Store
from tests.telemetry.delivered import T0, batch, deliver, engine_minute, event, minute, request

NOW = T0 + 600
POOL = {
    "engine": "e1",
    "pool": "main",
    "last_bucket_end": NOW,
    "last_sealed_end": NOW - 60,
    "bucket_s": 60.0,
    "buckets": 10,
    "gaps": 0,
    "gap_s": 0.0,
    "longest_gap_s": 0.0,
    "left_open": 0,
}
DISK = sizes.Forecast(3, 1e6, None, None, 1 << 40)
LOST = {"engine": "e1", "run_id": "r", "batches": 3, "times": 1, "last_at": 1.0, "detail": "x"}


def door(days: float | None = 40.0, answers: bool = True) -> dict[str, Any]:
    """A listener with TLS, as the store tells of it and the doctor has knocked at it."""
    ends = None if days is None else NOW + days * 86_400
    return {
        "address": "h:1",
        "tls": True,
        "tokens": True,
        "certificate_ends_unix_s": ends,
        "answers": answers,
    }


def lane(**changed: Any) -> dict[str, Any]:
    """What the store says of one endpoint's exports."""
    well = {
        "endpoint": "http://c:4317",
        "signal": "metrics",
        "sent": 7,
        "waiting": 0,
        "dropped": 0,
        "why": None,
        "retries": 0,
        "last_ok_unix_s": NOW,
        "last_error": None,
    }
    return well | changed


WELL = doctor.Facts(
    NOW,
    "/s",
    owner_pid=7,
    answers=True,
    pools=(POOL,),
    refused_points=0,
    last_ingest_unix_s=NOW,
    disk=DISK,
)


def levels(facts: doctor.Facts) -> dict[str, str]:
    return {c.what: c.level for c in doctor.judge(facts) if c.level != doctor.OK}


def check(facts: doctor.Facts, what: str) -> doctor.Check:
    return next(c for c in doctor.judge(facts) if c.what == what)


def test_a_store_in_order_has_nothing_to_do() -> None:
    checks = doctor.judge(WELL)
    assert doctor.worst(checks) == doctor.OK
    assert not any(c.do for c in checks)
    assert {c.what for c in checks} == {
        "owner", "lag", "gaps", "skew", "open", "refused", "loss", "disk", "quarantine", "settings",
        "ports", "certificates", "senders", "exports",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "what", "level", "word"),
    [
        ({"answers": False}, "owner", "bad", "process 7 has the store and does not answer"),
        ({"answers": False, "owner_pid": None, "left_behind": True}, "owner", "warn", "killed"),
        ({"pools": ({**POOL, "last_sealed_end": NOW - 240},)}, "lag", "warn", "240s ago"),
        ({"pools": ({**POOL, "last_sealed_end": NOW - 700},)}, "lag", "bad", "700s ago"),
        ({"pools": (POOL, {**POOL, "engine": "e2", "last_sealed_end": T0 - 200})}, "lag", "warn",
         "last heard of e2/main"),
        ({"pools": ()}, "lag", "warn", "no minute"),
        ({"pools": ({**POOL, "gaps": 2, "gap_s": 180.0, "longest_gap_s": 120.0},)}, "gaps", "warn",
         "2 of 180s, longest 120s"),
        ({"pools": ({**POOL, "last_bucket_end": NOW + 90},)}, "skew", "bad", "30.0s ahead"),
        ({"pools": ({**POOL, "left_open": 1},)}, "open", "warn", "1 of e1/main"),
        ({"refused_points": 3}, "refused", "warn", "3 points"),
        ({"faults": ({"engine": "e1", "kind": "fault", "detail": "dropped 9", "times": 2},)},
         "loss", "warn", "2 reported; the last by e1: dropped 9"),
        ({"disk": replace(DISK, free_bytes=1 << 20)}, "disk", "bad", "0.0 GiB free"),
        ({"disk": replace(DISK, fills_on="2027-01-17")}, "disk", "bad", "full on 2027-01-17"),
        ({"disk": replace(DISK, fills_on="2027-01-25")}, "disk", "warn", "full on 2027-01-25"),
        ({"disk": replace(DISK, fills_on="2028-01-25")}, "disk", "ok", "full on 2028-01-25"),
        ({"disk": None, "problem": "it is busy"}, "store", "bad", "it is busy"),
        ({"aside": ("2027-01-15: request moved",)}, "quarantine", "bad", "2027-01-15: request"),
        ({"missing": ("2027-01-15: event.parquet",)}, "quarantine", "bad", "is missing"),
        ({"settings_problem": "request = 0"}, "settings", "bad", "request = 0"),
        ({"elsewhere": True, "disk": None}, "disk", "ok", "on another machine"),
        ({"listeners": (door(answers=False),)}, "ports", "bad", "no connection is taken at h:1"),
        ({"listeners": (door(),)}, "ports", "ok", "1 answer: h:1"),
        ({"listeners": (door(),)}, "certificates", "ok", "40 days left"),
        ({"listeners": (door(), door(20))}, "certificates", "warn", "20 days left"),
        ({"listeners": (door(2),)}, "certificates", "bad", "2 days left"),
        ({"listeners": (door(-2),)}, "certificates", "bad", "ended 2 days ago"),
        ({"listeners": (door(None),)}, "certificates", "bad", "cannot be read"),
        ({"lost": (LOST, {**LOST, "engine": "e2", "batches": 9, "last_at": 2.0, "detail": "full"})},
         "senders", "warn", "e2 9, e1 3; the last: full"),
        ({"exports": ()}, "exports", "ok", "nothing is handed on"),
        ({"exports": (lane(),)}, "exports", "ok", "7 points and spans handed on, none dropped"),
        ({"exports": (lane(), lane(dropped=3, why="full 3"))}, "exports", "warn",
         "metrics to http://c:4317: 3 dropped (full 3)"),
        ({"exports": (lane(last_ok_unix_s=NOW - 90.0, last_error="refused"),)}, "exports", "warn",
         "metrics to http://c:4317: not for 90.0s: refused"),
        ({"exports": (lane(last_ok_unix_s=None, last_error="refused"),)}, "exports", "warn",
         "never taken: refused"),
    ],
)  # fmt: skip
def test_each_thing_that_is_not_well_is_named_with_what_to_do(
    facts: dict[str, Any], what: str, level: str, word: str
) -> None:
    found = check(replace(WELL, **facts), what)
    assert found.level == level
    assert word in found.says
    assert bool(found.do) == (level != doctor.OK)


def test_a_closed_store_is_not_late() -> None:
    closed = replace(WELL, now_unix_s=NOW + 1e7, answers=False, owner_pid=None, refused_points=None)
    assert levels(closed) == {}


def test_names_and_details_are_only_printed() -> None:
    odd = replace(
        WELL,
        pools=({**POOL, "engine": "\x1b[2J", "left_open": 1},),
        faults=({"engine": "\x1b[2J", "kind": "fault", "detail": "\x07", "times": 1},),
    )
    assert "\x1b" not in repr([c.says for c in doctor.judge(odd)]).replace("\\x1b", "")
    assert not any(c in check(odd, "loss").says for c in "\x1b\x07")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "store") as store:
        for n in (0, 1, 4):  # a hole of two minutes
            deliver(store, batch(engine_minute(T0 + 60 * n, steps=1), minute("a", T0 + 60 * n)))
        deliver(store, batch(engine_minute(T0 + 300, steps=1), sealed=False))
        deliver(store, batch(engine_minute(T0 + 360, steps=1), request(1), seq=2))
        deliver(store, batch(event(1, T0, kind="fault", detail="the front dropped 3 rows"), seq=2))
    return tmp_path / "store"


def run(*arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(command, [*arguments, "--json"])
    return done.exit_code, {c["what"]: c for c in json.loads(done.stdout)}


def test_a_closed_store_is_examined_without_a_trace(folder: Path) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*"))
    facts = doctor.examine(str(folder), now_unix_s=T0 + 420)
    assert sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*")) == before
    assert levels(facts) == {"gaps": "warn", "open": "warn", "loss": "warn"}
    assert "e1/main: 1 of 120s" in check(facts, "gaps").says
    assert "the front dropped 3 rows" in check(facts, "loss").says


def test_clocks_that_are_ahead_are_bad_and_the_exit_code_says_so(folder: Path) -> None:
    facts = doctor.examine(str(folder), now_unix_s=T0 + 60)
    assert check(facts, "skew").level == doctor.BAD
    code, checks = run("--store", str(folder))
    bad = {what for what, c in checks.items() if c["level"] == "bad"}
    assert code == (1 if bad else 0)
    assert bad == ({"skew"} if time.time() < T0 else set())


def test_a_live_store_is_asked(folder: Path, tmp_path: Path) -> None:
    server = StoreServer(Store.open(folder), f"unix:{tmp_path}/s")
    server.start()
    for where in (str(folder), server.address):
        facts = doctor.examine(where, now_unix_s=T0 + 420)
        assert (facts.answers, facts.owner_pid) == (True, os.getpid())
        assert levels(facts) == {"gaps": "warn", "open": "warn", "loss": "warn"}
    server.stop(0.2)


def test_what_a_live_store_could_not_hand_on_is_told(folder: Path, tmp_path: Path) -> None:
    stats = OutboundStats(
        (LaneStats("http://c:4317", "metrics", 5, 1, {"full": 2, "refused": 4}, 0, 9, None, "no"),),
        overrun=8,
    )
    server = StoreServer(
        Store.open(folder), f"unix:{tmp_path}/s", live={liveness.EXPORTS: lambda: told(stats)}
    )
    server.start()
    try:
        found = check(doctor.examine(server.address, now_unix_s=T0 + 420), "exports")
    finally:
        server.stop(0.2)
    assert found.level == "warn"
    assert "metrics to http://c:4317: 6 dropped (refused 4, full 2)" in found.says
    assert "rows, before any endpoint: 8 dropped (more came than" in found.says


def test_a_store_on_another_machine_is_asked_and_its_disk_is_left_to_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(folder)
    server = StoreServer(store, f"unix:{tmp_path}/s")
    server.start()
    info = replace(store.info(), path="/nowhere/there")
    monkeypatch.setattr(store, "info", lambda: info)
    facts = doctor.examine(server.address, now_unix_s=T0 + 420)
    server.stop(0.2)
    assert (facts.elsewhere, facts.folder) == (True, "/nowhere/there")
    assert levels(facts) == {"gaps": "warn", "open": "warn", "loss": "warn"}
    for what in ("disk", "quarantine"):
        assert "on another machine" in check(facts, what).says


def test_an_owner_that_does_not_answer_is_bad(folder: Path) -> None:
    with Store.open(folder):
        owner.announce(folder, f"unix:{folder}/nobody")
        facts = doctor.examine(str(folder), now_unix_s=T0 + 420)
    assert levels(facts) == {"owner": "bad", "store": "bad", "disk": "warn"}
    assert "no store answers" in check(facts, "store").says


def test_a_killed_owner_and_spoiled_and_missing_files_are_told(folder: Path) -> None:
    with Store.open(folder) as store:
        store.close_day("2027-01-15")
    (folder / owner.LIVE).write_text('{"pid": 1, "address": "unix:/gone"}')
    (folder / "2027-01-15" / "request.parquet").write_bytes(b"short")
    Store.open(folder).close()
    (folder / owner.LIVE).write_text('{"pid": 1, "address": "unix:/gone"}')
    (folder / "2027-01-15" / "event.parquet").unlink()
    assert "event" in migrations.manifest_tables(folder / "2027-01-15")
    facts = doctor.examine(str(folder), now_unix_s=T0 + 420)
    found = check(facts, "quarantine")
    assert found.level == doctor.BAD
    assert "request before the damage" in found.says
    assert "2027-01-15: event.parquet is missing" in found.says
    assert check(facts, "owner").level == doctor.WARN


def test_settings_that_are_not_understood_are_bad(folder: Path) -> None:
    (folder / "settings.toml").write_text("[retention]\nrequest = 0\n")
    code, checks = run("--store", str(folder))
    assert code == 1
    assert "request = 0" in checks["settings"]["says"]


def test_the_lines_are_for_people_and_a_wrong_place_is_refused(folder: Path) -> None:
    lines = CliRunner().invoke(command, ["--store", str(folder)]).stdout.splitlines()
    assert any(line.startswith("WARN  gaps") for line in lines)
    assert any(line.lstrip().startswith("-> those minutes are unknown") for line in lines)
    with pytest.raises(StoreError, match="neither a store folder"):
        doctor.examine("nowhere")
    assert CliRunner().invoke(command, ["--store", "nowhere"]).exit_code == 1
    assert CliRunner().invoke(command, []).exit_code == 2


def test_health_finds_gaps_and_open_minutes_a_pool(folder: Path) -> None:
    [row] = FileSource(folder).query("health", start=T0, end=T0 + 3600).dicts()
    assert (row["buckets"], row["gaps"], row["gap_s"], row["left_open"]) == (5, 1, 120.0, 1)
    assert (row["last_bucket_end"], row["last_sealed_end"]) == (T0 + 420, T0 + 420)
