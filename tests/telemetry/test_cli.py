"""`store` and `query` from the shell: data on stdout, refusals on stderr, exit codes kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from telemetry.cli import query, safe, store
from telemetry.store.store import Store
from tests.telemetry.delivered import T0, batch, deliver, engine_minute, minute, request


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "store") as opened:
        rows = [
            minute("calm", output_tokens=4, service=8.0),
            minute("\x1b[31mred\n", output_tokens=40, service=80.0),
            minute("日本", T0 + 60, output_tokens=1),
            engine_minute(steps=3),
            request(1),
        ]
        deliver(opened, batch(*rows))
    return tmp_path / "store"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(query, [*arguments])


def test_info_says_what_a_store_covers(folder: Path) -> None:
    done = CliRunner().invoke(store, ["info", str(folder), "--json"])
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    assert (facts["first"], facts["last"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:02:00Z")
    assert (facts["tenant_minute"], facts["request"], facts["event"]) == (3, 1, 0)
    lines = CliRunner().invoke(store, ["info", str(folder)]).stdout.splitlines()
    assert ["tenant_minute", "3"] in [line.split() for line in lines]


def test_a_query_is_a_table_in_which_names_are_only_printed(folder: Path) -> None:
    done = run("token_totals", "--store", str(folder))
    assert done.exit_code == 0
    header, *lines = done.stdout.splitlines()
    assert header.split() == [
        "tenant", "prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens",
    ]  # fmt: skip
    assert [line.split() for line in lines] == [
        ["\\x1b[31mred\\n", "0", "0", "40", "0"],
        ["calm", "0", "0", "4", "0"],
        ["日本", "0", "0", "1", "0"],
    ]
    assert "\x1b" not in done.stdout


def test_a_window_is_iso_text_or_unix_seconds(folder: Path) -> None:
    for end in ("2027-01-15T08:01", "2027-01-15T09:01+01:00", str(T0 + 60)):
        done = run("token_totals", "--store", str(folder), "--to", end, "--json")
        assert [r["tenant"] for r in json.loads(done.stdout)] == ["\x1b[31mred\n", "calm"]
    late = run("token_totals", "--store", str(folder), "--from", "2027-01-15T08:01", "--json")
    assert [r["tenant"] for r in json.loads(late.stdout)] == ["日本"]


def test_refusals_are_one_line_and_an_exit_code(folder: Path, tmp_path: Path) -> None:
    unknown = run("who", "--store", str(folder))
    assert unknown.exit_code == 2
    assert "no query 'who': there are" in unknown.stderr
    assert unknown.stdout == ""
    missing = run("span", "--store", str(tmp_path / "none"))
    assert missing.exit_code == 1
    assert "neither a store folder nor an address" in missing.stderr
    assert run("span").exit_code == 2
    assert "--from = 'noon'" in run("span", "--store", str(folder), "--from", "noon").stderr
    with Store.open(folder):
        busy = run("span", "--store", str(folder))
    assert busy.exit_code == 3
    assert "in use by process" in busy.stderr


def test_without_a_name_the_queries_are_listed() -> None:
    done = run()
    assert done.exit_code == 0
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {"tenants_now", "reconcile"}


def test_a_long_name_is_cut_in_the_table_and_whole_in_json(tmp_path: Path) -> None:
    with Store.open(tmp_path) as opened:
        deliver(opened, batch(minute("界" * 100, output_tokens=1)))
    [line] = run("token_totals", "--store", str(tmp_path)).stdout.splitlines()[1:]
    assert line.split()[0] == "界" * 23 + "…"
    [row] = json.loads(run("token_totals", "--store", str(tmp_path), "--json").stdout)
    assert row["tenant"] == "界" * 100


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert safe("a\x1b[2J\u202eb\n🐘é") == "a\\x1b[2J\\u202eb\\n🐘é"
