"""The settings file read again while the engine runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.admin.errors import ChangeRefused
from engine.config import load_settings, read_settings
from tests.engine.admin.desks import ALICE, KEY, Desk


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "pool.toml"
    path.write_text(f'engine = "e"\n{text}')
    return path


TWO = (
    f'[[tenant]]\nname = "a"\nrpm = 60\ntpm = 900\nkey_sha256 = ["{KEY}"]\n[[tenant]]\nname = "b"\n'
)


@pytest.fixture
def filed(tmp_path: Path) -> Desk:
    config = settings_file(tmp_path, TWO)
    return Desk(tmp_path, config, read_settings(config))


@pytest.mark.parametrize(
    "text",
    [
        TWO.replace("rpm = 60\n", ""),  # the line is gone
        TWO.replace("rpm = 60\n", "rpm =\n"),
        TWO.replace("rpm = 60", 'rpm = ""'),
        TWO.replace("rpm = 60", "rpmm = 60"),
        TWO.replace("tpm = 900\n", "# tpm = 900\n"),
        TWO.replace(f'key_sha256 = ["{KEY}"]\n', ""),
        "",
    ],
)
def test_a_file_with_a_blank_quota_lifts_no_limit(filed: Desk, tmp_path: Path, text: str) -> None:
    settings_file(tmp_path, text)
    for dry_run in (True, False):
        with pytest.raises(ChangeRefused, match=r"pool\.toml.*settings in force stay"):
            filed.desk.reload_config(replace(ALICE, dry_run=dry_run), allow_lifts=False)
    assert (filed.tenant().rpm, filed.tenant().tpm) == (60, 900)
    assert filed.hands.told == []


def test_a_limit_that_is_meant_to_go_goes(filed: Desk, tmp_path: Path) -> None:
    settings_file(tmp_path, TWO.replace("rpm = 60\n", ""))
    done = filed.desk.reload_config(ALICE, allow_lifts=True)
    assert done.effect == "settings read again: tenant 'a': rpm 60 -> none"
    assert filed.hands.front.tenants[0].rpm is None


def test_a_new_file_says_what_it_changes_and_what_waits_for_a_restart(
    filed: Desk, tmp_path: Path
) -> None:
    text = TWO.replace("rpm = 60", "rpm = 30") + '[[tenant]]\nname = "c"\n[limits]\nslots = 2\n'
    settings_file(tmp_path, text)
    done = filed.desk.reload_config(ALICE, allow_lifts=False)
    assert done.effect == (
        "settings read again: tenant 'c' comes; tenant 'a': rpm 60 -> 30; "
        "only a restart will change limits"
    )
    assert [t.name for t in filed.hands.front.tenants] == ["a", "b", "c"]
    assert filed.desk.base.limits.slots == 32


def test_operators_changes_stay_on_top_of_a_new_file(filed: Desk, tmp_path: Path) -> None:
    filed.desk.set_tenant(replace(ALICE, ttl_s=10.0), "a", {"rpm": "6"})
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 30"))
    filed.desk.reload_config(ALICE, allow_lifts=False)
    assert filed.hands.front.tenants[0].rpm == 6
    filed.now_s += 11.0
    filed.desk.expire()
    assert filed.hands.front.tenants[0].rpm == 30


def test_a_cap_by_an_operator_is_no_limit_that_a_file_would_lift(
    filed: Desk, tmp_path: Path
) -> None:
    filed.desk.set_tenant(ALICE, "b", {"rpm": "6"})
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 30"))
    assert filed.desk.reload_config(ALICE, allow_lifts=False).ok


def test_without_a_file_there_is_nothing_to_read_again(desk: Desk) -> None:
    with pytest.raises(ChangeRefused, match="without a settings file"):
        desk.desk.reload_config(ALICE, allow_lifts=False)


def test_what_was_read_again_is_there_for_workers_that_start_later(
    filed: Desk, tmp_path: Path
) -> None:
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 30"))
    filed.desk.reload_config(replace(ALICE, dry_run=True), allow_lifts=False)
    filed.desk.set_tenant(ALICE, "b", {"rpm": "6"})
    assert filed.base_file.read() is None, "nothing was read again"
    filed.desk.reload_config(ALICE, allow_lifts=False)
    kept = filed.base_file.read()
    assert kept is not None
    assert [(t.name, t.rpm) for t in kept.tenants] == [("a", 30), ("b", None)], "as the file has it"
    filed.hands.refuses = "no room"
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 60\nweight = 2.0"))
    filed.desk.reload_config(ALICE, allow_lifts=False)
    assert filed.base_file.read() == kept


def test_after_a_reload_whoever_comes_is_told_what_it_was_started_with_is_not_known(
    filed: Desk, tmp_path: Path
) -> None:
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 60\nweight = 2.0"))
    filed.desk.reload_config(ALICE, allow_lifts=False)
    settings_file(tmp_path, TWO)
    filed.desk.reload_config(ALICE, allow_lifts=False)
    before = len(filed.hands.told)
    filed.desk.sync()  # started in between, with weight 2
    ((who, told),) = filed.hands.told[before:]
    assert who == "worker"
    assert [t.weight for t in load_settings(told.desired.settings).tenants] == [1.0, 1.0]


def test_a_full_disk_takes_the_file_away_rather_than_leave_an_old_one(
    filed: Desk, tmp_path: Path
) -> None:
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 30"))
    filed.desk.reload_config(ALICE, allow_lifts=False)
    filed.base_file.path.with_name("settings.json.draft").mkdir()  # nothing can be written there
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 20"))
    assert filed.desk.reload_config(ALICE, allow_lifts=False).ok
    assert filed.base_file.read() is None
