"""What the front writes down of those it let in and turned away, and what it never does."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from front_bench import ALICE, BOB, bench, settings
from starlette.testclient import TestClient

from telemetry.otlp import encode
from telemetry.records import RequestRecord


def test_offered_is_rejected_plus_admitted_by_request_and_by_token() -> None:
    with bench(chosen=settings(rpm=3)) as (b, client):
        for _ in range(5):
            b.post(client, max_tokens=10)
        b.post(client, max_tokens=500)
        b.post(client, model="nothing")  # never offered to the pool: there is no such pool
        b.post(client, best_of=7)  # never offered either: it cannot be asked
    row = b.minute()
    assert (row.offered_requests, row.admitted_requests) == (6, 3)
    assert (row.rejected_rpm_requests, row.rejected_impossible_requests) == (2, 1)
    assert row.offered_tokens == 5 * 13 + 503
    assert row.offered_tokens == (
        row.admitted_tokens + row.rejected_rpm_tokens + row.rejected_impossible_tokens
    )


def test_a_rejected_request_becomes_a_row_with_its_reason() -> None:
    with bench(chosen=settings(rpm=1)) as (b, client):
        b.post(client, model="ada")
        b.clock.turn(0.5)
        b.post(client, model="ada", max_tokens=7)
    (row,) = b.exporter.rows(RequestRecord)
    assert (row.tenant, row.adapter, row.outcome, row.reject_reason) == (
        "alice",
        "ada",
        "rejected",
        "rpm",
    )
    assert (row.prompt_tokens, row.max_tokens) == (3, 7)
    assert row.arrived == b.clock.base.unix(0.5)
    assert row.admitted is None
    assert b.exporter.closed


def test_a_retry_is_marked_by_header_or_by_the_same_prompt_after_a_429() -> None:
    with bench(chosen=settings(rpm=1)) as (b, client):
        b.post(client)
        b.post(client)  # 429
        b.post(client)  # the same again: a retry
        b.post(client, prompt="other")
        b.post(client, key=BOB, headers={"x-stainless-retry-count": "2"})
    assert b.minute().offered_retries == 1
    assert b.minute("bob").offered_retries == 1
    assert [a.is_retry for a in b.core.asks] == [False, True]


def test_a_bucket_is_sealed_when_it_ends_and_the_next_one_starts_empty() -> None:
    with bench(chosen=replace(settings(), bucket_s=10.0)) as (b, client):
        b.post(client)
        b.clock.turn(10.0)
        b.book.tick(b.clock.now())
        b.post(client)
        b.post(client)
    batches = [x for x in b.exporter.batches if x.minutes]
    assert [(x.sealed, x.minutes[0].offered_requests) for x in batches] == [(True, 1), (True, 2)]
    assert batches[0].minutes[0].bucket_start + 10.0 == batches[1].minutes[0].bucket_start
    assert batches[0].seq < batches[1].seq


def test_the_open_bucket_goes_out_provisionally_in_between() -> None:
    with bench() as (b, client):
        b.post(client)
        b.clock.turn(10.0)
        b.book.tick(b.clock.now())
        (first,) = [x for x in b.exporter.batches if x.minutes]
    assert not first.sealed
    assert first.minutes[0].admitted_requests == 1
    assert b.exporter.batches[-1].sealed


def test_prompts_keys_and_headers_reach_neither_telemetry_nor_logs(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    canary = "CANARY-5f1d"
    with bench(chosen=settings(rpm=2)) as (b, client):
        for _ in range(3):
            b.post(client, prompt=canary, headers={"x-secret": canary, "x-request-id": canary})
        b.post(client, key=canary)
        b.post(client, prompt=[canary])
        client.post(
            f"/v1/completions?key={canary}",
            content=canary.encode(),
            headers={"authorization": f"Bearer {ALICE}"},
        )
        tokenizer = b.front._completions._tokenizer

        def broken(text: str) -> list[int]:
            raise ValueError(f"cannot encode {text}")

        tokenizer.encode = broken  # type: ignore[method-assign]
        failed = TestClient(b.front.app, raise_server_exceptions=False)
        assert b.post(failed, prompt=canary).status_code == 500
    assert b.exporter.batches
    out = capfd.readouterr()
    for batch in b.exporter.batches:
        for data in encode(batch):
            assert canary.encode() not in (data or b"")
            assert ALICE.encode() not in (data or b"")
    # The test's own client logs its URLs; everything else is ours.
    logged = [r.getMessage() for r in caplog.records if not r.name.startswith("httpx")]
    for text in (*logged, out.out, out.err, repr(b.exporter.batches)):
        assert canary not in text
        assert ALICE not in text
    assert any("ValueError at" in line for line in logged)  # the fault itself is not hushed up
