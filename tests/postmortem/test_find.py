"""`find` lists what a report would tell, worst first; `compare` ranks what changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from postmortem.cli import postmortem
from postmortem.compare import compare
from postmortem.find import PIECE_BUCKETS, find_incidents
from telemetry.source import Source, open_source
from tests.postmortem.test_cli import fill
from tests.telemetry.synthetic_rows import T0, Pool

TENANTS = ("x", "y", "z", "w")


def two_incidents() -> Pool:
    pool = Pool().calm(0, 30).flood(30, 33, "w", victims=("y", "z"), missed=2)
    pool.calm(33, 100).flood(100, 108).calm(108, 130)
    for i in range(130):
        for t in TENANTS:
            for k in range(3):
                bad = 100 <= i < 108 and t != "x"
                pool.request(pool.at(i) + k, t, 10 * i + k, 5.0 if bad else 0.2)
    return pool


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("find") / "store"
    fill(folder, two_incidents())
    return folder


@pytest.fixture(scope="module")
def source(store: Path) -> Iterator[Source]:
    source = open_source(store)
    yield source
    source.close()


def test_a_stray_row_a_century_ahead_is_not_walked_to(tmp_path: Path):
    pool = two_incidents()
    century = 100 * 365 * 86_400.0
    last = pool.rows["engine_minute"][-1]
    pool.put("engine_minute", replace(last, bucket_start=T0 + century))
    fill(tmp_path / "store", pool)
    source = open_source(tmp_path / "store")
    looked: list[float] = []
    try:
        found = find_incidents(source, T0, T0 + century + 60.0, zone=UTC, hear=looked.append)
    finally:
        source.close()
    assert [c.onset - T0 for c in found] == [1000.0, 300.0]
    assert len(looked) < 10


def run(*args: str) -> Result:
    return CliRunner().invoke(postmortem, list(args))


def test_incidents_are_found_worst_first_with_who_held(source: Source):
    found = find_incidents(source, T0, T0 + 1300, zone=UTC)
    assert [(c.onset - T0, c.end - T0) for c in found] == [(1000.0, 1080.0), (300.0, 330.0)]
    worst = found[0]
    assert worst.severity > found[1].severity
    assert (worst.kind, worst.missed, set(worst.hurt)) == ("tenant", 120, {"y", "z", "w"})
    assert (worst.holders[0].tenant, worst.holders[0].called) == ("x", "culprit")
    assert worst.holders[0].strength == "charged"
    assert not worst.ongoing


def test_an_incident_that_crosses_two_pieces_of_the_span_is_one(tmp_path: Path):
    edge = PIECE_BUCKETS
    pool = Pool().calm(0, edge - 3).flood(edge - 3, edge + 4).calm(edge + 4, edge + 20)
    fill(tmp_path / "s", pool)
    source = open_source(tmp_path / "s")
    found = find_incidents(source, T0, T0 + 10 * (edge + 20))
    source.close()
    assert [(c.onset, c.end) for c in found] == [(pool.at(edge - 3), pool.at(edge + 4))]


def test_what_reaches_the_end_of_the_store_goes_on(tmp_path: Path):
    fill(tmp_path / "s", Pool().calm(0, 20).flood(20, 26))
    source = open_source(tmp_path / "s")
    [found] = find_incidents(source, T0, T0 + 260)
    source.close()
    assert found.ongoing


def test_calm_finds_nothing_and_exits_1(tmp_path: Path):
    fill(tmp_path / "s", Pool().calm(0, 40))
    result = run("find", "--store", str(tmp_path / "s"), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["incidents"] == []
    assert "no incident in this span" in result.stderr


def test_the_command_it_prints_reports_on_that_incident(store: Path):
    body = json.loads(run("find", "--store", str(store), "--json").stdout)
    command = body["incidents"][0]["report"].split()
    assert command[:3] == ["tenantscope", "postmortem", "report"]
    report = json.loads(run(*command[2:], "--format", "json").stdout)
    assert report["verdict"]["onset"] == body["incidents"][0]["onset"] == T0 + 1000
    assert report["verdict"]["culprit"] == "x"
    assert body["incidents"][0]["onset_utc"].startswith("2027-01-15T")


def test_the_table_fits_a_terminal_and_says_who(store: Path):
    result = run("find", "--store", str(store))
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "x 94% (culprit)" in result.stdout
    assert "span: 2027-01-15" in result.stderr


def test_several_pools_are_looked_through_one_by_one(tmp_path: Path):
    fill(tmp_path / "s", Pool().calm(0, 20).flood(20, 26).calm(26, 40))
    fill(tmp_path / "s", Pool(name="b", run="r2").calm(0, 40))
    source = open_source(tmp_path / "s")
    told: list[float] = []
    found = find_incidents(source, T0, T0 + 400, hear=told.append)
    source.close()
    assert [c.pool for c in found] == ["main"]
    assert told == sorted(told)
    assert max(told) < 1.0


# ---------------------------------------------------------------- compare


def test_what_changed_most_comes_first(source: Source):
    found = compare(source, (T0 + 900, T0 + 1000), (T0 + 1000, T0 + 1080))
    first = found.changed[0]
    assert first.score == max(c.score for c in found.changed)
    by = {(c.tenant, c.what): c for c in found.changed}
    offered = by["x", "requests offered"]
    assert (offered.before, offered.after) == (pytest.approx(1.0), pytest.approx(6.0))
    assert offered.ratio == pytest.approx(6.0)
    assert by["y", "TTFT p99"].after == pytest.approx(5.0)
    assert by["y", "part missed"].before == 0.0
    assert by["y", "part missed"].ratio is None
    assert by["x", "held of others' waits"].score > by["z", "held of others' waits"].score
    assert by["y", "requests offered"].score == 0.0


def test_a_window_compared_with_itself_has_not_changed(source: Source):
    found = compare(source, (T0 + 900, T0 + 1000), (T0 + 900, T0 + 1000))
    assert all(c.score == 0.0 and c.before == c.after for c in found.changed)


def test_windows_of_other_lengths_compare_by_rates(source: Source):
    found = compare(source, (T0 + 400, T0 + 900), (T0 + 900, T0 + 1000))
    assert found.after.pool.offered == pytest.approx(found.before.pool.offered)
    assert max(c.score for c in found.changed) < 0.01


def test_shares_close_and_waiting_is_the_sum_of_its_reasons(source: Source):
    side = compare(source, (T0 + 900, T0 + 1000), (T0 + 1000, T0 + 1080)).after
    assert sum(s.service_share or 0.0 for s in side.tenants) == pytest.approx(1.0)
    assert sum(s.waiting for s in side.tenants) == pytest.approx(side.pool.waiting)


def test_a_new_tenant_came_from_nothing(tmp_path: Path):
    pool = Pool().calm(0, 10, ("y", "z"))
    for i in range(10, 20):
        pool.engine(i)
        for t in ("y", "z", "new"):
            pool.tenant(i, t)
    fill(tmp_path / "s", pool)
    source = open_source(tmp_path / "s")
    found = compare(source, (T0, T0 + 100), (T0 + 100, T0 + 200))
    source.close()
    [offered] = [c for c in found.changed if (c.tenant, c.what) == ("new", "requests offered")]
    assert (offered.before, offered.after, offered.ratio) == (0.0, pytest.approx(1.0), None)
    assert offered.score > 1.0


def test_compare_prints_tables_or_json(store: Path):
    window = ("--from", str(T0 + 1000), "--to", str(T0 + 1080))
    result = run("compare", "--store", str(store), *window)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "WHAT CHANGED, MOST FIRST" in result.stdout
    assert result.stderr.count("2027-01-15") == 4
    body = json.loads(run("compare", "--store", str(store), *window, "--json").stdout)
    assert body["before"]["start"] == T0 + 920
    assert body["changed"][0]["score"] >= body["changed"][-1]["score"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--against-from", str(T0)), 2, "both or neither"),
        (("--from", str(T0), "--to", str(T0 + 100)), 2, "nothing is stored before the window"),
        (("--pool", "other", "--from", str(T0 + 100)), 2, "no pool 'other'"),
        (("--from", "noon"), 2, "is no time"),
    ],
)
def test_compare_says_what_is_wrong(store: Path, options: tuple[str, ...], code: int, said: str):
    result = run("compare", "--store", str(store), *options)
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.output
