"""Retention, sizes, backup and forgetting: on a closed folder and through a store process."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from telemetry.ask.reading import Result
from telemetry.errors import QueryError, StoreError
from telemetry.instants import DAY_S, day_of
from telemetry.records import AdapterMinute, AdapterRecord, EngineRun, PolicyRecord
from telemetry.service.process import StoreServer
from telemetry.settings import SettingsError
from telemetry.source import FileSource, StoreSource, open_source
from telemetry.store import backup, forget, retention, sizes, upkeep
from telemetry.store.parts import Part
from telemetry.store.store import Store
from tests.telemetry.delivered import (
    ADAPTER_ROW,
    ODD_NAMES,
    RUN,
    T0,
    batch,
    charge,
    deliver,
    engine_minute,
    event,
    everything,
    minute,
    request,
)

FIRST, SECOND = "2027-01-15", "2027-01-16"
SECRET = "Acme & Söhne"
PARAMETERS = {SECRET: {"weight": 2.0}, "b": {"weight": 1.0}}
CONFIG = {
    "adapters": ["own"],
    "tenants": [{"name": SECRET, "rpm": 5}, {"name": "b", "rpm": 6}],
    "slots": 4,
}


def rows(at: float = T0, tenant: str = SECRET) -> list[Any]:
    return [
        minute(tenant, at, output_tokens=10),
        minute("b", at, output_tokens=20),
        engine_minute(at, steps=3),
        charge("b", tenant, 1.5, at),
        charge("b", "c", 0.25, at),
        replace(charge("b", "", 0.125, at), holder_kind="others"),
        charge("c", tenant, 0.75, at),
        replace(charge("c", "", 2.0, at), holder_kind="self"),
        charge(tenant, "b", 4.0, at),
        request(int(at), at, tenant=tenant, adapter="own"),
        request(int(at) + 2, at, tenant=tenant, adapter="fr-legal"),
        request(int(at) + 1, at, tenant="b", adapter="fr-legal"),
        AdapterMinute(bucket_start=at, bucket_s=60.0, adapter="cd34", loads=1, **RUN),
        AdapterMinute(bucket_start=at, bucket_s=60.0, adapter="ab12", loads=2, **RUN),
        event(int(at) + 4, at, adapter="cd34", kind="load", detail="read from disk"),
        event(int(at), at, tenant=tenant, kind="load"),
        event(int(at) + 1, at, tenant="b", cause_tenant=tenant, kind="evict", detail="made room"),
        event(int(at) + 2, at, kind="mark", detail=f"limit of {tenant} raised"),
        event(int(at) + 3, at, kind="mark", detail="nothing of the kind"),
        PolicyRecord(version=1, at=at, policy="vtc", parameters=json.dumps(PARAMETERS), **RUN),
        EngineRun(started=T0, model="tiny", config=json.dumps(CONFIG), **RUN),
        ADAPTER_ROW,
        AdapterRecord(adapter="cd34", name="own", rank=8, **RUN),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed day and an open one."""
    with Store.open(tmp_path / "store") as store:
        deliver(store, batch(*rows()), batch(*rows(T0 + DAY_S), seq=2))
        store.close_day(FIRST)
    return tmp_path / "store"


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[StoreServer]:
    serving = StoreServer(Store.open(folder), f"unix:{tmp_path}/s")
    serving.start()
    yield serving
    serving.stop(0.2)


# --- retention -----------------------------------------------------------------------------------


def settings(folder: Path, **days: Any) -> None:
    text = "\n".join(f"{t} = {json.dumps(n)}" for t, n in days.items())
    (folder / retention.SETTINGS).write_text(f"[retention]\n{text}\n")


def test_each_table_is_dropped_when_its_days_are_over_and_what_is_dropped_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings(folder, request=1, step_sample=1)
    with Store.open(folder) as store:
        assert retention.apply(store, T0 + DAY_S).rows == ()
        dropped = retention.apply(store, T0 + 2 * DAY_S)
        [(day, table, number, stored)] = dropped.rows
        assert (day, table, number) == (FIRST, "request", 3)
        assert stored > 0
        assert f"dropped of {FIRST}: request (3 rows)" in caplog.text
        source = StoreSource(store)
        assert {r.arrived for r in source.read("request", 0.0, T0 + 2 * DAY_S)} == {T0 + DAY_S}
        assert len(source.read("tenant_minute", 0.0, T0 + 2 * DAY_S)) == 4
        said = [e.detail for e in source.read("event", 0.0, float("inf")) if e.kind == "retention"]
        assert said == [f"dropped of {FIRST}: request (3 rows)"]


