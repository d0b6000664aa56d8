"""An operator at a real engine: front, worker, store and a model, while tenants stream."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.admin.client import ActRefused, AdminClient
from engine.admin.overlay import Edit, Overlay
from engine.admin.overlay_file import NAME, OverlayFile
from engine.config import read_settings
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter
from engine.serving.api.auth import digest_of
from engine.serving.client import WorkerClient
from engine.serving.processes import ServeProcesses
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.source import open_source

pytestmark = pytest.mark.xdist_group("admin-whole")
WEIGHTS = "adapter_model.safetensors"
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
max_context = 512
pool_bytes = 8_388_608
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
"""


def text() -> str:
    return FILE.format(**{t: digest_of(f"ts-{t}") for t in ("alice", "bob", "carol")})


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
        before = before.with_change(Edit("policy", "lcf"), "over", 0.0, 1.0, "op", "")
        OverlayFile(folder / "store" / NAME).write(before)
        settings = read_settings(self.config).one_pool()
        self.heard: list[str] = []
        self.processes = ServeProcesses(
            settings, folder / "store", config=self.config, progress=self.heard.append
        )
        self.processes.start()
        self.operator = AdminClient(self.processes.admin_address)
        self.worker = WorkerClient(self.processes.worker_address)

    def close(self) -> None:
        self.operator.close()
        self.worker.close()
        self.processes.stop()

    def adapter(self, name: str) -> Path:
        return self.folder / "adapters" / name

    def body(self, **more: Any) -> dict[str, Any]:
        asked = {"model": "synthetic", "prompt": "one two", "max_tokens": 4, "temperature": 0}
        return asked | {"ignore_eos": True} | more

    def ask(self, tenant: str = "alice", **more: Any) -> httpx.Response:
        return httpx.post(
            f"{self.processes.url}/v1/completions",
            json=self.body(**more),
            headers={"authorization": f"Bearer ts-{tenant}"},
            timeout=60,
        )

    def stream(
        self, tenant: str, on_first: Callable[[], None] = lambda: None, **more: Any
    ) -> list[dict[str, Any]]:
        """The events of a stream; `on_first` is called when the first token is there."""
        events: list[dict[str, Any]] = []
        with httpx.stream(
            "POST",
            f"{self.processes.url}/v1/completions",
            json=self.body(stream=True, **more),
            headers={"authorization": f"Bearer ts-{tenant}"},
            timeout=60,
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

    def tenant(self, name: str) -> pb.AdminTenant:
        return next(t for t in self.operator.show().tenants if t.tenant == name)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = Engine(tmp_path_factory.mktemp("admin"))
    try:
        yield made
    finally:
        made.close()


def ended(events: list[dict[str, Any]]) -> tuple[str, str]:
    """How a stream ended, and its text."""
    assert "error" not in events[-1], events[-1]
    text = "".join(e["choices"][0]["text"] for e in events if e.get("choices"))
    reasons = [e["choices"][0]["finish_reason"] for e in events if e.get("choices")]
    return reasons[-1], text


def test_changes_from_before_the_start_are_in_force_in_front_and_worker(engine: Engine) -> None:
    assert [engine.ask("carol").status_code for _ in range(2)] == [200, 429]
    shown = engine.operator.show()
    assert (shown.policy, engine.tenant("carol").rpm) == ("fcfs", 1)
    assert engine.worker.status().policy == "fcfs"
    assert [c.state for c in shown.changes] == ["in force", "in force", "expired"]


def test_unloading_in_mid_stream_cuts_no_stream_and_gives_everything_back(engine: Engine) -> None:
    whole = ended(engine.stream("alice", model="one", max_tokens=12))[1]
    before = engine.worker.status().free_pages
    for _ in range(50):
        codes = []

        def unload(codes: list[int] = codes) -> None:
            reply = engine.act("UnloadAdapter", adapter="one")
            assert reply.results[0].ok
            codes.append(engine.ask(model="one").status_code)

        reason, text = ended(engine.stream("alice", unload, model="one", max_tokens=12))
        assert (reason, text, codes) == ("length", whole, [404])
        assert engine.act("Undo").results[0].ok
    assert ended(engine.stream("alice", model="one", max_tokens=12))[1] == whole
    status = engine.worker.status()
    assert (status.running, status.waiting, status.free_pages) == (0, 0, before)
    assert {t.under_way for t in engine.operator.show().tenants} == {0}


def break_truncated(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def break_nan(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    name = sorted(tensors)[0]
    tensors[name] = np.full_like(tensors[name], np.nan)
    save_file(tensors, folder / WEIGHTS)


def break_rank(folder: Path) -> None:
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"r": 5}))


