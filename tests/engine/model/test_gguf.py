"""GGUF files compute what the model they were made of computes; what is not served is named."""

from __future__ import annotations

import contextlib

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_gguf import TinyGguf
from tiny_models import made, prompt, worst

from engine.errors import ModelError
from engine.model.config import model_config
from engine.model.gguf import GgufFile
from engine.model.gguf_header import read_header
from engine.model.loaders import load_model

NEAR = 1e-4
ARCHITECTURES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def tiny(tmp_path, arch="llama", reference=None) -> TinyGguf:
    reference = reference if reference is not None else made(ARCHITECTURES[arch])
    return TinyGguf(tmp_path / f"{arch}.gguf", arch, reference)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_file_computes_what_its_model_computes(arch, tmp_path):
    file = tiny(tmp_path, arch)
    path = file.byte_vocabulary().write()
    model = load_model(str(path), "float32")
    assert model_config(str(path)) == model.config
    assert (model.name, model.synthetic, model.config.eos_ids) == (arch, False, (0,))
    assert worst(model, file.model, prompt()) < NEAR


def test_biases_of_llama_are_turned_back_with_their_weights(tmp_path):
    file = tiny(tmp_path, reference=made("Llama", attention_bias=True, tie_word_embeddings=True))
    model = load_model(str(file.byte_vocabulary().write()), "float32")
    assert model.config.tied
    assert worst(model, file.model, prompt()) < NEAR


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_quantised_weights_are_what_the_library_says_they_are(kind, tmp_path):
    reference = made("Qwen2")
    with torch.no_grad():
        for p in reference.parameters():
            if p.dim() == 2:
                quant = gguf.GGMLQuantizationType[kind]
                p.copy_(torch.tensor(gguf.dequantize(gguf.quantize(p.numpy(), quant), quant)))
    file = tiny(tmp_path, "qwen2", reference)
    model = load_model(str(file.byte_vocabulary().write(kind)), "float32")
    for name, tensor in reference.state_dict().items():
        assert torch.equal(model.weights[name], tensor), name


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_scalings_of_rope_are_read(kind, tmp_path):
    rope = {"rope_type": kind, "factor": 4.0, "rope_theta": 10_000.0}
    rope |= {"original_max_position_embeddings": 64} if kind == "yarn" else {}
    file = tiny(tmp_path, "qwen2", made("Qwen2", rope_parameters=rope)).byte_vocabulary()
    file.writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
    file.writer.add_rope_scaling_factor(4.0)
    if kind == "yarn":
        file.writer.add_rope_scaling_orig_ctx_len(64)
    assert worst(load_model(str(file.write()), "float32"), file.model, prompt(200), 100) < NEAR


def test_llama3s_scaling_comes_as_a_tensor_of_divisors(tmp_path):
    rope = {
        "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    }  # fmt: skip
    reference = made("Llama", rope_parameters=rope)
    plain = 10_000.0 ** -(torch.arange(0, 16, 2) / 16)
    divisors = (plain / reference.model.rotary_emb.inv_freq).tolist()
    path = tiny(tmp_path, reference=reference).byte_vocabulary().write(divisors=divisors)
    assert worst(load_model(str(path), "float32"), reference, prompt(200), 100) < NEAR


def test_a_files_end_tokens_and_template_come_along(tmp_path):
    file = tiny(tmp_path).byte_vocabulary(special=(0, 5))
    file.writer.add_chat_template("{{ bos_token }}|{{ eos_token }}|{{ messages[0].content }}")
    file.writer.add_bos_token_id(5)
    file.writer.add_eot_token_id(5)
    found = GgufFile(file.write())
    assert found.config().eos_ids == (0, 5)
    tokens = read_header(found.path).metadata["tokenizer.ggml.tokens"]
    assert found.template().render([{"role": "user", "content": "hi"}]) == (
        f"{tokens[5]}|{tokens[0]}|hi"
    )


@pytest.mark.parametrize(
    ("add", "says"),
    [
        (lambda w: w.add_uint16("split.count", 3), "one of 3 split files.*llama-gguf-split"),
        (lambda w: w.add_string("general.type", "adapter"), "holds 'adapter', not a model"),
        (lambda w: w.add_expert_count(8), "llama.expert_count is 8"),
        (lambda w: w.add_logit_scale(0.5), "llama.logit_scale is 0.5"),
        (lambda w: w.add_attn_logit_softcapping(50.0), "attn_logit_softcapping is 50.0"),
        (lambda w: w.add_rope_dimension_count(8), "rope.dimension_count is 8.*16 elements"),
        (lambda w: w.add_array("llama.attention.head_count_kv", [2, 1]), "layer by layer"),
        (
            lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE),
            "RoPE scaling 'longrope'",
        ),
    ],
)
def test_what_is_not_served_is_refused_by_name(add, says, tmp_path):
    file = tiny(tmp_path).byte_vocabulary()
    add(file.writer)
    with pytest.raises(ModelError, match=says):
        load_model(str(file.write()), "float32")


