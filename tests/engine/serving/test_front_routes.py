"""The tenants' port holds the tenants' API and nothing else: every route, enumerated."""

from __future__ import annotations

from typing import Any

import pytest
from front_bench import ALICE, BOB, bench
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from engine.serving.front import ROUTES

# Route, methods, and whether it asks for a key. A new route must be written here, with its answer.
KNOWN = {
    "/v1/completions": ({"POST"}, True),
    "/v1/chat/completions": ({"POST"}, True),
    "/v1/models": ({"GET", "HEAD"}, True),
    "/v1/models/{name:path}": ({"GET", "HEAD"}, True),
    "/v1/usage": ({"GET", "HEAD"}, True),
    "/health": ({"GET", "HEAD"}, False),
    "/ready": ({"GET", "HEAD"}, False),
}


def routes(app: Any) -> dict[str, set[str]]:
    while not isinstance(app, Starlette):
        app = app._app
    assert all(type(route) is Route for route in app.routes), "no mounts, no sockets, no files"
    return {route.path: set(route.methods) for route in app.routes}  # type: ignore[attr-defined]


def test_the_routes_are_these_and_the_404_names_them() -> None:
    with bench() as (b, _):
        assert routes(b.front.app) == {path: methods for path, (methods, _) in KNOWN.items()}
    for path in KNOWN:
        assert path.replace("{name:path}", "NAME") in ROUTES


@pytest.mark.parametrize("path", [path for path, (_, guarded) in KNOWN.items() if guarded])
def test_nothing_of_the_api_opens_without_a_key(path: str) -> None:
    methods = KNOWN[path][0]
    with bench() as (b, client):
        for method in methods:
            asked = client.request(method, path.replace("{name:path}", "tiny"))
            assert asked.status_code == 401, (method, path)
    assert b.core.asks == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/docs",
        "/openapi.json",
        "/metrics",
        "/admin",
        "/v1/admin/tenants",
        "/v1/load_lora_adapter",
        "/v1/completions/../admin",
        "/tenantscope.v1.Admin/Show",
        "/tenantscope.v1.Store/Query",
        "/reset_prefix_cache",
    ],
)
def test_what_is_an_operators_is_not_here(path: str) -> None:
    headers = {"authorization": f"Bearer {ALICE}"}
    with bench() as (_, client):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
            answer = client.request(method, path, headers=headers)
            assert answer.status_code in (404, 405), (method, path)
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("started", [False, True])
def test_an_answer_that_breaks_is_a_500_while_nothing_is_sent_and_cut_off_after(
    started: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Breaks(Response):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if started:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            raise KeyError("what only we may know")

    async def breaks(*_: Any, **__: Any) -> Response:
        return Breaks()

    with bench() as (b, _):
        b.front._completions.answer = breaks  # type: ignore[method-assign]
        client = TestClient(b.front.app, raise_server_exceptions=False)
        answer = client.post("/v1/completions", json={})
    assert answer.status_code == (200 if started else 500)
    if not started:
        assert answer.json()["error"]["type"] == "server_error"
    assert "what only we may know" not in answer.text + caplog.text
    assert "KeyError at" in caplog.text


def test_one_model_is_shown_to_who_may_name_it() -> None:
    with bench() as (_, client):

        def shown(name: str, key: str) -> Any:
            return client.get(f"/v1/models/{name}", headers={"authorization": f"Bearer {key}"})

        own, base = shown("ada", ALICE), shown("tiny", BOB)
        others = [shown(n, BOB) for n in ("ada", "adx", "a/b")]
    assert (own.json()["id"], own.json()["parent"]) == ("ada", "tiny")
    assert (base.json()["id"], base.json()["parent"]) == ("tiny", None)
    assert [r.status_code for r in others] == [404] * 3
    texts = [r.json()["error"]["message"] for r in others]
    pairs = zip(texts, ("ada", "adx", "a/b"), strict=True)
    assert len({text.replace(name, "NAME") for text, name in pairs}) == 1