def test_an_open_day_is_closed_before_it_is_dropped_and_a_day_without_rows_is_gone(
    folder: Path,
) -> None:
    with Store.open(folder) as store:
        tried = retention.apply(store, T0 + 500 * DAY_S, dry_run=True)
        assert set(store.days()) == {FIRST, SECOND}
        dropped = retention.apply(store, T0 + 500 * DAY_S)
        assert [r[:3] for r in dropped.rows] == [r[:3] for r in tried.rows]
        assert not {FIRST, SECOND} & set(store.days())
        assert not (folder / FIRST).exists()
        assert not (folder / f"{SECOND}.duckdb").exists()
        assert len(StoreSource(store).read("engine_run", 0.0, 1.0)) == 1
        deliver(store, batch(minute("late", output_tokens=1)))
        assert FIRST in store.days()


def test_todays_rows_and_tomorrows_are_never_old() -> None:
    kept = retention.Retention({"request": 1, "event": None})
    days = [Part(d) for d in ("2027-01-13", "2027-01-14", "2027-01-15", "2028-01-01", "runs")]
    assert retention.expired(days, kept, "2027-01-15") == [("2027-01-13", "request")]


def test_a_table_kept_for_ever_stays(folder: Path) -> None:
    settings(folder, **dict.fromkeys(retention.DEFAULT_DAYS, "forever"))
    with Store.open(folder) as store:
        assert retention.apply(store, T0 + 3_000 * DAY_S).rows == ()


@pytest.mark.parametrize("days", [{"request": 0}, {"request": "ever"}, {"requests": 3}])
def test_settings_that_cannot_be_understood_drop_nothing(folder: Path, days: Any) -> None:
    settings(folder, **days)
    with pytest.raises(SettingsError, match=r"settings\.toml"):
        retention.read_settings(folder)
    with Store.open(folder) as store:
        with pytest.raises(StoreError, match="nothing is dropped"):
            retention.apply(store, T0 + 3_000 * DAY_S)
        assert set(store.days()) == {FIRST, SECOND}


def test_the_owner_closes_and_drops_at_the_days_turn(folder: Path) -> None:
    settings(folder, request=1)
    with Store.open(folder) as store:
        day = upkeep.turn_of_day(store, T0 + 2 * DAY_S, None)
        assert day == day_of(T0 + 2 * DAY_S)
        assert store.days()[SECOND] is True
        assert not (folder / FIRST / "request.parquet").exists()
        # The rest of that day nothing is looked at again; the next day's turn drops the next one.
        assert upkeep.turn_of_day(store, T0 + 2 * DAY_S + 60, day) == day
        assert (folder / SECOND / "request.parquet").exists()
        upkeep.turn_of_day(store, T0 + 3 * DAY_S, day)
        assert not (folder / SECOND / "request.parquet").exists()


# --- sizes ---------------------------------------------------------------------------------------


def test_sizes_add_up_to_the_files(folder: Path) -> None:
    measured = upkeep.perform(folder, upkeep.SIZES)
    stored: dict[str, int] = defaultdict(int)
    for day, _, _, size, _ in measured.rows:
        stored[day] += size
    parquet = sum(f.stat().st_size for f in (folder / FIRST).glob("*.parquet"))
    assert stored[FIRST] == parquet
    assert stored[SECOND] == pytest.approx((folder / f"{SECOND}.duckdb").stat().st_size, abs=9)
    counted = {(d, t): n for d, t, n, _, _ in measured.rows}
    assert counted[FIRST, "interference_minute"] == counted[SECOND, "interference_minute"] == 6
    assert counted["runs", "engine_run"] == 1


def size(**days: int) -> Result:
    return Result(
        sizes.COLUMNS,
        tuple((d.replace("_", "-")[1:], "request", 1, n, False) for d, n in days.items()),
    )


