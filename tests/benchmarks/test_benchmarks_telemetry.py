"""The benchmarks of telemetry run at a size that takes no time, and hang together.

Their figures are nobody's claim at this size.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, *arguments: str) -> dict[str, Any]:
    """Its JSON. It may exit 1 for an aim missed, never otherwise."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments, "--json"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.full
def test_a_minute_is_followed_from_its_seal_to_its_commit():
    without, full = run("seal_commit.py", "--tenants", "12", "--minutes", "1")["results"]
    assert full["rows"] > without["rows"] >= 12
    assert full["bytes"] > without["bytes"] > 0
    for row in (without, full):
        assert row["lost"] == 0
        parts = ("seal_s", "take_s", "rows_s", "encode_s", "send_s")
        assert row["whole_s"] == sum(row[part] for part in parts)
        assert min(row[f"{stage}_s"] for stage in ("decode", "merge", "commit")) > 0


@pytest.mark.full
def test_tenant_minutes_are_weighed_and_asked_for_while_a_writer_writes():
    found = run("tenant_minutes.py", "--scale", "0.004", "--days", "2", "--seconds", "1")
    assert found["rows"] == 4 * 1440 * 2
    for zipf in ("zipf_10", "zipf_100"):
        assert 0 < found[f"{zipf}_bytes_a_tenant_minute"] <= found[f"{zipf}_bytes_a_row"]
    assert found["zipf_10_rows"] < found["zipf_100_rows"] <= 4 * 1440
    assert found["active_bytes_a_row"] > 0
    for way in ("file", "grpc"):
        assert found[way]["commits"]["n"] >= 1
        rows = [a["rows"] for a in found[way]["answers"].values()]
        assert rows == [4, 1440, 30 * 4, 4]


def test_a_watcher_is_shown_the_first_of_many_and_what_it_costs():
    found = run("watch_cost.py", "--tenants", "50", "--minutes", "1", "--n", "7")
    assert found["rows_shown"] == 7
    assert found["of_a_core"] > 0
    assert found["frame_s"] > 0


@pytest.mark.full
def test_what_telemetry_costs_is_measured_and_no_bad_collector_goes_untold():
    found = run("telemetry_overhead.py", "--quick")
    assert 0 < found["wall"]["of_wall"] < 1
    assert found["core"]["of_a_core_least"] > 0
    assert found["core"]["requests"] > 0
    names = [row["collector"] for row in found["collectors"]]
    assert names == ["refused", "hanging", "unavailable", "disk full", "stopped"]
    for row in found["collectors"]:
        assert row["lost"] > 0, row
        assert row["said"], row
