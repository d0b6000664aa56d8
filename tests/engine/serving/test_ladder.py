"""Two pools, each worker a process of its own, on the synthetic model, called by HTTPS: a worker
that dies takes its own streams along and nobody else's, and comes back. Replicas have one view."""

from __future__ import annotations

import json
import os
import queue
import signal
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from engine.config import Limits, PoolSpec, Settings, Tenant
from engine.serving.api.auth import digest_of
from engine.serving.door import HttpDoor
from engine.serving.processes import ServeProcesses
from telemetry.source import open_source

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("ladder")]

CORE = max(os.sched_getaffinity(0))
LIMITS = Limits(slots=4, step_tokens=64, max_context=2048, pool_bytes=16 << 20)
SETTINGS = Settings(
    engine="ladder",
    model="synthetic",
    dtype="float32",
    bucket_s=10.0,
    provisional_s=0.5,
    limits=LIMITS,
    pool="shared",
    pools=(PoolSpec("shared", 1, LIMITS), PoolSpec("gold", 1, LIMITS, (1,), cpus=(CORE,))),
    tenants=(
        Tenant("many", key_sha256=(digest_of("ts-many"),)),
        Tenant("contract", tier=1, key_sha256=(digest_of("ts-contract"),)),
    ),
)


class Ladder:
    """A running `serve` and what its processes said."""

    def __init__(
        self,
        processes: ServeProcesses,
        lines: queue.SimpleQueue[str],
        trust: ssl.SSLContext | bool = True,
    ) -> None:
        self.processes = processes
        self.lines = lines
        self.trust = trust

    def pid(self, name: str) -> int:
        workers = self.processes._workers
        assert workers is not None
        return next(k for k in workers.keepers if k.name == name).child.pid

    def kill(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGKILL)

    def until(self, end: str) -> list[str]:
        heard = [self.lines.get(timeout=60)]
        while end not in heard[-1]:
            heard.append(self.lines.get(timeout=60))
        return heard

    def ask(self, key: str, **body: Any) -> httpx.Response:
        asked = {"model": "synthetic", "prompt": "one two", "max_tokens": 4, "temperature": 0}
        return httpx.post(
            f"{self.processes.url}/v1/completions",
            json=asked | {"ignore_eos": True} | body,
            headers={"authorization": f"Bearer {key}"},
            timeout=60,
            verify=self.trust,
        )

    def answers_again(self, key: str) -> None:
        """Every answer until then is a 503 that says when to come back."""
        for _ in range(3000):
            response = self.ask(key)
            if response.status_code == 200:
                return
            assert response.status_code == 503
            assert response.headers["retry-after"]
        raise AssertionError("it never answered again")


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ladder]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    folder = tmp_path_factory.mktemp("ladder")
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    made.private_key_pem.write_to_path(folder / "key.pem")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    door = HttpDoor(tls_cert=str(folder / "cert.pem"), tls_key=str(folder / "key.pem"))
    with ServeProcesses(SETTINGS, folder / "store", door=door, progress=lines.put) as processes:
        assert processes.url.startswith("https://")
        yield Ladder(processes, lines, trust)


class Stream:
    """A streaming answer, read on a thread of its own."""

    def __init__(self, ladder: Ladder, key: str, max_tokens: int) -> None:
        self.texts: list[str] = []
        self.error: dict[str, Any] | None = None
        self.begun = threading.Event()
        self._ladder, self._key, self._max_tokens = ladder, key, max_tokens
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        body = {
            "model": "synthetic", "prompt": "one two", "max_tokens": self._max_tokens,
            "temperature": 0, "ignore_eos": True, "stream": True,
        }  # fmt: skip
        with httpx.stream(
            "POST",
            f"{self._ladder.processes.url}/v1/completions",
            json=body,
            headers={"authorization": f"Bearer {self._key}"},
            timeout=120,
            verify=self._ladder.trust,
        ) as response:
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    self.error = event["error"]
                else:
                    self.texts.append(event["choices"][0]["text"])
                self.begun.set()

    def whole(self) -> str:
        self._thread.join(120)
        assert not self._thread.is_alive()
        return "".join(self.texts)


@contextmanager
def streaming(ladder: Ladder, key: str, max_tokens: int) -> Iterator[Stream]:
    stream = Stream(ladder, key, max_tokens)
    assert stream.begun.wait(60)
    yield stream
    stream.whole()


