"""The exposition: what both official parsers read is what was delivered, within a bound."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.prometheus import exposed
from telemetry.prometheus.collector import registry_of
from telemetry.prometheus.counting import Counting
from telemetry.prometheus.naming import MOST_NAMES
from telemetry.records import EngineRun
from telemetry.tables import TABLES
from tests.telemetry.delivered import (
    ODD_NAMES,
    RUN,
    T0,
    any_rows,
    batch,
    charge,
    engine_minute,
    minute,
    names,
    request,
)

COUNTS = tuple(range(len(LATENCY_BOUNDS_S) + 1))


def counting(*tenants: str) -> Counting:
    heard = Counting(T0)
    config = json.dumps({"tenants": [{"name": t, "slo": {"ttft_s": 1.0}} for t in tenants]})
    heard.hear([batch(EngineRun(started=T0, model="m", config=config, **RUN))], T0)
    return heard


def text(heard: Counting) -> str:
    return generate_latest(registry_of(heard, lambda: T0 + 60)).decode()


def openmetrics(heard: Counting) -> str:
    return generate_openmetrics(registry_of(heard, lambda: T0 + 60)).decode()


def samples(families: Any) -> dict[Any, float]:
    """(name, labels) -> value; a series twice fails."""
    found: dict[Any, float] = {}
    for family in families:
        for s in family.samples:
            key = (s.name, *sorted(s.labels.items()))
            assert key not in found, key
            found[key] = s.value
    return found


def of_tenant(name: str, tenant: str, **more: str) -> Any:
    labels = {"engine": "e1", "pool": "main", "tenant": tenant, **more}
    return (name, *sorted(labels.items()))


def test_both_formats_say_the_same_and_what_was_delivered():
    heard = counting("a")
    heard.hear(
        [
            batch(
                minute("a", output_tokens=7, wait_kv_s=1.5, kv_bytes_avg=64.0, ttft=COUNTS),
                minute("b", output_tokens=4),
                engine_minute(steps=9, step_time=COUNTS, slots=4.0),
                charge("b", "a", 2.5),
            )
        ],
        T0 + 60,
    )
    found = samples(parse_text(text(heard)))
    assert found == samples(parse_openmetrics(openmetrics(heard)))
    assert found[of_tenant("tenantscope_tenant_output_tokens_total", "a")] == 7
    assert found[of_tenant("tenantscope_tenant_output_tokens_total", "other")] == 4
    assert found[of_tenant("tenantscope_tenant_wait_kv_seconds_total", "a")] == 1.5
    assert found[of_tenant("tenantscope_tenant_kv_avg_bytes", "a")] == 64.0
    bucket = "tenantscope_tenant_ttft_seconds_bucket"
    assert found[of_tenant(bucket, "a", le="0.005")] == 0 + 1 + 2
    assert found[of_tenant(bucket, "a", le="+Inf")] == sum(COUNTS)
    held = {"engine": "e1", "pool": "main", "reason": "kv", "holder_kind": "tenant", "holder": "a"}
    key = ("tenantscope_interference_charged_seconds_total", *sorted(held.items()))
    assert found[key] == 2.5


def test_every_family_is_there_with_the_vocabularys_help_even_with_nothing_heard():
    families = {f.name: f for f in parse_openmetrics(openmetrics(Counting(T0)))}
    assert set(families) == {f.name for f in exposed.families()}
    for one in exposed.families():
        assert families[one.name].documentation == one.help
        assert families[one.name].type == one.type
        assert families[one.name].unit == one.unit


@pytest.mark.parametrize("request_id", ['f"x', "back\\slash", "two\nlines"])
def test_a_request_id_that_would_need_escapes_costs_no_scrape(request_id: str):
    heard = counting("a")
    row = replace(request(1, ttft_s=0.3, first_token=T0 + 1, ended=T0 + 2), request_id=request_id)
    heard.hear([batch(minute("a", ttft=COUNTS), row)], T0)
    found = samples(parse_openmetrics(openmetrics(heard)))
    bucket = "tenantscope_tenant_ttft_seconds_bucket"
    assert found[of_tenant(bucket, "a", le="+Inf")] == sum(COUNTS)


def test_a_request_is_the_exemplar_of_the_bucket_it_fell_into():
    heard = counting("a")
    asked = request(1, ttft_s=0.3, tpot_s=0.015, first_token=T0 + 1, ended=T0 + 2)
    counts = tuple(int(i in (4, 8)) for i in range(len(COUNTS)))
    heard.hear([batch(minute("a", ttft=counts, tpot=counts), asked)], T0 + 60)
    shown = {
        (s.name, s.labels["le"]): s.exemplar
        for f in parse_openmetrics(openmetrics(heard))
        for s in f.samples
        if s.exemplar
    }
    assert {k: (e.labels, e.value, float(e.timestamp)) for k, e in shown.items()} == {
        ("tenantscope_tenant_ttft_seconds_bucket", "0.32"): ({"request_id": "q1"}, 0.3, T0 + 2),
        ("tenantscope_tenant_tpot_seconds_bucket", "0.02"): ({"request_id": "q1"}, 0.015, T0 + 2),
    }
    assert "request_id" not in text(heard)


def test_the_process_says_whom_it_hears_and_what_it_took():
    heard = counting("a")
    rows = (engine_minute(T0 - 60, observed_seconds=60.0), engine_minute(observed_seconds=25.0))
    heard.hear([batch(*rows, minute("a", T0 - 86_400, output_tokens=1))], T0 + 27, refused=3)
    found = samples(parse_text(text(heard)))
    pool = (("engine", "e1"), ("pool", "main"))
    assert found["tenantscope_engine_heard_timestamp_seconds", *pool] == T0 + 27
    assert found["tenantscope_engine_observed_until_timestamp_seconds", *pool] == T0 + 25
    own = {k[0].removeprefix("tenantscope_store_"): v for k, v in found.items() if "store" in k[0]}
    assert own == {
        "start_timestamp_seconds": T0,
        "last_ingest_timestamp_seconds": T0 + 27,
        "batches_total": 2,
        "rows_total": 4,
        "refused_points_total": 3,
        "uncounted_rows_total": 1,
        "named_tenants": 1,
        "unnamed_tenants": 0,
    }


def test_an_exemplar_too_long_for_openmetrics_is_left_out():
    heard = counting("a")
    long = replace(request(1, ttft_s=0.3, ended=T0 + 2), request_id="q" * 120)
    heard.hear([batch(minute("a", ttft=COUNTS), long)], T0 + 60)
    assert not [s for f in parse_openmetrics(openmetrics(heard)) for s in f.samples if s.exemplar]


@pytest.mark.parametrize("odd", [*ODD_NAMES, 'a"b\\c\n', "\r\n# HELP x", "{}=,", "\u2028"])
def test_names_are_data_in_both_formats(odd: str):
    heard = counting(odd)
    heard.hear([batch(minute(odd, output_tokens=3), charge("v", odd, 1.0))], T0 + 60)
    key = of_tenant("tenantscope_tenant_output_tokens_total", odd)
    assert samples(parse_openmetrics(openmetrics(heard)))[key] == 3
    assert samples(parse_text(text(heard)))[key] == 3


@settings(max_examples=15, deadline=None)
@given(
    rows=st.tuples(
        *(any_rows(TABLES[t]) for t in ("tenant_minute", "engine_minute", "interference_minute")),
        any_rows(TABLES["request"]),
    ),
    known=st.lists(names, max_size=3, unique=True),
)
def test_whatever_is_delivered_the_official_parser_reads_it(rows: Any, known: list[str]):
    heard = counting(*known)
    heard.hear([batch(*(r for some in rows for r in some))], T0 + 60)
    labels = {
        s.labels.get("tenant")
        for f in parse_openmetrics(openmetrics(heard))
        for s in f.samples
        if "tenant" in s.labels
    }
    assert labels <= {*known, "other"}
    assert samples(parse_text(text(heard)))


def test_ten_thousand_tenants_cost_no_more_series_than_names_allow():
    tenants = [f"t{i}" for i in range(10_000)]
    heard = counting(*tenants)

    def deliver(seq: int, of: list[str]) -> int:
        rows = [
            minute(t, T0 + 60 * seq, service=1.0 + i, slo_missed=i % 7, ttft=COUNTS)
            for i, t in enumerate(of)
        ]
        heard.hear([batch(*rows, seq=seq)], T0 + 60 * (seq + 1))
        return openmetrics(heard).count("\n")

    each = sum(22 if f.type == "histogram" else 1 for f in exposed.families_of("tenant_minute"))
    most = (MOST_NAMES + 1) * each + 10 * len(exposed.families())
    assert deliver(1, tenants) < most
    assert deliver(2, [f"invented-{i}" for i in range(10_000)]) < most
    assert deliver(3, tenants[::-1]) < most
    assert len(heard.naming.named) <= MOST_NAMES
