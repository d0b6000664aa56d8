"""The side of transformers with PEFT: their own forward with a KV cache, stepped here.

`how` "mixed": rows of different adapters in one batch (PEFT's `adapter_names`); "one": one adapter
at a time (`set_adapter`), its streams together. A forward and an argmax a step, nothing else:
leaner than `generate`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from wire import Ask, Job, Played, serve

# Of a round that goes adapter by adapter so many groups are played: all have one shape, and one
# after the other takes a minute.
MOST_GROUPS = 3


class Peft:
    def __init__(self, job: Job) -> None:
        import peft
        import transformers

        dtype = getattr(torch, job.dtype)
        base = transformers.AutoModelForCausalLM.from_pretrained(job.folder, dtype=dtype).eval()
        tuned: Any = base
        for i, folder in enumerate(job.adapters):
            if tuned is base:
                tuned = peft.PeftModel.from_pretrained(base, Path(folder), adapter_name=f"a{i}")
            else:
                tuned.load_adapter(folder, adapter_name=f"a{i}")
        self._model = tuned.to(dtype).eval()
        self._mixed = job.how == "mixed"
        way = "adapter_names, mixed" if self._mixed else f"set_adapter, {MOST_GROUPS} groups played"
        self._about = f"transformers {transformers.__version__} + PEFT {peft.__version__}, {way}"

    def about(self) -> str:
        return self._about

    def play(self, ask: Ask) -> Played:
        """Mixed: all streams. One at a time: those of the first adapters, the rest left out."""
        tokens: list[list[int]] = [[] for _ in ask.prompts]
        steps: list[tuple[float, list[int]]] = []
        began = time.perf_counter()
        with torch.inference_mode():
            for streams, options in self._batches(ask):
                for made in self._decode([ask.prompts[i] for i in streams], ask, options):
                    steps.append((time.perf_counter() - began, streams))
                    for i, token in zip(streams, made, strict=True):
                        tokens[i].append(token)
        return Played(steps, tokens)

    def close(self) -> None:
        """Nothing of it outlives the process."""

    def _batches(self, ask: Ask) -> Iterator[tuple[list[int], dict[str, Any]]]:
        if self._mixed:
            names = ["__base__" if a is None else f"a{a}" for a in ask.adapters]
            yield list(range(len(names))), {"adapter_names": names}
            return
        groups: dict[int, list[int]] = {}
        for i, a in enumerate(ask.adapters):
            if a is not None:
                groups.setdefault(a, []).append(i)
        for a, streams in list(groups.items())[:MOST_GROUPS]:
            self._model.set_adapter(f"a{a}")
            yield streams, {}

    def _decode(
        self, prompts: list[list[int]], ask: Ask, options: dict[str, Any]
    ) -> Iterator[list[int]]:
        ids, cache = torch.tensor(prompts), None
        for _ in range(ask.output_tokens):
            out = self._model(
                input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1, **options
            )
            cache = out.past_key_values
            chosen = out.logits[:, -1].argmax(-1)
            yield chosen.tolist()
            ids = chosen[:, None]


if __name__ == "__main__":
    serve(Peft)
