"""How wrong a linear cost model is: on measured steps, and on the presets' own rooflines.

    python benchmarks/fit_splitwise.py [../shared/data/splitwise_perf_model.csv]

First table: for every machine of the measurements published with Splitwise, the model fitted to
half of the kinds of steps and tested on the other half, both ways. `roofline` is the median of
measured / roofline: by how much the measured stack of 2023 is slower than what this project's
presets assume of the same devices. Second table: the presets' linear models against their
rooflines, over the mix they are made for and over four times longer requests.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

from engine.errors import WorkloadError
from engine.simulation.fit import MeasuredStep, errors, fit_steps
from engine.simulation.hardware import A100_80, H100, LLAMA2_70B, PRESETS
from engine.simulation.roofline import Roofline, StepShape
from engine.simulation.traces.splitwise import Machine, read_splitwise

TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "splitwise_perf_model.csv"
DEVICES = {"a100-80gb": A100_80, "h100-80gb": H100}


def against_roofline(machine: Machine, steps: tuple[MeasuredStep, ...]) -> str:
    """Median measured / roofline of prefill and of decode steps; blank for other models."""
    device = DEVICES.get(machine.hardware)
    if device is None or machine.model != "llama2-70b":
        return ""
    roofline = Roofline(device, LLAMA2_70B, machine.tensor_parallel)
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for step in steps:
        f = step.features
        is_prefill = f.prefill_tokens > 0
        shape = (
            StepShape(prefill_tokens=f.prefill_tokens, prefill_keys=f.context_tokens)
            if is_prefill
            else StepShape(decode_rows=f.decode_rows, decode_keys=f.context_tokens)
        )
        ratios[is_prefill].append(step.seconds / roofline.step_s(shape))
    prefill, decode = (statistics.median(ratios[k]) for k in (True, False))
    return f"{prefill:.1f}x / {decode:.1f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    table = parser.parse_args().table
    if not table.exists():
        raise SystemExit(f"{table}: no such file; name the Splitwise table")
    try:
        measured = read_splitwise(table)
    except (WorkloadError, OSError, UnicodeDecodeError) as e:
        raise SystemExit(f"{table}: not the Splitwise table: {e}") from None
    print(f"measured steps (Splitwise, ISCA 2024): {table.name}")
    print(f"left out, faster than the accelerators can be: {measured.impossible} prefill steps")
    head = f"{'machine':32} {'steps':>6} {'tested':>6} {'median':>7} {'p95':>7} {'worst':>7}"
    print(f"{head} {'prefill':>8} {'decode':>7}  roofline (prefill / decode)")
    for machine, steps in sorted(measured.steps.items()):
        _, r = fit_steps(steps)
        name = f"{machine.model} {machine.hardware} TP{machine.tensor_parallel}"
        print(
            f"{name:32} {len(steps):6} {r.tested:6} {r.median:7.1%} {r.p95:7.1%} {r.worst:7.1%} "
            f"{r.prefill or 0:8.1%} {r.decode or 0:7.1%}  {against_roofline(machine, steps)}"
        )
    print("\npresets: linear model against roofline, relative error of a step")
    for preset in PRESETS.values():
        mix = preset.mix
        longer = replace(
            mix, prompt_tokens=mix.prompt_tokens * 4, output_tokens=mix.output_tokens * 4
        )
        for name, m in (("its mix", mix), ("4x longer", longer)):
            steps = [MeasuredStep(s.features, preset.roofline.step_s(s)) for s in m.steps()]
            r = errors(preset.costs, steps)
            print(
                f"{preset.name:20} {name:10} ({m.prompt_tokens} in, {m.output_tokens} out): "
                f"median {r.median:6.1%}  p95 {r.p95:6.1%}  worst {r.worst:6.1%}"
            )


if __name__ == "__main__":
    main()
