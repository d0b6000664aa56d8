"""A bad file never replaces a good one."""

from __future__ import annotations

import pytest

from engine.config import read_settings
from engine.config_keeper import Kept, SettingsKeeper

DIGEST = "ab" * 32
GOOD = f'policy = "vtc"\n[[tenant]]\nname = "a"\nrpm = 5\nkey_sha256 = ["{DIGEST}"]\n'


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text(GOOD)
    return path


def test_a_good_file_takes_effect(path):
    keeper = SettingsKeeper(read_settings(path))
    path.write_text(GOOD.replace("rpm = 5", "rpm = 50"))
    new = keeper.try_replace(path)
    assert new == keeper.settings == read_settings(path)
    assert keeper.settings.tenants[0].rpm == 50


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("rpm = 5", 'rpm = "5k"'), "rpm = '5k'"),
        (GOOD.replace("rpm", "rmp"), "did you mean rpm"),
        (GOOD[: len(GOOD) // 2], "not valid TOML"),
        ("", "names no [[tenant]], and 1 are served now"),
        (GOOD.partition("key_sha256")[0], "nobody could call any more"),
    ],
)
def test_a_bad_file_is_refused_and_the_good_settings_stay(path, text, words):
    keeper = SettingsKeeper(read_settings(path))
    before = keeper.settings
    path.write_text(text)
    kept = keeper.try_replace(path)
    assert isinstance(kept, Kept)
    for word in (str(path), words, "the settings in force stay"):
        assert word in kept.sentence
    assert keeper.settings is before


def test_a_file_that_is_gone_changes_nothing(path):
    keeper = SettingsKeeper(read_settings(path))
    path.unlink()
    kept = keeper.try_replace(path)
    assert isinstance(kept, Kept)
    assert "no such file" in kept.sentence
    path.write_text(GOOD.replace("rpm = 5", "rpm = 6"))
    keeper.try_replace(path)
    assert keeper.settings.tenants[0].rpm == 6, "and a good one is taken after it"
