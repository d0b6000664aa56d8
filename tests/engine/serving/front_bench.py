"""One front over fake workers, and everything they let out: for the tests of the front."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
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
from engine.serving.front_book import FrontBook
from engine.serving.launch import WorkerPlace
from engine.serving.link import WorkerLink
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
    """One front, fake workers in the order of the settings' pools and replicas, and everything
    they let out. `core` and `worker` are the first."""

    def __init__(self, cores: Sequence[FakeCore], chosen: Settings, folder: Path) -> None:
        self.core, self.cores = cores[0], cores
        self.clock = TurnedClock()
        self.exporter = FakeExporter()
        names = [(p.name, r) for p in chosen.all_pools() for r in range(p.replicas)]
        self.workers = [
            FakeWorker(core, folder, f"run-{i + 1}", pool=pool, socket=f"w{i}.sock")
            for i, (core, (pool, _)) in enumerate(zip(cores, names, strict=True))
        ]
        self.worker = self.workers[0]
        self.front = Front(
            chosen,
            self.clock,
            "run-1",
            workers=[
                WorkerPlace(pool, replica, worker.address)
                for worker, (pool, replica) in zip(self.workers, names, strict=True)
            ],
            tokenizer=FakeTokenizer(),
            exporter=self.exporter,
        )

    @property
    def link(self) -> WorkerLink:
        return self.front.pools.links[0]

    @property
    def book(self) -> FrontBook:
        return next(iter(self.front.pools)).book

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
    core: FakeCore | Sequence[FakeCore] | None = None, chosen: Settings | None = None
) -> Iterator[tuple[Bench, TestClient]]:
    core = core or FakeCore(text_reply(TEXT))
    cores = [core] if isinstance(core, FakeCore) else core
    with short_folder() as folder:
        b = Bench(cores, chosen or settings(), folder)
        with TestClient(b.front.app) as client:
            assert client.portal.call(b.front.pools.wait_up, 10.0) is None  # type: ignore[union-attr]
            yield b, client
        for worker in b.workers:
            worker.stop()


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
