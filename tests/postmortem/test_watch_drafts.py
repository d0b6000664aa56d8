"""A draft is written once, when an incident has closed, and never over what people wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from postmortem.cli import postmortem
from postmortem.watch import Closed, Watch, closed_since, file_name
from telemetry.alerts import state
from telemetry.alerts.incident import Incident, Said, State
from telemetry.errors import StoreUnreachable, TelemetryError
from telemetry.source import open_source
from telemetry.store.store import Store
from tests.postmortem.test_cli import fill
from tests.telemetry.synthetic_rows import T0, Pool


def put(folder: Path, incident: Incident, now: float) -> None:
    from telemetry.otlp import encode

    with Store.open(folder) as store:
        _, logs = encode(state.state_batch(incident, now, say=True))
        assert logs is not None
        store.ingest_logs(logs)


def opened(pool: Pool) -> Incident:
    said = Said("TenantscopeGoodputBurnFast", "page", "s", None, "y", pool.at(13), pool.at(17))
    return Incident("inc-main-202701150802-beef", "main", "e1", State.OPEN, "page", pool.at(13),
                    pool.at(17), alerts=(said,), seq=1)  # fmt: skip


def watcher(folder: Path, made: list[Closed], since: float = T0) -> Watch:
    def make(source, closed):
        made.append(closed)
        return closed

    return Watch(folder, "md", make, lambda c: f"draft of {c.id}\n", since=since)


def test_a_draft_is_written_when_the_incident_closes_and_not_before(tmp_path: Path):
    pool = Pool().calm(0, 12).flood(12, 18).calm(18, 30)
    fill(tmp_path / "s", pool)
    put(tmp_path / "s", opened(pool), pool.at(17))
    source, made = open_source(tmp_path / "s"), []
    watch = watcher(tmp_path / "drafts", made)
    assert watch.look(source, pool.at(20)) == []
    ended = replace(opened(pool), state=State.RESOLVED, resolved_at=pool.at(21), seq=2)
    put(tmp_path / "s", ended, pool.at(21))
    [draft] = watch.look(source, pool.at(22))
    assert draft.path == tmp_path / "drafts" / "inc-main-202701150802-beef.md"
    assert draft.path.read_text() == "draft of inc-main-202701150802-beef\n"
    assert made[0].start < pool.at(12) < pool.at(18) < made[0].end
    assert watch.look(source, pool.at(23)) == []
    source.close()


def test_a_draft_that_people_work_on_is_left_alone(tmp_path: Path):
    pool = Pool().calm(0, 12).flood(12, 18).calm(18, 30)
    fill(tmp_path / "s", pool)
    ended = replace(opened(pool), state=State.RESOLVED, resolved_at=pool.at(21))
    put(tmp_path / "s", ended, pool.at(21))
    mine = tmp_path / "drafts" / "inc-main-202701150802-beef.md"
    mine.parent.mkdir()
    mine.write_text("what we learned")
    source = open_source(tmp_path / "s")
    assert watcher(tmp_path / "drafts", []).look(source, pool.at(30)) == []
    source.close()
    assert mine.read_text() == "what we learned"


def test_what_closed_before_is_left_alone(tmp_path: Path):
    pool = Pool().calm(0, 12).flood(12, 18).calm(18, 30)
    fill(tmp_path / "s", pool)
    ended = replace(opened(pool), state=State.RESOLVED, resolved_at=pool.at(21))
    put(tmp_path / "s", ended, pool.at(21))
    source = open_source(tmp_path / "s")
    assert closed_since(source, pool.at(22), pool.at(30)) == ()
    assert len(closed_since(source, pool.at(20), pool.at(30))) == 1
    assert closed_since(source, pool.at(20), pool.at(30), pool="other") == ()
    source.close()


def test_without_alerts_in_the_store_incidents_are_looked_for(tmp_path: Path):
    pool = Pool().calm(0, 12).flood(12, 18).calm(18, 30)
    fill(tmp_path / "s", pool)
    source = open_source(tmp_path / "s")
    assert closed_since(source, T0, pool.at(18)) == ()  # its end is not there to be seen
    year_s = 365 * 86_400.0  # of months without rows, which are not looked through
    [found] = closed_since(source, T0 - year_s, pool.at(30) + year_s)
    source.close()
    assert found.id.startswith("inc-main-202701150802-")
    assert (found.start, found.end) == (pool.at(9), pool.at(21))


def test_one_draft_that_cannot_be_made_is_told_once_and_hinders_no_other(tmp_path: Path):
    pool = Pool().calm(0, 12).flood(12, 18).calm(18, 60).flood(60, 64).calm(64, 80)
    fill(tmp_path / "s", pool)
    source = open_source(tmp_path / "s")
    failing = []

    def make(source, closed):
        if not failing:
            failing.append(closed)
            raise TelemetryError("nothing there")
        return closed

    watch = Watch(tmp_path / "d", "md", make, lambda c: c.id, since=T0)
    first = watch.look(source, pool.at(80))
    assert sorted(d.why for d in first) == ["", "nothing there"]
    assert watch.look(source, pool.at(80)) == []
    source.close()


def test_a_store_that_is_away_makes_no_incident_fail(tmp_path: Path):
    pool = Pool().calm(0, 12).flood(12, 18).calm(18, 30)
    fill(tmp_path / "s", pool)
    source = open_source(tmp_path / "s")
    away = [True]

    def make(source, closed):
        if away:
            raise StoreUnreachable(f"nobody answers ({away.pop()})")
        return closed

    watch = Watch(tmp_path / "d", "md", make, lambda c: c.id, since=T0)
    with pytest.raises(StoreUnreachable):
        watch.look(source, pool.at(30))
    assert [d.path is not None for d in watch.look(source, pool.at(30))] == [True]
    source.close()


@pytest.mark.parametrize("name", ["../../etc/x", "a/b", ".hidden", "", "x" * 300, "inc\n1"])
def test_an_identifier_that_is_no_file_name_becomes_one(name: str):
    made = file_name(Closed(name, "ma/in", T0, T0 + 60))
    assert made.startswith("inc-ma-in-2027")
    assert "/" not in made


def test_once_writes_what_is_there_and_says_when_there_is_nothing(tmp_path: Path):
    fill(tmp_path / "s", Pool().calm(0, 12).flood(12, 18).calm(18, 30))
    asked = ["watch", "--store", str(tmp_path / "s"), "--out", str(tmp_path / "d"), "--once",
             "--since", "start"]  # fmt: skip
    first = CliRunner().invoke(postmortem, asked)
    assert first.exit_code == 0
    [path] = first.stdout.split()
    text = Path(path).read_text()
    assert text.startswith("# Postmortem: pool main")
    assert "\\[to fill in\\]" in text
    second = CliRunner().invoke(postmortem, asked)
    assert (second.exit_code, second.stdout) == (1, "")
    assert "no incident has closed since" in second.stderr


def test_ctrl_c_ends_it_cleanly_with_what_was_written(tmp_path: Path):
    fill(tmp_path / "s", Pool().calm(0, 12).flood(12, 18).calm(18, 30))
    code = "from console.cli import main; main()"
    started = subprocess.Popen(
        [sys.executable, "-c", code, "postmortem", "watch", "--store", str(tmp_path / "s"),
         "--out", str(tmp_path / "d"), "--since", "start", "--every-s", "3600"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert started.stdout is not None
    limit = threading.Timer(60, started.kill)  # else a broken one would be waited for for ever
    limit.start()
    line = started.stdout.readline()  # the draft is told as soon as it is written
    limit.cancel()
    started.send_signal(signal.SIGINT)
    rest, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert Path(line.strip()).exists()
    assert (rest, said.strip()) == ("", "interrupted")


def test_a_wrong_since_is_a_usage_error(tmp_path: Path):
    fill(tmp_path / "s", Pool().calm(0, 12))
    result = CliRunner().invoke(
        postmortem, ["watch", "--store", str(tmp_path / "s"), "--since", "noon", "--once"]
    )
    assert result.exit_code == 2
    assert "--since: 'noon' is no time" in result.stderr
