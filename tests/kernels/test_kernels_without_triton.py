"""Where triton is absent the module still loads, and says what to do when it is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

LAUNCH = """
import sys
sys.modules["triton"] = None  # as if it were not installed
import numpy as np, torch
from kernels import sgmv
from kernels.blocks import Block, Pair, Span, build_table
from kernels.errors import KernelError
from kernels.work import Segment, build_work

pair = Pair(Block((Span(4, 0, 32),), 32), Block((Span(4, 128, 32),), 32))
table = build_table([[pair]], 32, [32], torch.float32, 256)
work = build_work([Segment(0, 2, 0)], table.ranks, [32])
out = torch.empty(sgmv.partials_shape(table, work, 2))
try:
    sgmv.shrink(torch.zeros(2, 32), torch.zeros(256), table, work, out)
except KernelError as error:
    print(error)
"""

IMPORT = """
import sys
import kernels.sgmv, kernels.reference, kernels.gpu_ops, kernels.gpu_lora, kernels.ops_reference
assert not {"triton", "engine", "telemetry"} & set(sys.modules), sorted(sys.modules)
"""


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_launch_without_triton_says_what_is_missing_and_what_else_there_is():
    said = python(LAUNCH)
    assert "`triton`, which is not installed" in said
    assert "plain torch path" in said


def test_importing_the_kernels_loads_neither_triton_nor_the_engine():
    python(IMPORT)
