"""SmolLM2-135M with six adapters equals transformers and PEFT; skipped where it cannot be had."""

from __future__ import annotations

import pytest
import torch
from oracle import RANKS, Bench, Sequence, check

from engine.model.config import SMOLLM2_135M
from engine.model.fetch import gguf_path
from engine.model.gguf import GgufFile
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter

pytestmark = pytest.mark.xdist_group("smollm2")

PROMPTS = [
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n",
    "The three laws of thermodynamics state that " * 6,
    "1, 1, 2, 3, 5, 8,",
    "Ein Satz auf Deutsch: ",
    "Q: Why is the sky blue?\nA:",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
]
# transformers' own float32 logits are 1.2e-4 from float64 on this model.
TOLERANCE = 1e-3


def test_mixed_batch_equals_peft_through_chunks_preemption_and_eviction(
    smollm2, smollm2_judge, tmp_path
):
    bench = Bench(smollm2, pages=700)
    folders = [None, *(make_adapter(tmp_path / f"r{r}", smollm2.config, r, seed=r) for r in RANKS)]
    folders.append(None)
    chunks = (10_000, 7, 10_000, 13, 3, 10_000, 1, 5)
    sequences = [
        Sequence(f"r{i}", bench.load(f) if f else None, f, smollm2.tokenizer.encode(p), chunk)
        for i, (f, p, chunk) in enumerate(zip(folders, PROMPTS, chunks, strict=True))
    ]
    length = 12
    for step in range(60):
        going = [s for s in sequences if len(s.output) < length]
        if not going:
            break
        bench.step(going)
        if step == 8:
            bench.preempt(sequences[3])
            bench.preempt(sequences[7])
            bench.evict(sequences[2].adapter)
            bench.load(sequences[2].folder)
    assert all(len(s.output) == length for s in sequences)
    for s in sequences:
        check(s, smollm2_judge.logits(s.folder, [s.tokens], [len(s.tokens)])[0], TOLERANCE)
    assert "Paris" in smollm2.tokenizer.decode(sequences[0].output)


def test_bfloat16_logits_stay_near_float32(smollm2):
    tokens = smollm2.tokenizer.encode(PROMPTS[0])
    exact = Sequence("x", None, None, tokens)
    Bench(smollm2, pages=10).step([exact])
    rounded = Sequence("x", None, None, tokens)
    Bench(load_model("smollm2-135m", "bfloat16"), pages=10).step([rounded])
    rms = float((exact.logits[0] - rounded.logits[0]).square().mean().sqrt())
    assert rms < 0.6


def test_the_known_shape_is_the_files_shape(smollm2):
    assert GgufFile(gguf_path()).config() == SMOLLM2_135M


@pytest.mark.full
def test_damaged_unpacked_weights_are_made_anew(smollm2, tmp_path):
    original = gguf_path()
    copy = gguf_path(tmp_path)
    copy.parent.mkdir(parents=True)
    copy.symlink_to(original)
    said = []
    ready = copy.parent / "weights-bfloat16.safetensors"
    ready.write_bytes(b"not weights")
    model = load_model("smollm2-135m", "bfloat16", tmp_path, said.append)
    assert any("unpacking" in s for s in said)
    name = "model.layers.7.mlp.up_proj.weight"
    assert torch.equal(model.weights[name], smollm2.weights[name].bfloat16())
