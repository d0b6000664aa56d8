"""`tenantscope generate`: one prompt, one answer, or several side by side. Owns options and what a
person reads; generates nothing itself.

stdout is the text (or JSON), stderr narration. Exit codes: 0 ok, 1 failed, 2 usage, 130
interrupted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.model_options import model_options
from engine.threads import bound_spinning
from telemetry.finite_option import Finite
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from engine.generate import Answer
    from engine.model.text import Tokenizer

_NO_PROMPT = """\
--prompt is missing: give it a text, or - to read one from stdin.

    tenantscope generate --prompt "The capital of France is"
"""
BASE = "base"


@click.command()
@model_options
@click.option(
    "--adapter",
    "adapters",
    multiple=True,
    metavar="DIR",
    type=NamedPath(exists=True, file_okay=False, path_type=Path),
    help="A PEFT folder; given several times, each answers the prompt, in one batch.",
)
@click.option("--base", is_flag=True, help="With adapters: the base model's answer too, first.")
@click.option("--prompt", metavar="TEXT", help="What to go on from; - reads it from stdin.")
@click.option("--chat", is_flag=True, help="The prompt is a message, put into the chat template.")
@click.option("--system", metavar="TEXT", help="With --chat: what the system says before it.")
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option(
    "--temperature",
    type=Finite(0, 2),
    default=0.0,
    show_default=True,
    help="0 takes the likeliest token each time.",
)
@click.option("--top-p", type=Finite(0, 1), default=1.0, show_default=True)
@click.option("--top-k", type=click.IntRange(0), default=0, help="Among so many likeliest; 0: all.")
@click.option("--min-p", type=Finite(0, 1), default=0.0, show_default=True)
@click.option("--presence-penalty", type=Finite(-2, 2), default=0.0, show_default=True)
@click.option("--frequency-penalty", type=Finite(-2, 2), default=0.0, show_default=True)
@click.option(
    "--repetition-penalty",
    type=Finite(0.01, 2),
    default=1.0,
    show_default=True,
    help="Over prompt and answer; 1 changes nothing.",
)
@click.option("--seed", type=click.IntRange(0, (1 << 63) - 1), help="The same draws every time.")
@click.option("--ignore-eos", is_flag=True, help="Go on past the model's end mark.")
@click.option("--json", "as_json", is_flag=True, help="For programs, when all is done.")
def generate(
    model: str,
    dtype: str,
    adapters: tuple[Path, ...],
    base: bool,
    prompt: str | None,
    chat: bool,
    system: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Answer one prompt, here and now, without a server.

    It goes through the engine's own scheduler, pool and kernels, as a request would. The text
    comes as it is made; how fast it was is said on stderr.

    \b
      tenantscope generate --prompt "The capital of France is"
      tenantscope generate --chat --prompt "Say hi." --temperature 0.8 --seed 7
      tenantscope generate --prompt - --adapter adapters/a --adapter adapters/b --base < prompt.txt
    """
    if prompt is None:
        raise click.UsageError(_NO_PROMPT)
    if system is not None and not chat:
        raise click.UsageError("--system: only together with --chat")
    if base and not adapters:
        raise click.UsageError("--base: only beside --adapter; alone the base model answers anyhow")
    text = sys.stdin.read() if prompt == "-" else prompt
    bound_spinning()
    from engine.generate import Wanted, answer_all, names_of
    from engine.model.loaders import load_model
    from engine.scheduling.shaping import Shaping

    def say(line: str) -> None:
        click.echo(line, err=True)

    loaded = load_model(model, dtype, progress=say)
    folders: list[Path | None] = [None] if base or not adapters else []
    folders += adapters
    wanted = Wanted(
        prompt=_ids(loaded.tokenizer, text, system, chat),
        max_tokens=asked["max_tokens"],
        temperature=asked["temperature"],
        top_p=max(asked["top_p"], 1e-9),
        seed=asked["seed"],
        shaping=Shaping(
            asked["top_k"],
            asked["min_p"],
            asked["presence_penalty"],
            asked["frequency_penalty"],
            asked["repetition_penalty"],
        ),
        ignore_eos=asked["ignore_eos"],
    )
    names = names_of(adapters)
    page = Page([names[f] if f is not None else BASE for f in folders], live=not as_json)
    answers = answer_all(loaded, folders, wanted, on_text=page.add, say=say)
    if as_json:
        told = [_plain(a) for a in answers]
        click.echo(
            json.dumps({"model": loaded.name, "prompt_tokens": len(wanted.prompt), "answers": told})
        )
    else:
        page.end()
    say(summary(answers))


def _ids(tokenizer: Tokenizer, text: str, system: str | None, chat: bool) -> tuple[int, ...]:
    if not chat:
        return tuple(tokenizer.encode(text))
    if not tokenizer.chats:  # its own refusal speaks of the HTTP API
        raise click.UsageError("--chat: this model has no chat template; leave --chat out")
    said = [] if system is None else [{"role": "system", "content": system}]
    return tuple(tokenizer.chat([*said, {"role": "user", "content": text}]))


def _plain(answer: Answer) -> dict[str, Any]:
    return {
        "adapter": answer.adapter,
        "text": answer.text,
        "tokens": list(answer.tokens),
        "finish_reason": answer.reason,
        "ttft_s": answer.ttft_s,
        "seconds": answer.seconds,
    }


def summary(answers: tuple[Answer, ...]) -> str:
    """How much and how fast."""
    tokens = sum(len(a.tokens) for a in answers)
    whole_s = max(a.seconds for a in answers)
    first_s = max(a.ttft_s for a in answers)
    said = f"{tokens} tokens in {whole_s:.2f} s, the first after {first_s:.2f} s"
    later = tokens - len(answers)
    if later and whole_s > first_s:
        said += f"; then {later / (whole_s - first_s):.1f} tokens/s"
    return said


class Page:
    """Texts that come at once, written one after the other: the first as it comes, each later one
    from what has been kept of it. Owns stdout while it lasts."""

    def __init__(self, titles: list[str], live: bool = True) -> None:
        self._titles = titles if len(titles) > 1 else None
        self._kept = [""] * len(titles)
        self._live = live
        self._tty = sys.stdout.isatty()
        self._begun = False

    def add(self, place: int, piece: str) -> None:
        if self._live and place == 0:
            self._begin()
            self._write(piece)
        else:
            self._kept[place] += piece

    def end(self) -> None:
        """All texts are whole."""
        self._begin()
        self._write("\n")
        for place in range(1, len(self._kept)):
            self._head(place)
            self._write(self._kept[place] + "\n")

    def _begin(self) -> None:
        """Not before there is a text: where an adapter is refused nothing is written."""
        if not self._begun:
            self._begun = True
            self._head(0)

    def _head(self, place: int) -> None:
        if self._titles is not None:
            from telemetry.plain import safe

            self._write(("\n" if place else "") + f"== {safe(self._titles[place])}\n")

    def _write(self, text: str) -> None:
        if self._tty:  # a model's text may hold anything: a terminal is to print it, not to obey
            from telemetry.plain import safe

            text = "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))
        click.echo(text, nl=False)
