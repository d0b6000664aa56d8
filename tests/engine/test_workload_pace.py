"""A workload is scaled to the machine it is played on."""

from __future__ import annotations

import pytest

from engine.costs import CostModel
from engine.simulation.workload import read_workload
from sample_incidents import incident_path

SIZED_FOR = CostModel(0.03, 0.0005, 0.001, 3e-7, 0.01)


@pytest.mark.parametrize(
    ("slower", "least", "most"),
    [(1, 0.9, 1.1), (2, 0.45, 0.6), (99, 0.1, 0.1), (0.25, 3.6, 4.4), (1e-3, 8.0, 8.0)],
)
def test_a_machine_gets_load_by_how_fast_it_is(slower, least, most):
    workload = read_workload(incident_path("five-pm-fanout") / "workload.toml")
    pace = workload.pace(SIZED_FOR.scaled(slower))
    assert least <= pace <= most
    asked = len(workload.arrivals(0, 80, pace)) / len(workload.arrivals(0, 80))
    assert asked == pytest.approx(pace, rel=0.25)