def test_a_worker_killed_mid_stream_takes_its_own_streams_along_and_comes_back(
    ladder: Ladder,
) -> None:
    undisturbed = ladder.ask("ts-contract", max_tokens=200).json()["choices"][0]["text"]
    ladder.until("starting the front")
    with (
        streaming(ladder, "ts-contract", 200) as theirs,
        streaming(ladder, "ts-many", 1900) as lost,
    ):
        ladder.kill("worker shared")
    assert lost.error is not None
    assert lost.error["code"] == "worker_lost"
    assert theirs.error is None
    assert theirs.whole() == undisturbed, "token for token"
    heard = ladder.until("the worker shared process is back")
    assert (
        "the worker shared process ended with signal 9; what it was answering failed or began"
        in heard[0]
    )
    ladder.answers_again("ts-many")
    assert ladder.processes.failure() is None


def test_a_worker_computes_on_its_pools_cores_and_no_other(ladder: Ladder) -> None:
    threads = list(Path(f"/proc/{ladder.pid('worker gold')}/task").iterdir())
    assert len(threads) > 5
    assert {frozenset(os.sched_getaffinity(int(t.name))) for t in threads} == {frozenset({CORE})}
    assert os.sched_getaffinity(ladder.pid("worker shared")) == os.sched_getaffinity(0)


def test_killed_again_and_once_more_while_it_starts_it_still_comes_back(ladder: Ladder) -> None:
    ladder.kill("worker shared")
    ladder.until("worker shared: loading the model")
    ladder.kill("worker shared")  # before it was ready
    ladder.until("ended with signal 9")
    assert ladder.ask("ts-contract").status_code == 200
    ladder.until("the worker shared process is back")
    ladder.answers_again("ts-many")


def test_what_went_and_came_is_written_down_with_its_pool_and_each_start_is_a_run(
    tmp_path: Path,
) -> None:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with ServeProcesses(SETTINGS, tmp_path / "store", progress=lines.put) as processes:
        ladder = Ladder(processes, lines)
        ladder.kill("worker gold")
        ladder.until("the worker gold process is back")
        ladder.answers_again("ts-contract")
        assert ladder.ask("ts-many").status_code == 200
    source = open_source(tmp_path / "store")
    try:
        span = 0.0, processes.clock.wall_s + 3600
        runs = source.read("engine_run", *span)
        events = source.read("event", *span)
    finally:
        source.close()
    assert sorted(r.pool for r in runs) == ["gold", "gold", "shared"]
    assert len({r.run_id for r in runs}) == 3
    faults = [(e.pool, e.detail) for e in events if e.kind == "fault"]
    assert {pool for pool, _ in faults} == {"gold"}
    assert [what for _, detail in faults for what in ("went away", "again") if what in detail] == [
        "went away",
        "again",
    ]
    for r in runs:
        names = {t["name"] for t in json.loads(r.config)["tenants"]}
        assert names == ({"contract"} if r.pool == "gold" else {"many"})
    for key in ("ts-many", "ts-contract"):
        assert digest_of(key) not in str(runs)


def test_replicas_have_one_view_of_what_a_tenant_had(tmp_path: Path) -> None:
    """Over real processes: what one replica charged stands in the other's counter too."""
    settings = replace(SETTINGS, pools=(PoolSpec("shared", 2, LIMITS, tiers=(1,)),))
    with ServeProcesses(settings, tmp_path / "store") as processes:
        ladder = Ladder(processes, queue.SimpleQueue())
        for max_tokens in (100, 4):  # the short ones are planned by what the long ones left
            streams = [Stream(ladder, "ts-many", max_tokens) for _ in range(8)]
            assert all(s.whole() and s.error is None for s in streams)
    source = open_source(tmp_path / "store")
    try:
        rows = source.read("tenant_minute", 0.0, processes.clock.wall_s + 3600)
    finally:
        source.close()
    service: dict[str, float] = {}
    counter: dict[str, float] = {}
    for row in rows:
        if row.service:
            service[row.run_id] = service.get(row.run_id, 0.0) + row.service
            counter[row.run_id] = max(counter.get(row.run_id, 0.0), row.vtc_counter)
    first, second = service
    assert counter[first] > service[first] + 0.5 * service[second]
    assert counter[second] > service[second] + 0.5 * service[first]
    assert max(counter.values()) <= sum(service.values()) * (1 + 1e-9)
