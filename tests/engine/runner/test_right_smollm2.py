"""SmolLM2-135M in float32 on the real core equals transformers and PEFT: 200 prompts with each of
twelve adapters and without one, mixed. Skipped where the model cannot be had."""

from __future__ import annotations

import shutil

import pytest
from oracle_engine import Engine, check_mode, kernels
from oracle_grid import SHARING, grid, twelve
from oracle_judge import check_right

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("smollm2")]

PAGE_TOKENS = 4
PAGES = 800  # of 184 kB; the twelve adapters alone need twice as many

ROLES = ("a tour guide", "a patient doctor", "an old sailor", "a school teacher",
         "a careful lawyer", "a chef in Lyon", "a curious child", "a football coach")  # fmt: skip
MANNERS = ("in one short sentence", "with a list of three items", "as a rhyme",
           "and explain every step", "in the style of a newspaper")  # fmt: skip
QUESTIONS = ("Why is the sky blue?", "What is the capital of France?", "How do bees make honey?",
             "Write about the sea.", "2, 3, 5, 7, 11,", "Was ist ein Baum?", "def fibonacci(n):",
             "Who wrote Hamlet, and when?", "Is it safe to eat snow?")  # fmt: skip


@pytest.fixture(scope="module")
def prompts(smollm2):
    texts = [
        f"Q ({role}, {manner}): {QUESTIONS[(n + i) % len(QUESTIONS)]}\nA:"
        for n, (role, manner) in enumerate((r, m) for r in ROLES for m in MANNERS)
        for i in range(SHARING)
    ]
    encoded = [tuple(smollm2.tokenizer.encode(t)) for t in texts]
    assert len(set(encoded)) == 200
    return encoded


@pytest.fixture(scope="module")
def adapters(smollm2, smollm2_hf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("twelve")
    yield twelve(folder, smollm2.config, smollm2_hf())
    shutil.rmtree(folder)  # a third of a gigabyte


@pytest.mark.parametrize(("mode", "each"), [("native", 13), ("torch", 1)])
def test_the_whole_grid_equals_peft(smollm2, smollm2_judge, adapters, prompts, mode, each):
    wanted = grid(prompts, [None, *adapters], each=each, lengths=(2, 4, 6, 12), told_each=20)
    with (
        kernels(mode),
        Engine(
            smollm2,
            adapters,
            pages=PAGES,
            page_tokens=PAGE_TOKENS,
            slots=32,
            step_tokens=256,
            host_adapters=6,
        ) as engine,
    ):
        check_mode(engine, mode)
        answers, seen = engine.serve(wanted, in_flight=64, preempt_each=15), engine.seen()
    print(seen)
    seen.check()
    check_right(smollm2_judge, answers, smollm2_judge.own_distance(answers[:: 41 * each]))
