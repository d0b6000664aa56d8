"""The ops of a step: the native ones and torch's are one thing to whoever stands above them."""

from __future__ import annotations

from array import array

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.config import synthetic_config
from engine.model.rope import rope_tables
from engine.runner.arena import Arena
from engine.runner.attention import TorchOps
from engine.runner.batch import build_batch
from engine.runner.ops import best_ops
from engine.scheduling.plan import Segment
from kernels.backend import HeadNorms
from kernels.cpu import Absent, native
from kernels.cpu_ops import NativeOps

CONFIG = synthetic_config(layers=2, hidden=96, heads=6, kv_heads=2, head_dim=32, ff=160)
native_only = pytest.mark.skipif(isinstance(native(), Absent), reason=str(native()))


def segment(name, count, start=0, pages=(), adapter=None):
    return Segment(name, "t", adapter, tuple(range(count)), start, tuple(pages), True, count > 1)


@native_only
@settings(max_examples=10)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 80), st.integers(1, 40)), min_size=1, max_size=6),
    page_tokens=st.sampled_from([2, 16, 48]),
    normed_heads=st.booleans(),
)
def test_native_and_torch_ops_agree_over_several_steps(lengths, page_tokens, normed_heads):
    """Each sequence's first positions, then its new ones, over pages of garbage."""
    torch.manual_seed(1)
    arenas = [Arena(CONFIG, 300, page_tokens, torch.float32) for _ in range(2)]
    for arena in arenas:
        arena.elements.fill_(float("nan"))
    both = (
        TorchOps(CONFIG, arenas[0], rope_tables(CONFIG)),
        best_ops(CONFIG, arenas[1])[0],
    )
    assert isinstance(both[1], NativeOps)
    norms = HeadNorms(torch.rand(32), torch.rand(32)) if normed_heads else None
    free = iter(torch.randperm(300).tolist())
    pages = [[next(free) for _ in range(-(-(a + b) // page_tokens))] for a, b in lengths]
    first = [segment(str(i), a, 0, pages[i]) for i, (a, _) in enumerate(lengths) if a]
    then = [segment(str(i), b, a, pages[i]) for i, (a, b) in enumerate(lengths)]
    for segments in filter(None, (first, then)):
        batch = build_batch(segments, page_tokens)
        rows = len(batch.tokens)
        steps = [ops.prepare(batch.rows) for ops in both]
        for layer in range(2):
            x, added = torch.randn(rows, 96), torch.randn(rows, 96)
            qkv, gate_up = torch.randn(rows, 320), torch.randn(rows, 320)
            weight = torch.rand(96)
            answers = []
            for step in steps:
                residual = x.clone()
                answers.append(
                    (
                        step.normed(residual, added, weight).clone(),
                        residual,
                        step.attend(layer, qkv.clone(), norms).clone(),
                        step.gated(gate_up).clone(),
                    )
                )
            for one, other in zip(*answers, strict=True):
                torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


def test_a_batch_lists_decode_rows_by_falling_context_then_tuned_then_base_prefill():
    segments = [
        segment("base prefill", 20, 16, (1, 2, 3)),
        segment("short", 1, 3, (4,)),
        segment("long tuned", 9, 0, (5,), adapter="x"),
        segment("long", 1, 40, (6, 7, 8, 9)),
        segment("tuned", 4, 15, (10, 11), adapter="x"),
    ]
    batch = build_batch(segments, 16)
    names = ["long", "short", "tuned", "long tuned", "base prefill"]
    assert [s.request_id for s in batch.segments] == names
    assert batch.tokens.tolist() == [0, 0, *range(4), *range(9), *range(20)]
    assert batch.last.tolist() == [0, 1, 5, 14, 34]
    assert batch.rows.first_row == array("q", (0, 1, 2, 6, 15, 35))
    assert batch.rows.start == array("q", (40, 3, 15, 0, 16))
    # Only pages that hold a key: room for later tokens is nobody's business in this step.
    assert batch.rows.pages == array("q", (6, 7, 8, 4, 10, 11, 5, 1, 2, 3))
    assert batch.rows.first_page == array("q", (0, 3, 4, 6, 7, 10))
    spans = [(r.adapter, r.start, r.stop) for r in batch.lora]
    assert spans == [(None, 0, 1), (None, 1, 2), ("x", 2, 6), ("x", 6, 15)]


@native_only
def test_a_shape_that_the_kernels_cannot_take_runs_on_torch_and_says_why():
    wide = synthetic_config(heads=1, kv_heads=1, head_dim=320)
    ops, said = best_ops(wide, Arena(wide, 2, 16, torch.float32))
    assert isinstance(ops, TorchOps)
    assert said == (
        "attention: plain torch, which is slower: the native ops take even heads of 2 to 256, "
        "not 320"
    )


def test_what_computes_is_said(monkeypatch):
    arena = Arena(CONFIG, 2, 16, torch.bfloat16)
    monkeypatch.setattr("engine.runner.ops.native", lambda: Absent("no compiler"))
    ops, said = best_ops(CONFIG, arena)
    assert isinstance(ops, TorchOps)
    assert said == "attention: plain torch, which is slower: no compiler"
