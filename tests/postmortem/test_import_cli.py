"""The command: what it prints where, and how it ends."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from postmortem.cli import postmortem
from postmortem.importers.load import FORMATS
from postmortem.importers.mapping import NAMES

HEAD = "user_id,ts,ttft_ms\n"


def run(*args: object):
    return CliRunner().invoke(postmortem, ["import", *map(str, args)])


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(HEAD + "a\x1b[31m,1796000000,5\nb,1796000001,6\n")
    return path


def test_help_lists_every_target_and_format_with_an_example():
    said = run("--help").output
    assert all(name in said for name in (*NAMES, *FORMATS))
    assert "--map tenant=user_id" in said


def test_the_account_is_data_and_the_hint_narration(log, tmp_path):
    done = run(log, "--format", "csv", "--store", tmp_path / "s")
    assert done.exit_code == 0
    assert "2 rows read, 2 kept, 0 bad; 2 tenants" in done.stdout
    assert "waits by reason, and behind whom" in done.stdout
    assert "postmortem report --store" in done.stderr


def test_json_holds_the_same(log, tmp_path):
    done = run(log, "--format", "csv", "--store", tmp_path / "s", "--json")
    [file] = json.loads(done.stdout)["files"]
    assert (file["read"], file["kept"], file["bad"]) == (2, 2, 0)
    assert any(x["findings"] == ["holder"] for x in file["lacks"])


@pytest.mark.parametrize(
    "args",
    [
        ("--map", "nobody=x"), ("--from", "soon"), ("--zone", "Nowhere/At_All"),
        ("--slo-ttft", "0"), ("--pool", " "),
    ],
)  # fmt: skip
def test_usage_is_exit_code_two_and_makes_no_folder(log, tmp_path, args):
    assert run(log, "--format", "csv", "--store", tmp_path / "s", *args).exit_code == 2
    assert not (tmp_path / "s").exists()


def test_a_map_for_a_format_with_its_own_columns_is_usage(log, tmp_path):
    done = run(log, "--format", "azure", "--store", tmp_path / "s", "--map", "tenant=x")
    assert done.exit_code == 2


def test_what_is_refused_is_exit_code_one(log, tmp_path):
    missing = run(tmp_path / "no.csv", "--format", "csv", "--store", tmp_path / "s")
    assert missing.exit_code == 1
    assert "no such file" in missing.stderr
    bad = tmp_path / "bad.csv"
    bad.write_text(HEAD + "a,when,5\n")
    refused = run(bad, "--format", "csv", "--store", tmp_path / "s")
    assert refused.exit_code == 1
    assert "bad.csv:2: instant 'when'" in refused.stderr
    assert run(bad, "--format", "csv", "--store", tmp_path / "s", "--skip-bad").exit_code == 1


def test_a_store_that_is_held_is_exit_code_three(log, tmp_path):
    from telemetry.store.store import Store

    with Store.open(tmp_path / "s"):
        done = run(log, "--format", "csv", "--store", tmp_path / "s")
    assert done.exit_code == 3


HUGE = "1" + "0" * 400  # past every float


@pytest.mark.parametrize(
    ("form", "text", "says"),
    [
        ("csv", HEAD + "x" * 1025 + ",1796000000,5\n", "expected a name of at most 1,024"),
        ("csv", HEAD + "a,0001-01-01T00:00:00Z,5\n", "lies before 1970"),
        ("csv", HEAD + "a,9999-12-31T23:59:59Z,5\n", "after March 2255"),
        ("csv", HEAD + f"a,{'9' * 5000},5\n", "expected a finite number"),
        ("jsonl", f'{{"user_id":"a","ts":1796000000,"ttft_ms":{HUGE}}}', "expected a number"),
        ("mooncake", f'{{"timestamp":1,"input_length":{HUGE},"output_length":1}}', "at most"),
        (
            "vllm-bench",
            f'{{"start_times":[{HUGE}],"input_lens":[1],"output_lens":[1],"ttfts":[1]}}',
            "expected seconds",
        ),
        (
            "vllm-bench",
            f'{{"start_times":[1],"input_lens":[{HUGE}],"output_lens":[1],"ttfts":[1],'
            f'"date":"20261129-170000","duration":{HUGE}}}',
            "expected a whole number",
        ),
    ],
)
def test_a_value_past_all_sense_is_a_bad_line_and_leaves_nothing(tmp_path, form, text, says):
    path = tmp_path / "log"
    path.write_text(text)
    done = run(path, "--format", form, "--store", tmp_path / "s")
    assert done.exit_code == 1
    assert says in done.stderr
    assert len(done.stderr) < 400
    assert not (tmp_path / "s").exists()


def test_a_file_given_twice_is_said_to_be(log, tmp_path):
    again = run(log, log, "--format", "csv", "--store", tmp_path / "s")
    assert "is named twice" in again.stderr
    twin = tmp_path / "twin.csv"
    twin.write_bytes(log.read_bytes())
    same = run(log, twin, "--format", "csv", "--store", tmp_path / "s")
    assert "holds the same as" in same.stderr
    assert not (tmp_path / "s").exists()
