"""Measured steps from the performance table published with Splitwise (Patel et al., ISCA 2024).

Reads only. Each row of the table gives a prefill step and a decode step. What is odd about it:

* `prompt_time` and `token_time` are milliseconds; the second is the mean decode step.
* Long answers ended early: how many tokens were generated follows from
  (e2e_time - prompt_time) / token_time, and `token_size` is not it.
* Where a batch did not fit the machine, `prompt_time` is that of a part of it: such rows claim
  more FLOP/s than the accelerators have, and their prefill step is left out and counted.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.costs import StepFeatures
from engine.errors import WorkloadError
from engine.simulation.fit import MeasuredStep
from engine.simulation.hardware import A100_80, H100

PEAK_FLOPS_PER_S = {
    "a100-80gb": A100_80.flops_per_s,
    "h100-80gb": H100.flops_per_s,
    "h100-80gb-pcap": H100.flops_per_s,  # the same device under a power cap
}
PARAMETERS = {"llama2-70b": 69e9, "bloom-176b": 176e9}
_LARGEST = 1e9  # tokens, requests, seconds: past it a number is a slip


@dataclass(frozen=True, slots=True, order=True)
class Machine:
    """What a group of measurements was taken on."""

    model: str
    hardware: str
    tensor_parallel: int


@dataclass(frozen=True, slots=True)
class Measurements:
    """The steps by machine; `impossible` prefill steps were left out."""

    steps: Mapping[Machine, tuple[MeasuredStep, ...]]
    impossible: int


def read_splitwise(path: Path) -> Measurements:
    """Read the table. Raises WorkloadError naming file, line and column."""
    machines: dict[Machine, list[MeasuredStep]] = {}
    impossible = 0
    try:
        with path.open(newline="", encoding="utf-8") as f:
            table = csv.DictReader(f)
            for row in table:
                machine, steps = _steps(row, f"{path}: line {table.line_num}")
                machines.setdefault(machine, []).extend(steps)
                impossible += 2 - len(steps)
    except OSError as e:
        raise WorkloadError(f"{path}: cannot be read: {(e.strerror or str(e)).lower()}") from None
    if not machines:
        raise WorkloadError(f"{path}: holds no measurements")
    return Measurements({m: tuple(s) for m, s in machines.items()}, impossible)


def _steps(row: dict[str, str], where: str) -> tuple[Machine, list[MeasuredStep]]:
    try:
        machine = Machine(row["model"], row["hardware"], int(row["tensor_parallel"]))
        prompt, batch = int(row["prompt_size"]), int(row["batch_size"])
        prefill_s, decode_s, whole_s = (
            float(row[c]) / 1000 for c in ("prompt_time", "token_time", "e2e_time")
        )
        peak = PEAK_FLOPS_PER_S[machine.hardware] * machine.tensor_parallel
        least_s = 2 * PARAMETERS[machine.model] * batch * prompt / peak
    except KeyError as e:
        raise WorkloadError(f"{where}: no such column, model or hardware: {e}") from None
    except (TypeError, ValueError, OverflowError) as e:
        raise WorkloadError(f"{where}: {e}") from None
    sizes, times = (prompt, batch, machine.tensor_parallel), (prefill_s, decode_s, whole_s)
    if not all(0 < x < _LARGEST for x in (*sizes, *times)):
        raise WorkloadError(f"{where}: expected sizes and times above 0 and below {_LARGEST:g}")
    generated = max(1.0, (whole_s - prefill_s) / decode_s)
    context = int(batch * (prompt + generated / 2))
    steps = [MeasuredStep(StepFeatures(0, batch, context, 0), decode_s)]
    if prefill_s >= least_s:
        keys = batch * prompt * (prompt + 1) // 2
        steps.append(MeasuredStep(StepFeatures(batch * prompt, 0, keys, 0), prefill_s))
    return machine, steps
