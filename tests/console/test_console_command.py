"""`tenantscope console`: what it prints once, its exit codes, and what it refuses to begin with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace

import pytest

from console.cli import invoke
from console.once import as_json, is_open, open_incidents
from console.once_command import code_of
from console.panels import Level
from console.sight import LiveEdge
from tests.console import places
from tests.console import rows as made
from tests.console.test_overview import END, picture
from tests.console.test_sight import in_memory

AT = "2026-11-29T21:03:40Z"  # in the sample incident, while it lasts


@pytest.fixture
def store(tmp_path):
    with ExitStack() as stack:
        yield places.folder(made.incident(), tmp_path, stack)


@pytest.fixture(autouse=True)
def _no_store_of_the_readers(monkeypatch):
    monkeypatch.delenv("TENANTSCOPE_STORE", raising=False)


def test_once_prints_the_overview_and_tells_by_its_exit_code_that_somebody_is_hurt(store, capsys):
    assert invoke(["console", "--once", "--store", store]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert "STORE 2027-01-15" in lines[0]
    assert lines[1].startswith("!! 3 HURT since ")
    assert err == ""


def test_a_quiet_pool_ends_with_0(tmp_path, capsys):
    with ExitStack() as stack:
        calm = places.folder(made.calm(), tmp_path, stack)
        assert invoke(["console", "--once", "--store", calm, "--ascii"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert "ok QUIET" in out


def test_the_environments_store_is_taken_and_an_address_beats_it(
    store, monkeypatch, capsys, tmp_path
):
    monkeypatch.setenv("TENANTSCOPE_STORE", store)
    assert invoke(["console", "--once"]) == 1
    other = tmp_path / "live"
    other.mkdir()
    with ExitStack() as stack:
        address = places.live(made.calm(), other, stack)
        invoke(["console", "--once", "--json", "--connect", address])
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["mode"], said["stale"]) == ("LIVE", True)


def test_json_closes_to_its_total_and_knows_no_infinity(store, capsys):
    assert invoke(["console", "--once", "--json", "--store", store]) == 1
    said = json.loads(capsys.readouterr().out)
    account = said["account"]
    waits = sum(t["wait_s"] for t in account["tenants"])
    held = sum(t["held_s"] for t in account["tenants"]) + sum(account["not_tenants"].values())
    assert waits == pytest.approx(account["total_s"])
    assert held == pytest.approx(account["total_s"])
    assert (said["incident_open"], said["verdict"]["named"]) == (True, "acme")
    assert set(said["verdict"]["victims"]) == {"globex", "initech", "umbrella"}


def test_a_sample_incident_at_a_time_names_its_culprit(capsys):
    assert invoke(["console", "--once", "--incident", "five-pm-fanout", "--at", AT]) == 1
    out = capsys.readouterr().out
    assert " acme: " in out
    assert "HELD 80s back" in out


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--json"], 2, "--json goes with --once"),
        (["--once", "--replay", "2"], 2, "leave out --once"),
        (["--once", "--admin", "unix:/x"], 2, "leave out --once"),
        (["--once", "--write-notes"], 2, "leave out --once"),
        (["--incident", "five-pm-fanout", "--write-notes"], 2, "for a store on the screen"),
        (["--replay", "-1"], 2, "expected a speed above 0"),
        (["--once", "--store", "a", "--connect", "b:1"], 2, "one of them"),
        (["--once", "--store", " "], 2, "is empty"),
        (["--once", "--store", "/no/such/place"], 3, "neither a store folder nor an address"),
        (["--once", "--connect", "unix:/no/such.sock"], 3, "unix:/no/such.sock"),
        (["--once", "--incident", "nope"], 2, "nope"),
        (["--once", "--config", "/no/such.toml"], 2, "/no/such.toml: cannot be read"),
    ],
)
def test_what_cannot_be_looked_at_says_why_with_its_exit_code(args, code, said, capsys):
    assert invoke(["console", *args]) == code
    assert said in capsys.readouterr().err


def test_a_time_that_is_none_says_which_forms_there_are(store, capsys):
    assert invoke(["console", "--once", "--store", store, "--at", "noonish"]) == 2
    assert "expected 17:00" in capsys.readouterr().err


def test_without_a_terminal_it_says_what_to_use(store, capsys):
    assert invoke(["console", "--store", store]) == 2
    assert "use --once in scripts" in capsys.readouterr().err


def test_a_store_without_minutes_is_no_incident_and_says_what_to_do(tmp_path, capsys):
    with ExitStack() as stack:
        empty = places.folder(replace(made.calm(0), engines=(), tenants=()), tmp_path, stack)
        assert invoke(["console", "--once", "--store", empty]) == 3
    assert "no engine's minutes are recorded there yet" in capsys.readouterr().err


def test_an_incident_of_the_alerts_is_open_though_the_verdict_is_quiet():
    quiet = picture(made.calm(), made.T0 + 120.0)
    assert not is_open(quiet, ())
    assert is_open(quiet, ("inc-main-1",))
    assert is_open(picture(), ())
    warned = replace(quiet, verdict=replace(quiet.verdict, level=Level.WARN))
    assert not is_open(warned, ())
    assert as_json(quiet, ("inc-main-1",))["incidents"] == ["inc-main-1"]


def test_a_store_without_alerts_holds_no_incident_open():
    assert open_incidents(places.memory(made.incident()), END) == ()


def test_a_live_store_that_has_heard_nobody_does_not_say_that_all_is_well(tmp_path, capsys):
    with ExitStack() as stack:
        nobody = replace(made.calm(0), engines=(), tenants=())
        address = places.live(nobody, tmp_path, stack)
        assert invoke(["console", "--once", "--connect", address]) == 3
    assert "no engine has been heard" in capsys.readouterr().out


def test_json_has_null_for_what_is_no_number():
    s = picture()
    odd = replace(s, wait=replace(s.wait, oldest_s=float("nan"), waiting=float("inf")))
    said = json.loads(json.dumps(as_json(odd, ()), allow_nan=False))
    assert (said["oldest_wait_s"], said["waiting"]) == (None, None)


def test_a_name_that_the_outputs_encoding_cannot_show_is_escaped(tmp_path):
    with ExitStack() as stack:
        where = places.folder(made.incident(holder="ac\u65e5me"), tmp_path, stack)
        done = subprocess.run(
            [sys.executable, "-c", "from console.cli import main; main()",
             "console", "--once", "--store", where],
            env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert b"ac\\u65e5me" in done.stdout


def test_names_go_into_json_as_they_are():
    odd = "evil\x1b[31m\u202e"
    looked = in_memory(made.incident(holder=odd), LiveEdge(lambda: END))
    said = json.loads(json.dumps(as_json(looked.snapshot(), ())))
    assert odd in {t["tenant"] for t in said["account"]["tenants"]}


def test_neither_the_command_nor_its_app_loads_torch_or_the_engine():
    code = (
        "import sys, console.command, console.app, console.once, telemetry.source\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'engine', 'kernels')]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def seen(**more):
    return replace(picture(), **more)


@pytest.mark.parametrize(
    ("s", "incidents", "code"),
    [
        (seen(), (), 1),
        (picture(made.calm(), made.T0 + 120.0), (), 0),
        (picture(made.calm(), made.T0 + 120.0), ("inc-1",), 1),
        (seen(stale=True), (), 3),
        (seen(stale=True), ("inc-1",), 1),
        (seen(account=None), (), 3),
    ],
)
def test_old_figures_say_nothing_about_now_and_an_open_incident_stays_one(s, incidents, code):
    assert code_of(s, incidents) == code


@pytest.mark.parametrize("error", [RuntimeError("odd"), OSError(28, "No space left on device")])
def test_a_failure_of_our_own_is_never_an_open_incident(error, monkeypatch, capsys, store):
    def fails(*given, **more):
        raise error

    monkeypatch.setattr("console.sight.Sight.snapshot", fails)
    assert invoke(["console", "--once", "--store", store]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tenantscope: ")


@pytest.mark.parametrize("page", ["heat", "matrix", "adapters", "table", "events"])
def test_a_page_is_printed_and_given_as_data(page, store, capsys):
    assert invoke(["console", "--once", "--page", page, "--store", store, "--ascii"]) == 1
    out = capsys.readouterr().out
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80
    assert invoke(["console", "--once", "--page", page, "--json", "--store", store]) == 1
    shaped = json.loads(capsys.readouterr().out)
    assert (shaped["page"], shaped["pool"], shaped["incident_open"]) == (page, "main", True)
    assert shaped["tables"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--page", "heat"], "go with --once"),
        (["--once", "--page", "nope"], "there are overview, table"),
        (["--once", "--page", "tenant"], "go together"),
        (["--once", "--tenant", "x"], "--page tenant or --page requests"),
    ],
)
def test_a_page_that_cannot_be_had_is_a_usage_error(arguments, why, capsys):
    assert invoke(["console", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_trace_is_written_without_a_screen(store, tmp_path, capsys):
    into = tmp_path / "out"
    into.mkdir()
    asked = ["console", "export", "--perfetto", "--store", store, "--from", "start", "--json",
             "--into", str(into)]  # fmt: skip
    assert invoke(asked) == 0
    said = json.loads(capsys.readouterr().out)
    [file] = into.iterdir()
    assert said["path"] == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    names = {e["args"]["name"] for e in json.loads(file.read_text())["traceEvents"]
             if e["name"] == "process_name"}  # fmt: skip
    assert any("acme" in n for n in names)
    assert said["requests"] > 0


def test_an_export_of_nothing_is_a_usage_error(store, tmp_path, capsys):
    asked = ["console", "export", "--perfetto", "--store", store, "--into", str(tmp_path)]
    assert invoke([*asked, "--from", "end", "--to", "start"]) == 2
    assert "must lie before" in capsys.readouterr().err
