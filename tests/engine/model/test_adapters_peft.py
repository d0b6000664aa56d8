"""Adapters made by PEFT itself: what is served computes what PEFT computes, the rest is refused."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import AdapterError
from engine.model.config import MODULES
from engine.model.loaders import load_model
from engine.model.lora import read_adapter
from engine.model.peft_config import config_from
from engine.model.peft_tensors import full_name
from engine.model.text import synthetic_json
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

pytestmark = pytest.mark.xdist_group("adapters-peft")
PROMPTS = ([(7 * i + 3) % 500 for i in range(21)], [(31 * i + 11) % 500 for i in range(9)])
TOLERANCE = 1e-3


class Tiny:
    """A Llama of two layers, random, in transformers and in the engine."""

    def __init__(self, folder: Path) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(3)
        config = LlamaConfig(
            vocab_size=512, max_position_embeddings=256, hidden_size=64, intermediate_size=96,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        )  # fmt: skip
        self.hf = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for p in self.hf.parameters():
                if p.dim() == 2:
                    p.copy_(torch.randn(p.shape) * 1.3 * p.shape[1] ** -0.5)
        self.hf.save_pretrained(folder)
        (folder / "tokenizer.json").write_text(synthetic_json(512), encoding="utf-8")
        self.loaded = load_model(str(folder), "float32")
        self.runner = TorchRunner(self.loaded, 200, 16)

    def tuned(self, config, name: str = "default"):
        """PEFT's model, its adapter's parameters random (PEFT begins with B = 0)."""
        from peft import get_peft_model

        tuned = get_peft_model(copy.deepcopy(self.hf), config, adapter_name=name)
        spread(tuned)
        return tuned

    def read(self, folder: Path):
        return read_adapter(folder, self.loaded.config, self.loaded.dtype, self.runner.page_bytes)

    def peft_logits(self, folder: Path) -> torch.Tensor:
        from peft import PeftModel

        return logits_of(PeftModel.from_pretrained(copy.deepcopy(self.hf), folder).eval())

    def logits(self, folder: Path | None) -> torch.Tensor:
        """The engine's, of the prompts' last tokens, in one step: [prompts, vocab]."""
        key = None
        if folder is not None:
            weights = self.read(folder)
            self.runner.copy_in(weights, range(100, 100 + weights.pages))
            key = weights.key
        segments = tuple(
            Segment(f"r{i}", "t", key, tuple(p), 0, (2 * i, 2 * i + 1), True, True)
            for i, p in enumerate(PROMPTS)
        )
        rows = self.runner.logits(StepPlan(1, segments))
        return torch.stack([rows[s.request_id] for s in segments])


def spread(tuned) -> None:
    torch.manual_seed(9)
    with torch.no_grad():
        for name, p in tuned.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn(p.shape) * 0.5 * max(p.shape[-1], 8) ** -0.5)


def logits_of(model) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack([model(torch.tensor([p])).logits[0, -1].float() for p in PROMPTS])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Tiny(tmp_path_factory.mktemp("tiny"))


def lora(**options):
    from peft import LoraConfig

    return LoraConfig(**{"task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, **options})


FORMS = {
    **{module: {"target_modules": [module]} for module in MODULES},
    "all linear": {"target_modules": "all-linear", "r": 3},
    "expression": {"target_modules": r".*\.(q_proj|v_proj|down_proj)"},
    "full names": {"target_modules": ["model.layers.1.mlp.up_proj", "o_proj"]},
    "rank over the width": {"target_modules": ["k_proj"], "r": 33},
    "alpha no whole number": {"target_modules": ["q_proj"], "lora_alpha": 3.5},
    "rank patterns": {
        "target_modules": list(MODULES),
        "rank_pattern": {"layers.0.self_attn.q_proj": 2, r"mlp\.(up|gate)_proj": 12, "o_proj": 1},
        "alpha_pattern": {r"layers\.1\..*": 5, "q_proj": 64, r"^model\.layers\.0.*v_proj": 1},
    },
    "rslora": {"target_modules": ["q_proj", "up_proj"], "r": 12, "use_rslora": True},
    "rslora and patterns": {
        "target_modules": ["q_proj", "up_proj"], "use_rslora": True,
        "rank_pattern": {"q_proj": 9}, "alpha_pattern": {"up_proj": 30},
    },
    "one layer": {"target_modules": ["q_proj", "down_proj"], "layers_to_transform": 1},
    "layers by pattern": {
        "target_modules": ["v_proj"], "layers_to_transform": [0], "layers_pattern": "layers",
    },
    "excluded": {"target_modules": list(MODULES), "exclude_modules": ["o_proj", "0.mlp.up_proj"]},
    "excluded by expression": {"target_modules": "all-linear", "exclude_modules": r".*layers\.0.*"},
    "gaussian": {"target_modules": ["q_proj"], "init_lora_weights": "gaussian"},
    "orthogonal": {"target_modules": ["q_proj"], "init_lora_weights": "orthogonal"},
    "eva": {"target_modules": ["q_proj"], "init_lora_weights": "eva"},
    "mica": {"target_modules": ["q_proj"], "init_lora_weights": "mica"},
    "dropout": {"target_modules": ["q_proj"], "lora_dropout": 0.5},
}  # fmt: skip


RARE = {*MODULES[1:], "alpha no whole number", "gaussian", "orthogonal", "eva", "dropout"}


def some(names, rare):
    """The rare ones are the full suite's."""
    return [pytest.param(n, marks=pytest.mark.full) if n in rare else n for n in names]


