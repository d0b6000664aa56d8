"""Our side: the real core with scheduler, pool and ledger, its telemetry sent to a store process.

One thread steps, as in a worker; no HTTP, as with the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.threads import bound_spinning

bound_spinning()

import torch
from wire import Ask, Job, Played, serve

from benchmarks.core_rig import CoreRig
from engine.model.loaders import load_model


class Ours:
    def __init__(self, job: Job) -> None:
        folders = [Path(f) for f in job.adapters]
        model = load_model(job.model, job.dtype)
        self._rig = CoreRig(model, folders, streams=job.streams)

    def about(self) -> str:
        return f"tenantscope, {torch.get_num_threads()} threads, ledger and telemetry on"

    def play(self, ask: Ask) -> Played:
        tokens: list[list[int]] = [[] for _ in ask.prompts]
        steps: list[tuple[float, list[int]]] = []
        for step in self._rig.play(ask.prompts, ask.adapters, ask.output_tokens):
            steps.append((step.at_s, [i for i, _ in step.tokens]))
            for i, token in step.tokens:
                tokens[i].append(token)
        return Played(steps, tokens)

    def close(self) -> None:
        self._rig.close()


if __name__ == "__main__":
    serve(Ours)