def test_the_disk_fills_on_the_day_the_last_days_growth_says() -> None:
    kept = retention.Retention({"request": None})
    measured = size(d2027_01_01=100, d2027_01_02=300, d2027_01_03=9_999)
    said = sizes.forecast(measured, 1_000, "2027-01-03", kept)
    assert (said.days, said.growth_bytes_a_day, said.steady_bytes) == (2, 200.0, None)
    assert said.fills_on == "2027-01-09"  # 5 more days fit


def test_under_two_whole_days_growth_is_unknown() -> None:
    said = sizes.forecast(
        size(d2027_01_02=300, d2027_01_03=10), 1_000, "2027-01-03", retention.DEFAULT
    )
    assert (said.growth_bytes_a_day, said.fills_on) == (None, None)


def test_what_retention_gives_back_can_keep_the_disk_from_filling() -> None:
    kept = retention.Retention({"request": 2})
    measured = size(d2027_01_01=100, d2027_01_02=100, d2027_01_03=100, d2027_01_04=100)
    said = sizes.forecast(measured, 1_000, "2027-01-05", kept)
    assert (said.fills_on, said.steady_bytes) == (None, 200.0)
    assert sizes.forecast(measured, 50, "2027-01-05", kept).fills_on is None


# --- backup --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["copy", "copy.tar", "copy.tar.gz"])
def test_a_backup_comes_back_as_it_was(folder: Path, tmp_path: Path, name: str) -> None:
    settings(folder, request=7)
    before = everything(FileSource(folder))
    told = upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / name))
    assert {part for part, _, _ in told.rows} == {FIRST, SECOND, "runs", "settings"}
    assert backup.restore(tmp_path / name, tmp_path / "back") == told
    assert everything(FileSource(tmp_path / "back")) == before
    assert retention.read_settings(tmp_path / "back").days["request"] == 7
    assert not list(tmp_path.glob(".*"))
    assert not list(folder.glob(".*backup"))


def test_a_backup_taken_while_rows_come_in_is_one_instant_of_them(
    server: StoreServer, folder: Path, tmp_path: Path
) -> None:
    numbers, stop = [0], threading.Event()

    def write() -> None:
        while not stop.is_set():
            n = numbers[-1] + 1
            deliver(server.store, batch(minute("w", T0 + DAY_S + 60 * n, output_tokens=n), seq=n))
            numbers.append(n)

    writer = threading.Thread(target=write)
    writer.start()
    copies = []
    for n in range(3):
        acknowledged = numbers[-1]
        upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / f"copy{n}"))
        backup.restore(tmp_path / f"copy{n}", tmp_path / f"back{n}")
        found = FileSource(tmp_path / f"back{n}").read("tenant_minute", 0.0, float("inf"))
        have = [r.output_tokens for r in found if r.tenant == "w"]
        copies.append((acknowledged, have))
    stop.set()
    writer.join(10)
    for acknowledged, have in copies:
        assert have == list(range(1, len(have) + 1))
        assert len(have) >= acknowledged
    assert len(copies[-1][1]) > len(copies[0][1])


def test_a_backup_never_overwrites_and_a_restore_needs_an_empty_folder(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(StoreError, match="is there already"):
        upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / "taken"))
    upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / "copy"))
    with pytest.raises(StoreError, match="not empty: restore into a new folder"):
        backup.restore(tmp_path / "copy", tmp_path / "taken")
    with pytest.raises(StoreError, match="make it first"):
        upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / "no" / "such" / "copy"))


def test_a_store_takes_no_backup_into_itself(folder: Path, tmp_path: Path) -> None:
    upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / "copy"))
    before = sorted(folder.rglob("*"))
    for name in ("2027-02-01", "copy.tar"):
        with pytest.raises(StoreError, match="is in a store's folder: choose a path outside"):
            upkeep.perform(folder, upkeep.BACKUP, target=str(folder / name))
        with pytest.raises(StoreError, match="is in a store's folder: choose a path outside"):
            backup.restore(tmp_path / "copy", folder / name)
    assert sorted(folder.rglob("*")) == before


