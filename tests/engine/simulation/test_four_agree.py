"""One simulated incident: result, OTLP, DuckDB and Prometheus say the same, to the token."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engine.config import Slo, Tenant
from engine.simulation.simulate import simulate
from telemetry.otlp.decode import decode_logs, decode_metrics
from telemetry.otlp.encode import encode
from telemetry.prometheus.collector import registry_of
from telemetry.prometheus.counting import Counting
from telemetry.records import Batch
from telemetry.source import StoreSource
from telemetry.store.store import Store
from tests.engine.simulation.setups import ADAPTER, poisson, setup

COLUMNS = (
    "offered_requests", "admitted_requests", "prompt_tokens", "cached_tokens", "output_tokens",
    "recomputed_tokens", "goodput_tokens", "finished", "slo_missed", "adapter_lookups",
)  # fmt: skip
SECONDS = ("wait_slot_s", "wait_budget_s", "wait_kv_s", "wait_adapter_s", "engine_seconds")


class Delivered:
    """Rows of a simulation, encoded, delivered twice, to a store and to who counts."""

    def __init__(self, store: Store, counting: Counting) -> None:
        self._store = store
        self._counting = counting
        self._newest: dict[tuple[str, str, float], float] = {}

    def submit(self, batch: Batch) -> None:
        metrics, logs = encode(batch)
        now = max((r.bucket_start + r.bucket_s for r in batch.minutes), default=0.0)
        for decoded in (  # log rows first: the run's own says who has a name
            *([decode_logs(logs)] * 2 if logs else ()),
            *([decode_metrics(metrics)] * 2 if metrics else ()),
        ):
            assert decoded.refused == 0
            self._store.ingest(decoded)
            self._counting.hear(decoded.batches, now, decoded.refused)
        for row in decode_metrics(metrics).rows("tenant_minute") if metrics else ():
            for column in (*COLUMNS, *SECONDS):
                value = getattr(row, column)
                if value is not None:  # a later state takes the place of an earlier one
                    self._newest[row.tenant, column, row.bucket_start] = value

    def received(self, tenant: str, column: str) -> float:
        return sum(v for k, v in self._newest.items() if k[:2] == (tenant, column))


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(tmp_path / "store") as opened:
        yield opened


def test_result_receiver_store_and_prometheus_agree(store: Store):
    tenants = ("a", "b", "c")
    arrivals = poisson(400, 25, tenants, adapters=(None, "x"))
    contracts = [Tenant(t, slo=Slo(ttft_s=0.2), adapters=("x",)) for t in tenants]
    counting = Counting(0.0)
    out = Delivered(store, counting)
    result = simulate(arrivals, setup(*contracts, adapters=ADAPTER), rows=out)
    assert sum(t.slo_missed for t in result.tenants) > 0

    stored = StoreSource(store).read("tenant_minute", float("-inf"), float("inf"))
    text = generate_latest(registry_of(counting, lambda: 0.0)).decode()
    shown = {
        (s.labels["tenant"], f.name): s.value
        for f in text_string_to_metric_families(text)
        for s in f.samples
        if f.type == "counter" and "tenant" in s.labels
    }
    assert {t for t, _ in shown} == {*tenants, "other"}
    for t in result.tenants:
        for column in (*COLUMNS, *SECONDS):
            booked = sum(getattr(r, column) or 0 for r in stored if r.tenant == t.tenant)
            name = column.removesuffix("_s") + "_seconds" if column in SECONDS[:-1] else column
            counted = shown[t.tenant, f"tenantscope_tenant_{name}"]
            if column in COLUMNS:
                assert counted == booked == out.received(t.tenant, column), column
            else:
                assert counted == pytest.approx(booked, rel=1e-9, abs=1e-9), column
        for column in ("prompt_tokens", "output_tokens", "goodput_tokens", "finished"):
            assert shown[t.tenant, f"tenantscope_tenant_{column}"] == getattr(t, column)
    assert not any(v for (t, _), v in shown.items() if t == "other")
