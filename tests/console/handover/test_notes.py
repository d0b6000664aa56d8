"""A note reaches the timeline, beside the open incident or on the pool; else it is said why not."""

from __future__ import annotations

import json
import time

import pytest

from console.handover import notes
from console.handover.hand import Place
from console.rows import Rows
from console.story import ticker
from sample_incidents import incident_path
from telemetry.alerts import state
from telemetry.alerts.incident import LONGEST_NOTE, Incident, State
from telemetry.errors import StoreError
from telemetry.otlp.decode import Decoded
from telemetry.source import open_source
from telemetry.store.store import Store
from tests.console import places
from tests.console import rows as made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return places.folder(made.calm(1), tmp_path_factory.mktemp("notes"), None)


def writable(where: str) -> Place:
    return Place(where, (), write_notes=True)


def told(where: str) -> list[str]:
    source = open_source(where)
    try:
        events = source.read("event", 0.0, float("inf"))
    finally:
        source.close()
    return [t.text for t in ticker(Rows(events=tuple(events)), time.time() + 9) if t.kind == "note"]


def test_without_an_incident_it_stands_on_the_pools_timeline(folder):
    said = notes.write_note(writable(folder), "main", "bob", "restarted [red]x")
    assert said == "noted on pool main: no incident is open"
    assert told(folder) == ["bob: restarted [red]x"]


def test_beside_an_open_incident_it_belongs_to_it(folder):
    now = time.time()
    incident = Incident(
        id="inc-main-1", pool="main", engine="e1", severity="page", first_seen=now - 9.0,
        last_seen=now, state=State.OPEN,
    )  # fmt: skip
    with Store.open(folder) as store:
        store.ingest(Decoded((state.state_batch(incident, now, say=True),)))
    assert notes.write_note(writable(folder), "main", "bob", "capped") == "noted on inc-main-1"
    source = open_source(folder)
    [note] = state.recall(source, time.time()).incidents["inc-main-1"].notes
    source.close()
    assert (note.who, note.text) == ("bob", "capped")
    assert told(folder)[-1] == "bob: capped"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (None, "a note needs a store that is written to"),
        (Place("x", (), recorded=True), "a note needs a store that is written to"),
        (Place("unix:/run/x/worker.sock", ()), "a note needs one"),
    ],
)
def test_where_no_note_can_be_kept_a_sentence_says_so(place, why):
    with pytest.raises(StoreError, match=why):
        notes.write_note(place, "main", "bob", "hello")


def test_a_closed_store_is_not_written_to_unless_the_command_line_says_so(folder):
    before = told(folder)
    with pytest.raises(StoreError, match=r"closed.*--write-notes"):
        notes.write_note(Place(folder, ()), "main", "bob", "hello")
    assert told(folder) == before


def test_a_sample_that_ships_is_never_written_to():
    store = incident_path("five-pm-fanout") / "store"
    before = {p: p.stat().st_mtime_ns for p in store.rglob("*")}
    with pytest.raises(StoreError, match="sample that ships: it takes no notes"):
        notes.write_note(writable(str(store)), "main", "bob", "hello")
    assert {p: p.stat().st_mtime_ns for p in store.rglob("*")} == before


def test_a_note_is_checked_before_it_is_sent():
    assert notes.checked("  two\nlines ") == "two lines"
    for bad in ("", "   ", "x" * (LONGEST_NOTE + 1)):
        with pytest.raises(ValueError, match=r"says nothing|at most"):
            notes.checked(bad)


def test_an_act_of_another_version_is_shown_as_it_is():
    odd = [made.event(1.0, "incident_act", d) for d in ("[1]", "no json", json.dumps({"who": 5}))]
    assert [t.text for t in ticker(Rows(events=tuple(odd)), 9.0)] == ["[1]", "no json", "5: "]
