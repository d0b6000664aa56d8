"""An operator at a real engine: front, worker, store and a model, while tenants stream."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.admin.client import ActRefused
from engine.model.made_adapters import make_adapter
from engine.serving.api.auth import digest_of
from tests.engine.admin.whole import Engine, ended, text

pytestmark = pytest.mark.xdist_group("admin-whole")
WEIGHTS = "adapter_model.safetensors"


def test_changes_from_before_the_start_are_in_force_in_front_and_worker(engine: Engine) -> None:
    assert [engine.ask("carol").status_code for _ in range(2)] == [200, 429]
    shown = engine.operator.show()
    assert (shown.policy, engine.tenant("carol").rpm) == ("fcfs", 1)
    assert engine.worker.status().policy == "fcfs"
    assert [c.state for c in shown.changes] == ["in force", "in force", "expired"]


@pytest.mark.parametrize("times", [15, pytest.param(50, marks=pytest.mark.full)])
def test_unloading_in_mid_stream_cuts_no_stream_and_gives_everything_back(
    engine: Engine, times: int
) -> None:
    whole = ended(engine.stream("alice", model="one", max_tokens=100))[1]
    before = engine.worker.status().free_pages
    seen = tries = 0
    while seen < times:
        said: list[str] = []
        tries += 1

        def unload(said: list[str] = said) -> None:
            reply = engine.act("UnloadAdapter", adapter="one")
            assert reply.results[0].ok
            said.append(reply.results[0].detail)
            assert engine.ask(model="one").status_code == 404

        reason, text = ended(engine.stream("alice", unload, model="one", max_tokens=100))
        assert (reason, text) == ("length", whole)
        assert engine.act("Undo").results[0].ok
        seen += "leaves when what uses it has ended (1 request)" in said[0]
        assert tries < 4 * times, "streams are over before anybody can unload anything"
    assert ended(engine.stream("alice", model="one", max_tokens=100))[1] == whole
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

    with engine.http.stream(
        "POST",
        f"{engine.processes.url}/v1/completions",
        json=engine.body(stream=True, max_tokens=1900),
        headers={"authorization": "Bearer ts-bob"},
    ) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if line.startswith("data: {"))
        ids.append(json.loads(first[6:])["id"])
        abort()
        rest = [line for line in lines if line.startswith("data: ")]
    assert len(rest) < 1890
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