@pytest.mark.parametrize("form", some(FORMS, RARE))
def test_an_accepted_form_computes_what_peft_computes(tiny, tmp_path, form):
    tiny.tuned(lora(**FORMS[form])).save_pretrained(tmp_path)
    assert tiny.read(tmp_path).warnings == ()
    ours, base = tiny.logits(tmp_path), tiny.logits(None)
    assert float((ours - tiny.peft_logits(tmp_path)).abs().max()) <= TOLERANCE
    assert float((ours - base).abs().max()) > 20 * TOLERANCE  # it does something


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_adapter_stored_in_16_bits_computes_what_peft_computes(tiny, tmp_path, dtype):
    tuned = tiny.tuned(lora(target_modules=["q_proj", "up_proj"]))
    for name, p in tuned.named_parameters():
        if "lora_" in name:
            p.data = p.data.to(dtype)
    tuned.save_pretrained(tmp_path)
    assert float((tiny.logits(tmp_path) - tiny.peft_logits(tmp_path)).abs().max()) <= TOLERANCE


def test_an_adapter_of_a_name_is_in_a_folder_of_that_name(tiny, tmp_path):
    tiny.tuned(lora(target_modules=["q_proj"]), "acme").save_pretrained(tmp_path)
    with pytest.raises(AdapterError, match="an adapter in its folder 'acme'"):
        tiny.read(tmp_path)
    there = tmp_path / "acme"
    assert float((tiny.logits(there) - tiny.peft_logits(there)).abs().max()) <= TOLERANCE


def test_pissa_is_served_once_it_is_converted_and_refused_before(tiny, tmp_path):
    from peft import get_peft_model

    tuned = get_peft_model(
        copy.deepcopy(tiny.hf), lora(target_modules=["q_proj"], init_lora_weights="pissa")
    )
    tuned.save_pretrained(tmp_path / "raw")
    tuned.peft_config["default"].init_lora_weights = True
    tuned.save_pretrained(tmp_path / "begun")
    spread(tuned)
    tuned.save_pretrained(
        tmp_path / "plain", path_initial_model_for_weight_conversion=str(tmp_path / "begun")
    )
    with pytest.raises(AdapterError, match="path_initial_model_for_weight_conversion"):
        tiny.read(tmp_path / "raw")
    assert float((tiny.logits(tmp_path / "plain") - logits_of(tuned)).abs().max()) <= TOLERANCE


def other(kind: str, **options):
    import peft

    return getattr(peft, f"{kind}Config")(task_type="CAUSAL_LM", **options)


REFUSED = {
    "dora": (lambda: lora(target_modules=["q_proj"], use_dora=True), "use_dora"),
    "lora bias": (lambda: lora(target_modules=["q_proj"], lora_bias=True), "lora_bias"),
    "whole module": (
        lambda: lora(target_modules=["q_proj"], modules_to_save=["lm_head"]), "modules_to_save"),
    "tokens": (
        lambda: lora(target_modules=["q_proj"], trainable_token_indices=[1, 2]),
        "trainable_token_indices"),
    "embedding": (lambda: lora(target_modules=["q_proj", "embed_tokens"]), "names embed_tokens"),
    "head": (lambda: lora(target_modules=["q_proj", "lm_head"]), "names lm_head"),
    "head by expression": (lambda: lora(target_modules=r".*(q_proj|lm_head)"), "the head"),
    "alora": (
        lambda: lora(target_modules=["q_proj"], alora_invocation_tokens=[1]), "activated LoRA"),
    "layers twice": (
        lambda: lora(target_modules=["q_proj"], layer_replication=[[0, 2], [1, 2]]),
        "layer_replication"),
    "ia3": (lambda: other("IA3", target_modules=["down_proj"], feedforward_modules=["down_proj"]),
            "'IA3'"),
    "loha": (lambda: other("LoHa", target_modules=["q_proj"]), "'LOHA'"),
    "lokr": (lambda: other("LoKr", target_modules=["q_proj"]), "'LOKR'"),
    "oft": (lambda: other("OFT", target_modules=["q_proj"], oft_block_size=8), "'OFT'"),
    "prefix": (lambda: other("PrefixTuning", num_virtual_tokens=4), "prefix tuning"),
    "prompt": (lambda: other("PromptTuning", num_virtual_tokens=4), "prompt tuning"),
}  # fmt: skip


