"""Chat templates render as transformers renders them, and refuse in words that name the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from engine.errors import ModelError
from engine.model import chat_template
from engine.model.chat_template import ChatRefused, ChatTemplate, NoTemplate, made, of_folder
from engine.model.text import load_tokenizer, synthetic_json

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
STRICT = """{{ bos_token }}{% for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + message['content'] | trim + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}"""
DATED = (
    "{% set today = strftime_now('%Y') %}{{ today }}{% for message in messages %}\n"
    "    {% generation %}\n{% set said = message.content %}{{ said + today }}\n"
    "    {% endgeneration %}\n{% endfor %}{{ said is defined }}"
)
ASKS_FOR_TOOLS = (
    "{% if tools is not none %}{{ tools[0].name }}{% endif %}"
    "{% if documents is not none %}{{ documents | length }}{% endif %}{{ messages[0].content }}"
)
TALK = [
    {"role": "user", "content": " é 👨‍👩‍👧 <b>\n"},
    {"role": "assistant", "content": "yes"},
    {"role": "user", "content": "and?"},
]


@pytest.mark.parametrize(
    "source", [CHATML, STRICT, ASKS_FOR_TOOLS, DATED, chat_template.SYNTHETIC_TEMPLATE]
)
def test_it_renders_as_transformers_does(source: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(synthetic_json(512))
    oracle = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "t.json"), bos_token="<s>", eos_token="</s>"
    )
    oracle.chat_template = source
    expected = oracle.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    assert ChatTemplate(source, tokens).render(TALK) == expected


def test_what_a_template_objects_to_is_said_in_its_words() -> None:
    with pytest.raises(ChatRefused, match="roles must alternate"):
        ChatTemplate(STRICT).render(TALK[1:])


def test_a_fault_inside_a_template_quotes_no_message() -> None:
    broken = ChatTemplate("{{ messages[0].content.nothing.more }}")
    with pytest.raises(ChatRefused) as e:
        broken.render([{"role": "user", "content": "my secret"}])
    assert "UndefinedError" in str(e.value)
    assert "secret" not in str(e.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_template_reaches_nothing_outside_its_messages(source: str) -> None:
    with pytest.raises(ChatRefused):
        ChatTemplate(source).render(TALK)


def test_a_broken_template_is_none_and_says_where() -> None:
    with pytest.raises(ModelError, match="at its line 2"):
        ChatTemplate("\n{% for %}")
    none = made("{% for %}")
    assert isinstance(none, NoTemplate)
    with pytest.raises(ChatRefused, match="broken"):
        none.render(TALK)


def test_a_folder_keeps_its_template_in_one_of_three_places(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"eos_token": {"content": "</s>"}}))
    with pytest.raises(ChatRefused, match=r"puts a chat_template\.jinja into the model's folder"):
        of_folder(tmp_path).render(TALK)
    config.write_text(json.dumps({"chat_template": "one {{ eos_token }}", "eos_token": "E"}))
    assert of_folder(tmp_path).render(TALK) == "one E"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "two"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert of_folder(tmp_path).render(TALK) == "two"
    (tmp_path / "chat_template.jinja").write_text("three")
    assert of_folder(tmp_path).render(TALK) == "three"


def test_a_folder_without_readable_files_has_none(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("[]")
    assert isinstance(of_folder(tmp_path), NoTemplate)
    assert isinstance(of_folder(tmp_path / "nowhere"), NoTemplate)


def test_special_tokens_are_the_templates_own_and_no_others_are_added() -> None:
    synthetic = load_tokenizer("synthetic")
    ids = synthetic.chat([{"role": "user", "content": "hi"}])
    assert synthetic.decode(ids) == "user: hi\nassistant:"
    assert b"".join(map(synthetic.piece, ids)).decode() == "user: hi\nassistant:"


def test_without_jinja_a_chat_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ChatRefused, match="need the package jinja2"):
        made(CHATML).render(TALK)
