"""A whole tiny Llama with adapters, through the Triton ops and through torch's: run in a child
process under Triton's interpreter, so nothing here may import triton."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from engine.memory.packing import lay_out
from engine.model.config import MODULES, synthetic_config
from engine.model.decoder import Decoder
from engine.model.loaders import LoadedModel, synthetic_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.model.rope import rope_tables
from engine.runner.accelerator import Accelerator
from engine.runner.arena import Arena
from engine.runner.attention import TorchOps
from engine.runner.batch import build_batch
from engine.runner.device_runner import DeviceRunner
from engine.runner.lanes import AtOnce
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan
from kernels.backend import AdapterBlocks, Block, LoraBackend, OpsBackend, Rows
from kernels.cpu_ops import OpsShape
from kernels.gpu_lora import SgmvLora
from kernels.gpu_ops import TritonOps
from kernels.torch_ops import GroupedLora
from tests.kernels.called_again import Again

CONFIG = synthetic_config(
    vocab=300, layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ff=96, head_norms=True
)
PAGES, PAGE_TOKENS = 24, 16


def ops_shape() -> OpsShape:
    c = CONFIG
    return OpsShape(c.hidden, c.heads, c.kv_heads, c.head_dim, c.ff, c.norm_eps)


def adapter(arena: Arena, key: str, rank: int, pages: list[int], generation: int) -> AdapterBlocks:
    """Random blocks of every linear but one, laid out in `pages` as a loaded adapter is."""
    made = torch.Generator().manual_seed(rank)
    names = [(i, m) for i in range(CONFIG.layers) for m in MODULES if (i, m) != (1, "k_proj")]
    sizes = [(CONFIG.module_shape(m), side) for _, m in names for side in (1, 0)]
    row_bytes = [-(-shape[side] * 4 // 128) * 128 for shape, side in sizes]
    layout = lay_out([(rank, b) for b in row_bytes], arena.page_bytes)
    assert layout.pages <= len(pages)
    pieces: list[list[torch.Tensor]] = [[] for _ in sizes]
    for s in layout.spans:
        shape, side = sizes[s.block]
        view = arena.block(pages[s.page], s.offset, s.rows, row_bytes[s.block], shape[side])
        view.copy_(torch.randn(view.shape, generator=made) * 0.2)
        pieces[s.block].append(view)
    blocks = {
        at: Block(rank, tuple(pieces[2 * i]), tuple(pieces[2 * i + 1]))
        for i, at in enumerate(names)
    }
    return AdapterBlocks(key, generation, rank, blocks)


def hidden(
    model: LoadedModel,
    arena: Arena,
    ops: OpsBackend,
    lora: LoraBackend,
    adapters: dict[str, AdapterBlocks],
) -> list[torch.Tensor]:
    """Final states of two steps: a prompt, then its decode row beside another's prompt."""
    decoder = Decoder(model)
    tokens = tuple(int(t) for t in torch.arange(40) * 7 % CONFIG.vocab)

    def segment(name: str, start: int, count: int, pages: tuple[int, ...], key: str | None):
        return Segment(name, "t", key, tokens[start : start + count], start, pages, True, True)

    plans = [
        [segment("a", 0, 18, (3, 1), "x")],
        [
            segment("a", 18, 1, (3, 1), "x"),
            segment("b", 0, 3, (0,), "y"),
            segment("c", 0, 2, (2,), None),
        ],
    ]
    found = []
    for plan in plans:
        batch = build_batch(plan, PAGE_TOKENS)
        step = ops.prepare(batch.rows)
        found.append(
            decoder.forward(batch.tokens, step, lora.prepare(batch.lora, adapters), batch.last)
        )
    return found


def with_arena(
    model: LoadedModel, backends: Callable[[Arena], tuple[OpsBackend, LoraBackend]]
) -> list[torch.Tensor]:
    arena = Arena(CONFIG, PAGES, PAGE_TOKENS, torch.float32)
    arena.elements.fill_(float("nan"))
    ops, lora = backends(arena)
    adapters = {
        "x": adapter(arena, "x", 5, [4, 9, 6, 7, 10, 12], 1),
        "y": adapter(arena, "y", 3, [5, 8, 11, 13], 2),
    }
    return hidden(model, arena, ops, lora, adapters)


