"""The benchmarks of scale and of adapters run and hang together, on arguments that take no time.

Their figures are nobody's claim at this size.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
DATA = FOLDER.parents[1] / "shared" / "data"


def run(script: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        cwd=FOLDER.parent,
        env={"PYTHONPATH": str(FOLDER.parent)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def test_every_request_of_a_small_million_finishes_and_its_memory_is_counted():
    (row,) = json.loads(run("million.py", "--requests", "300", "--json"))
    assert row["finished"] == row["requests"] == 300
    assert row["rss_bytes"] >= row["empty_rss_bytes"] > 0
    assert row["arrivals_per_s"] == pytest.approx(0.95 * row["capacity_per_s"])
    assert 0 < row["hit_rate"] < 1


@pytest.mark.full
def test_sizes_are_compared_with_the_first():
    text = run("million.py", "--grow", "100,200")
    assert "1.00 x" in text
    assert "PASS  200 of 200 finished" in text


@pytest.mark.parametrize("prefetch", [True, False])
def test_adapters_that_fit_are_found_and_one_too_many_is_not(prefetch):
    tables = json.loads(
        run("adapter_cliff.py", "--adapters", "6,9", "--seconds", "30", "--rates", "2", "--json")
    )
    (table,) = [t for t in tables if t["runs"][0]["prefetch"] is prefetch]
    fits, over = table["runs"]
    assert fits["others_hits"] > 0.8 > over["others_hits"]
    assert over["loads_per_s"] > fits["loads_per_s"]


def test_hit_rates_lie_between_nothing_and_the_best_that_a_fixed_choice_can_do():
    cells = json.loads(
        run("adapter_zipf.py", "--requests", "600", "--adapters", "24", "--rooms", "2,12",
            "--skews", "1", "--json")
    )  # fmt: skip
    few, many = cells
    assert 0 < few["hits"] < many["hits"] < 1
    for cell in cells:
        assert math.isclose(cell["hits"], cell["lru"], abs_tol=0.05)
        assert cell["che"] < cell["top_k"]


@pytest.mark.skipif(not DATA.is_dir(), reason="the public traces are not beside the checkout")
def test_a_trace_is_played_to_its_end():
    (row,) = json.loads(run("traces.py", "--only", "vtc increase", "--seconds", "20", "--json"))
    assert row["finished"] == row["kept"] > 0
    assert row["simulated_s"] > 0


def test_without_the_traces_the_script_says_so(tmp_path):
    assert "skipped" in run("traces.py", "--data", str(tmp_path / "nowhere"))
