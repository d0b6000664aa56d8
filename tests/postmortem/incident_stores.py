"""Stores of simulated incidents for the what-if: a flood under FCFS, and what tells it apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.simulation.setup import Setup, make_setup
from engine.simulation.simulate import simulate
from engine.simulation.store_out import StoreOut
from engine.simulation.workload import Arrival, read_workload

HEAVY, LIGHT, OTHER = "heavy", "light", "other"

WORKLOAD = """
name = "flood"
seed = 4
bucket_s = 10
policy = "fcfs"
reference_step_s = 0.2

[limits]
slots = 8
step_tokens = 128
pool_bytes = 200_000_000

[[tenant]]
name = "heavy"
slo = { ttft_s = 60.0 }

[[tenant]]
name = "light"
slo = { ttft_s = 2.0 }

[[tenant]]
name = "other"
slo = { ttft_s = 2.0 }

[[adapter]]
name = "x"
rank = 8

[[traffic]]
tenant = "heavy"
adapters = ["x"]
start_s = 0
end_s = 160
rate_per_s = 0.2
prompt_tokens = [60, 100]
output_tokens = [4, 8]

[[traffic]]
tenant = "light"
start_s = 0
end_s = 160
rate_per_s = 1.2
prompt_tokens = [10, 20]
output_tokens = [3, 6]

[[traffic]]
tenant = "other"
start_s = 0
end_s = 160
rate_per_s = 0.8
prompt_tokens = [10, 20]
output_tokens = [3, 6]

[[traffic]]
name = "fan-out"
tenant = "heavy"
adapters = ["x"]
start_s = 100
end_s = 130
rate_per_s = 1.5
prompt_tokens = [400, 600]
output_tokens = [4, 8]
"""


def setup_and_arrivals(
    folder: Path, renamed: dict[str, str] | None = None
) -> tuple[Setup, list[Arrival]]:
    """The flood's setup and arrivals; `renamed`: tenants called otherwise."""
    path = folder / "flood.toml"
    path.write_text(WORKLOAD)
    workload = read_workload(path)
    setup, arrivals = make_setup(workload), workload.arrivals(0.0, 160.0)
    if renamed:
        setup = replace(
            setup,
            tenants=tuple(replace(t, name=renamed.get(t.name, t.name)) for t in setup.tenants),
        )
        arrivals = [replace(a, tenant=renamed.get(a.tenant, a.tenant)) for a in arrivals]
    return setup, arrivals


def recorded(folder: Path, setup: Setup, arrivals: list[Arrival]) -> Path:
    """The simulation's own rows, in a store."""
    store = folder / "store"
    with StoreOut(store) as rows:
        simulate(arrivals, setup, rows=rows)
    return store


def flood(folder: Path, renamed: dict[str, str] | None = None) -> Path:
    return recorded(folder, *setup_and_arrivals(folder, renamed))