def test_a_backup_that_is_not_what_was_written_is_refused_and_leaves_nothing(
    folder: Path, tmp_path: Path
) -> None:
    upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / "copy"))
    spoiled = tmp_path / "copy" / FIRST / "request.parquet"
    spoiled.write_bytes(spoiled.read_bytes()[:-1] + b"?")
    with pytest.raises(StoreError, match="is not what was backed up"):
        backup.restore(tmp_path / "copy", tmp_path / "back")
    spoiled.unlink()
    with pytest.raises(StoreError, match=r"lacks request\.parquet"):
        backup.restore(tmp_path / "copy", tmp_path / "back")
    (tmp_path / "copy" / backup.INDEX).unlink()
    with pytest.raises(StoreError, match="no backup, or one that was cut short"):
        backup.restore(tmp_path / "copy", tmp_path / "back")
    (tmp_path / "half.tar").write_bytes(b"\0" * 100)
    with pytest.raises(StoreError, match="no whole tar"):
        backup.restore(tmp_path / "half.tar", tmp_path / "back")
    (tmp_path / "text.tar").write_text("mine")
    with pytest.raises(StoreError) as error:
        backup.restore(tmp_path / "text.tar", tmp_path / "back")
    assert "\n" not in str(error.value)
    upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / "whole.tar.gz"))
    whole = (tmp_path / "whole.tar.gz").read_bytes()
    (tmp_path / "half.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=r"no whole tar file .*: use another backup"):
        backup.restore(tmp_path / "half.tar.gz", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "2027-01-15/../../evil", "LIVE.json"])
def test_a_backup_cannot_name_files_outside_a_store(
    folder: Path, tmp_path: Path, name: str
) -> None:
    upkeep.perform(folder, upkeep.BACKUP, target=str(tmp_path / "copy"))
    index = json.loads((tmp_path / "copy" / backup.INDEX).read_text())
    index["files"][name] = {"bytes": 0, "sha256": ""}
    (tmp_path / "copy" / backup.INDEX).write_text(json.dumps(index))
    with pytest.raises(StoreError, match="no file of a store"):
        backup.restore(tmp_path / "copy", tmp_path / "back")


# --- forget --------------------------------------------------------------------------------------


def waits(source: Any) -> dict[tuple[str, float], float]:
    """Seconds charged, a victim and bucket."""
    sums: dict[tuple[str, float], float] = defaultdict(float)
    for r in source.read("interference_minute", 0.0, float("inf")):
        sums[r.victim, r.bucket_start] += r.charged_s
    return dict(sums)


def files_with(folder: Path, text: str) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]


@pytest.mark.parametrize("live", [False, True])
def test_a_forgotten_tenant_is_nowhere_and_the_sums_of_the_others_close(
    folder: Path, tmp_path: Path, live: bool
) -> None:
    before = waits(FileSource(folder))
    server = StoreServer(Store.open(folder), f"unix:{tmp_path}/s") if live else None
    if server is not None:
        server.start()
    tried = upkeep.perform(folder, upkeep.FORGET, tenant=SECRET, dry_run=True)
    done = upkeep.perform(folder, upkeep.FORGET, tenant=SECRET, dry_run=False)
    assert done.rows == tried.rows
    counts = {(p, t): (d, c) for p, t, d, c in done.rows}
    for day in (FIRST, SECOND):
        assert counts[day, "tenant_minute"] == (1, 0)
        assert counts[day, "request"] == (2, 0)
        assert counts[day, "adapter_minute"] == (1, 0)
        assert counts[day, "interference_minute"] == (1, 2)
        assert counts[day, "event"] == (1, 3)
        assert counts[day, "policy"] == (0, 1)
    assert counts["runs", "engine_run"] == (0, 1)
    assert counts["runs", "adapter"] == (1, 0)
    source = open_source(folder)
    kept = everything(source)
    assert SECRET not in repr(kept)
    assert json.dumps(SECRET)[1:-1] not in repr(kept)
    assert {a.name for a in kept["adapter"]} == {"fr-legal"}
    assert {a.adapter for a in kept["adapter_minute"]} == {"ab12"}
    assert not any(e.adapter for e in kept["event"])
    after = waits(source)
    assert after == {k: v for k, v in before.items() if k[0] != SECRET}
    others = {
        (r.victim, r.bucket_start): r.charged_s
        for r in kept["interference_minute"]
        if r.holder_kind == "others"
    }
    assert others == {(v, at): s for at in (T0, T0 + DAY_S) for v, s in (("b", 1.625), ("c", 0.75))}
    details = [e.detail for e in kept["event"] if e.engine == "e1"]
    assert sorted(filter(None, details)) == ["nothing of the kind"] * 2
    assert {p.parameters for p in kept["policy"]} == {json.dumps({"b": {"weight": 1.0}})}
    assert [json.loads(r.config) for r in kept["engine_run"]] == [
        {"adapters": [], "tenants": [{"name": "b", "rpm": 6}], "slots": 4}
    ]
    assert upkeep.perform(folder, upkeep.FORGET, tenant=SECRET, dry_run=False).rows == ()
    source.close()
    if server is not None:
        deliver(server.store, batch(minute("b", T0 + DAY_S, prompt_tokens=1), seq=3))
        server.stop(0.2)
        [row] = FileSource(folder).read("tenant_minute", T0 + DAY_S, T0 + DAY_S + 60)
        assert (row.prompt_tokens, row.output_tokens) == (1, 20)
    assert not files_with(folder, SECRET)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_can_be_forgotten_and_only_that_one(tmp_path: Path, name: str) -> None:
    with Store.open(tmp_path) as store:
        deliver(store, batch(*rows(tenant=name)))
        before = waits(StoreSource(store))
        forget.forget(store, name)
        source = StoreSource(store)
        assert [r.tenant for r in source.read("tenant_minute", 0.0, float("inf"))] == ["b"]
        assert waits(source) == {k: v for k, v in before.items() if k[0] != name}
        kinds = [r.holder_kind for r in source.read("interference_minute", 0.0, float("inf"))]
        assert sorted(kinds) == ["others", "others", "self", "tenant"]