def test_a_window_caps_the_context_and_yarn_stretches_it(tmp_path):
    for add, context in (
        (lambda w: w.add_sliding_window(100), 100),
        (lambda w: w.add_sliding_window(0), 256),
        (lambda w: w.add_rope_scaling_orig_ctx_len(128), 512),
    ):
        file = TinyGguf(tmp_path / f"{context}.gguf", "llama", made("Llama")).byte_vocabulary()
        file.writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        file.writer.add_rope_scaling_factor(4.0)
        add(file.writer)
        config = GgufFile(file.write()).config()
        assert (config.max_context, len(config.remarks)) == (context, int(context == 100))


def test_numbers_that_do_not_fit_each_other_are_refused(tmp_path):
    path = tiny(tmp_path).byte_vocabulary().write(divisors=[1.0, 2.0])
    with pytest.raises(ModelError, match=r"rope_freqs.weight has 2 numbers, a head 8 pairs"):
        model_config(str(path))
    file = TinyGguf(tmp_path / "v.gguf", "llama", made("Llama", vocab_size=300)).byte_vocabulary()
    with pytest.raises(ModelError, match=r"320 tokens, but an embedding for 300 of them"):
        model_config(str(file.write()))


def test_other_architectures_and_missing_tensors_are_refused_by_name(tmp_path):
    with pytest.raises(ModelError, match=r"architecture 'gemma'; served are llama, qwen2, qwen3"):
        load_model(str(TinyGguf(tmp_path / "g.gguf", "gemma", made("Llama")).write()))
    file = tiny(tmp_path).byte_vocabulary()
    path = file.write(leave_out="model.layers.1.mlp.up_proj.weight")
    with pytest.raises(ModelError, match=r"tensor model.layers.1.mlp.up_proj.weight is missing"):
        load_model(str(path), "float32")


@pytest.mark.parametrize(
    "name", ["rope_factors_long.weight", "blk.1.attn_sinks.weight", "cls.bias"]
)
def test_a_tensor_too_many_is_refused(name, tmp_path):
    file = tiny(tmp_path).byte_vocabulary()
    file.writer.add_tensor(name, np.ones(8, dtype=np.float32))
    with pytest.raises(ModelError, match=r"tensor \S+ is there"):
        load_model(str(file.write()), "float32")


def test_what_is_no_file_or_no_gguf_says_so(tmp_path):
    path = tmp_path / "x.gguf"
    with pytest.raises(ModelError, match=r"x.gguf: cannot be read \(No such file"):
        load_model(str(path))
    for content, says in (
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"", "does not begin with GGUF"),
        (b"GGUF\x01\0\0\0", "version 1 GGUF"),
        (b"GGUF\0\0\0\x03", "big-endian GGUF"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 40, "cut short"),
    ):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=says):
            load_model(str(path))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("whole")).byte_vocabulary().write()


@given(data=st.data())
def test_a_damaged_file_is_refused_never_a_crash(whole, data):
    path, content = whole.with_name("damaged.gguf"), whole.read_bytes()
    at = data.draw(st.integers(8, 9_000))
    bytes_put = data.draw(st.binary(min_size=1, max_size=8))
    damaged = bytearray(content[: data.draw(st.sampled_from([len(content), at + 8]))])
    damaged[at : at + len(bytes_put)] = bytes_put
    path.write_bytes(damaged)
    with contextlib.suppress(ModelError):  # anything else, a crash above all, fails
        file = GgufFile(path)
        list(file.tensors(file.config()))
        file.tokenizer_json()
