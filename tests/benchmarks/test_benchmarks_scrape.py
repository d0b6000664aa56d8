"""The scrape's benchmark runs, sees no counter go back and prints every figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_small_scrape_is_measured_and_sees_no_reset():
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks" / "scrape.py"),
            "--tenants",
            "30",
            "--minutes",
            "2",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    same, invented = json.loads(done.stdout)["results"]
    assert same["resets"] == invented["resets"] == 0
    assert same["unlisted_labels"] == invented["unlisted_labels"] == 0
    assert same["named"] > 0
    assert same["series"] > invented["series"] > 0
    assert same["text_bytes"] > 0 < same["openmetrics_bytes"]
