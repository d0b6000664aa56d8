"""`watch`, `events` and `export --connect`, against a live process and a closed store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from console.cli import tenantscope
from telemetry.commands.watch import as_dict, lines
from telemetry.errors import QueryError
from telemetry.otlp import encode
from telemetry.service.client import StoreClient
from telemetry.service.hearing import Hub
from telemetry.service.process import StoreServer
from telemetry.store.store import Store
from telemetry.watch.client import WatchClient
from telemetry.watch.frame import COLUMNS, Asked, frame
from telemetry.watch.service import attach
from telemetry.watch.state import WatchState
from tests.telemetry.delivered import T0, batch, deliver, engine_minute, event, minute

NAMES = ("a", "b", "[red]x[/]\x1b[2J")


def rows() -> tuple[Any, ...]:
    tenants = [
        minute(n, service=10.0 * (i + 1), wait_kv_s=3.0 - i, observed_seconds=60.0)
        for i, n in enumerate(NAMES)
    ]
    engine = engine_minute(
        observed_seconds=60.0, running_avg=3.0, pool_bytes=100.0, kv_bytes_avg=70.0
    )
    return (engine, *tenants, event(1, T0 + 5, kind="evict", tenant=NAMES[2]))


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with Store.open(folder) as store:
        deliver(store, batch(*rows()))
    return folder


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A whole store process's parts, in this one."""
    folder = tmp_path / "store"
    with ExitStack() as stack:
        store = Store.open(folder)
        hub = Hub(lambda: T0 + 60)
        server = StoreServer(store, f"unix:{tmp_path}/s", hub.hear, [attach(store, hub, stack)])
        server.start()
        stack.callback(server.stop, 0.2)
        client = StoreClient(server.address)
        client.export(*encode(batch(*rows())))
        client.close()
        yield folder, server.address


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tenantscope, arguments)


@pytest.mark.parametrize("how", ["--store", "--connect"])
def test_a_live_process_is_watched_by_folder_and_by_address(
    live: tuple[Path, str], how: str
) -> None:
    where = str(live[how == "--connect"])
    found = run("watch", how, where, "--once", "--json", "--sort", "wait_kv_s", "-n", "2")
    assert found.exit_code == 0, found.output
    frame = json.loads(found.stdout)
    assert [r["tenant"] for r in frame["rows"]] == ["a", "b"]
    assert (frame["others"]["tenants"], frame["others"]["service"]) == (1, 30.0)
    assert frame["pools"][0]["kv_bytes_avg"] == 70.0


def test_a_closed_store_gives_one_frame_and_says_so(closed: Path) -> None:
    found = run("watch", "--store", str(closed))
    assert found.exit_code == 0
    assert "one frame" in found.stderr
    assert "\x1b" not in found.stdout
    assert "[red]x[/]\\x1b[2J" in found.stdout
    assert "kv 70%" in found.stdout


def test_a_process_that_starts_knows_what_its_store_holds(closed: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        store = Store.open(closed)
        hub = Hub(lambda: T0)
        server = StoreServer(store, f"unix:{tmp_path}/s", hub.hear, [attach(store, hub, stack)])
        server.start()
        stack.callback(server.stop, 0.2)
        client = WatchClient(server.address)
        stack.callback(client.close)
        assert client.watch_once(Asked()).tenants == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sort", "wait_kv"), "perhaps wait_kv_s"),
        (("-n", "0"), "1 to 1000"),
        (("--filter", "(a+)+$"), "too many ways"),
        (("--every-s", "0"), "0.2 to"),
    ],
)
def test_what_cannot_be_asked_ends_with_usage(
    closed: Path, arguments: tuple[str, str], said: str
) -> None:
    found = run("watch", "--store", str(closed), *arguments)
    # The command line's root gives a QueryError the same exit code.
    assert found.exit_code == 2 or isinstance(found.exception, QueryError)
    assert said in found.output + str(found.exception)


def test_a_place_is_to_be_named_once() -> None:
    assert run("watch").exit_code == 2
    assert run("events", "--store", "x", "--connect", "y").exit_code == 2


def test_columns_are_listed_with_their_meanings() -> None:
    found = json.loads(run("watch", "--columns", "--json").stdout)
    assert [c["column"] for c in found] == [c.name for c in COLUMNS]
    assert "vtc_gap" in run("watch", "--columns").stdout


def test_events_are_printed_from_a_closed_store(closed: Path) -> None:
    text = run("events", "--store", str(closed))
    assert text.stdout.startswith("2027-01-15T08:00:05Z  e1/main  evict  tenant=[red]x[/]\\x1b[2J")
    [line] = run("events", "--store", str(closed), "--json").stdout.splitlines()
    assert json.loads(line)["tenant"] == NAMES[2]
    assert run("events", "--store", str(closed), "--kind", "mark").stdout == ""


def test_a_closed_store_cannot_be_followed(closed: Path) -> None:
    found = run("events", "--store", str(closed), "--follow")
    assert "nothing to follow" in str(found.exception)


def test_an_export_by_address_is_the_one_by_folder(live: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = live
    here = run("export", "--store", str(folder), "--format", "csv", "-o", str(tmp_path / "here"))
    there = run("export", "--connect", address, "--format", "csv", "-o", str(tmp_path / "there"))
    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    files = sorted(p.name for p in (tmp_path / "here").iterdir())
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == files
    for name in files:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_the_text_says_what_is_not_counted_and_what_was_missed() -> None:
    state = WatchState()
    state.hear([batch(*rows())], T0 + 60)
    late = frame(state.look(T0 + 1000, 60.0), Asked(), None, T0 + 1000, dropped=3)
    text = "\n".join(lines(late))
    assert "NOT COUNTED" in text
    assert "3 frames missed" in text
    assert json.dumps(as_dict(replace(late, dropped=0)), allow_nan=False)
