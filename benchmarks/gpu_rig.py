"""What `gpu.py` measures with: a device, its copy bandwidth, the time of a captured call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


class Rig:
    """A GPU, or at toy size the CPU with Triton's interpreter."""

    def __init__(self, toy: bool) -> None:
        self.toy = toy
        self.device = torch.device("cpu" if toy else "cuda")
        self.dtype = torch.float32 if toy else torch.bfloat16
        self.bandwidth = self._copy_bandwidth()

    def median_us(self, call: Callable[[], object], repeats: int = 30) -> float:
        """Median time of `call` in microseconds: captured once and replayed; by the clock at toy
        size. The cache is flushed before each, as a step's other layers would."""
        if self.toy:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e6
        for _ in range(3):  # compiles, and fills the allocator's pool
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        flush = torch.empty(1 << 28, dtype=torch.uint8, device=self.device)
        times = []
        for _ in range(repeats):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1000)
        return statistics.median(times)

    def eager_us(self, call: Callable[[], object], repeats: int = 10) -> float:
        """Median time of `call` launched from Python, in microseconds."""
        times = []
        for _ in range(1 if self.toy else repeats):
            start = time.perf_counter()
            call()
            if not self.toy:
                torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e6)
        return statistics.median(times)

    def floor_us(self, size: int) -> float:
        """What `size` bytes take at the copy bandwidth."""
        return size / self.bandwidth * 1e6

    def _copy_bandwidth(self) -> float:
        """Bytes a second that a device-to-device copy reads and writes."""
        source = torch.empty(1 << (22 if self.toy else 29), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * source.numel() / (self.median_us(lambda: target.copy_(source)) / 1e6)
