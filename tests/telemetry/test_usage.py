"""Usage a tenant and period, and whether the bills add up to the engines' time."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from console.cli import FAILED, OK, USAGE, invoke
from telemetry.ask.usage import EngineTime, UnknownTenant, usage
from telemetry.ask.usage_text import lines
from telemetry.otlp import encode
from telemetry.service.process import StoreServer
from telemetry.source import MemorySource, open_source
from telemetry.store.store import Store
from tests.telemetry.delivered import ODD_NAMES, T0, batch, deliver, engine_minute, minute
from tests.telemetry.simulated import simulated

ALWAYS = {"start": float("-inf"), "end": float("inf")}
MIDNIGHT = T0 + 16 * 3600  # into 2027-01-16
FEBRUARY = MIDNIGHT + 16 * 86_400.0


def rows() -> list[Any]:
    """Two tenants around a midnight and a month's end; every minute adds up to its 60 s."""
    made: list[Any] = []
    for at in (MIDNIGHT - 60, MIDNIGHT, FEBRUARY - 60, FEBRUARY):
        made += [
            minute("a", at, prompt_tokens=10, cached_tokens=2, output_tokens=5, finished=1,
                   engine_seconds=20.0),
            minute(ODD_NAMES[4], at, output_tokens=1, recomputed_tokens=3, engine_seconds=10.0),
            engine_minute(at, observed_seconds=60.0, busy_s=42.0, idle_s=18.0, predicted_s=40.0,
                          base_cost_s=10.0, capacity_s=5.0),
        ]  # fmt: skip
    return made


def source_of(*made: Any) -> MemorySource:
    metrics, _ = encode(batch(*made))
    assert metrics is not None
    return MemorySource([metrics])


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("flood"))


def test_a_minute_belongs_to_the_day_and_the_month_it_starts_in() -> None:
    source = source_of(*rows())
    days = usage(source, "day", **ALWAYS)
    assert [p.period for p in days.periods] == [
        "2027-01-15", "2027-01-16", "2027-01-31", "2027-02-01",
    ]  # fmt: skip
    months = usage(source, "month", **ALWAYS)
    assert [p.period for p in months.periods] == ["2027-01", "2027-02"]
    january = {u.tenant: u for u in months.periods[0].uses}
    assert (january["a"].prompt_tokens, january["a"].cached_tokens) == (30, 6)
    assert (january["a"].output_tokens, january["a"].finished) == (15, 3)
    assert january[ODD_NAMES[4]].recomputed_tokens == 9
    assert [u.tenant for u in months.periods[0].uses] == ["a", ODD_NAMES[4]]  # by the bill
    source.close()


def test_billed_base_capacity_and_idle_less_early_are_the_observed_time() -> None:
    source = source_of(*rows())
    [time] = [p.time for p in usage(source, "day", start=MIDNIGHT, end=MIDNIGHT + 60).periods]
    assert time == EngineTime(
        billed_s=30.0, base_s=10.0, capacity_s=5.0, idle_s=18.0, early_s=3.0, observed_s=60.0
    )
    assert time is not None
    assert (time.difference_s, time.closes) == (0.0, True)
    source.close()


def test_a_lost_bill_is_seen_and_said() -> None:
    source = source_of(*(r for r in rows() if getattr(r, "tenant", "") != "a"))
    found = usage(source, "day", **ALWAYS)
    time = found.periods[0].time
    assert time is not None
    assert (time.difference_s, time.closes) == (-20.0, False)
    assert any("DO NOT AGREE: 20.0s missing" in line for line in lines(found))
    source.close()


def test_one_tenants_rows_are_held_against_the_bills_of_all() -> None:
    source = source_of(*rows())
    found = usage(source, "month", tenant=ODD_NAMES[4], **ALWAYS)
    assert {u.tenant for p in found.periods for u in p.uses} == {ODD_NAMES[4]}
    assert all(p.time is not None and p.time.closes for p in found.periods)
    with pytest.raises(
        UnknownTenant, match=r"nothing of tenant nobody is stored.*there is of '?; dr"
    ):
        usage(source, "day", tenant="nobody", **ALWAYS)
    source.close()


