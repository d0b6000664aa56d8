"""`tenantscope config`: what it prints, how it exits, and that the page is what the code says."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from console.cli import invoke
from engine.config import Limits, PolicyKnobs, Slo, Tenant, read_settings
from engine.config_explain import as_markdown, explain, explained
from engine.errors import ConfigError

GOOD = """
policy = "fcfs"
[[pool]]
name = "gold"
[[pool]]
name = "bulk"
replicas = 3
[[tenant]]
name = "a"
tpm = 0
pool = "bulk"
[[adapter]]
name = "one"
path = "nowhere"
"""


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text(GOOD)
    return path


def test_check_says_what_it_understood(good, capsys):
    assert invoke(["config", "check", str(good)]) == 0
    out, err = capsys.readouterr()
    for words in ("good", "policy fcfs", "pool 'bulk': 3 workers", "tpm 0 = blocked"):
        assert words in out
    for note in (
        "no key_sha256",
        "blocked by a limit of 0: 'a'",
        "there is no folder",
        "4 workers: each loads the model and takes its pool_bytes, 4096 MiB together",
        "no tenant is served by 'gold'",
    ):
        assert note in err


def test_check_says_what_keeps_pools_less_apart_than_they_look(tmp_path, capsys):
    path = tmp_path / "pool.toml"
    core = f"cpus = [{min(os.sched_getaffinity(0))}, 4095]\n"
    pools = f'[[pool]]\nname = "a"\n{core}[[pool]]\nname = "b"\n{core}[[pool]]\nname = "c"\n'
    path.write_text(pools + '[[pool]]\nname = "d"\ndevice = "cuda:0"\n')
    assert invoke(["config", "check", str(path)]) == 0
    err = capsys.readouterr().err
    for note in (
        "would refuse it on this machine: pool 'a': cpus: 4095 is not among the cores",
        "pool 'd': device = 'cuda:0': this version's engine computes on the CPU only",
        "pools 'a' and 'b' share cores: ",
        "no cpus: the workers of 'c', 'd' run on any core",
    ):
        assert note in err


def test_every_preset_is_good_and_says_what_it_is(tmp_path, capsys):
    assert invoke(["config", "preset", "--json"]) == 0
    for preset in json.loads(capsys.readouterr().out):
        assert invoke(["config", "preset", preset["name"]]) == 0
        path = tmp_path / "pool.toml"
        path.write_text(capsys.readouterr().out)
        assert invoke(["config", "check", str(path)]) == 0
        assert "not good" not in capsys.readouterr().err
        assert preset["title"] in path.read_text()


def test_the_long_tail_shares_and_who_has_a_contract_has_a_pool_alone(tmp_path, capsys):
    assert invoke(["config", "preset", "long-tail"]) == 0
    path = tmp_path / "pool.toml"
    path.write_text(capsys.readouterr().out)
    s = read_settings(path)
    assert s.policy == "vtc"
    served = [(t.name, s.pool_of(t).name) for t in s.tenants]
    assert [name for name, pool in served if pool == "contract"] == ["acme"]
    assert len([name for name, pool in served if pool == "shared"]) > 1


def test_a_preset_that_is_not_there_is_a_usage_error(capsys):
    assert invoke(["config", "preset", "short-head"]) == 2
    assert "there are long-tail" in capsys.readouterr().err


def test_check_as_json_carries_the_same(good, capsys):
    assert invoke(["config", "check", str(good), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    assert [(p["name"], p["replicas"]) for p in said["pools"]] == [("gold", 1), ("bulk", 3)]
    assert said["tenants"][0]["tpm"] == 0
    assert "key_sha256" not in said["tenants"][0]


def test_a_bad_file_exits_1_with_one_sentence(good, capsys):
    good.write_text(GOOD.replace("tpm = 0", 'tpm = "60k"'))
    assert invoke(["config", "check", str(good)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for word in (str(good), "[[tenant]] 1 'a'", "tpm = '60k'", "whole number"):
        assert word in err
    assert invoke(["config", "check", str(good), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert "tpm = '60k'" in said["error"]


def test_a_workload_handed_in_by_mistake_is_recognised(good, capsys):
    good.write_text(GOOD + '[[traffic]]\ntenant = "a"\n')
    assert invoke(["config", "check", str(good)]) == 1
    assert f"'tenantscope simulate {good}'" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["\\u0000", "x" * 5000])
def test_a_path_that_no_folder_can_have_is_said_and_crashes_nothing(good, path, capsys):
    good.write_text(GOOD.replace("nowhere", path))
    assert invoke(["config", "check", str(good)]) in (0, 1)
    err = capsys.readouterr().err
    assert "no folder" in err or "control characters" in err


def test_no_file_is_a_usage_error(tmp_path, capsys):
    assert invoke(["config", "check", str(tmp_path / "none.toml")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_every_field_that_a_file_may_set_is_explained():
    keys = {e.key for e in explained()}
    for prefix, cls in (
        ("limits.", Limits),
        ("pool.limits.", Limits),
        ("policies.", PolicyKnobs),
        ("tenant.slo.", Slo),
        ("tenant.", Tenant),
    ):
        assert {prefix + f.name for f in fields(cls) if f.name != "slo"} <= keys
    assert {"engine", "pool", "model", "dtype", "policy", "bucket_s", "pool.replicas"} <= keys
    assert all(e.meaning for e in explained())


def test_the_defaults_explained_are_what_an_empty_file_reads_as(tmp_path):
    by_table: dict[str, list[str]] = {}
    for e in explained():
        if e.default and not e.table.startswith("[["):
            by_table.setdefault(e.table, []).append(f"{e.key.rpartition('.')[2]} = {e.default}")
    written, empty = tmp_path / "written.toml", tmp_path / "empty.toml"
    tables = {t: lines for t, lines in by_table.items() if t in ("[limits]", "[policies]")}
    text = "\n".join(by_table["(top of the file)"])
    text += "".join(f"\n{t}\n" + "\n".join(lines) for t, lines in tables.items())
    assert len(tomllib.loads(text)["limits"]) > 10
    written.write_text(text)
    empty.write_text("")
    assert read_settings(written) == read_settings(empty)


def test_explain_finds_a_key_a_table_or_the_last_part_of_a_name(capsys):
    assert [e.key for e in explain("tenant.rpm")] == ["tenant.rpm"]
    assert [e.key for e in explain("[policies]")] == [
        "policies.quantum_tokens",
        "policies.first_prediction_tokens",
    ]
    assert {e.key for e in explain("deadline_s")} == {
        "limits.deadline_s",
        "pool.limits.deadline_s",
        "tenant.deadline_s",
    }
    assert invoke(["config", "explain", "weight", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["key"], entry["default"]) == ("tenant.weight", "1.0")
    assert invoke(["config", "explain"]) == 0
    assert "must be given" in capsys.readouterr().out


def test_explain_of_a_mistyped_key_offers_the_near_ones(capsys):
    with pytest.raises(ConfigError, match=r"did you mean tenant\.rpm_burst"):
        explain("rpm_burts")
    assert invoke(["config", "explain", ""]) == 2
    assert invoke(["config", "explain", "weight", "--markdown"]) == 2


def test_the_page_has_not_drifted_from_the_code():
    page = Path(__file__).parents[2] / "docs" / "config.md"
    again = "tenantscope config explain --markdown > docs/config.md"
    assert page.read_text() == as_markdown(), f"regenerate it: {again}"