def break_lfs(folder: Path) -> None:
    (folder / WEIGHTS).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )


def break_pickle(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")


BROKEN = {
    "truncated": (break_truncated, "damaged or cut short"),
    "nan": (break_nan, "NaN"),
    "rank": (break_rank, "rank 5"),
    "lfs": (break_lfs, "Git LFS pointer"),
    "pickle": (break_pickle, "pickle"),
}


def test_adapters_that_are_no_good_are_refused_while_another_tenant_streams(
    engine: Engine,
) -> None:
    alone = ended(engine.stream("bob", max_tokens=200))[1]
    served = engine.ask(model="two").json()["choices"][0]["text"]
    versions = engine.operator.show().version
    said: dict[str, str] = {}
    first = threading.Event()
    streams: list[list[dict[str, Any]]] = []
    streaming = threading.Thread(
        target=lambda: streams.append(engine.stream("bob", first.set, max_tokens=200))
    )
    streaming.start()
    assert first.wait(30)
    for name, (spoil, _) in BROKEN.items():
        folder = engine.adapter(f"bad-{name}")
        make_adapter(folder, engine.model, 4, seed=7)
        spoil(folder)
        reply = engine.act("LoadAdapter", adapter=name, folder=str(folder), tenants=["bob"])
        assert not reply.results[0].ok
        said[name] = reply.results[0].detail
        assert engine.ask("bob", model=name).status_code == 404
    streaming.join(60)
    assert ended(streams[0]) == ("length", alone)
    for name, (_, words) in BROKEN.items():
        assert words in said[name]
    assert engine.ask(model="two").json()["choices"][0]["text"] == served
    assert engine.operator.show().version == versions


def test_a_served_adapter_spoilt_on_the_disk_is_served_on_as_it_was(engine: Engine) -> None:
    served = engine.ask(model="two").json()["choices"][0]["text"]
    good = (engine.adapter("two") / WEIGHTS).read_bytes()
    break_truncated(engine.adapter("two"))
    reply = engine.act("ReloadAdapter", adapter="two")
    assert not reply.results[0].ok
    assert engine.ask(model="two").json()["choices"][0]["text"] == served
    (engine.adapter("two") / WEIGHTS).write_bytes(good)
    assert (
        engine.act("ReloadAdapter", adapter="two").results[0].detail == "its content is as it was"
    )


def test_an_adapter_read_again_serves_its_new_content_and_the_old_to_whom_it_was_promised(
    engine: Engine,
) -> None:
    old = ended(engine.stream("alice", model="two", max_tokens=12))[1]
    good = (engine.adapter("two") / WEIGHTS).read_bytes()
    (engine.adapter("two") / WEIGHTS).write_bytes((engine.adapter("three") / WEIGHTS).read_bytes())

    def reload() -> None:
        assert engine.act("ReloadAdapter", adapter="two").results[0].ok

    assert ended(engine.stream("alice", reload, model="two", max_tokens=12))[1] == old
    new = ended(engine.stream("alice", model="two", max_tokens=12))[1]
    (engine.adapter("two") / WEIGHTS).write_bytes(good)
    reload()
    assert ended(engine.stream("alice", model="two", max_tokens=12))[1] == old != new


def test_a_new_adapter_is_its_tenants_only(engine: Engine) -> None:
    folder = str(engine.adapter("three"))
    assert engine.act("LoadAdapter", adapter="three", folder=folder, tenants=["bob"]).results[0].ok
    assert engine.ask("bob", model="three").status_code == 200
    assert engine.ask("alice", model="three").status_code == 404
    with pytest.raises(ActRefused, match="outside"):
        engine.act("LoadAdapter", adapter="sly", folder="/etc", tenants=["bob"])
    engine.act("Undo")
    assert engine.ask("bob", model="three").status_code == 404


def test_a_drained_tenant_finishes_what_it_has_and_is_let_nothing_new_in(engine: Engine) -> None:
    codes = []

    def drain() -> None:
        assert engine.act("DrainTenant", tenant="alice").results[0].ok
        codes.append(engine.ask("alice").status_code)

    assert ended(engine.stream("alice", drain, max_tokens=30))[0] == "length"
    assert codes == [429]
    engine.act("ResumeTenant", tenant="alice")
    assert engine.ask("alice").status_code == 200


def test_an_operator_ends_one_request_and_its_tenant_is_told(engine: Engine) -> None:
    ids: list[str] = []

    def abort() -> None:
        rows = engine.operator.show()
        assert sum(t.running for t in rows.tenants) == 1
        assert engine.act("AbortRequest", request_id=ids[0]).results[0].ok

    with httpx.stream(
        "POST",
        f"{engine.processes.url}/v1/completions",
        json=engine.body(stream=True, max_tokens=400),
        headers={"authorization": "Bearer ts-bob"},
        timeout=60,
    ) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if line.startswith("data: {"))
        ids.append(json.loads(first[6:])["id"])
        abort()
        rest = [line for line in lines if line.startswith("data: ")]
    assert len(rest) < 390
    reply = engine.act("AbortRequest", request_id=ids[0])
    assert not reply.results[0].ok
    assert "no request" in reply.results[0].detail
    assert engine.worker.status().running == 0


