"""The pair compiles for real GPUs without one: no spills, shared memory fits, loads are wide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIELDS = ("registers", "spills", "shared_bytes", "wide_loads")


def compiled(targets: str) -> list[dict[str, object]]:
    # A process of its own: ahead-of-time compilation fails under TRITON_INTERPRET.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "aot_sgmv.py"), "--targets", targets, "--json"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.usefixtures("triton_here")
@pytest.mark.full  # the fast suite compiles the pair with the other kernels, for one target
def test_the_pair_compiles_without_spills_within_shared_memory():
    targets = "sm_80,sm_90,sm_100,gfx942"
    rows = compiled(targets)
    assert len(rows) == 12 * len(targets.split(","))
    for row in rows:
        print(*row.values())
        assert row["spills"] == 0
        assert all(int(row[f]) > 0 for f in FIELDS if f != "spills")


@pytest.mark.full
@pytest.mark.usefixtures("triton_here")
def test_the_check_finds_a_tile_that_spills():
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); import aot_sgmv as aot\n"
        "from dataclasses import replace\n"
        "big = replace(aot.PREFILL, m=128, n=256)\n"
        "print(aot.compile_one('sm_90', 'expand', 'big', big, 'fp32').faults())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    assert "spills" in run.stdout
