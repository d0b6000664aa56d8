"""A worker's core put together from real parts, on the synthetic model."""

from __future__ import annotations

import re

import pytest

from engine.build import build_core
from engine.clock import SystemClock
from engine.config import Limits, Settings, Tenant
from engine.errors import ConfigError
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter
from engine.scheduling.request import Ask
from engine.scheduling.shaping import Shaping
from telemetry.records import EngineRun, EventRecord, RequestRecord


class Kept:
    def __init__(self):
        self.logs = []

    def submit(self, batch):
        self.logs += batch.logs


@pytest.fixture(scope="module")
def model():
    return load_model("synthetic", "float32")


def built(model, folders, **limits):
    kept, said = Kept(), []
    settings = Settings(
        model="synthetic",
        tenants=(Tenant("a"),),
        adapters=tuple((f.name, str(f)) for f in folders),
        limits=Limits(**{"slots": 4, "step_tokens": 64, "pool_bytes": 8 << 20, **limits}),
    )
    core = build_core(settings, SystemClock(), "run", model, kept, say=said.append)
    return core, kept, said


def run(core, names):
    ended = []
    for i, name in enumerate(names):
        now = core._clock.now()
        key = core.adapter_key(name) if name else None
        core.submit(Ask(f"r{i}", "a", (1, 2, 3), 4, now, now, key, name))
    while len(ended) < len(names):
        assert core.wait_for_work(20)
        ended += core.step().ended
    core.close()
    return ended


def test_a_refused_adapter_is_left_out_and_the_others_serve(model, tmp_path):
    good, bad = tmp_path / "good", tmp_path / "secret-place"
    make_adapter(good, model.config, 4)
    bad.mkdir()
    core, kept, said = built(model, [good, bad])
    assert core.adapter_key("secret-place") is None
    assert [e.outcome.value for e in run(core, [None, "good"])] == ["finished", "finished"]
    assert any("secret-place" in line for line in said)
    faults = [r for r in kept.logs if isinstance(r, EventRecord) and r.kind == "fault"]
    assert "'secret-place' was left out" in faults[0].detail
    assert any(isinstance(r, EngineRun) and r.synthetic for r in kept.logs)


def test_an_adapter_larger_than_the_pool_is_left_out_and_the_others_serve(model, tmp_path):
    small, huge = tmp_path / "small", tmp_path / "huge"
    make_adapter(small, model.config, 1)
    make_adapter(huge, model.config, 200)
    core, kept, said = built(model, [huge, small], pool_bytes=1 << 20)
    assert core.adapter_key("huge") is None
    assert [e.outcome.value for e in run(core, [None, "small"])] == ["finished", "finished"]
    (told,) = [line for line in said if "left out" in line]
    assert re.fullmatch(
        r"adapter 'huge' is left out: it needs \d+ pages, and adapters may take 31 of this pool: "
        r"make limits\.pool_bytes larger, or its rank smaller",
        told,
    )
    faults = [r for r in kept.logs if isinstance(r, EventRecord) and r.kind == "fault"]
    assert "'huge' was left out" in faults[0].detail


def test_an_adapter_whose_folder_has_gone_hurts_its_own_request_and_tells_no_path(
    model, tmp_path, capsys
):
    folders = [tmp_path / "one", tmp_path / "two"]
    for i, folder in enumerate(folders):
        make_adapter(folder, model.config, 4, seed=i)
    core, kept, _ = built(model, folders, host_adapters=1)
    (folders[0] / "adapter_model.safetensors").unlink()
    ended = {e.request_id: e for e in run(core, ["one", "two"])}
    assert ended["r1"].outcome.value == "finished"
    assert ended["r0"].outcome.value == "failed"
    assert str(tmp_path) not in ended["r0"].reason
    assert not any(str(tmp_path) in repr(r) for r in kept.logs)
    assert "was not loaded" in capsys.readouterr().err


@pytest.mark.parametrize("pool_bytes", [1, 10_000])
def test_a_pool_too_small_is_said_with_what_it_needs(model, pool_bytes):
    with pytest.raises(ConfigError, match=f"pool_bytes = {pool_bytes}.*give at least"):
        built(model, [], pool_bytes=pool_bytes)


def test_a_small_pool_and_a_short_context_still_start(model):
    core, _, _ = built(model, [], pool_bytes=300_000, max_context=40)
    assert run(core, [None])[0].output_tokens == 4


ASKED_OF = (  # greedy, by what was said before, and drawn
    {},
    {"shaping": Shaping(repetition_penalty=1.3, frequency_penalty=0.2)},
    {"temperature": 1.0, "seed": 5, "shaping": Shaping(top_k=20, presence_penalty=0.5)},
    {"temperature": 0.8, "top_p": 0.9},
)


def test_preemption_and_eviction_by_the_scheduler_do_not_change_a_token(model, tmp_path):
    """The whole core, tight against ample: same requests, same tokens, whatever gave way."""
    folders = [tmp_path / f"a{i}" for i in range(4)]
    for i, folder in enumerate(folders):
        make_adapter(folder, model.config, 8 * (i + 1), seed=i)

    def answers(pool_bytes):
        core, kept, _ = built(model, folders, pool_bytes=pool_bytes, step_tokens=24)
        for i in range(12):
            now = core._clock.now()
            name = f"a{i % 4}" if i % 5 else None
            key = core.adapter_key(name) if name else None
            prompt = tuple((i * 37 + j * 11) % 256 for j in range(20 + 3 * i))
            more = ASKED_OF[(i // 3) % 4]
            core.submit(Ask(f"r{i}", "a", prompt, 70, now, now, key, name, **more))
        tokens: dict[str, list[int]] = {}
        ended = 0
        while ended < 12:
            assert core.wait_for_work(20)
            result = core.step()
            for request_id, token in result.tokens:
                tokens.setdefault(request_id, []).append(token)
            ended += len(result.ended)
        core.close()
        return tokens, [r.kind for r in kept.logs if isinstance(r, EventRecord)]

    ample, calm = answers(64 << 20)
    tight, events = answers(56 * 32_768)
    assert "preempt" not in calm
    assert "preempt" in events
    assert "evict" in events
    assert tight == ample


def test_a_cached_prefix_changes_no_greedy_token(model, tmp_path):
    """Repeated prompts, under adapters and under none, with the cache and without it."""
    folder = tmp_path / "a0"
    make_adapter(folder, model.config, 8, seed=1)
    shared = tuple(j * 11 % 256 for j in range(70))

    def answers(prefix_cache):
        core, kept, _ = built(model, [folder], prefix_cache=prefix_cache, step_tokens=24)
        tokens: dict[str, list[int]] = {}
        for turn in range(3):  # one after the other, so that the later ones find the earlier's
            for i in range(4):
                now = core._clock.now()
                name = "a0" if i % 2 else None
                key = core.adapter_key(name) if name else None
                prompt = shared[: 40 + 10 * i] if turn else shared
                ask = Ask(f"r{turn}-{i}", "a", prompt, 12, now, now, key, name)
                core.submit(ask)
            ended = 0
            while ended < 4:
                assert core.wait_for_work(20)
                result = core.step()
                for request_id, token in result.tokens:
                    tokens.setdefault(request_id, []).append(token)
                ended += len(result.ended)
        core.close()
        cached = [r.cached_tokens for r in kept.logs if isinstance(r, RequestRecord)]
        return tokens, sum(cached)

    plain, none = answers(False)
    found, some = answers(True)
    assert none == 0
    assert some > 300
    assert found == plain
