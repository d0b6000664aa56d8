"""Several pools and replicas behind one front: who goes where, and what a dead worker costs."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from front_bench import ALICE, BOB, ThreadedPost, bench, chunks, settings, text_reply
from serving_fakes import FakeCore, FakeExporter, step
from several_pools import pool, pooled, said

from engine.clock import TurnedClock
from engine.config import Settings
from engine.errors import ConfigError
from engine.scheduling.placement import AFFINITY_TOKENS
from engine.serving.api.ready import STALLED_S
from engine.serving.launch import WorkerPlace
from engine.serving.pools import Pools
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.records import EventRecord, RequestRecord, TenantMinute

TWO_POOLS = pooled(pool("tail"), pool("gold", max_context=100))
TWO_REPLICAS = pooled(pool("main", 2))


def moved(chosen: Settings, name: str, to: str) -> Settings:
    tenants = tuple(replace(t, pool=to) if t.name == name else t for t in chosen.tenants)
    return replace(chosen, tenants=tenants)


# -- pools


def test_each_tenant_is_served_by_its_own_pools_worker_and_booked_there() -> None:
    cores = [FakeCore(text_reply("of tail")), FakeCore(text_reply("of gold"))]
    with bench(cores, TWO_POOLS) as (b, client):
        mine = b.post(client).json()["choices"][0]["text"]
        theirs = b.post(client, key=BOB, max_tokens=20).json()["choices"][0]["text"]
    assert (mine, theirs) == ("of tail", "of gold")
    rows = {(r.tenant, r.pool, r.run_id) for r in b.exporter.rows(TenantMinute)}
    assert rows == {("alice", "tail", "run-1"), ("bob", "gold", "run-2")}


def test_what_never_fits_is_measured_by_the_tenants_own_pool() -> None:
    cores = [FakeCore(text_reply("fine")), FakeCore(text_reply("fine"))]
    with bench(cores, TWO_POOLS) as (b, client):
        assert b.post(client, max_tokens=150).status_code == 200
        refused = b.post(client, key=BOB, max_tokens=150)
    assert refused.status_code == 400
    assert (refused.json()["error"]["dimension"], refused.json()["error"]["limit"]) == (
        "impossible",
        100,
    )


def test_timeouts_are_the_pools_where_the_tenant_sets_none() -> None:
    chosen = pooled(pool("tail", deadline_s=60.0), pool("gold", deadline_s=5.0, max_context=200))
    cores = [FakeCore(text_reply("fine")), FakeCore(text_reply("fine"))]
    with bench(cores, chosen) as (b, client):
        b.post(client)
        b.post(client, key=BOB)
    assert [core.asks[0].deadline_s for core in cores] == [60.0, 5.0]


def test_a_dead_pool_is_told_to_its_own_tenants_only_and_ready_says_which_it_is() -> None:
    cores = [FakeCore(text_reply("of tail")), FakeCore(text_reply("of gold"))]
    with bench(cores, TWO_POOLS) as (b, client):
        b.workers[1].die()
        assert client.portal.call(b.front.pools.links[1].wait_down, 10.0)  # type: ignore[union-attr]
        mine, theirs = b.post(client), b.post(client, key=BOB, max_tokens=20)
        ready, gold, tail = (client.get(f"/ready{q}") for q in ("", "?pool=gold", "?pool=tail"))
        nothing = client.get("/ready?pool=silver")
        b.workers[0].die()
        assert client.portal.call(b.front.pools.links[0].wait_down, 10.0)  # type: ignore[union-attr]
        dark = client.get("/ready")
    assert (mine.status_code, theirs.status_code) == (200, 503)
    assert theirs.json()["error"]["code"] == "worker_down"
    assert (ready.status_code, gold.status_code, tail.status_code) == (200, 503, 200)
    assert ready.json()["pools"]["gold"] == {
        "status": "waiting",
        "reason": "the pool's worker does not answer",
    }
    assert ready.json()["pools"]["tail"] == {"status": "ready"}
    assert (nothing.status_code, dark.status_code) == (404, 503)


# -- moving a tenant


def test_a_tenant_that_is_moved_ends_where_it_is_and_begins_where_it_goes() -> None:
    cores = [FakeCore(), FakeCore(text_reply("of gold"))]
    chosen = pooled(pool("tail", queue=1), pool("gold"), tpm=1000, concurrency=2)
    with bench(cores, chosen) as (b, client):
        with ThreadedPost(b, client, stream=True) as old:
            cores[0].wait_for(lambda: len(cores[0].asks) == 1)
            cores[0].make(cores[0].asks[0], [ord("a")])
            client.portal.call(b.front.apply, moved(chosen, "alice", "gold"))  # type: ignore[union-attr]
            new = b.post(client)
            full = b.post(client, n=2)
            cores[0].make(cores[0].asks[0], [ord("b")])
            cores[0].end(cores[0].asks[0], "length", 2)
            text = "".join(c["choices"][0]["text"] for c in chunks(old.result()))
        view = b.front._door.view("alice", b.clock.now())
        back = moved(chosen, "alice", "tail")
        client.portal.call(b.front.apply, back)  # type: ignore[union-attr]
        cores[0].reply = text_reply("of tail")
        assert b.post(client).json()["choices"][0]["text"] == "of tail", "its place is free again"
    assert text == "ab"
    assert new.json()["choices"][0]["text"] == "of gold"
    assert full.json()["error"]["dimension"] == "concurrency", "one quota, wherever it is served"
    assert view.settled_tokens == (3 + 2) + (3 + len("of gold") + 1)
    assert (view.reserved_tokens, view.concurrency) == (0, 0)


# -- replicas


def test_requests_go_to_the_replica_with_the_fewest_tokens_under_way() -> None:
    cores = [FakeCore(), FakeCore()]
    with (
        bench(cores, TWO_REPLICAS) as (b, client),
        ThreadedPost(b, client, max_tokens=100) as one,
    ):
        cores[0].wait_for(lambda: len(cores[0].asks) == 1)
        with ThreadedPost(b, client, max_tokens=10) as two:
            cores[1].wait_for(lambda: len(cores[1].asks) == 1)
            with ThreadedPost(b, client, max_tokens=10) as three:
                cores[1].wait_for(lambda: len(cores[1].asks) == 2)
                tokens = [link.tokens for link in b.front.pools.links]
                for core in cores:
                    for ask in core.asks:
                        core.end(ask, "length", 0)
                for running in (one, two, three):
                    assert running.result().status_code == 200
        after = [link.tokens for link in b.front.pools.links]
    assert tokens == [103, 26]
    assert after == [0, 0]


def test_an_adapters_requests_stay_together_while_the_loads_are_near() -> None:
    cores = [FakeCore(), FakeCore()]
    with (
        bench(cores, TWO_REPLICAS) as (b, client),
        ThreadedPost(b, client, max_tokens=100) as other,
    ):
        cores[0].wait_for(lambda: len(cores[0].asks) == 1)
        cores[1].reply = text_reply("home")
        texts = [
            b.post(client, model="ada", max_tokens=50).json()["choices"][0]["text"]
            for _ in range(3)
        ]
        cores[0].end(cores[0].asks[0], "length", 0)
        other.result()
        texts.append(b.post(client, model="ada").json()["choices"][0]["text"])
    assert AFFINITY_TOKENS > 100
    assert texts == ["home"] * 4


def test_a_worker_that_is_stopped_while_nothing_is_asked_is_missed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.serving.link.ASK_S", 0.01)
    monkeypatch.setattr("engine.serving.link._ANSWER_S", 0.2)
    frozen, thawed = threading.Event(), threading.Event()
    cores = [FakeCore(text_reply("frozen")), FakeCore(text_reply("moves"))]
    answer = cores[0].status

    def status() -> Any:
        if not thawed.is_set():
            frozen.set()
            thawed.wait(20)
        return answer()

    def until(status_code: int) -> dict[str, Any]:
        for _ in range(2000):
            response = client.get("/ready")
            workers = response.json().get("workers", {})
            if workers.get("ready") == status_code:
                return response.json()
        raise AssertionError(f"never {status_code} workers ready: {response.json()}")

    with bench(cores, TWO_REPLICAS) as (b, client):
        until(2)
        cores[0].status = status  # type: ignore[method-assign]
        assert frozen.wait(10)
        until(1)
        assert {b.post(client).json()["choices"][0]["text"] for _ in range(3)} == {"moves"}
        thawed.set()
        until(2)
    events = [r.detail for r in b.exporter.rows(EventRecord)]
    assert "the worker main/1 gives no sign of life" in events
    assert any(e.startswith("the worker main/1 answers again after") for e in events)


def test_a_replica_that_stalls_is_given_nothing_new_while_another_moves() -> None:
    cores = [FakeCore(), FakeCore(text_reply("moves"))]
    with bench(cores, TWO_REPLICAS) as (b, client), ThreadedPost(b, client) as stuck:
        cores[0].wait_for(lambda: len(cores[0].asks) == 1)
        first, second = b.front.pools.links
        second.tokens += 500  # busier, but it moves
        client.portal.call(b.front.pools.tick)  # type: ignore[union-attr]
        b.clock.turn(STALLED_S)
        client.portal.call(b.front.pools.tick)  # type: ignore[union-attr]
        assert b.post(client).json()["choices"][0]["text"] == "moves"
        ready = client.get("/ready")
        cores[0].end(cores[0].asks[0], "length", 0)
        assert stuck.result().status_code == 200
        client.portal.call(b.front.pools.tick)  # type: ignore[union-attr]
        (pool_,) = b.front.pools
        assert client.portal.call(pool_.route, None) is first  # type: ignore[union-attr]
    assert ready.json() == {"status": "ready", "workers": {"ready": 1, "of": 2}}


def test_one_quota_holds_over_all_replicas() -> None:
    cores = [FakeCore(text_reply("x")), FakeCore(text_reply("x"))]
    with bench(cores, pooled(pool("main", 2), rpm=3)) as (b, client):
        statuses = [b.post(client).status_code for _ in range(5)]
    assert statuses == [200] * 3 + [429] * 2


def test_what_a_replica_charges_is_known_to_the_others_and_only_to_them() -> None:
    cores = [FakeCore(text_reply("x")) for _ in range(3)]
    said = [{"alice": 5.0}, {"alice": 2.0, "bob": -1.0}]
    heard: list[list[dict[str, float]]] = [[], [], []]
    with bench(cores, pooled(pool("main", 3))) as (b, client):
        for link, ears in zip(b.front.pools.links, heard, strict=True):
            link.charge = ears.append  # type: ignore[method-assign]
        first, second, _ = b.front.pools.links
        for link, service in ((first, said[0]), (second, said[1])):
            each = [pb.TenantCharge(tenant=t, service=s) for t, s in service.items()]
            message = pb.WorkerMessage(charges=pb.Charges(tenants=each))
            client.portal.call(link._dispatch, message)  # type: ignore[union-attr]
        assert (first.heard, second.heard) == (0, 0), "charges are no sign of progress"
    assert heard == [[said[1]], [said[0]], said]


# -- a replica dies


@pytest.mark.parametrize(("stream", "made"), [(False, 0), (False, 3), (True, 0)])
def test_what_was_not_yet_said_begins_again_on_another_replica(stream: bool, made: int) -> None:
    """A token that reached the front of a whole answer was not said to anybody."""
    cores = [FakeCore(), FakeCore(text_reply("second life"))]
    chosen = pooled(pool("main", 2), tpm=1000, concurrency=1)
    with bench(cores, chosen) as (b, client):
        with ThreadedPost(b, client, stream=stream) as running:
            cores[0].wait_for(lambda: len(cores[0].asks) == 1)
            if made:
                cores[0].make(cores[0].asks[0], [ord("x")] * made)
            b.workers[0].die()
            response = running.result()
        view = b.front._door.view("alice", b.clock.now())
        assert b.post(client).status_code == 200
    assert response.status_code == 200
    answers = chunks(response) if stream else [response.json()]
    assert "".join(a["choices"][0]["text"] for a in answers) == "second life"
    assert view.settled_tokens == 3 + len("second life") + 1, "charged once"
    assert b.exporter.rows(RequestRecord) == [], "whoever ended it writes its row"
    (event,) = b.exporter.rows(EventRecord)
    assert "the worker main/1 went away; 0 open requests failed, 1 " in event.detail
    assert b.minute().admitted_requests == 2


def test_the_choices_of_one_answer_begin_again_together() -> None:
    """Elsewhere the prompt that the first one brings would be counted once more."""
    cores = [FakeCore() for _ in range(3)]
    chosen = pooled(pool("main", 3))
    with bench(cores, chosen) as (b, client), ThreadedPost(b, client, n=3) as running:
        cores[0].wait_for(lambda: len(cores[0].asks) == 3)
        b.workers[0].die()
        went = cores[1]
        assert went.wait_for(lambda: len(went.asks) == 3), "the least busy had been another"
        first = went.asks[0].request_id
        for ask in went.asks:
            went.end(ask, "length", 0)
        assert running.result().status_code == 200
    assert [ask.counted_with for ask in went.asks] == [None, first, first]
    assert cores[2].asks == []


def test_what_was_said_in_part_is_not_begun_again() -> None:
    cores = [FakeCore(), FakeCore(text_reply("second life"))]
    with (
        bench(cores, TWO_REPLICAS) as (b, client),
        ThreadedPost(b, client, stream=True, n=2) as running,
    ):
        cores[0].wait_for(lambda: len(cores[0].asks) == 2)
        cores[0].publish(step([(cores[0].asks[1].request_id, ord(c)) for c in "xyz"]))
        client.portal.call(said, b)  # type: ignore[union-attr]
        b.workers[0].die()
        response = running.result()
    last = response.text.rstrip().split("\n\n")[-1]
    assert json.loads(last[6:])["error"]["code"] == "worker_lost"
    assert cores[1].asks == [], "nor is the choice of which nothing was said"


def test_a_request_begins_again_once_and_then_it_is_lost() -> None:
    cores = [FakeCore(), FakeCore(), FakeCore()]
    with bench(cores, pooled(pool("main", 3))) as (b, client), ThreadedPost(b, client) as running:
        cores[0].wait_for(lambda: len(cores[0].asks) == 1)
        b.workers[0].die()
        cores[1].wait_for(lambda: len(cores[1].asks) == 1)
        b.workers[1].die()
        response = running.result()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "worker_lost")
    assert response.headers["retry-after"] == "1"
    assert cores[2].asks == []


def test_an_answer_that_is_whole_stays_so_whatever_becomes_of_its_worker() -> None:
    cores = [FakeCore(), FakeCore()]
    cores[0].complete = lambda request_id: None  # type: ignore[method-assign]
    with bench(cores, TWO_REPLICAS) as (b, client), ThreadedPost(b, client, stop="END") as running:
        cores[0].wait_for(lambda: len(cores[0].asks) == 1)
        cores[0].make(cores[0].asks[0], [ord(c) for c in "well END __"])
        client.portal.call(said, b)  # type: ignore[union-attr]
        b.workers[0].die()
        response = running.result()
    assert response.json()["choices"][0]["text"] == "well "
    assert cores[1].asks == []


def test_no_replica_left_is_a_503_that_says_when_to_come_back() -> None:
    cores = [FakeCore(), FakeCore()]
    with bench(cores, TWO_REPLICAS) as (b, client), ThreadedPost(b, client) as running:
        cores[0].wait_for(lambda: len(cores[0].asks) == 1)
        b.workers[1].die()
        assert client.portal.call(b.front.pools.links[1].wait_down, 10.0)  # type: ignore[union-attr]
        half = client.get("/ready")
        b.workers[0].die()
        response = running.result()
        refused = b.post(client)
    assert half.json() == {"status": "ready", "workers": {"ready": 1, "of": 2}}
    assert response.json()["error"]["code"] == "worker_lost"
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


# -- keys and settings


def test_a_key_taken_away_opens_no_more_and_one_unchanged_keeps_its_bucket() -> None:
    chosen = settings(rpm=2)
    with bench(FakeCore(text_reply("x")), chosen) as (b, client):
        assert b.post(client).status_code == 200
        without_bob = replace(
            chosen, tenants=(chosen.tenants[0], replace(chosen.tenants[1], key_sha256=()))
        )
        b.front.check(without_bob)
        client.portal.call(b.front.apply, without_bob)  # type: ignore[union-attr]
        assert b.post(client, key=BOB).status_code == 401
        assert [b.post(client, key=ALICE).status_code for _ in range(2)] == [200, 429]


def test_a_pool_without_a_worker_and_a_worker_of_no_pool_are_refused() -> None:
    def made(*places: WorkerPlace) -> None:
        Pools(
            TWO_POOLS,
            TurnedClock(),
            "run-1",
            places,
            exporter=FakeExporter(),
            levels=lambda tenant, now_s: (None, None, 0),
        )

    gold, silver = WorkerPlace("gold", 0, "unix:/g"), WorkerPlace("silver", 0, "unix:/s")
    with pytest.raises(ConfigError, match="'tail' has no worker"):
        made(gold)
    with pytest.raises(ConfigError, match="'silver'"):
        made(gold, WorkerPlace("tail", 0, "unix:/t"), silver)
