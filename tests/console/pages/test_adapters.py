"""Adapters: where they are, who uses them, how often they came back too soon."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from console.act.values import AdapterState, EngineState
from console.cells import width
from console.detail import fetch
from console.frame import screen_lines
from console.lines import Row
from console.overview import Look
from console.pages.adapters import ADAPTER, AdaptersPage
from console.screens import Place, Say, Scene
from telemetry.conventions import Emitter
from telemetry.otlp import encode
from telemetry.records import AdapterMinute, AdapterRecord, Batch
from telemetry.source import MemorySource
from tests.console import places
from tests.console import rows as made
from tests.console.test_overview import END, picture

PAGE = AdaptersPage()
PICTURE = picture()
NAMES = {
    "h1": "acme-mails",
    "h2": "[red]x",
    "h3": "cold",
    "h5": "spare",
    "h4": "\x1b]0;t\x07" + "n" * 300,
}


def minute(start: float, adapter: str, **columns) -> AdapterMinute:
    return AdapterMinute(**made.ID, bucket_start=start, bucket_s=made.BUCKET_S, adapter=adapter,
                         **columns)  # fmt: skip


def source() -> MemorySource:
    last = END - made.BUCKET_S
    minutes = (
        *(minute(made.T0 + 10.0 * i, "h1", lookups=3, loads=0, evictions=0, load_s=0.0,
                 resident_s=10.0, referenced_s=5.0, device_bytes=4e6) for i in range(18)),
        minute(last, "h2", lookups=4, loads=2, evictions=2, load_s=1.5, resident_s=4.0),
        minute(last, "h4", lookups=1, loads=1, evictions=0, load_s=0.5, resident_s=0.0),
    )  # fmt: skip
    known = tuple(
        AdapterRecord(**made.ID, adapter=h, name=n, rank=8, bytes=4 << 20, synthetic=True)
        for h, n in NAMES.items()
    )
    evicted = tuple(made.event(END - 9.0 + 3.0 * i, "evict", "", adapter="h2") for i in range(3))
    asked = tuple(
        made.request(t, END - 20.0 + i, 0.5, adapter="acme-mails")
        for i, t in enumerate(("acme", "acme", "globex"))
    )
    batch = Batch(**made.ID, emitter=Emitter.WORKER, sealed=True, seq=2, minutes=minutes,
                  logs=(*known, *evicted, *asked))  # fmt: skip
    memory = places.memory(made.incident())
    metrics, logs = encode(batch)
    memory.feed([metrics], [logs])
    return memory


SOURCE = source()


def scene(cells=80, lines=24, engines=(), **turned) -> Scene:
    place = Place(turned=tuple(sorted(turned.items())))
    asks = PAGE.wants(PICTURE, place)
    detail = fetch(SOURCE, asks)
    return Scene(PICTURE, place, cells, lines, Look(tz=UTC), detail, engines=engines)


def text(s: Scene) -> list[str]:
    return [x.plain for x in screen_lines(PAGE, s, s.detail.asks)]


def line_of(s: Scene, name: str) -> str:
    return next(x for x in text(s) if x.startswith(name))


def test_where_each_is_by_the_newest_bucket():
    s = scene()
    assert line_of(s, "acme-mails").split()[1] == "device"
    assert line_of(s, "[red]x").split()[1] == "40%"
    assert line_of(s, "cold").split()[1] == "host"
    assert " loading " in line_of(s, "\\x1b]0;t")


def test_an_operators_door_knows_better():
    state = EngineState(address="a", engine="e1", pool="main", version=1,
                        adapters=(AdapterState(name="cold", place="draining"),))  # fmt: skip
    assert line_of(scene(engines=(state,)), "cold").split()[1] == "draining"


def test_what_is_pinned_is_marked_where_a_door_says_so():
    held = AdapterState(name="cold", place="host", pinned=True)
    door = EngineState(address="a", engine="e", pool="main", version=1, adapters=(held,))
    assert line_of(scene(engines=(door,)), "cold").split()[1] == "host*"
    assert line_of(scene(), "cold").split()[1] == "host"


def test_what_came_back_too_soon_is_counted_beside_what_fits():
    s = scene(120)
    assert "again within 60s 2" in text(s)[3]
    assert "room" in text(s)[3]
    assert text(s)[4].startswith("FOUND")


def test_who_uses_it_is_named_the_heaviest_first():
    assert "acme, globex" in line_of(scene(120), "acme-mails")


def test_the_map_shows_each_bucket_at_wide_screens():
    assert "█" * 18 in line_of(scene(160), "acme-mails")


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (160, 50)])
def test_it_fits_every_size_and_odd_names_stay_aligned(size):
    s = scene(*size)
    lines = screen_lines(PAGE, s, s.detail.asks)
    assert len(lines) == size[1]
    assert max(x.width for x in lines) <= size[0]
    assert len({width(x.plain) for x in lines if x.row is not None}) == 1
    assert not any(ord(c) < 32 for x in lines for c in x.plain)


def test_a_short_screen_closes_with_the_others():
    s = scene(80, 10)
    assert "others (" in "\n".join(text(s))
    assert "5 known" in text(s)[2]


def test_keys_sort_and_stretch():
    s = scene()
    by = [s.place.switch("sort", "loads")]
    for _ in range(4):
        s = replace(s, place=PAGE.turn(s, "sort"))
        by.append(s.place.switch("sort", ""))
    assert len(set(by)) == 5
    assert text(scene(sort="lookups"))[6].startswith("acme-mails")
    assert PAGE.turn(s, "span").switch("span", "") == "5min"


def test_enter_tells_the_hash_and_everybody_who_uses_it():
    s = scene()
    chosen = replace(s, place=replace(s.place, cursor=Row(ADAPTER, "h1")))
    assert PAGE.enter(chosen) == Say("acme-mails: hash h1, 4.0M, used by acme, globex")
    assert PAGE.enter(s) is None