@pytest.mark.parametrize("kind", some(REFUSED, {"loha", "lokr", "oft", "prompt"}))
def test_what_is_no_plain_lora_is_refused_as_peft_saves_it(tiny, tmp_path, kind):
    from peft import get_peft_model

    make, words = REFUSED[kind]
    get_peft_model(copy.deepcopy(tiny.hf), make()).save_pretrained(tmp_path)
    with pytest.raises(AdapterError, match=re.escape(words)):
        tiny.read(tmp_path)


def test_an_untrained_save_is_served_and_said_to_do_nothing(tiny, tmp_path):
    from peft import get_peft_model

    get_peft_model(copy.deepcopy(tiny.hf), lora(target_modules=["q_proj"])).save_pretrained(
        tmp_path
    )
    (warning,) = tiny.read(tmp_path).warnings
    assert "no effect" in warning
    assert torch.equal(tiny.logits(tmp_path), tiny.logits(None))


# -- options

PLACES = [(layer, module) for layer in (0, 1, 10) for module in MODULES]
ENDS = st.sampled_from(
    ["q_proj", "proj", "0.mlp.up_proj", "layers.1.mlp.up_proj", "model.layers.10.mlp.up_proj",
     "self_attn", ".*", r".*_proj", r".*\.1\..*", "(q|k)_proj", r"layers\.[01]\..*", "mlp.*",
     r"(?!.*mlp).*", r"^model\.layers\.1.*", "o_proj|v_proj", r"\w+_proj", "ers.1.mlp.up_proj"]
)  # fmt: skip


@given(
    targets=st.one_of(ENDS, st.lists(ENDS, max_size=3)),
    exclude=st.one_of(st.none(), ENDS, st.lists(ENDS, max_size=2)),
    layers=st.one_of(st.none(), st.sampled_from([0, 1, 10]), st.lists(st.sampled_from([0, 1, 10]))),
    pattern=st.one_of(st.none(), st.sampled_from(["layers", "h", ["h", "layers"], "lay.*", ""])),
)
def test_targets_are_those_of_peft(targets, exclude, layers, pattern):
    from peft.tuners.tuners_utils import check_target_module_exists

    if isinstance(targets, str) and layers is not None:
        layers = pattern = None  # PEFT takes one or the other
    theirs = SimpleNamespace(
        target_modules=targets, exclude_modules=exclude, layers_to_transform=layers,
        layers_pattern=pattern, target_parameters=None,
    )  # fmt: skip
    ours = config_from(
        {"peft_type": "LORA", "target_modules": targets, "exclude_modules": exclude,
         "layers_to_transform": layers, "layers_pattern": pattern}
    )  # fmt: skip
    for layer, module in PLACES:
        name = full_name(layer, module)
        assert ours.targets(layer, name) == bool(check_target_module_exists(theirs, name)), name


@given(
    ranks=st.dictionaries(ENDS, st.integers(1, 64), max_size=4),
    alphas=st.dictionaries(ENDS, st.integers(1, 64) | st.floats(0.1, 64), max_size=4),
    rslora=st.booleans(),
)
def test_ranks_and_scales_are_those_of_peft(ranks, alphas, rslora):
    from peft.utils.other import get_pattern_key

    ours = config_from(
        {"peft_type": "LORA", "r": 7, "lora_alpha": 9, "rank_pattern": ranks,
         "alpha_pattern": alphas, "use_rslora": rslora}
    )  # fmt: skip
    for layer, module in PLACES:
        name = full_name(layer, module)
        rank = ranks.get(get_pattern_key(ranks.keys(), name), 7)
        alpha = alphas.get(get_pattern_key(alphas.keys(), name), 9)
        assert ours.rank_of(name) == rank
        assert ours.scale_of(name, rank) == (alpha / rank**0.5 if rslora else alpha / rank)
