"""What is asked of torch.cuda, in which order, by a stand-in that writes it down: there is no GPU
here. That torch does it is for a machine with one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from engine.runner import cuda
from engine.runner.lanes import Passed


class Cuda:
    """torch.cuda as a diary."""

    def __init__(self):
        self.said: list[str] = []
        self.streams = 0
        self.now = "default"
        diary = self

        class Stream:
            def __init__(self, device=None):
                diary.streams += 1
                self.name = f"stream {diary.streams}"

            def wait_stream(self, other):
                diary.said.append(f"{self.name} after {other.name}")

            def wait_event(self, event):
                diary.said.append(f"{self.name} after event of {event.stream}")

        class Event:
            def __init__(self, blocking=False):
                assert blocking

            def record(self, stream):
                self.stream = stream.name

            def query(self):
                return False

            def synchronize(self):
                diary.said.append(f"thread after event of {self.stream}")

        class CUDAGraph:
            def replay(self):
                diary.said.append("replay")

        default = Stream()
        default.name = "default"
        self.Stream, self.Event, self.CUDAGraph = Stream, Event, CUDAGraph
        self.default_stream = self.current_stream = lambda device: default
        self.graph_pool_handle = lambda: "pool"
        self.set_device = lambda device: self.said.append(f"device {device}")

    @contextmanager
    def stream(self, stream):
        self.now, before = stream.name, self.now
        yield
        self.now = before

    @contextmanager
    def graph(self, graph, pool, capture_error_mode):
        self.said.append(f"capture into {pool}, {capture_error_mode}")
        self.now, before = "capture", self.now
        yield
        self.now = before

    def call(self):
        self.said.append(f"call on {self.now}")
        return torch.ones(2)


@pytest.fixture
def diary(monkeypatch):
    made = Cuda()
    monkeypatch.setattr(cuda.torch, "cuda", made)
    return made


def test_copies_have_a_stream_beside_that_of_the_steps(diary):
    on = cuda.gpu(64, 8, 4)
    assert (on.most_rows, on.most_sequences, on.most_adapters) == (64, 8, 4)
    on.copies.issue(diary.call)
    mark = on.copies.mark()
    assert not mark.passed()
    on.steps.after(mark)
    mark.wait()
    on.steps.after(Passed())
    assert diary.now == "default"
    assert diary.said == [
        "device cuda:0",
        f"call on {on.copies.stream.name}",
        f"default after event of {on.copies.stream.name}",
        f"thread after event of {on.copies.stream.name}",
    ]


def test_a_device_is_lost_where_it_cannot_even_be_waited_for(diary):
    device = torch.device("cuda", 0)
    diary.synchronize = lambda where: None
    assert cuda.gpu(1, 1, 1).broken() is None

    def fails(where):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore lines")

    diary.synchronize = fails
    said = "cuda:0: CUDA error: an illegal memory access was encountered"
    assert cuda.broken(device) == said


def test_a_call_is_captured_once_it_has_been_made_and_replayed_without_being_made(diary):
    recorder = cuda.GraphRecorder(torch.device("cuda", 0))
    diary.said.clear()
    replay = recorder.record(diary.call)
    replay()
    side = recorder._side.name
    assert diary.said == [
        f"{side} after default",
        f"call on {side}",
        f"call on {side}",
        f"default after {side}",
        "capture into pool, thread_local",
        "call on capture",
        "replay",
    ]
    assert replay.out.tolist() == [1, 1]


@dataclass(frozen=True)
class Weights:
    key: str
    image: object


def test_a_host_copy_is_page_locked_as_it_is_read(monkeypatch, tmp_path):
    locked: list[bool] = []

    def empty(shape, dtype, pin_memory):
        locked.append(pin_memory)
        return torch.zeros(shape, dtype=dtype)

    monkeypatch.setattr(cuda, "torch", SimpleNamespace(empty=empty, uint8=torch.uint8))
    image = torch.arange(6, dtype=torch.uint8).view(2, 3).numpy()
    read = cuda.pinned(lambda folder: Weights(folder.name, image))
    made = read(tmp_path / "a")
    assert (made.key, made.image.tolist(), locked) == ("a", image.tolist(), [True])
    assert made.image is not image
