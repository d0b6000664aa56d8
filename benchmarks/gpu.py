"""The Triton kernels on a bare GPU machine: first their numbers, then their time. Minutes.

    PYTHONPATH=. python benchmarks/gpu.py [--toy] [--seconds 270]

Needs torch, triton and numpy; nothing is installed or fetched, weights are random and made on the
device. One JSON line a measurement on stdout, times in microseconds, medians of a replayed CUDA
graph. `floor_us` is what the device's own copy bandwidth needs for the bytes that must move, and
`of_bound` is floor ÷ time. In order: numerics of the kernels against their references, and of the
engine's runner against the CPU's; SGMV against the floor, a padded bmm and a loop of matmuls;
decode attention against SDPA on contiguous keys; one decode step of a decoder with 1, 16 and 64
adapters over none; the engine's tokens a second, decode steps replayed as graphs and launched;
adapters copied in as its loader does, against the link.

--toy runs all of it in Triton's interpreter on the CPU at toy size: it shows that the script works,
and its times mean nothing. Exit status 1 where a number is wrong, 2 where there is no GPU and no
--toy. --seconds: parts that would start later are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--toy", action="store_true", help="in the interpreter, on the CPU")
    parser.add_argument("--seconds", type=float, default=270.0)
    options = parser.parse_args()
    if options.toy:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, below
    import torch

    if not options.toy and not torch.cuda.is_available():
        print(
            "no GPU here (torch.cuda.is_available() is False): nothing was measured; --toy tries "
            "the script in the interpreter",
            file=sys.stderr,
        )
        return 2
    import gpu_engine
    import gpu_parts
    import triton
    from gpu_rig import Rig

    from kernels.tuned import TUNED, architecture

    started = time.monotonic()
    rig = Rig(toy=options.toy)
    device = "interpreter" if options.toy else torch.cuda.get_device_name()
    arch = architecture(rig.device)
    say(
        part="machine",
        device=device,
        architecture=arch,
        tiles="tuned" if arch in TUNED else "safe defaults",
        torch=torch.__version__,
        triton=triton.__version__,
        copy_bytes_s=rig.bandwidth,
    )
    wrong = False
    parts: dict[str, Callable[[Rig], bool]] = {
        "numerics": gpu_parts.numerics,
        "the runner's numerics": gpu_engine.engine_numerics,
        "sgmv": gpu_parts.sgmv_times,
        "attention": gpu_parts.attention_times,
        "step": gpu_parts.step_times,
        "engine": gpu_engine.engine_times,
        "swap": gpu_engine.swap_times,
    }
    for name, part in parts.items():
        spent = time.monotonic() - started
        if spent > options.seconds:
            print(f"{name}: left out, {spent:.0f} s are spent", file=sys.stderr)
            continue
        print(f"{name} ...", file=sys.stderr)
        torch.manual_seed(0)
        with torch.inference_mode():
            wrong |= part(rig)
    say(part="end", wrong=wrong, seconds=round(time.monotonic() - started, 1))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