def check_whole_model() -> None:
    model = synthetic_model(CONFIG)
    rope = rope_tables(CONFIG, 64)
    shapes = {m: CONFIG.module_shape(m) for m in MODULES}
    head = model.weights["lm_head.weight"].t()
    with torch.inference_mode():
        expected = with_arena(
            model,
            lambda a: (TorchOps(CONFIG, a, rope), GroupedLora(2, shapes, torch.float32)),
        )
        found = with_arena(
            model,
            lambda a: (
                TritonOps(ops_shape(), a.elements, PAGE_TOKENS, rope),
                SgmvLora(2, shapes, a.elements, slots=2, max_rank=8),
            ),
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one @ head, other @ head, atol=1e-3, rtol=1e-3)


def check_replayed_steps() -> None:
    """The runner of a device in the CPU's place: decode steps replayed, launched, and in plain
    torch, of rows that come and go, with one adapter on some."""
    config = synthetic_config(layers=1, hidden=64, heads=4, kv_heads=2, head_dim=16, ff=96)
    model, cpu = synthetic_model(config), torch.device("cpu")
    recorder = Again()
    runners: list[TorchRunner] = [
        DeviceRunner(model, 40, 16, Accelerator(cpu, AtOnce(), AtOnce(), r, 8, 2, 1))
        for r in (recorder, None)
    ]
    runners.append(TorchRunner(model, 40, 16))
    recorder.replayed = 0
    with TemporaryDirectory() as folder:
        make_adapter(Path(folder) / "a", config, 3, seed=1)
        weights = read_adapter(Path(folder) / "a", config, torch.float32, runners[0].page_bytes)
    answers = []
    for runner in runners:
        runner.copy_in(weights, range(20, 20 + weights.pages))
        made: dict[str, list[int]] = {"a": [3], "b": [4], "c": [5]}
        for together in ("a", "ab", "ab", "b", "bc", "c"):
            segments = [
                Segment(
                    name, "t", weights.key if name == "b" else None, (made[name][-1],),
                    len(made[name]) - 1, ("abc".index(name),), True, False,
                )
                for name in together
            ]  # fmt: skip
            outcome = runner.execute(StepPlan(1, tuple(segments)))
            assert outcome.failed == {}
            for name in together:
                made[name].append(outcome.tokens[name])
        answers.append(made)
    assert recorder.replayed == 6
    assert answers[0] == answers[1] == answers[2]


def check_slots_follow_generations() -> None:
    """A key copied in anew, and a fifth adapter in a room of four, each computed as it is."""
    arena = Arena(CONFIG, PAGES, PAGE_TOKENS, torch.float32)
    shapes = {m: CONFIG.module_shape(m) for m in MODULES}
    lora = SgmvLora(2, shapes, arena.elements, slots=4, max_rank=8)
    x = torch.randn(2, CONFIG.hidden)
    copies = [("x", 5), ("y", 3), ("x", 3), ("z", 4), ("w", 2), ("v", 3), ("y", 5)]
    for generation, (key, rank) in enumerate(copies, 1):
        made = adapter(arena, key, rank, list(range(generation, generation + 6)), generation)
        lora.adopt(made)
        step = lora.prepare([Rows(None, 0, 1), Rows(key, 1, 2)], {key: made})
        assert step is not None
        y = torch.zeros(2, 2 * CONFIG.ff)
        step.apply(1, "gate_up", x, y)
        assert not y[0].any()
        expected = torch.cat(
            [
                x[1] @ torch.cat(made.blocks[1, m].a).T @ torch.cat(made.blocks[1, m].bt)
                for m in ("gate_proj", "up_proj")
            ]
        )
        torch.testing.assert_close(y[1], expected, atol=1e-4, rtol=1e-4)