def test_a_tenant_nobody_knows_changes_no_file(folder: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*.parquet")}
    assert upkeep.perform(folder, upkeep.FORGET, tenant="nobody", dry_run=False).rows == ()
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*.parquet")} == before
    assert (folder / f"{SECOND}.duckdb").exists()
    with pytest.raises(QueryError, match="name is empty"):
        upkeep.perform(folder, upkeep.FORGET, tenant="", dry_run=False)


def test_forgetting_says_that_a_quarantined_file_may_still_name_it(folder: Path) -> None:
    (folder / FIRST / "request.parquet").write_bytes(b"short")
    [lacks] = upkeep.perform(folder, upkeep.FORGET, tenant=SECRET, dry_run=False).partial
    assert "quarantine" in lacks


# --- who does it ---------------------------------------------------------------------------------


def test_acts_nobody_knows_are_refused_with_what_there_is(server: StoreServer) -> None:
    with pytest.raises(QueryError, match="no upkeep 'shred': there are sizes, retention"):
        upkeep.perform(server.address, "shred")
    with pytest.raises(QueryError, match="takes the parameters target; given: none"):
        upkeep.perform(server.address, upkeep.BACKUP)
    with pytest.raises(StoreError, match="neither a store folder nor an address"):
        upkeep.perform("nowhere", upkeep.SIZES)


def test_a_folder_that_is_no_store_does_not_become_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no store"):
        upkeep.perform(tmp_path, upkeep.FORGET, tenant="a", dry_run=False)
    assert not list(tmp_path.iterdir())


def test_a_live_store_answers_as_a_closed_one_does(server: StoreServer, folder: Path) -> None:
    live = upkeep.perform(folder, upkeep.SIZES)
    by_address = upkeep.perform(server.address, upkeep.SIZES)
    assert live == by_address
    assert {(r[0], r[1], r[2]) for r in live.rows} >= {(FIRST, "request", 3), (SECOND, "event", 5)}


def test_an_act_on_a_store_closed_meanwhile_touches_no_file(folder: Path) -> None:
    store = Store.open(folder)
    store.close()
    for act in (
        lambda: forget.forget(store, SECRET),
        lambda: retention.apply(store, T0 + 900 * DAY_S),
        lambda: backup.back_up(store, folder.parent / "copy", T0),
    ):
        with pytest.raises(StoreError, match="is closed"):
            act()
    assert len(FileSource(folder).read("request", 0.0, float("inf"))) == 6
