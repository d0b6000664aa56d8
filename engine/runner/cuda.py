"""A GPU as torch sees it: its streams as lanes, its graphs as recorded calls, pinned host copies.

The only room of the runner that calls torch.cuda; decides nothing. Not run on a GPU yet (see
docs/kernels.md): what stands above it is tested with stand-ins for what is here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from engine.model.lora import AdapterWeights
from engine.runner.accelerator import Accelerator, Replay
from engine.runner.lanes import Mark

_WARMING = 2  # calls before a capture: the first compiles, the second finds its memory


def gpu(most_rows: int, most_sequences: int, most_adapters: int) -> Accelerator:
    """The first GPU that this process is shown (`engine.serving.device` shows a worker its own)."""
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    return Accelerator(
        device,
        steps=StreamLane(torch.cuda.default_stream(device)),
        copies=StreamLane(torch.cuda.Stream(device)),  # type: ignore[no-untyped-call]
        recorder=GraphRecorder(device),
        most_rows=most_rows,
        most_sequences=most_sequences,
        most_adapters=most_adapters,
        broken=lambda: broken(device),
    )


def broken(device: torch.device) -> str | None:
    """Why nothing more can be computed there by this process: after some errors (an address that
    is not there, a device that fell off the bus) every later call fails as well."""
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as e:
        return f"{device}: {(str(e).splitlines() or [type(e).__name__])[0][:200]}"
    return None


class EventMark:
    """An event in a stream. Whoever waits sleeps: spinning would take a core from the step."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self.event.record(stream)

    def passed(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self.event.synchronize()


class StreamLane:
    """A stream as a lane."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream

    def issue(self, work: Callable[[], object]) -> None:
        with torch.cuda.stream(self.stream):
            work()

    def mark(self) -> EventMark:
        return EventMark(self.stream)

    def after(self, mark: Mark) -> None:
        if isinstance(mark, EventMark):
            self.stream.wait_event(mark.event)
        else:
            mark.wait()


class _Captured:
    """A CUDA graph and the tensor that it leaves its answer in."""

    def __init__(self, graph: torch.cuda.CUDAGraph, out: torch.Tensor) -> None:
        self._graph = graph
        self.out = out

    def __call__(self) -> None:
        self._graph.replay()


class GraphRecorder:
    """Captures calls. The graphs share one pool of memory: they are never replayed side by side,
    and what one leaves between its kernels means nothing to the next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, call: Callable[[], torch.Tensor]) -> Replay:
        side = self._side
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(_WARMING):
                call()
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Of this thread's calls only: another may copy an adapter in meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            out = call()
        return _Captured(graph, out)


def pinned(read: Callable[[Path], AdapterWeights]) -> Callable[[Path], AdapterWeights]:
    """`read`, with the image in page-locked memory, whole and contiguous: copies from there run
    beside the step at the link's full rate. Locking is slow, so it is done as an adapter is read,
    never as it is copied in."""

    def locked(folder: Path) -> AdapterWeights:
        weights = read(folder)
        room = torch.empty(weights.image.shape, dtype=torch.uint8, pin_memory=True)
        room.numpy()[:] = weights.image
        return replace(weights, image=room.numpy())

    return locked
