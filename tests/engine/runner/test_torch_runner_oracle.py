"""Mixed batches compute what transformers and PEFT compute, one request at a time, in float32."""

from __future__ import annotations

import random

import pytest
from oracle import RANKS, Bench, Sequence, check, save_adapter

from engine.runner.torch_runner import TorchRunner


def mixed(bench: Bench, hf, chunk=10_000, lengths=(5, 37, 64, 16, 90, 3, 128, 33)):
    """Two base rows and an adapter of each rank."""
    rng = random.Random(3)
    folders = [None, *hf.adapters.values(), None]
    return [
        Sequence(
            f"r{i}",
            bench.load(folder) if folder else None,
            folder,
            [rng.randrange(1, 512) for _ in range(n)],
            chunk=chunk if isinstance(chunk, int) else chunk[i % len(chunk)],
        )
        for i, (folder, n) in enumerate(zip(folders, lengths, strict=True))
    ]


def check_all(hf, sequences):
    for s in sequences:
        check(s, hf.oracle(s.folder, s.tokens))


@pytest.mark.parametrize("shape", ["tied", "untied"])
def test_a_mixed_batch_of_base_rows_and_six_ranks_equals_peft(shape, request):
    hf = request.getfixturevalue(shape)
    bench = Bench(hf.loaded)
    sequences = mixed(bench, hf)
    for _ in range(12):
        bench.step(sequences)
    check_all(hf, sequences)


def test_adapters_change_the_answer(tied):
    bench = Bench(tied.loaded)
    sequences = mixed(bench, tied)
    for s in sequences:
        s.prompt = sequences[4].prompt
    for _ in range(8):
        bench.step(sequences)
    assert len({tuple(s.output) for s in sequences}) >= len(RANKS)
    assert sequences[0].output == sequences[-1].output  # both base rows


def test_chunked_prefill_of_odd_sizes_beside_decode_rows_equals_peft(tied):
    bench = Bench(tied.loaded)
    sequences = mixed(bench, tied, chunk=(7, 1, 17, 10_000, 31, 2, 13, 5))
    while going := [s for s in sequences if len(s.output) < 8]:
        bench.step(going)
    check_all(tied, sequences)


def test_recompute_after_preemption_in_other_pages_equals_peft(untied):
    bench = Bench(untied.loaded)
    sequences = mixed(bench, untied, chunk=29)
    for _ in range(9):
        bench.step(sequences)
    for s in sequences[::2]:
        before = set(s.pages)
        bench.preempt(s)
        bench.step([s])
        assert not before & set(s.pages)
    for _ in range(9):
        bench.step(sequences)
    check_all(untied, sequences)


def test_an_adapter_evicted_and_reloaded_to_other_pages_equals_peft(tied):
    bench = Bench(tied.loaded)
    sequences = mixed(bench, tied)
    for _ in range(4):
        bench.step(sequences)
    for s in sequences[1:-1]:
        before = set(bench.held[s.adapter])
        bench.evict(s.adapter)
        assert bench.load(s.folder) == s.adapter
        assert not before & set(bench.held[s.adapter])
        bench.step([x for x in sequences if x is not s])
    for _ in range(4):
        bench.step(sequences)
    check_all(tied, sequences)


def test_pages_of_one_adapter_handed_to_another_serve_the_other(tied):
    bench = Bench(tied.loaded)
    one, other = tied.adapters[33], tied.adapters[64]
    first = Sequence("first", bench.load(one), one, [5, 6, 7])
    bench.step([first])
    bench.evict(first.adapter)
    bench.free.extend(bench.free[: bench.read(one).pages])  # hand the same pages out next
    del bench.free[: bench.read(one).pages]
    second = Sequence("second", bench.load(other), other, [5, 6, 7])
    for _ in range(4):
        bench.step([second])
    check_all(tied, [second])


@pytest.mark.parametrize("page_tokens", [4, 16, 48])
def test_page_size_does_not_change_the_answer(tied, page_tokens):
    bench = Bench(tied.loaded, pages=6400 // page_tokens, page_tokens=page_tokens)
    sequences = mixed(bench, tied, chunk=50)
    for _ in range(10):
        bench.step(sequences)
    check_all(tied, sequences)


@pytest.mark.parametrize(
    ("modules", "options"),
    [
        (["q_proj", "v_proj"], {"r": 8, "lora_alpha": 32}),
        (["down_proj"], {"r": 3, "lora_alpha": 1}),
        (["k_proj", "o_proj", "up_proj"], {"r": 12, "lora_alpha": 24, "use_rslora": True}),
        (
            ["q_proj", "gate_proj", "down_proj"],
            {
                "r": 4,
                "lora_alpha": 8,
                "rank_pattern": {"down_proj": 9, "layers.0.self_attn.q_proj": 2},
                "alpha_pattern": {r"layers\.1\.mlp\.gate_proj": 40},
            },
        ),
        (["q_proj", "up_proj"], {"r": 5, "lora_alpha": 10, "layers_to_transform": [1]}),
    ],
)
def test_module_subsets_patterns_and_rslora_equal_peft(untied, tmp_path, modules, options):
    folder = save_adapter(untied.folder, tmp_path / "a", 1, modules, **options)
    bench = Bench(untied.loaded)
    sequences = mixed(bench, untied)
    sequences[0] = Sequence("odd", bench.load(folder), folder, [9] * 20)
    for _ in range(6):
        bench.step(sequences)
    check_all(untied, sequences)


def test_long_contexts_beside_short_ones_equal_transformers(tied):
    bench = Bench(tied.loaded)
    rng = random.Random(5)
    key = bench.load(tied.adapters[16])
    sequences = [
        Sequence(f"r{i}", key if i % 2 else None, tied.adapters[16] if i % 2 else None,
                 [rng.randrange(1, 512) for _ in range(n)], chunk=200)
        for i, n in enumerate((900, 3, 700, 4, 5, 6, 100, 8, 90, 2))
    ]  # fmt: skip
    for _ in range(12):
        bench.step(sequences)
    check_all(tied, sequences)


def test_runner_tells_its_arena(tied):
    runner = TorchRunner(tied.loaded, 7, 16)
    assert (runner.pages, runner.page_tokens, runner.max_context) == (7, 16, 1024)
    assert runner.page_bytes == 16 * 3 * 2 * 2 * 16 * 4
