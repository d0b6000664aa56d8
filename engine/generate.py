"""One prompt answered once, by the base model and by adapters side by side; no HTTP.

The real core in this process: scheduler, pool, ledger and runner. Its telemetry goes nowhere, and
nothing is calibrated, for nobody waits behind anybody. One thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.build import build
from engine.clock import SystemClock
from engine.collector import few_collections
from engine.config import Limits, Settings, Tenant
from engine.core import EngineCore
from engine.costs import CostModel
from engine.errors import AdapterError, ConfigError, EngineError
from engine.model.loaders import LoadedModel
from engine.room import limits_for
from engine.scheduling.request import Ask, Outcome
from engine.scheduling.shaping import PLAIN, Shaping
from telemetry.records import Batch

_YOU = "you"
_LEAST = Limits(slots=1, pool_bytes=1 << 20, prefix_cache=False)
# Any will do: nobody is billed, and no step has a bound.
_COSTS = CostModel(0.02, 0.0005, 0.001, 1e-7, 0.001)
_STUCK_S = 120.0
_MOST_A_FILE_GROWS = 2  # float16 on disk, float32 in the arena


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of every answer."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    shaping: Shaping = PLAIN
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """`adapter` None: the base model's. `reason`: stop or length. Seconds from the question on."""

    adapter: str | None
    text: str
    tokens: tuple[int, ...]
    reason: str
    ttft_s: float
    seconds: float


class _Nowhere:
    def submit(self, batch: Batch) -> None:
        return None


def answer_all(
    model: LoadedModel,
    folders: Sequence[Path | None],
    wanted: Wanted,
    *,
    on_text: Callable[[int, str], None] = lambda place, text: None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Answer, ...]:
    """An answer for each folder, in their order; None is the base model.

    `on_text(place, piece)` hears the text as it comes. Raises AdapterError for a folder that is
    refused, ConfigError for a prompt and max_tokens that the model's context does not hold,
    EngineError where a request fails.
    """
    longest = len(wanted.prompt) + wanted.max_tokens
    if not wanted.prompt:
        raise ConfigError("the prompt holds no token: give it some text")
    if longest > model.config.max_context:
        raise ConfigError(
            f"{len(wanted.prompt)} tokens of prompt and max_tokens = {wanted.max_tokens} are "
            f"{longest}: the model's context holds {model.config.max_context}"
        )
    named = names_of([f for f in folders if f is not None])
    core = _core(model, named, len(folders), longest, say)
    try:
        names = [None if f is None else named[f] for f in folders]
        with few_collections():
            return _play(core, model, names, wanted, on_text)
    finally:
        core.close()


def names_of(folders: Sequence[Path]) -> dict[Path, str]:
    """A name each, the folder's own where that is no other's."""
    names: dict[Path, str] = {}
    for folder in dict.fromkeys(folders):
        own = os.path.basename(os.path.realpath(folder)) or "adapter"
        name, n = own, 2
        while name in names.values():
            name, n = f"{own}-{n}", n + 1
        names[folder] = name
    return names


def _core(
    model: LoadedModel,
    named: dict[Path, str],
    streams: int,
    context: int,
    say: Callable[[str], None],
) -> EngineCore:
    said: list[str] = []

    def hear(text: str) -> None:
        if " is left out: " in text:  # raised below
            said.append(text)
        else:
            say(text)

    files = (file for folder in named for file in folder.glob("*.safetensors"))
    limits = limits_for(
        model,
        streams=streams,
        context=context,
        adapters=len(named),
        adapter_bytes=_MOST_A_FILE_GROWS * sum(file.stat().st_size for file in files),
        least=_LEAST,
    )
    settings = Settings(
        engine="generate",
        model=model.name,
        limits=limits,
        tenants=(Tenant(_YOU),),
        adapters=tuple((name, str(folder)) for folder, name in named.items()),
    )
    clock = SystemClock()
    core = build(settings, clock, "generate", model, _Nowhere(), say=hear, costs=_COSTS).core
    refused = [name for name in named.values() if core.adapter_key(name) is None]
    if refused:
        core.close()
        raise AdapterError("; ".join(said))
    return core


def _play(
    core: EngineCore,
    model: LoadedModel,
    names: Sequence[str | None],
    wanted: Wanted,
    on_text: Callable[[int, str], None],
) -> tuple[Answer, ...]:
    stops = frozenset() if wanted.ignore_eos else frozenset(model.tokenizer.eos_ids)
    began = time.perf_counter()
    under_way: dict[str, _Open] = {}
    done: dict[int, Answer] = {}
    now = core.status().now_s
    for place, name in enumerate(names):
        request_id = f"answer-{place}"
        under_way[request_id] = _Open(place, name, model)
        core.submit(
            Ask(
                request_id=request_id,
                tenant=_YOU,
                prompt=wanted.prompt,
                max_tokens=wanted.max_tokens,
                arrived_s=now,
                admitted_s=now,
                adapter=core.adapter_key(name) if name is not None else None,
                adapter_name=name,
                temperature=wanted.temperature,
                seed=wanted.seed,
                stop_tokens=stops,
                top_p=wanted.top_p,
                shaping=wanted.shaping,
            )
        )
    while under_way:
        if not core.wait_for_work(_STUCK_S):
            raise EngineError(f"{len(under_way)} answers do not go on: nothing to do for them")
        result = core.step()
        seconds = time.perf_counter() - began
        for request_id, token in result.tokens:
            answer = under_way[request_id]
            piece = answer.take(token, seconds, is_stop=token in stops)
            if piece:
                on_text(answer.place, piece)
        for ending in result.ended:
            answer = under_way.pop(ending.request_id)
            if ending.outcome is not Outcome.FINISHED:
                whose = f"adapter {answer.name!r}" if answer.name else "the base model"
                raise EngineError(f"the answer of {whose} failed: {ending.reason}")
            rest = answer.stream.finish()
            if rest:
                answer.text += rest
                on_text(answer.place, rest)
            done[answer.place] = answer.over(ending.reason, seconds)
    return tuple(done[place] for place in range(len(names)))


class _Open:
    """An answer that is still coming."""

    def __init__(self, place: int, name: str | None, model: LoadedModel) -> None:
        self.place, self.name = place, name
        self.stream = model.tokenizer.stream()
        self.text = ""
        self._tokens: list[int] = []
        self._ttft_s = 0.0

    def take(self, token: int, now_s: float, is_stop: bool) -> str:
        """The text that the token completes."""
        if not self._tokens:
            self._ttft_s = now_s
        self._tokens.append(token)
        piece = "" if is_stop else self.stream.push(token)
        self.text += piece
        return piece

    def over(self, reason: str, now_s: float) -> Answer:
        return Answer(self.name, self.text, tuple(self._tokens), reason, self._ttft_s, now_s)