def test_a_settings_file_with_a_blank_quota_changes_nothing_and_a_good_one_does(
    engine: Engine,
) -> None:
    for bad in (text().replace("rpm = 10_000\n", ""), text().replace("rpm = 10_000", "rpm =")):
        engine.config.write_text(bad)
        with pytest.raises(ActRefused, match="settings in force stay"):
            engine.act("ReloadConfig")
    assert engine.tenant("bob").rpm == 10_000
    key = digest_of("ts-new")
    changed = text().replace("rpm = 10_000", "rpm = 9_000")
    engine.config.write_text(changed + f'[[tenant]]\nname = "dave"\nkey_sha256 = ["{key}"]\n')
    reply = engine.act("ReloadConfig")
    assert "tenant 'dave' comes" in reply.effect
    assert engine.ask("new").status_code == 200
    assert (engine.tenant("bob").rpm, engine.tenant("carol").rpm) == (9_000, 1)
    engine.config.write_text(text())
    assert engine.act("ReloadConfig").results[0].ok
    assert engine.ask("new").status_code == 401


def test_whoever_did_what_and_why_is_in_the_store(engine: Engine) -> None:
    values = {"weight": "0.5", "rpm": "500"}
    engine.act("SetTenant", tenant="alice", values=values, act={"ttl_s": 600.0})
    engine.act("SetTenant", tenant="alice", values={"tier": "low"}, act={"dry_run": True})
    engine.act("PreemptTenant", tenant="alice")
    engine.processes.stop()
    assert not [line for line in engine.heard if "cleanly" in line]
    source = open_source(engine.folder / "store")
    try:
        until = engine.processes.clock.wall_s + 7200
        policies = sorted(source.read("policy", 0.0, until), key=lambda p: p.version)
        events = source.read("event", 0.0, until)
    finally:
        source.close()
    assert (policies[0].policy, policies[1].policy, policies[1].who) == (
        "vtc",
        "fcfs",
        "tenantscope",
    )
    last = policies[-1]
    assert (last.who, last.why) == ("op", "a test")
    alice = json.loads(last.parameters)["alice"]
    assert (alice["weight"], alice["rpm"], alice["tier"]) == (0.5, 500, 0)
    said = [e.detail for e in events if e.kind == "policy"]
    assert "tenant 'alice': weight 1 -> 0.5, rpm none -> 500 by op: a test" in said
    acts = [e for e in events if e.kind == "admin"]
    assert any(e.tenant == "alice" and "preempt the excess" in e.detail for e in acts)
    assert sum(e.adapter == "one" and "by op: a test" in e.detail for e in acts) >= 50
    assert not any("tier" in d for d in said)
    starts = [e for e in events if e.kind == "fault"]
    assert starts == []
