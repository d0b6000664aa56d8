"""What is odd about an adapter is said when the worker starts and written down, with no path."""

from __future__ import annotations

import pytest

from engine.build import build_core
from engine.clock import SystemClock
from engine.config import Limits, Settings, Tenant
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter
from telemetry.records import EventRecord
from tests.engine.model.adapter_bench import edit_options, edit_tensors


class Kept:
    def __init__(self) -> None:
        self.logs: list[object] = []

    def submit(self, batch) -> None:
        self.logs += batch.logs


@pytest.fixture(scope="module")
def model():
    return load_model("synthetic", "float32")


def test_at_the_start_it_is_said_and_is_an_event(model, tmp_path):
    folder = make_adapter(tmp_path / "zero", model.config, 4)
    edit_tensors(folder, lambda ts: [t.zero_() for t in ts.values()])
    edit_options(folder, target_modules=["c_attn"])
    kept, said = Kept(), []
    settings = Settings(
        model="synthetic",
        tenants=(Tenant("a"),),
        adapters=(("zero", str(folder)),),
        limits=Limits(slots=4, step_tokens=64, pool_bytes=8 << 20),
    )
    core = build_core(settings, SystemClock(), "run", model, kept, say=said.append)
    key = core.adapter_key("zero")
    core.close()
    odd = [line for line in said if line.startswith("adapter 'zero': ")]
    assert ["match 0 of the 28" in odd[0], "no effect" in odd[1]] == [True, True]
    faults = [r for r in kept.logs if isinstance(r, EventRecord) and r.kind == "fault"]
    assert [(r.adapter, r.detail) for r in faults] == [(key, line) for line in odd]
    assert not any(str(tmp_path) in repr(r) for r in kept.logs)
