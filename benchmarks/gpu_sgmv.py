"""The SGMV pair on a GPU: first its numbers against the reference, then its time.

    python benchmarks/gpu_sgmv.py [--in-width 4096] [--rank 16] [--dtype bf16]

One JSON line a measurement on stdout; medians in microseconds of a replayed CUDA graph. Beside the
pair: `loop` (two matmuls an adapter, the naive way) and `floor`, the time the device's own copy
bandwidth would need for the bytes that the pair must move. Exit status 1 where a number is wrong,
2 where there is no GPU. `--device cpu` with TRITON_INTERPRET=1 runs the checks alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kernels import reference, sgmv
from kernels.blocks import ROW_ALIGN_BYTES, Block, Pair, Span, Table, build_table
from kernels.work import BASE, Segment, Work, build_work, pick_tile

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Hardware rounds t to the arena's dtype before expand in bf16, and y once in every dtype.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True, slots=True)
class Step:
    """One step's operands on the device."""

    x: torch.Tensor
    y: torch.Tensor
    t: torch.Tensor
    arena: torch.Tensor
    pairs: list[list[Pair | None]]
    table: Table
    work: Work
    segments: list[Segment]

    def run(self) -> None:
        sgmv.shrink(self.x, self.arena, self.table, self.work, self.t)
        sgmv.expand(self.t, self.arena, self.table, self.work, self.y)

    @property
    def least_bytes(self) -> int:
        """Bytes of weights, x and y that any grouped LoRA must read or write."""
        active = {s.slot for s in self.segments if s.slot != BASE}
        weights = sum(
            p.rank * (p.a.width + p.bt.width)
            for a in active
            for p in self.pairs[a]
            if p is not None
        )
        rows = sum(s.rows for s in self.segments if s.slot != BASE)
        values = weights + rows * (self.x.shape[1] + 2 * self.y.shape[1])
        return values * self.x.itemsize


def make_step(
    segments: list[Segment],
    ranks: list[int],
    in_width: int,
    out_widths: list[int],
    dtype: torch.dtype,
    device: str,
) -> Step:
    """Random operands; rows of the arena are padded to 128 bytes and adapters lie back to back."""
    align = ROW_ALIGN_BYTES // dtype.itemsize
    pairs: list[list[Pair | None]] = []
    used = 0

    def place(rank: int, width: int) -> Block:
        nonlocal used
        stride = -(-width // align) * align
        block = Block((Span(rank, used, stride),), width)
        used += rank * stride
        return block

    for rank in ranks:
        pairs.append([Pair(place(rank, in_width), place(rank, w)) for w in out_widths])
    arena = (torch.randn(used, device=device) / 16).to(dtype)
    table = build_table(pairs, in_width, out_widths, dtype, used, device)
    work = build_work(segments, table.ranks, out_widths, pick_tile(segments), device=device)
    rows = sum(s.rows for s in segments)
    shape = sgmv.partials_shape(table, work, rows)
    return Step(
        x=(torch.randn(rows, in_width, device=device) / in_width**0.5).to(dtype),
        y=torch.randn(rows, sum(out_widths), device=device).to(dtype),
        t=torch.full(shape, float("nan"), device=device),
        arena=arena,
        pairs=pairs,
        table=table,
        work=work,
        segments=segments,
    )


def worst_error(step: Step) -> float:
    """Largest |pair - reference| over 1 + |reference|; infinite where a base row has changed."""
    expected = step.y.clone()
    before = step.y.clone()
    t = torch.full(step.t.shape[1:], float("nan"), device=step.y.device)
    reference.shrink(step.x, step.arena, step.pairs, step.segments, t)
    reference.expand(t, step.arena, step.pairs, step.segments, expected)
    step.run()
    for s in step.segments:
        rows = slice(s.first_row, s.first_row + s.rows)
        if s.slot == BASE and not torch.equal(step.y[rows], before[rows]):
            return float("inf")
    difference = (step.y.double() - expected.double()).abs() / (1 + expected.double().abs())
    return float("inf") if bool(difference.isnan().any()) else float(difference.max())


def loop(step: Step) -> None:
    """One adapter at a time, one module at a time, on views of the same arena."""
    for s in step.segments:
        if s.slot == BASE:
            continue
        x, y, column = step.x[s.first_row : s.first_row + s.rows], step.y, 0
        for pair in step.pairs[s.slot]:
            if pair is None:
                continue
            a, b = (view(step.arena, block) for block in (pair.a, pair.bt))
            y[s.first_row : s.first_row + s.rows, column : column + pair.bt.width] += (x @ a.T) @ b
            column += pair.bt.width


def view(arena: torch.Tensor, block: Block) -> torch.Tensor:
    span = block.spans[0]
    return arena[span.offset :].as_strided((span.rows, block.width), (span.stride, 1))


def median_us(call: Callable[[], object], repeats: int = 50) -> float:
    """Median device time of `call`, captured once and replayed, in microseconds."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Bytes a second that a device-to-device copy reads and writes."""
    source = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (median_us(lambda: target.copy_(source), 20) / 1e6)


def decode(rows: int, adapters: int) -> list[Segment]:
    """`rows` decode rows over `adapters` adapters in turn, every eighth a base row."""
    return [Segment(i, 1, BASE if i % 8 == 7 else i % adapters) for i in range(rows)]


def mixed(rows: int, adapters: int) -> list[Segment]:
    """Decode rows of all adapters beside one prefill chunk of the first."""
    return [*decode(rows, adapters), Segment(rows, 480, 0)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-width", type=int, default=4096)
    parser.add_argument("--out-widths", default="4096,1024,1024")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is False", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    wrong = False
    for name, dtype in DTYPES.items():
        ranks = [1, 3, 8, 16, 33, 64, 128]
        for segments in (
            decode(16, 7),
            [Segment(0, 70, 0), Segment(70, 9, BASE), Segment(79, 80, 5)],
        ):
            step = make_step(segments, ranks, 320, [160, 48], dtype, options.device)
            error = worst_error(step)
            wrong |= not error <= TOLERANCE[dtype]
            print(json.dumps({"check": name, "tile_m": step.work.tile.m, "error": error}))
    if options.device == "cpu":
        return int(wrong)
    bandwidth = copy_bandwidth()
    print(json.dumps({"device": torch.cuda.get_device_name(), "copy_bytes_s": bandwidth}))
    widths = [int(w) for w in options.out_widths.split(",")]
    steps = {f"decode 32 x {n}": (decode(32, n), [options.rank] * n) for n in (1, 4, 8, 16, 32)}
    steps["decode 32 x 32, ranks 8-128"] = (decode(32, 32), [8, 16, 32, 128] * 8)
    steps["mixed 32 x 16 + 480"] = (mixed(32, 16), [options.rank] * 16)
    steps["prefill 4 x 512"] = ([Segment(512 * i, 512, i) for i in range(4)], [options.rank] * 4)
    for name, (segments, ranks) in steps.items():
        step = make_step(segments, ranks, options.in_width, widths, DTYPES[options.dtype], "cuda")
        row = {
            "step": name,
            "pair_us": median_us(step.run),
            "loop_us": median_us(lambda step=step: loop(step)),
            "floor_us": step.least_bytes / bandwidth * 1e6,
            "ctas": [len(step.work.shrink), len(step.work.expand)],
        }
        print(json.dumps(row))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
