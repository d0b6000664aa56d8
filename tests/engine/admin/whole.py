"""A real `serve` for tests of an operator: two pools of a worker each, a store, who streams."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from engine.admin.client import AdminClient
from engine.admin.in_force import Edit
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import NAME, OverlayFile
from engine.config import read_settings
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter
from engine.serving.api.auth import digest_of
from engine.serving.client import WorkerClient
from engine.serving.processes import ServeProcesses
from telemetry.proto import tenantscope_pb2 as pb

FILE = """
engine = "whole"
model = "synthetic"
dtype = "float32"
policy = "vtc"
bucket_s = 10.0
provisional_s = 0.5
[limits]
slots = 4
step_tokens = 64
max_context = 2048
pool_bytes = 8_388_608
[[pool]]
name = "main"
[[pool]]
name = "gold"
[guard]
mode = "dry-run"
concurrency = 2
[[adapter]]
name = "one"
path = "adapters/one"
[[adapter]]
name = "two"
path = "adapters/two"
[[tenant]]
name = "alice"
tpm = 1_000_000
adapters = ["one", "two"]
key_sha256 = ["{alice}"]
[[tenant]]
name = "bob"
rpm = 10_000
key_sha256 = ["{bob}"]
[[tenant]]
name = "carol"
key_sha256 = ["{carol}"]
[[tenant]]
name = "greta"
pool = "gold"
key_sha256 = ["{greta}"]
"""


def text() -> str:
    return FILE.format(**{t: digest_of(f"ts-{t}") for t in ("alice", "bob", "carol", "greta")})


class Engine:
    """A `serve` with two adapters, an operator's door, and changes from before its start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "pool.toml"
        self.config.write_text(text())
        self.model = load_model("synthetic", "float32").config
        for i, name in enumerate(("one", "two", "three")):
            make_adapter(self.adapter(name), self.model, 4, seed=i)
        before = Overlay().with_change(
            Edit("tenant", "carol", {"rpm": 1}),
            "tenant 'carol': rpm none -> 1",
            0.0,
            None,
            "op",
            "",
        )
        before = before.with_change(Edit("policy", "fcfs"), "policy", 0.0, None, "op", "")
        self.over_s = time.time() - 100.0
        before = before.with_change(Edit("policy", "lcf"), "over", 0.0, self.over_s, "op", "")
        OverlayFile(folder / "store" / NAME).write(before)
        settings = read_settings(self.config)
        self.heard: list[str] = []
        self.processes = ServeProcesses(
            settings, folder / "store", config=self.config, progress=self.heard.append
        )
        self.processes.start()
        # One client: to make one reads all the certificates there are.
        self.http = httpx.Client(timeout=60, verify=False)
        self.operator = AdminClient(self.processes.admin_address)
        self.worker, self.gold = (WorkerClient(w.address) for w in self.processes.worker_places)

    def close(self) -> None:
        self.http.close()
        self.operator.close()
        self.worker.close()
        self.gold.close()
        self.processes.stop()

    def adapter(self, name: str) -> Path:
        return self.folder / "adapters" / name

    def body(self, **more: Any) -> dict[str, Any]:
        asked = {"model": "synthetic", "prompt": "one two", "max_tokens": 4, "temperature": 0}
        return asked | {"ignore_eos": True} | more

    def ask(self, tenant: str = "alice", **more: Any) -> httpx.Response:
        return self.http.post(
            f"{self.processes.url}/v1/completions",
            json=self.body(**more),
            headers={"authorization": f"Bearer ts-{tenant}"},
        )

    def stream(
        self, tenant: str, on_first: Callable[[], None] = lambda: None, **more: Any
    ) -> list[dict[str, Any]]:
        """The events of a stream; `on_first` is called when the first token is there."""
        events: list[dict[str, Any]] = []
        with self.http.stream(
            "POST",
            f"{self.processes.url}/v1/completions",
            json=self.body(stream=True, **more),
            headers={"authorization": f"Bearer ts-{tenant}"},
        ) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    events.append(json.loads(line[6:]))
                    if len(events) == 1:
                        on_first()
        return events

    def act(self, method: str, **fields: Any) -> pb.AdminReply:
        service = pb.DESCRIPTOR.services_by_name["Admin"]
        kind = getattr(pb, service.methods_by_name[method].input_type.name)
        act = pb.Act(who="op", why="a test", **fields.pop("act", {}))
        return self.operator.act(method, kind(act=act, **fields))

    def kill(self, place: int) -> None:
        """A worker, as the kernel would."""
        workers = self.processes._workers
        assert workers is not None
        os.kill(workers.keepers[place].child.pid, signal.SIGKILL)

    def tenant(self, name: str) -> pb.AdminTenant:
        return next(t for t in self.operator.show().tenants if t.tenant == name)


def until(happened: Callable[[], bool]) -> None:
    """Wait for what another process is about to do; fails after a minute."""
    over = time.monotonic() + 60.0
    while not happened():
        assert time.monotonic() < over, "it did not happen"
        time.sleep(0.02)


def ended(events: list[dict[str, Any]]) -> tuple[str, str]:
    """How a stream ended, and its text."""
    assert "error" not in events[-1], events[-1]
    text = "".join(e["choices"][0]["text"] for e in events if e.get("choices"))
    reasons = [e["choices"][0]["finish_reason"] for e in events if e.get("choices")]
    return reasons[-1], text
