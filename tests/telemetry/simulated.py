"""A real store: the engine's own rows of a short simulated flood, by the engine's own way in."""

from __future__ import annotations

from pathlib import Path

from console.cli import invoke

WORKLOAD = """
name = "flood"
seed = 4
bucket_s = 5

[limits]
slots = 4
step_tokens = 64
pool_bytes = 40_000_000

[[tenant]]
name = "heavy"
slo = { ttft_s = 20.0 }

[[tenant]]
name = "light"
rpm = 20
slo = { ttft_s = 1.0 }

[[adapter]]
name = "x"
rank = 8

[[traffic]]
tenant = "heavy"
adapters = ["x"]
start_s = 0
end_s = 20
rate_per_s = 1.5
prompt_tokens = [200, 300]
output_tokens = [10, 20]

[[traffic]]
tenant = "light"
start_s = 0
end_s = 20
rate_per_s = 2.0
prompt_tokens = [10, 20]
output_tokens = [3, 6]
"""


def simulated(folder: Path) -> Path:
    """Simulates into `folder`/store; returns that."""
    workload = folder / "flood.toml"
    workload.write_text(WORKLOAD)
    store = folder / "store"
    assert invoke(["simulate", str(workload), "--policy", "fcfs", "--store", str(store)]) == 0
    return store
