"""Greedy tokens of mixed traffic on the real core equal transformers and PEFT, whatever it goes
through: chunks, preemption, eviction and reload, cached prefixes."""

from __future__ import annotations

import pytest
from oracle_engine import Engine, check_mode, kernels
from oracle_grid import FAMILIES, Family, grid, prompts
from oracle_judge import TOLERANCE, Answer, check_right, distance

pytestmark = pytest.mark.xdist_group("right")

PAGE_TOKENS = 4
PAGES = 280  # of a Llama here; the twelve adapters alone need three times as many
HOST_ADAPTERS = 6  # reloads of the others begin on disk


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    made: dict[str, Family] = {}

    def of(name: str) -> Family:
        if name not in made:
            made[name] = Family(tmp_path_factory.mktemp(name), name)
        return made[name]

    return of


def serve(made: Family, mode: str, wanted, **options) -> list[Answer]:
    """On a pool that is too small for everything."""
    pages = PAGES * 32 // min(32, made.loaded.config.kv_width)  # small ones hold less of an adapter
    with (
        kernels(mode),
        Engine(
            made.loaded,
            made.twelve,
            pages=pages,
            page_tokens=PAGE_TOKENS,
            host_adapters=HOST_ADAPTERS,
            slots=12,
            adapters_per_step=5,
            **options,
        ) as engine,
    ):
        check_mode(engine, mode)
        answers, seen = engine.serve(wanted), engine.seen()
    print(seen)
    seen.check()
    return answers


@pytest.mark.parametrize("mode", ["torch", "native"])
def test_mixed_traffic_through_everything_equals_peft(family, mode):
    made = family("Llama")
    wanted = grid(prompts(25, 1, PAGE_TOKENS), [None, *made.twelve], each=3, lengths=(4, 10, 32))
    answers = serve(made, mode, wanted, by_steps=True)
    check_right(made.judge, answers)


def test_the_reference_tells_every_adapter_from_every_other(family):
    """Else any of them could have served any request."""
    made = family("Llama")
    tokens = prompts(1, 2, PAGE_TOKENS)[0]
    rows = [made.judge.logits(a, [tokens], [1])[0] for a in (None, *made.twelve.values())]
    least = min(distance(a, b) for i, a in enumerate(rows) for b in rows[:i])
    assert least > 50 * TOLERANCE


def check_grid(made: Family, mode: str, each: int) -> None:
    wanted = grid(prompts(200, 3, PAGE_TOKENS), [None, *made.twelve], each=each)
    assert len(wanted) == 200 * each
    answers = serve(made, mode, wanted)
    check_right(made.judge, answers, made.judge.own_distance(answers[::131]))


@pytest.mark.full
@pytest.mark.parametrize("mode", ["torch", "native"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_whole_grid_equals_peft_or_is_nearer_than_twice_its_own_error(family, name, mode):
    check_grid(family(name), mode, each=13)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["avx512", "avx2", "plain"])
def test_every_instruction_set_equals_peft(family, mode):
    check_grid(family("Qwen3"), mode, each=3)
