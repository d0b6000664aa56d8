"""Who is let in, and which models a caller may name."""

from __future__ import annotations

import json

import pytest
from front_bench import ALICE, bench

from engine.clock import TurnedClock
from engine.config import Settings, Tenant
from engine.key_digest import instant, written
from engine.serving.api.auth import digest_of


@pytest.mark.parametrize("key", [None, "ts-wrong", ""])
def test_no_key_and_a_wrong_key_get_one_and_the_same_401(key: str | None) -> None:
    with bench() as (b, client):
        response = b.post(client, key=key)
        other = b.post(client, key="ts-quite-another")
        listing = client.get("/v1/models")
    assert response.status_code == listing.status_code == 401
    assert response.json() == other.json()
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    assert b.core.asks == []


def test_unknown_foreign_and_mistyped_models_get_the_same_404_and_never_the_base_model() -> None:
    with bench() as (b, client):
        answers = [b.post(client, model=m) for m in ("nothing", "bob-law", "adb", "Tiny", "tiny ")]
    shapes = {
        (a.status_code, a.text.replace(json.loads(a.request.content)["model"], "NAME"))
        for a in answers
    }
    assert len(shapes) == 1
    assert answers[0].status_code == 404
    assert b.core.asks == []


def test_a_listing_shows_the_base_model_and_the_callers_adapters_only() -> None:
    with bench() as (_, client):
        listing = client.get("/v1/models", headers={"authorization": f"Bearer {ALICE}"}).json()
    assert [(m["id"], m["parent"]) for m in listing["data"]] == [("tiny", None), ("ada", "tiny")]


# -- keys on their way out


def test_an_expired_key_is_a_401_that_says_since_when_to_who_holds_it() -> None:
    base_s = TurnedClock().base.wall_s
    old = written(digest_of("ts-old"), base_s + 3600)
    chosen = Settings(
        engine="e",
        model="tiny",
        tenants=(Tenant(name="alice", key_sha256=(old, digest_of("ts-new"))),),
    )
    with bench(chosen=chosen) as (b, client):
        before = [b.post(client, key=k).status_code for k in ("ts-old", "ts-new")]
        b.clock.turn(3600.0)
        after = b.post(client, key="ts-old")
        fresh = b.post(client, key="ts-new")
        stranger = b.post(client, key="ts-olx")
    assert before == [200, 200]
    assert (after.status_code, fresh.status_code, stranger.status_code) == (401, 200, 401)
    assert after.json()["error"]["code"] == "expired_api_key"
    assert instant(base_s + 3600) in after.json()["error"]["message"]
    assert stranger.json()["error"]["code"] == "invalid_api_key"
