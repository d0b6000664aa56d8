"""One Python API over everything that has rows: the same questions, the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from telemetry.ask.export import export
from telemetry.ask.reading import Result, queries
from telemetry.errors import QueryError, StoreUnreachable
from telemetry.pipeline.exporter import Exporter
from telemetry.service.process import StoreServer
from telemetry.source import (
    FileSource,
    LiveSource,
    LooseSource,
    MemorySource,
    Reader,
    Source,
    StoreSource,
    open_source,
)
from telemetry.store.store import Store
from telemetry.watch.frame import Asked
from telemetry.watch.once import watch_once
from telemetry.worker_source import FRESH_S, LACKS, REBUILT_S, FallbackSource, WorkerSource
from tests.telemetry.delivered import (
    DAY_S,
    T0,
    batch,
    deliver,
    engine_minute,
    event,
    everything,
    minute,
    until,
)
from tests.telemetry.served import RecentFace, recent_face
from tests.telemetry.test_source import ASKED, SELECT, in_memory, incident

Made = Callable[[Path, ExitStack], Source]


def filled(folder: Path) -> Store:
    store = Store.open(folder / "store")
    deliver(store, *incident())
    return store


def memory(folder: Path, stack: ExitStack) -> Source:
    return in_memory()


def store(folder: Path, stack: ExitStack) -> Source:
    return StoreSource(stack.enter_context(filled(folder)))


def files(folder: Path, stack: ExitStack) -> Source:
    filled(folder).close()
    return FileSource(folder / "store")


def loose(folder: Path, stack: ExitStack) -> Source:
    with filled(folder) as full:
        forever = {"start": float("-inf"), "end": float("inf")}
        export(StoreSource(full), "parquet", folder / "out", **forever)
    source = open_source(folder / "out")
    assert isinstance(source, LooseSource)
    return source


def live(folder: Path, stack: ExitStack) -> Source:
    server = StoreServer(filled(folder), f"unix:{folder}/s")
    server.start()
    stack.callback(server.stop, 0.2)
    return LiveSource(server.address)


def worker(folder: Path, stack: ExitStack) -> Source:
    exporter = Exporter(sink=lambda metrics, logs: None, recent_s=2 * DAY_S)
    stack.callback(exporter.close)
    for one in incident():
        exporter.submit(one)
    assert exporter.flush(10.0)
    address = f"unix:{folder}/worker.sock"
    stack.enter_context(recent_face(RecentFace(exporter), address))
    source = open_source(address)
    assert isinstance(source, WorkerSource)
    return source


def fallen_back(folder: Path, stack: ExitStack) -> Source:
    worker(folder, stack).close()
    source = open_source(folder)  # as a serve's runtime folder: a worker's socket, no store's
    assert isinstance(source, FallbackSource)
    return source


@pytest.mark.parametrize(
    "make", [store, live, files, loose, worker, fallen_back], ids=lambda m: m.__name__
)
def test_every_source_answers_alike(make: Made, tmp_path: Path) -> None:
    wanted = answers(in_memory())
    if make is loose:
        wanted = {name: unmarked(answer) for name, answer in wanted.items()}
    assert [len(wanted[t]) for t in ("tenant_minute", "request", "engine_run")] == [3, 42, 1]
    with ExitStack() as stack:
        source = make(tmp_path, stack)
        stack.callback(source.close)
        found = answers(source)
        if make is loose:
            found = {name: unmarked(answer) for name, answer in found.items()}
        assert found == wanted
        with pytest.raises(QueryError, match="no query 'who'"):
            source.query("who")
        with pytest.raises(QueryError, match="no table 'who'"):
            source.read("who", 0.0, 1.0)


def answers(source: Source) -> dict[str, Any]:
    """Whatever can be asked, without who answered."""
    found: dict[str, Any] = dict(everything(source))
    for query in queries().values():
        asked = {name: ASKED.get(name, 60.0) for name in query.parameters}
        found[f"query {query.name}"] = rows_of(source.query(query.name, **asked))
    found["sql"] = rows_of(source.query("sql", text=SELECT, most_rows=10, timeout_s=10.0))
    found["span"] = source.span()
    for at in (T0 + 60, None):
        found[f"watch {at}"] = watch_once(source, Asked(sort="wait_kv_s", n=1), at)
    assert found[f"watch {T0 + 60}"].rows[0].tenant == "a"
    return found


def unmarked(answer: Any) -> Any:
    """An export does not say which buckets were sealed: that is unknown of its rows, not false."""
    if not isinstance(answer, Result):
        return answer
    hidden = [c in ("provisional", "last_sealed_end") for c in answer.columns]
    rows = tuple(
        tuple(None if hide else v for v, hide in zip(row, hidden, strict=True))
        for row in answer.rows
    )
    return replace(answer, rows=rows)


def rows_of(result: Result) -> Result:
    return replace(result, partial=())


# --- a worker's memory ---------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Exporter, RecentFace, WorkerSource, Clock]]:
    exporter = Exporter(sink=lambda metrics, logs: None)
    face = RecentFace(exporter)
    clock = Clock()
    with recent_face(face, f"unix:{tmp_path}/worker.sock") as address:
        source = WorkerSource(address, clock=clock)
        yield exporter, face, source, clock
        source.close()
    exporter.close()


def submit(exporter: Exporter, *rows: Any, seq: int = 1, sealed: bool = True) -> None:
    exporter.submit(batch(*rows, seq=seq, sealed=sealed))
    assert exporter.flush(5.0)


def tokens(source: Source) -> list[int | None]:
    return [r.output_tokens for r in source.read("tenant_minute", T0, T0 + 3600)]


def test_only_what_is_new_is_fetched(
    kept: tuple[Exporter, RecentFace, WorkerSource, Clock],
) -> None:
    exporter, face, source, clock = kept
    for i in range(40):
        submit(exporter, minute("a", T0 + 60 * i, output_tokens=i))
    assert len(tokens(source)) == 40
    assert face.requests > 1  # in pieces
    face.requests = face.sent_bytes = 0
    assert len(tokens(source)) == 40
    assert face.requests == 0  # asked together, answered from one state
    clock.now += FRESH_S
    submit(exporter, minute("a", T0 + 60 * 39, output_tokens=1000), seq=2)
    assert tokens(source)[-1] == 1000
    assert (face.requests, face.sent_bytes) == (
        1,
        len(exporter.recent(T0 + 60 * 39, T0 + 1e9)[0][0]),
    )


def test_a_new_run_of_the_worker_is_read_from_its_beginning(
    kept: tuple[Exporter, RecentFace, WorkerSource, Clock],
) -> None:
    exporter, face, source, clock = kept
    submit(exporter, minute("a", output_tokens=1))
    submit(exporter, minute("b", T0 + 60, output_tokens=1))
    assert len(tokens(source)) == 2
    again = face.exporter = Exporter(sink=lambda metrics, logs: None)
    face.run_id = "r2"
    submit(again, minute("c", T0 + 120, output_tokens=1))
    clock.now += FRESH_S
    assert len(tokens(source)) == 3
    again.close()


def test_what_the_worker_forgot_is_forgotten_here_in_time(
    kept: tuple[Exporter, RecentFace, WorkerSource, Clock],
) -> None:
    exporter, _, source, clock = kept
    submit(exporter, minute("a", output_tokens=1))
    assert tokens(source) == [1]
    submit(exporter, minute("a", T0 + 2 * 3600, output_tokens=2))
    clock.now += REBUILT_S + 1
    found = source.read("tenant_minute", T0, T0 + 1e6)
    assert [r.output_tokens for r in found] == [2]


def test_a_worker_that_stops_answering_leaves_what_it_said(tmp_path: Path) -> None:
    exporter, clock = Exporter(sink=lambda metrics, logs: None), Clock()
    submit(exporter, minute("a", output_tokens=1))
    with recent_face(RecentFace(exporter), f"unix:{tmp_path}/worker.sock") as address:
        source = WorkerSource(address, timeout_s=2.0, clock=clock)
        assert source.query("row_counts").partial == (LACKS,)
    clock.now += 40.0
    assert tokens(source) == [1]
    assert "has not answered for 40 s" in source.query("row_counts").partial[0]
    source.close()
    exporter.close()


def test_a_worker_that_never_answered_says_so(tmp_path: Path) -> None:
    source = WorkerSource(f"unix:{tmp_path}/worker.sock", timeout_s=1.0)
    with pytest.raises(StoreUnreachable):
        source.span()
    source.close()


def test_of_several_workers_the_memories_are_one_and_a_silent_one_is_said(tmp_path: Path) -> None:
    exporters = [Exporter(sink=lambda metrics, logs: None) for _ in range(2)]
    for i, exporter in enumerate(exporters):
        submit(exporter, minute("ab"[i], output_tokens=i + 1))
    clock = Clock()
    with ExitStack() as stack:
        stack.callback(lambda: [e.close() for e in exporters])
        first, second = RecentFace(exporters[0]), RecentFace(exporters[1])
        second.run_id = "r1"
        one = stack.enter_context(recent_face(first, f"unix:{tmp_path}/w0.sock"))
        with recent_face(second, f"unix:{tmp_path}/w1.sock") as other:
            whole = open_source(tmp_path)  # a serve's runtime folder, its store gone
            stack.callback(whole.close)
            assert isinstance(whole, FallbackSource)
            assert sorted(t or 0 for t in tokens(whole)) == [1, 2]
            alone = open_source(other)
            assert tokens(alone) == [2]
            alone.close()
            source = WorkerSource([one, other], timeout_s=2.0, clock=clock)
            stack.callback(source.close)
            assert source.query("row_counts").partial == (LACKS,)
        submit(exporters[0], minute("c", T0 + 60, output_tokens=3), seq=2)
        clock.now += REBUILT_S + 1  # what the silent one had said is in no other memory: kept
        assert sorted(t or 0 for t in tokens(source)) == [1, 2, 3]
        (said,) = source.query("row_counts").partial
        assert said.startswith(f"{LACKS}; the worker has not answered for {REBUILT_S + 1:.0f} s")


class Dying(Reader):
    """A store that may be gone."""

    def __init__(self, rows: Reader) -> None:
        self.rows = rows
        self.dead = False
        self.asked = 0

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        self.asked += 1
        if self.dead:
            raise StoreUnreachable("no store answers at unix:/x: is it running?")
        return self.rows.run(name, parameters)


def test_the_worker_answers_while_the_store_is_gone_and_the_answer_says_which() -> None:
    clock = Clock()
    first = Dying(in_memory())
    both = FallbackSource(first, MemorySource(), clock)
    assert both.query("row_counts").partial == ()
    assert len(both.read("request", 0.0, float("inf"))) == 42
    first.dead = True
    assert "store is not answering: no store answers" in both.query("row_counts").partial[0]
    asked = first.asked
    assert both.read("request", 0.0, float("inf")) == []
    assert first.asked == asked  # a hanging store is not waited for each time
    first.dead = False
    clock.now += 10.0
    assert len(both.read("request", 0.0, float("inf"))) == 42
    both.close()


def test_a_wrong_question_is_no_reason_to_fall_back() -> None:
    both = FallbackSource(Dying(in_memory()), MemorySource(), Clock())
    with pytest.raises(QueryError):
        both.query("who")
    both.close()


def test_log_rows_come_once_however_often_they_are_fetched(
    kept: tuple[Exporter, RecentFace, WorkerSource, Clock],
) -> None:
    exporter, _, source, clock = kept
    submit(exporter, event(1), engine_minute(steps=1))
    assert len(source.read("event", 0.0, float("inf"))) == 1
    clock.now += REBUILT_S + 1
    assert len(source.read("event", 0.0, float("inf"))) == 1
    until(lambda: exporter.stats().queued == 0)