def test_without_engine_rows_nothing_is_claimed_to_add_up() -> None:
    source = source_of(minute("a", engine_seconds=3.0))
    [period] = usage(source, "day", **ALWAYS).periods
    assert period.time is None
    assert any(
        "cannot be held against engine time" in line
        for line in lines(usage(source, "day", **ALWAYS))
    )
    source.close()


def test_an_open_bucket_is_told() -> None:
    metrics, _ = encode(batch(minute("a", engine_seconds=1.0), sealed=False))
    assert metrics is not None
    source = MemorySource([metrics])
    [period] = usage(source, "day", **ALWAYS).periods
    assert period.open
    source.close()


def test_the_bills_of_a_real_run_add_up_to_its_engines_time(flood: Path) -> None:
    source = open_source(flood)
    found = usage(source, "day", **ALWAYS)
    assert found.periods
    requests = source.read("request", *ALWAYS.values())
    for period in found.periods:
        assert period.time is not None
        assert abs(period.time.difference_s) <= 1e-6
    for tenant in ("heavy", "light"):
        uses = [u for p in found.periods for u in p.uses if u.tenant == tenant]
        mine = [r for r in requests if r.tenant == tenant]
        assert sum(u.output_tokens for u in uses) == sum(r.output_tokens or 0 for r in mine) > 0
        assert sum(u.offered_requests for u in uses) == len(mine)


def test_the_recorded_incident_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    store = "sample_incidents/five-pm-fanout/store"
    assert invoke(["usage", "--store", store, "--json"]) == OK
    [day] = json.loads(capsys.readouterr().out)["periods"]
    assert day["engine_time"]["closes"]
    assert abs(day["engine_time"]["difference_s"]) < 1e-6
    assert len(day["tenants"]) == 4


def test_live_and_closed_stores_bill_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    store = Store.open(folder)
    deliver(store, batch(*rows()))
    server = StoreServer(store, f"unix:{tmp_path}/s")
    server.start()
    assert invoke(["usage", "--connect", server.address, "--by", "month"]) == OK
    live = capsys.readouterr().out
    server.stop(0.2)
    assert invoke(["usage", "--store", str(folder), "--by", "month"]) == OK
    assert capsys.readouterr().out == live
    assert "The bills and the engines' time agree." in live
    assert "2027-02 (UTC)" in live


def test_csv_rows_of_a_period_add_up_to_its_observed_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(tmp_path / "s") as store:
        deliver(store, batch(*rows()))
    assert invoke(["usage", "--store", str(tmp_path / "s"), "--by", "month", "--csv"]) == OK
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {r["kind"] for r in found} == {"tenant", "base", "capacity", "idle", "early"}
    january = [float(r["engine_seconds"]) for r in found if r["period"] == "2027-01"]
    assert sum(january) == 180.0


def test_the_command_answers_odd_questions_in_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(tmp_path / "s") as store:
        deliver(store, batch(*rows()))
    base = ["usage", "--store", str(tmp_path / "s")]
    for args, code, says in (
        ([*base, "--from", "10", "--to", "20"], OK, "no minutes in that window"),
        ([*base, "--from", "20", "--to", "10"], USAGE, "the window --from 20 --to 10 is empty"),
        ([*base, "--tenant", "x\x1b[0m"], FAILED, "nothing of tenant x\\x1b[0m"),
        ([*base, "--csv", "--json"], USAGE, "one of them"),
        (["usage"], USAGE, "--store DIR or --connect"),
        (["usage", "--store", str(tmp_path / "none")], FAILED, "neither a store folder"),
    ):
        assert invoke(args) == code
        assert says in capsys.readouterr().err
