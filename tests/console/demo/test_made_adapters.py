"""The demo's adapters: made once a shape of model, on the linears that the workload names."""

from __future__ import annotations

import json

import pytest

from console.demo.setup import make_adapters
from engine.model import config as model_configs
from engine.model.config import ATTENTION_MODULES, MODULES, synthetic_config
from engine.model.made_adapters import shape_key
from engine.simulation.workload import AdapterSpec


class Asked:
    adapters = (
        AdapterSpec("whole", 2, 7),
        AdapterSpec("narrow", 2, 7, "attention"),
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TENANTSCOPE_CACHE", str(tmp_path))
    return tmp_path


def made(model: str, said: list[str]) -> dict[str, dict]:
    found = {}
    for name, folder in make_adapters(Asked, model, said.append):
        with open(f"{folder}/adapter_config.json") as f:
            found[name] = json.load(f)
    return found


def test_they_are_on_the_linears_that_the_workload_names_and_made_once():
    said: list[str] = []
    found = made("synthetic", said)
    assert set(found["whole"]["target_modules"]) == set(MODULES)
    assert set(found["narrow"]["target_modules"]) == set(ATTENTION_MODULES)
    assert "made 2 synthetic LoRA adapters" in said[0]
    made("synthetic", said)
    assert len(said) == 1


def test_one_that_was_cut_off_while_it_was_made_is_made_again(cache):
    said: list[str] = []
    made("synthetic", said)
    (config, *_) = sorted(cache.rglob("adapter_config.json"))
    config.unlink()
    assert set(made("synthetic", said)) == {"whole", "narrow"}
    assert "made 1 synthetic" in said[1]


def test_two_models_of_one_name_have_adapters_of_their_own(monkeypatch):
    shapes = {"/one/model": synthetic_config(), "/two/model": synthetic_config(layers=2)}
    monkeypatch.setattr(model_configs, "model_config", shapes.__getitem__)
    one, two = (dict(make_adapters(Asked, m, lambda text: None)) for m in shapes)
    assert set(one.values()).isdisjoint(two.values())
    assert shape_key(synthetic_config(vocab=9)) == shape_key(synthetic_config())
