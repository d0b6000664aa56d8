"""`tp` in a settings file and on the command line: read, refused with the numbers, given cores."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.reread import read_again
from engine.cli import serve
from engine.config import Limits, PoolSpec, Settings, read_settings
from engine.config_cli import config
from engine.errors import ConfigError
from engine.parallel.cut import check_pools_cut
from engine.serving.api.auth import digest_of
from engine.serving.device import check_pools, cores_of

DIGEST = digest_of("ts-x")
TENANT = f'[[tenant]]\nname = "a"\nkey_sha256 = ["{DIGEST}"]\n'
NUMBERS = "tp = 2: the model has 9 heads, 3 KV heads, 1536 MLP columns"


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text + TENANT)
    return path


def test_a_pool_says_its_ranks_and_one_is_the_default(tmp_path) -> None:
    text = '[[pool]]\nname = "a"\ntp = 3\ncpus = [0, 1, 2, 3, 4, 5]\n[[pool]]\nname = "b"\n'
    settings = read_settings(written(tmp_path, text))
    assert [p.tp for p in settings.pools] == [3, 1]
    assert [p["tp"] for p in settings.public()["pools"]] == [3, 1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tp = 0", ["tp = 0", ">= 1"]),
        ("tp = 65", ["tp = 65", "<= 64"]),
        ("tp = 3\nreplicas = 2\ncpus = [0, 1, 2]", ["3 cores", "replicas = 2 and tp = 3: name 6"]),
    ],
)
def test_ranks_that_cannot_be_are_refused_with_what_is_allowed(tmp_path, line, words) -> None:
    with pytest.raises(ConfigError) as e:
        read_settings(written(tmp_path, f'[[pool]]\nname = "a"\n{line}\n'))
    for word in words:
        assert word in str(e.value)


@pytest.mark.parametrize(
    ("text", "options"),
    [('[[pool]]\nname = "gold"\ntp = 2\n', []), ('[[pool]]\nname = "gold"\n', ["--tp", "2"])],
)
def test_serve_refuses_a_cut_with_the_numbers_before_anything_starts(
    tmp_path, text, options
) -> None:
    path, store = written(tmp_path, text), tmp_path / "store"
    result = CliRunner().invoke(serve, ["--config", str(path), "--store", str(store), *options])
    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert f"pool 'gold': {NUMBERS}, and tp must divide each: use one of 1, 3" in told
    assert not store.exists()


def test_config_check_says_it_too_and_takes_a_cut_that_fits(tmp_path) -> None:
    said = {}
    for tp in (2, 3):
        path = written(tmp_path, f'[[pool]]\nname = "gold"\ntp = {tp}\n')
        said[tp] = CliRunner().invoke(config, ["check", str(path)])
    assert {r.exit_code for r in said.values()} == {0}
    assert f"'serve' would refuse it: pool 'gold': {NUMBERS}" in " ".join(said[2].stderr.split())
    assert "refuse" not in said[3].stderr


def test_a_model_whose_shape_cannot_be_read_is_refused_by_whoever_loads_it() -> None:
    check_pools_cut(Settings(model="/nowhere", pools=(PoolSpec("gold", tp=2),)))


def test_tp_of_the_command_line_is_every_pools() -> None:
    limits = Limits(slots=7)
    cut = Settings(limits=limits).with_tp(3)
    assert [(p.name, p.tp, p.limits) for p in cut.all_pools()] == [("main", 3, limits)]
    two = Settings(pools=(PoolSpec("a", tp=3), PoolSpec("b")))
    assert [p.tp for p in two.with_tp(2).pools] == [2, 2]
    with pytest.raises(ConfigError, match=r"'c': cpus: 2 cores.*replicas = 1 and tp = 3: name 3"):
        Settings(pools=(PoolSpec("c", cpus=(0, 1)),)).with_tp(3)


@pytest.mark.parametrize("text", ["", '[[pool]]\nname = "a"\n[[pool]]\nname = "b"\n'])
def test_tp_of_the_command_line_stays_when_the_file_is_read_again(tmp_path, text) -> None:
    path = written(tmp_path, text)
    running = read_settings(path).with_tp(3)
    again = read_again(path, running, allow_lifts=False)
    assert again.is_same
    assert "restart" not in again.what
    assert again.settings == running


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_ranks_share_their_replicas_cores_evenly_and_none_has_anothers(
    replicas: int, tp: int, each: int
) -> None:
    pool = PoolSpec("p", replicas, tp=tp, cpus=tuple(range(replicas * tp * each)))
    parts = [cores_of(pool, n, rank) for n in range(replicas) for rank in range(tp)]
    assert {len(p) for p in parts} == {each}
    assert tuple(c for p in parts for c in p) == pool.cpus


def test_ranks_on_another_device_than_the_cpu_are_refused_with_both_settings() -> None:
    with pytest.raises(ConfigError, match=r"'gold': tp = 2 with device = 'cuda:0': .*CPU only"):
        check_pools([PoolSpec("gold", tp=2, device="cuda:0")], here={0})
