"""What must never load torch, does not: proven in a fresh interpreter, room by room."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = {
    "the ledger": "telemetry.ledger.ledger telemetry.ledger.interference "
    "telemetry.ledger.door telemetry.ledger.slo",
    "the store": "telemetry.store.store telemetry.store.ingest telemetry.service.process "
    "telemetry.pipeline.exporter",
    "the queries": "telemetry.source telemetry.service.client telemetry.cli",
    "the metrics": "telemetry.prometheus.port telemetry.prometheus.collector "
    "telemetry.prometheus.metrics_page",
    "the findings": "telemetry.verdict telemetry.attribution telemetry.window",
    "the report": "postmortem.cli postmortem.report.build postmortem.report.markdown",
    "the console": "console.cli console.app console.sight console.command console.act.door",
    "the scheduler": "engine.core engine.scheduling.scheduler engine.memory.residency",
    "the simulation": "engine.simulation.world engine.simulation.workload",
    "the front": "engine.serving.front engine.serving.api.completions engine.serving.load",
    "the demo": "console.demo.command console.demo.replay console.demo.director",
}


@pytest.mark.parametrize("room", LIGHT)
def test_torch_is_not_loaded_by(room):
    code = (
        f"import sys\nfor name in {LIGHT[room].split()!r}:\n    __import__(name)\n"
        "heavy = sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'triton'})\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
