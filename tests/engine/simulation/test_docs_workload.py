"""The workload that docs/simulation.md shows can be read and played."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from engine.simulation.workload import read_workload

PAGE = Path(__file__).parents[3] / "docs" / "simulation.md"


def test_the_workload_in_the_docs_is_one(tmp_path):
    shown = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown
    file = tmp_path / "night.toml"
    file.write_text(shown[1])
    workload = read_workload(file)
    assert len(workload.tenants) == 1000
    arrivals = list(islice(workload.stream(), 100))
    assert any(a.adapter for a in arrivals)
    assert [f.kind for f in workload.faults] == ["slow"]
