"""`tenantscope generate`: the answer it prints is the model's, one or several side by side."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from console.cli import invoke
from engine.generate import Wanted, answer_all
from engine.generate_cli import Page
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter
from engine.model.text import Tokenizer
from engine.scheduling.shaping import Shaping


@pytest.fixture(scope="module")
def model():
    return load_model("synthetic", "float32")


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    return [make_adapter(root / n / "same-name", model.config, 4, seed=len(n)) for n in ("a", "bb")]


def run(capsys, *arguments):
    code = invoke(["generate", "--model", "synthetic", "--dtype", "float32", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_answers_side_by_side_are_each_as_it_is_alone(model, folders):
    wanted = Wanted((5, 6, 7), 12, ignore_eos=True)
    together = answer_all(model, [None, *folders], wanted)
    alone = [answer_all(model, [f], wanted)[0] for f in (None, *folders)]
    assert [a.tokens for a in together] == [a.tokens for a in alone]
    assert len({a.tokens for a in together}) == 3
    assert [a.adapter for a in together] == [None, "same-name", "same-name-2"]
    assert [len(a.tokens) for a in together] == [12] * 3
    assert [a.reason for a in together] == ["length"] * 3


def test_pieces_join_to_the_text_and_draws_repeat_with_a_seed(model):
    heard: list[str] = []
    wanted = Wanted((9, 9), 16, temperature=1.2, seed=4, shaping=Shaping(top_k=30, min_p=0.01))
    (first,) = answer_all(model, [None], wanted, on_text=lambda place, piece: heard.append(piece))
    (again,) = answer_all(model, [None], wanted)
    assert "".join(heard) == first.text == model.tokenizer.decode(first.tokens)
    assert again.tokens == first.tokens


def test_a_penalised_answer_is_what_biases_by_its_own_counts_give_token_by_token(model):
    prompt = (5, 6, 7)
    shaping = Shaping(frequency_penalty=-1.9, presence_penalty=0.4)
    wanted = Wanted(prompt, 10, shaping=shaping, ignore_eos=True)
    (penalised,) = answer_all(model, [None], wanted)
    made: tuple[int, ...] = ()
    while len(made) < 10:
        biases = tuple((t, 1.9 * n - 0.4) for t, n in Counter(made).items())
        one = Wanted((*prompt, *made), 1, shaping=Shaping(logit_bias=biases), ignore_eos=True)
        made += answer_all(model, [None], one)[0].tokens
    assert penalised.tokens == made
    (plain,) = answer_all(model, [None], Wanted(prompt, 10, ignore_eos=True))
    assert plain.tokens != made


def test_the_end_mark_ends_an_answer_and_is_not_shown(model):
    end = model.tokenizer.eos_ids[0]
    wanted = Wanted((5, 6), 8, shaping=Shaping(logit_bias=((end, 100.0),)))
    (answer,) = answer_all(model, [None], wanted)
    assert (answer.tokens, answer.text, answer.reason) == ((end,), "", "stop")


def test_text_goes_to_stdout_and_json_says_the_same(capsys):
    asked = ("--prompt", "hello", "--max-tokens", 6)
    code, text, said = run(capsys, *asked)
    assert code == 0
    assert "6 tokens in" in said
    code, out, _ = run(capsys, *asked, "--json")
    told = json.loads(out)
    assert (code, told["answers"][0]["text"] + "\n") == (0, text)
    assert told["answers"][0]["finish_reason"] == "length"


def test_several_answers_are_printed_one_after_the_other_with_their_names(capsys, folders):
    arguments = ("--prompt", "hello", "--max-tokens", 4, "--base", "--adapter", folders[0])
    code, out, _ = run(capsys, *arguments, "--adapter", folders[1])
    assert code == 0
    assert out.startswith("== base\n")
    assert "\n\n== same-name\n" in out
    assert "\n\n== same-name-2\n" in out


def test_an_adapter_that_is_refused_is_said_and_fails(capsys, tmp_path):
    code, out, said = run(capsys, "--prompt", "hello", "--adapter", tmp_path, "--base")
    assert (code, out) == (1, "")
    assert f"adapter {tmp_path.name!r} is left out" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), '--prompt "The capital of France is"'),
        (("--prompt", "x", "--system", "y"), "only together with --chat"),
        (("--prompt", "x", "--base"), "only beside --adapter"),
        (("--prompt", "x", "--temperature", "nan"), "no finite number"),
        (("--prompt", "x", "--max-tokens", 10**6), "the model's context holds"),
        (("--prompt", ""), "the prompt holds no token"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error_that_says_why(capsys, arguments, said):
    code, out, told = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in told


def test_a_chat_needs_a_template(capsys, monkeypatch):
    assert run(capsys, "--prompt", "x", "--chat", "--max-tokens", 1)[0] == 0
    monkeypatch.setattr(Tokenizer, "chats", False)
    code, out, told = run(capsys, "--prompt", "x", "--chat")
    assert (code, out) == (2, "")
    assert "no chat template; leave --chat out" in told


def test_a_terminal_prints_what_a_model_says_and_obeys_none_of_it(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    page = Page(["base"])
    page.add(0, "a\x1b[2Jb\n\tc")
    page.end()
    assert capsys.readouterr().out == "a\\x1b[2Jb\n\tc\n"
