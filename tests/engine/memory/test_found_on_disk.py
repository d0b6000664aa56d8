"""A lookup finds an adapter on disk when its host copy has gone: in the real core, with files."""

from __future__ import annotations

from engine.build import build_core
from engine.clock import SystemClock
from engine.config import Limits, Settings, Tenant
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter
from engine.scheduling.request import Ask
from telemetry.records import RequestRecord

PAGE_BYTES = 32_768
PATIENCE_S = 20


class Kept:
    def __init__(self):
        self.logs = []

    def submit(self, batch):
        self.logs += batch.logs


def test_copies_beyond_the_cap_are_dropped_found_on_disk_and_read_again(tmp_path):
    model, kept = load_model("synthetic", "float32"), Kept()
    for rank, name in enumerate("xyz", start=4):
        make_adapter(tmp_path / name, model.config, rank)
    settings = Settings(
        model="synthetic",
        tenants=(Tenant("a"),),
        adapters=tuple((n, str(tmp_path / n)) for n in "xyz"),
        limits=Limits(slots=1, step_tokens=64, host_adapters=1, prefetch=1, pool_bytes=8 << 20),
    )
    core = build_core(settings, SystemClock(), "run", model, kept)
    library = core._transfers._copies
    assert len(library.kept) == 1
    for i, name in enumerate("zxxyz"):
        now = core._clock.now()
        core.submit(Ask(f"r{i}", "a", (1, 2, 3), 2, now, now, core.adapter_key(name), name))
        ended = []
        while not ended:
            assert core.wait_for_work(PATIENCE_S)
            ended += core.step().ended
        assert [e.outcome.value for e in ended] == ["finished"]
        assert len(library.kept) == 1, "never more in host memory than the cap"
    core.tick()
    core.close()
    found = {r.request_id: r.adapter_state for r in kept.logs if isinstance(r, RequestRecord)}
    assert found == {"r0": "host", "r1": "disk", "r2": "device", "r3": "disk", "r4": "device"}
