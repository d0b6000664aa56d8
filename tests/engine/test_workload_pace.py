"""A workload is scaled to the machine it is played on."""

from __future__ import annotations

import pytest

from engine.costs import CostModel
from engine.simulation.workload import read_workload
from sample_incidents import incident_path

SIZED_FOR = CostModel(0.03, 0.0005, 0.001, 3e-7, 0.01)


@pytest.mark.parametrize(
    ("slower", "least", "most"), [(1, 0.9, 1.0), (2, 0.45, 0.6), (99, 0.1, 0.1)]
)
def test_a_slower_machine_gets_less_load(slower, least, most):
    workload = read_workload(incident_path("five-pm-fanout") / "workload.toml")
    pace = workload.pace(SIZED_FOR.scaled(slower))
    assert least <= pace <= most
    arrivals = workload.arrivals(0, 80, pace)
    assert len(arrivals) <= len(workload.arrivals(0, 80))
    assert workload.pace(SIZED_FOR.scaled(0.1)) == 1.0
