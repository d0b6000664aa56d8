"""A model's chat template: messages to the text it was trained on. Owns rendering; knows no tokens.

Templates are Jinja, as `tokenizer_config.json` carries them; they run in a sandbox, for a model's
folder is data. Where there is none, `NoTemplate` says what would help.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from engine.errors import ModelError

if TYPE_CHECKING:
    from jinja2.ext import Extension

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"
# A made-up model's: who speaks, a line each.
SYNTHETIC_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
_NO_JINJA = "chat templates need the package jinja2: the operator installs it and restarts"

Message = Mapping[str, str]


class ChatRefused(ModelError):
    """These messages cannot be made a prompt; the text is for the caller."""


@dataclass(frozen=True, slots=True)
class NoTemplate:
    """There is none. `reason` says why, and what would help."""

    reason: str

    def render(self, messages: Sequence[Message]) -> str:
        """Raises ChatRefused."""
        raise ChatRefused(self.reason)


class ChatTemplate:
    """A compiled template. Raises ModelError when it is none, or jinja2 is not installed."""

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None) -> None:
        """`tokens`: bos_token, eos_token and others the template may name."""
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise ModelError(_NO_JINJA) from None
        inside = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _generation_blocks()],
        )
        inside.globals["raise_exception"] = _raise
        inside.globals["strftime_now"] = time.strftime  # some prompts begin with the date
        inside.filters["tojson"] = _to_json
        try:
            self._template = inside.from_string(source)
        except TemplateError as e:
            line = getattr(e, "lineno", None)
            where = f" at its line {line}" if line else ""
            raise ModelError(f"the model's chat template is broken{where}: {e}") from None
        self._tokens = dict(tokens or {})

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt, up to where the assistant begins. Raises ChatRefused: what the template
        itself objects to, or that it fails at these messages."""
        try:
            return self._template.render(
                messages=[dict(m) for m in messages],
                # None, not absent: templates ask `tools is not none`, as transformers passes them.
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._tokens,
            )
        except ChatRefused:
            raise
        except Exception as e:
            # Its text may quote a message: only what kind of fault it was is told.
            raise ChatRefused(
                f"the model's chat template fails at these messages ({type(e).__name__}): "
                "send them in the order system, user, assistant, user, ..."
            ) from None


Template = ChatTemplate | NoTemplate


def made(source: str, tokens: Mapping[str, str] | None = None) -> Template:
    """The template of `source`; a broken one is one that is not there."""
    try:
        return ChatTemplate(source, tokens)
    except ModelError as e:
        return NoTemplate(str(e))


def of_folder(folder: Path) -> Template:
    """The template of a Hugging Face folder: `chat_template.jinja`, else what
    `tokenizer_config.json` holds (its `default`, where it holds several)."""
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        config = {}
    config = config if isinstance(config, dict) else {}
    try:
        source: Any = (folder / TEMPLATE_FILE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        source = config.get("chat_template")
    if isinstance(source, list):
        named = {t.get("name"): t.get("template") for t in source if isinstance(t, dict)}
        source = named.get("default")
    if not isinstance(source, str):
        return NoTemplate(
            "this model has no chat template: use POST /v1/completions, or the operator puts a "
            f"{TEMPLATE_FILE} into the model's folder and restarts"
        )
    return made(source, _special_tokens(config))


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens = {"bos_token": "", "eos_token": ""}
    for name in (*tokens, "unk_token", "pad_token", "sep_token", "cls_token"):
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def _generation_blocks() -> type[Extension]:
    """`{% generation %}` marks what a model is trained on; in a prompt it is what it holds."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class GenerationBlocks(Extension):
        tags = {"generation"}  # noqa: RUF012 - as the base class declares it

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            held = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(held, lineno=line)

    return GenerationBlocks


def _raise(message: object) -> NoReturn:
    raise ChatRefused(f"the model's chat template refuses these messages: {str(message)[:200]}")


def _to_json(value: object, indent: int | None = None) -> str:
    """As transformers has it: unescaped, for a prompt is no HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
