"""One front over one fake worker, and everything they let out: for the tests of the front."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving_fakes import EOS, FakeCore, FakeExporter, FakeTokenizer, FakeWorker, short_folder
from starlette.testclient import TestClient

from engine.clock import TurnedClock
from engine.config import Limits, Settings, Tenant
from engine.scheduling.request import Ask
from engine.serving.api.auth import digest_of
from engine.serving.front import Front
from telemetry.records import TenantMinute

ALICE, BOB = "ts-alice-key", "ts-bob-key"
TEXT = "a grüße 🙂 tail"


def settings(**alice: Any) -> Settings:
    return Settings(
        engine="e",
        model="tiny",
        limits=Limits(max_context=200, page_tokens=16),
        tenants=(
            Tenant(name="alice", adapters=("ada",), key_sha256=(digest_of(ALICE),), **alice),
            Tenant(name="bob", adapters=("bob-law",), key_sha256=(digest_of(BOB),)),
        ),
        adapters=(("ada", "/a"), ("bob-law", "/b")),
    )


def text_reply(text: str) -> Callable[[Ask], list[int]]:
    return lambda ask: [*map(ord, text), EOS]


class Bench:
    """One front, one fake worker, and everything they let out."""

    def __init__(self, core: FakeCore, chosen: Settings, folder: Path) -> None:
        self.core = core
        self.clock = TurnedClock()
        self.exporter = FakeExporter()
        self.worker = FakeWorker(core, folder)
        self.front = Front(
            chosen,
            self.clock,
            "run-1",
            worker_address=self.worker.address,
            tokenizer=FakeTokenizer(),
            exporter=self.exporter,
        )

    def post(self, client: TestClient, key: str | None = ALICE, **body: Any) -> Any:
        headers = body.pop("headers", {})
        if key is not None:
            headers = headers | {"authorization": f"Bearer {key}"}
        asked = {"model": "tiny", "prompt": "abc", "max_tokens": 100} | body
        return client.post("/v1/completions", json=asked, headers=headers)

    def chat(self, client: TestClient, said: str = "hi", key: str = ALICE, **body: Any) -> Any:
        headers = body.pop("headers", {}) | {"authorization": f"Bearer {key}"}
        messages = [{"role": "user", "content": said}]
        asked = {"model": "tiny", "messages": messages, "max_tokens": 100} | body
        return client.post("/v1/chat/completions", json=asked, headers=headers)

    def minute(self, tenant: str = "alice") -> TenantMinute:
        """The latest row of a tenant."""
        return [r for r in self.exporter.rows(TenantMinute) if r.tenant == tenant][-1]


@contextmanager
def bench(
    core: FakeCore | None = None, chosen: Settings | None = None
) -> Iterator[tuple[Bench, TestClient]]:
    with short_folder() as folder:
        b = Bench(core or FakeCore(text_reply(TEXT)), chosen or settings(), folder)
        with TestClient(b.front.app) as client:
            for _ in range(500):
                if client.get("/ready").status_code == 200:
                    break
                client.portal.call(b.front.link.wait_up, 0.1)  # type: ignore[union-attr]
            yield b, client
        b.worker.stop()


def chunks(response: Any) -> list[Any]:
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


class ThreadedPost:
    """A request under way in another thread."""

    def __init__(self, b: Bench, client: TestClient, **body: Any) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(b.post, client, **body)

    def __enter__(self) -> ThreadedPost:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def result(self) -> Any:
        return self._future.result(20)
