"""Tiny random models that transformers makes, and what it says of them: the oracle of families."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.model.loaders import LoadedModel
from engine.model.text import synthetic_json
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

VOCAB = 320
SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "bos_token_id": None,
    "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")


def made(family: str, seed: int = 1, **options):
    """A transformers model of a family, every parameter random, biases and norms included."""
    import transformers

    shape = SHAPE | ({"sliding_window": None} if family == "Mistral" else {})
    shape |= {"head_dim": 16} if family != "Qwen2" else {}
    config = getattr(transformers, f"{family}Config")(**shape | options)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            drawn = torch.randn(p.shape, generator=generator)
            p.copy_(drawn * 1.3 * p.shape[1] ** -0.5 if p.dim() == 2 else 1 + 0.3 * drawn)
    return model


def saved(model, folder: Path, **options) -> Path:
    """`model` as a Hugging Face folder, with a tokenizer."""
    model.save_pretrained(folder, **options)
    (folder / "tokenizer.json").write_text(synthetic_json(VOCAB), encoding="utf-8")
    return folder


def prompt(length: int = 24, seed: int = 5) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCAB, (length,), generator=generator).tolist()


def oracle(model, tokens: list[int]) -> torch.Tensor:
    """transformers' logits of every position: float32 [tokens, vocab]."""
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0].float()


def served(model: LoadedModel, tokens: list[int], chunk: int = 10_000) -> torch.Tensor:
    """The engine's logits of the last position of every chunk: float32 [chunks, vocab]."""
    size = 16
    pages = -(-len(tokens) // size)
    runner = TorchRunner(model, pages, size)
    rows = []
    for start in range(0, len(tokens), chunk):
        part = tuple(tokens[start : start + chunk])
        segment = Segment("r", "t", None, part, start, tuple(range(pages)), True, True)
        rows.append(runner.logits(StepPlan(start, (segment,)))["r"])
    return torch.stack(rows)


def worst(model: LoadedModel, reference, tokens: list[int], chunk: int = 7) -> float:
    """Largest distance of a logit from transformers', over the ends of chunks."""
    rows = served(model, tokens, chunk)
    ends = [min(i + chunk, len(tokens)) - 1 for i in range(0, len(tokens), chunk)]
    return float((rows - oracle(reference, tokens)[ends]).abs().max())
