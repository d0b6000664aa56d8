"""llama.cpp's side: its server in this process (xllamacpp), each stream asked by a thread.

Adapters are chosen a request; it does not put different ones in one batch. Token ids are told by
its HTTP endpoint only, so it alone is asked over loopback: some 30 us a token of ours, beside
the milliseconds that a token takes it. Started with the interpreter of an environment that has
xllamacpp.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from wire import Ask, Job, Played, serve


class Llama:
    def __init__(self, job: Job) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = job.gguf
        params.n_parallel = job.streams
        params.n_ctx = job.streams * (job.prompt_tokens + job.output_tokens + 16)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = os.cpu_count() or 1
        params.cache_prompt = False
        params.port = 0
        params.n_threads_http = job.streams + 2
        params.verbosity = 0
        params.lora_init_without_apply = True
        adapters = []
        for path in job.gguf_adapters:
            adapter = xllamacpp.CommonAdapterLoraInfo()
            adapter.path, adapter.scale = path, 1.0
            adapters.append(adapter)
        params.lora_adapters = adapters
        self._server = xllamacpp.Server(params)
        self._at = urlsplit(self._server.listening_address)
        self._about = f"llama.cpp (xllamacpp {xllamacpp.__version__}), {os.path.basename(job.gguf)}"

    def about(self) -> str:
        return self._about

    def play(self, ask: Ask) -> Played:
        tokens: list[list[int]] = [[] for _ in ask.prompts]
        steps: list[tuple[float, list[int]]] = []
        wrong: list[str] = []
        began = time.perf_counter()

        def stream(i: int) -> None:
            which = ask.adapters[i]
            body = {
                "prompt": ask.prompts[i],
                "n_predict": ask.output_tokens,
                "temperature": 0.0,
                "ignore_eos": True,
                "cache_prompt": False,
                "stream": True,
                "lora": [] if which is None else [{"id": which, "scale": 1.0}],
            }
            try:
                for ids in self._completion(body):
                    steps.append((time.perf_counter() - began, [i] * len(ids)))
                    tokens[i] += ids
            except Exception as e:  # told by the round, below
                wrong.append(repr(e))

        threads = [threading.Thread(target=stream, args=(i,)) for i in range(len(ask.prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise RuntimeError(f"llama.cpp refused a request: {wrong[0]}")
        return Played(sorted(steps), tokens)

    def close(self) -> None:
        """Nothing of it outlives the process."""

    def _completion(self, body: dict[str, Any]) -> Iterator[list[int]]:
        """The tokens of one answer as they come."""
        connection = http.client.HTTPConnection(self._at.hostname or "", self._at.port)
        connection.request(
            "POST", "/completion", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {response.read()[:200]!r}")
        for line in response:
            if line.startswith(b"data: {"):
                ids = json.loads(line[6:]).get("tokens") or []
                if ids:
                    yield ids
        connection.close()


if __name__ == "__main__":
    serve(Llama)
