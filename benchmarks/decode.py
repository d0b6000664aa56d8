"""Decode tokens/s of the runner beside transformers + PEFT on the same prompts, in one run.

    GOMP_SPINCOUNT=500 python benchmarks/decode.py [--rows 32] [--adapters 8] [--steps 24]

The variable is what the worker sets for itself (`engine.threads`). Medians over steps; ratios are
what to trust. No scheduler, no HTTP: plans are made by hand.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from engine.threads import bound_spinning

bound_spinning()

import torch

from engine.model.loaders import LoadedModel, load_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

PAGE_TOKENS = 16
# Seconds of prefill, median seconds of a decode step, each row's tokens.
Run = tuple[float, float, list[list[int]]]


def ours(
    model: LoadedModel, prompts: list[list[int]], folders: list[Path | None], steps: int
) -> Run:
    """Plans made by hand: prompts 512 tokens a step, then one token a row a step."""
    length = len(prompts[0]) + steps + 1
    a_row = -(-length // PAGE_TOKENS)
    runner = TorchRunner(model, len(prompts) * a_row + 1500, PAGE_TOKENS)
    keys: dict[Path, str] = {}
    first = len(prompts) * a_row
    for folder in dict.fromkeys(f for f in folders if f is not None):
        adapter = read_adapter(folder, model.config, model.dtype, runner.page_bytes)
        runner.copy_in(adapter, range(first, first + adapter.pages))
        first += adapter.pages
        keys[folder] = adapter.key

    def segment(i: int, tokens: list[int], start: int, is_prefill: bool) -> Segment:
        folder = folders[i]
        pages = tuple(range(i * a_row, (i + 1) * a_row))
        adapter = keys[folder] if folder is not None else None
        return Segment(str(i), "t", adapter, tuple(tokens), start, pages, True, is_prefill)

    rows: list[list[int]] = [[] for _ in prompts]
    started = time.perf_counter()
    for first_row in range(0, len(prompts), 4):
        some = range(first_row, min(first_row + 4, len(prompts)))
        outcome = runner.execute(StepPlan(0, tuple(segment(i, prompts[i], 0, True) for i in some)))
        for i in some:
            rows[i].append(outcome.tokens[str(i)])
    prefill_s = time.perf_counter() - started
    times = []
    for step in range(steps):
        start = len(prompts[0]) + step
        began = time.perf_counter()
        outcome = runner.execute(
            StepPlan(
                step,
                tuple(segment(i, rows[i][-1:], start, False) for i in range(len(prompts))),
            )
        )
        times.append(time.perf_counter() - began)
        for i, row in enumerate(rows):
            row.append(outcome.tokens[str(i)])
    return prefill_s, statistics.median(times), rows


def peft(
    model: LoadedModel, prompts: list[list[int]], folders: list[Path | None], steps: int
) -> Run:
    """The same with transformers and PEFT's mixed batches (`adapter_names`)."""
    from peft import PeftModel
    from transformers import LlamaConfig, LlamaForCausalLM

    c = model.config
    config = LlamaConfig(
        vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.ff,
        num_hidden_layers=c.layers, num_attention_heads=c.heads, num_key_value_heads=c.kv_heads,
        head_dim=c.head_dim, rope_theta=c.rope_theta, rms_norm_eps=c.norm_eps,
        max_position_embeddings=c.max_context, tie_word_embeddings=c.tied,
    )  # fmt: skip
    base = LlamaForCausalLM(config)
    base.load_state_dict(dict(model.weights), strict=False)
    base = base.to(model.dtype).eval()
    names: dict[Path, str] = {}
    tuned = base
    for folder in dict.fromkeys(f for f in folders if f is not None):
        names[folder] = f"a{len(names)}"
        if tuned is base:
            tuned = PeftModel.from_pretrained(base, folder, adapter_name=names[folder])
        else:
            tuned.load_adapter(folder, adapter_name=names[folder])
    tuned = tuned.to(model.dtype).eval()
    options = {}
    if names:
        options["adapter_names"] = [names[f] if f is not None else "__base__" for f in folders]
    times = []
    with torch.inference_mode():
        began = time.perf_counter()
        ids = torch.tensor(prompts)
        out = tuned(ids, use_cache=True, logits_to_keep=1, **options)
        prefill_s = time.perf_counter() - began
        tokens = [out.logits[:, -1].argmax(-1)]
        for _ in range(steps):
            began = time.perf_counter()
            out = tuned(
                tokens[-1][:, None], past_key_values=out.past_key_values, use_cache=True, **options
            )
            tokens.append(out.logits[:, -1].argmax(-1))
            times.append(time.perf_counter() - began)
    return prefill_s, statistics.median(times), torch.stack(tokens, 1).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--skip-peft", action="store_true")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch chooses")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        models = {d: load_model(args.model, d, progress=print) for d in args.dtypes.split(",")}
        config = next(iter(models.values())).config
        made = [
            make_adapter(Path(scratch) / str(i), config, args.rank, seed=i)
            for i in range(args.adapters)
        ]
        folders = [made[i % len(made)] if made else None for i in range(args.rows)]
        prompts = torch.randint(3, config.vocab, (args.rows, args.prompt)).tolist()
        print(
            f"{args.rows} rows, {args.adapters} adapters of rank {args.rank}, "
            f"prompt {args.prompt}, {torch.get_num_threads()} threads",
            flush=True,
        )
        for dtype, model in models.items():
            mine = report(f"ours {dtype}", ours(model, prompts, folders, args.steps), args.prompt)
            if args.skip_peft:
                continue
            steps = max(3, args.steps // 4)
            theirs = report(f"peft {dtype}", peft(model, prompts, folders, steps), args.prompt)
            same = sum(a[: len(b)] == b for a, b in zip(mine[2], theirs[2], strict=True))
            print(
                f"{dtype}: ours / peft = {theirs[1] / mine[1]:.2f}; "
                f"greedy rows equal over {steps + 1} tokens: {same} of {args.rows}",
                flush=True,
            )


def report(name: str, run: Run, prompt: int) -> Run:
    prefill_s, step_s, rows = run
    tokens = len(rows) * prompt
    print(
        f"{name:14} prefill {tokens / prefill_s:6.0f} tok/s   decode step {step_s * 1e3:6.1f} ms"
        f" = {len(rows) / step_s:5.0f} tok/s",
        flush=True,
    )
    return run


if __name__ == "__main__":
    main()
