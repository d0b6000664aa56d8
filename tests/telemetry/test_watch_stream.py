"""Watch as a stream: one frame a tick, none queued for the slow, refusals told, threads bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from telemetry.errors import QueryError, StoreBusy, StoreUnreachable
from telemetry.otlp import encode
from telemetry.pipeline.exporter import Exporter
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.records import Batch
from telemetry.watch.client import WatchClient
from telemetry.watch.frame import Asked
from telemetry.watch.service import STORE, handlers
from telemetry.watch.state import WatchState
from telemetry.watch.stream import WatchService, frames
from telemetry.watch.worker import UNWATCHED_S, WorkerWatch
from tests.telemetry.delivered import T0, batch, engine_minute, minute, until


def known() -> WatchState:
    state = WatchState()
    rows = [minute(f"t{i}", service=float(i)) for i in range(5)]
    state.hear([batch(engine_minute(observed_seconds=60.0), *rows)], T0 + 60)
    return state


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.now += seconds
        return False


def test_a_frame_comes_at_once_and_then_one_a_tick() -> None:
    clock = Clock()
    stream = frames(known().look, Asked(), wall=lambda: T0 + 61, clock=clock, wait=clock.wait)
    assert [next(stream).dropped for _ in range(4)] == [0, 0, 0, 0]
    assert clock.waited == [1.0, 1.0, 1.0]


def test_a_slow_watcher_gets_the_newest_state_and_the_count_of_what_it_missed() -> None:
    clock, state = Clock(), known()
    stream = frames(state.look, Asked(n=1), wall=lambda: T0 + 61, clock=clock, wait=clock.wait)
    assert next(stream).rows[0]["service"] == 4.0
    clock.now += 5.5  # it was busy elsewhere
    state.hear([batch(minute("t9", service=90.0), seq=2)], T0 + 61)
    late = next(stream)
    assert (late.dropped, late.rows[0].tenant) == (4, "t9")
    assert next(stream).dropped == 0


def test_between_two_deliveries_only_the_age_of_a_frame_changes() -> None:
    clock, state = Clock(), known()
    stream = frames(state.look, Asked(), wall=clock, clock=clock, wait=clock.wait)
    first, second = next(stream), next(stream)
    assert second.rows is first.rows
    assert second.at == first.at + 1.0
    state.hear([batch(minute("t9", service=90.0), seq=2)], T0 + 61)
    assert next(stream).rows[0].tenant == "t9"


def test_a_stream_ends_when_its_watcher_is_gone() -> None:
    clock = Clock()
    stream = frames(known().look, Asked(), wall=clock, clock=clock, wait=lambda _: True)
    assert len(list(stream)) == 1


# --- over gRPC -----------------------------------------------------------------------------------


@pytest.fixture
def serve(tmp_path: Any) -> Iterator[Callable[..., WatchClient]]:
    stack: list[Callable[[], object]] = []

    def start(service: WatchService, of: str = STORE) -> WatchClient:
        server = grpc.server(futures.ThreadPoolExecutor(1))  # what watches must not use it up
        watch = {"Watch": (service.behaviour, pb.WatchRequest, pb.WatchFrame)}
        handler, roles = handlers(of, watch)
        assert roles == {f"/{of}/Watch": "viewer"}
        server.add_generic_rpc_handlers((handler,))
        address = f"unix:{tmp_path}/s{len(stack)}"
        server.add_insecure_port(address)
        server.start()
        client = WatchClient(address)
        stack.extend((lambda: server.stop(0.2).wait(), service.close, client.close))
        return client

    yield start
    for close in reversed(stack):
        close()


def test_frames_travel_whole(serve: Callable[..., WatchClient]) -> None:
    state = known()
    client = serve(WatchService(state.look, wall=lambda: T0 + 61))
    asked = Asked(sort="service", n=2, filter="!t3")
    told = client.watch_once(asked)
    assert [r.tenant for r in told.rows] == ["t4", "t2"]
    clock = Clock()
    here = next(frames(state.look, asked, wall=lambda: T0 + 61, clock=clock, wait=clock.wait))
    assert told == here


def test_a_worker_is_watched_by_the_same_client(serve: Callable[..., WatchClient]) -> None:
    client = serve(WatchService(known().look, wall=lambda: T0 + 61), "tenantscope.v1.Worker")
    assert client.watch_once(Asked(n=1)).rows[0].tenant == "t4"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (pb.WatchRequest(sort="kv"), "kv_bytes_avg"),
        (pb.WatchRequest(filter="(a+)+$"), "too many ways"),
        (pb.WatchRequest(filter="("), "no regular expression"),
        (pb.WatchRequest(every_s=0.01), "0.2 to"),
        (pb.WatchRequest(n=1 << 30), "1 to 1000"),
    ],
)
def test_bad_questions_are_invalid_arguments_with_the_valid_ones(
    serve: Callable[..., WatchClient], request_: pb.WatchRequest, said: str
) -> None:
    client = serve(WatchService(known().look))
    call = client._stream("/tenantscope.v1.Store/Watch", pb.WatchRequest, pb.WatchFrame)
    with pytest.raises(grpc.RpcError) as refused:
        list(call(request_))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert said in refused.value.details()
    with pytest.raises(QueryError, match=said):
        list(client._read(call, request_))


def test_one_watcher_too_many_is_told_to_come_later(serve: Callable[..., WatchClient]) -> None:
    client = serve(WatchService(known().look, wall=lambda: T0 + 61, most=2))
    watching = [client.watch(Asked()) for _ in range(2)]
    for one in watching:
        assert next(one).rows
    with pytest.raises(StoreBusy, match="2 follow already"):
        client.watch_once(Asked())
    watching[0].close()
    until(lambda: _gets_in(client))
    watching[1].close()


def _gets_in(client: WatchClient) -> bool:
    try:
        return bool(client.watch_once(Asked()).rows)
    except StoreBusy:
        return False


def test_closing_the_service_ends_its_streams(serve: Callable[..., WatchClient]) -> None:
    service = WatchService(known().look, wall=lambda: T0 + 61)
    client = serve(service)
    stream = client.watch(Asked(every_s=3600.0))
    assert next(stream).rows
    threading.Thread(target=service.close).start()
    assert list(stream) == []
    with pytest.raises(StoreBusy, match="closing"):
        client.watch_once(Asked())


# --- a worker, from its exporter's memory --------------------------------------------------------


class Memory:
    """An exporter that counts what is asked of it."""

    def __init__(self, *batches: Batch) -> None:
        self.kept = [m for m, _ in map(encode, batches) if m is not None]
        self.asked = 0
        self.heard: Callable[[Batch], object] | None = None

    def recent(self, start: float, end: float) -> tuple[list[bytes], list[bytes]]:
        self.asked += 1
        return self.kept, []

    def listen(self, heard: Callable[[Batch], object] | None) -> None:
        self.heard = heard


def test_a_worker_reads_its_memory_once_and_then_listens() -> None:
    now = [T0 + 61]
    memory = Memory(batch(engine_minute(observed_seconds=60.0), minute("a", service=1.0)))
    watch = WorkerWatch(memory, lambda: now[0])
    assert memory.heard is None
    assert watch.look(now[0], 60.0).values[0, 0] == 1.0
    assert memory.heard is not None
    memory.heard(batch(minute("a", service=7.0), seq=2))
    assert watch.look(now[0], 60.0).values[0, 0] == 7.0
    assert memory.asked == 1
    watch.look(now[0], 300.0)
    assert memory.asked == 2  # further back than anybody had looked


def test_an_unwatched_worker_lets_its_memory_go() -> None:
    now = [T0 + 61]
    memory = Memory(batch(engine_minute(observed_seconds=60.0), minute("a", service=1.0)))
    watch = WorkerWatch(memory, lambda: now[0])
    watch.look(now[0], 60.0)
    now[0] += UNWATCHED_S + 1
    assert memory.heard is not None
    memory.heard(batch(minute("a", service=7.0), seq=2))
    assert memory.heard is None
    assert not watch.is_watched


def test_a_failing_listener_costs_the_store_nothing() -> None:
    took: list[Any] = []
    exporter = Exporter(sink=lambda metrics, logs: took.append(metrics))

    def fails(batch: Batch) -> None:
        raise RuntimeError("no")

    exporter.listen(fails)
    exporter.submit(batch(minute("a", service=1.0)))
    assert exporter.flush(5.0)
    stats = exporter.close()
    assert (len(took), stats.lost) == (1, 0)


def test_a_server_that_takes_the_call_and_says_nothing_is_given_up(
    serve: Callable[..., WatchClient],
) -> None:
    hangs = threading.Event()

    def look(now: float, window_s: float) -> Any:
        hangs.wait(20.0)
        return known().look(T0 + 61, 60.0)

    client = serve(WatchService(look))
    client.timeout_s = 0.3
    with pytest.raises(StoreUnreachable, match=r"did not answer in 0.3 s"):
        client.watch_once(Asked())
    hangs.set()
