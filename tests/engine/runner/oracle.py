"""Drives a TorchRunner by hand and compares what it computes with transformers and PEFT."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from oracle_judge import MARGIN, Judge

from engine.model.loaders import load_model
from engine.model.lora import AdapterWeights, read_adapter
from engine.model.text import synthetic_json
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

RANKS = (1, 4, 8, 16, 33, 64)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class HfModel:
    """A seeded random model saved as a Hugging Face folder, with PEFT adapters beside it."""

    def __init__(
        self, folder: Path, family: str = "Llama", ranks: tuple[int, ...] = RANKS, **shape
    ) -> None:
        import transformers

        torch.manual_seed(1)
        config = getattr(transformers, f"{family}Config")(
            vocab_size=512, max_position_embeddings=1024, **shape
        )
        self.folder = folder / "model"
        self.model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                if p.dim() == 2:
                    p.copy_(torch.randn(p.shape) * 1.3 * p.shape[1] ** -0.5)
                elif name.endswith("bias"):
                    p.copy_(0.3 * torch.randn(p.shape))
                else:
                    p.copy_(1 + 0.1 * torch.randn(p.shape))
        self.model.save_pretrained(self.folder)
        (self.folder / "tokenizer.json").write_text(synthetic_json(512), encoding="utf-8")
        self.loaded = load_model(str(self.folder), "float32")
        self.adapters = {r: folder / f"rank-{r}" for r in ranks}
        for rank, where in self.adapters.items():
            save_adapter(self.model, where, seed=rank, r=rank, lora_alpha=2 * rank)
        self.judge = Judge(self.model)

    def oracle(self, adapter: Path | None, tokens: list[int]) -> torch.Tensor:
        """float32 logits [len(tokens), vocab]."""
        return self.judge.logits(adapter, [tokens], [len(tokens)])[0]


def fresh(folder: Path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def save_adapter(model, where: Path, seed: int, modules=None, **options) -> Path:
    """A PEFT adapter with random A and B (PEFT itself starts with B = 0). `model`: of
    transformers, which is left as it was, or its folder."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(target_modules=modules or ALL, task_type="CAUSAL_LM", **options)
    tuned = get_peft_model(fresh(model) if isinstance(model, Path) else model, config)
    torch.manual_seed(1000 + seed)
    with torch.no_grad():
        for name, p in tuned.named_parameters():
            if "lora_A" in name:
                p.copy_(torch.randn(p.shape) * p.shape[1] ** -0.5)
            elif "lora_B" in name:
                p.copy_(torch.randn(p.shape) * 0.2 * p.shape[1] ** -0.5)
    tuned.create_or_update_model_card = lambda where: None  # a README costs as much as the rest
    tuned.save_pretrained(where)
    tuned.unload()
    return where


@dataclass
class Sequence:
    """One request driven by hand."""

    name: str
    adapter: str | None
    folder: Path | None
    prompt: list[int]
    chunk: int = 10_000
    output: list[int] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    computed: int = 0

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output


class Bench:
    """A runner on a poisoned arena, its free pages, and sequences run in mixed steps."""

    def __init__(self, model, pages: int = 400, page_tokens: int = 16) -> None:
        self.runner = TorchRunner(model, pages, page_tokens)
        self.runner.arena.elements.fill_(float("nan"))
        self.free = list(range(pages))
        self.held: dict[str, list[int]] = {}
        self.steps = 0

    def read(self, folder: Path) -> AdapterWeights:
        model = self.runner.model
        return read_adapter(folder, model.config, model.dtype, self.runner.page_bytes)

    def load(self, folder: Path) -> str:
        adapter = self.read(folder)
        pages = [self.free.pop() for _ in range(adapter.pages)]
        self.runner.copy_in(adapter, pages)
        self.held[adapter.key] = pages
        return adapter.key

    def evict(self, key: str) -> None:
        """Take the pages back and scribble over them."""
        self.runner.drop(key)
        self.release(self.held.pop(key))

    def release(self, pages: list[int]) -> None:
        self.runner.arena.elements[pages] = float("nan")
        self.free[:0] = pages  # next allocations come from elsewhere

    def preempt(self, s: Sequence) -> None:
        self.release(s.pages)
        s.pages, s.computed = [], 0

    def segment(self, s: Sequence) -> Segment:
        todo = s.tokens[s.computed : s.computed + s.chunk]
        end = s.computed + len(todo)
        while len(s.pages) * self.runner.page_tokens < end:
            s.pages.append(self.free.pop())
        return Segment(
            s.name, "t", s.adapter, tuple(todo), s.computed, tuple(s.pages),
            samples=end == len(s.tokens), is_prefill=s.computed + 1 < len(s.tokens),
        )  # fmt: skip

    def step(self, sequences: list[Sequence]) -> None:
        """Give every sequence its next chunk or token."""
        self.steps += 1
        plan = StepPlan(self.steps, tuple(self.segment(s) for s in sequences))
        outcome = self.runner.execute(plan)
        assert outcome.failed == {}
        logits = self.runner.logits(plan)
        for s, segment in zip(sequences, plan.segments, strict=True):
            s.computed += len(segment.tokens)
            if segment.samples:
                s.logits.append(logits[s.name])
                s.output.append(outcome.tokens[s.name])


def check(s: Sequence, expected: torch.Tensor, tolerance: float = 1e-3) -> None:
    """`expected`: logits [tokens, vocab] of the whole sequence. Compares every sampled position."""
    assert len(s.output) == len(s.logits) > 0
    for i, (token, logits) in enumerate(zip(s.output, s.logits, strict=True)):
        row = expected[len(s.prompt) - 1 + i]
        worst = float((logits - row).abs().max())
        assert worst <= tolerance, f"{s.name}: token {i}: logits differ by {worst}"
        best, second = row.topk(2).values.tolist()
        if best - second >= MARGIN:
            assert token == int(row.argmax()), f"{s.name}: token {i}"
