"""Streams of text join to the whole, and text needs no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, normalizers

from engine.errors import ModelError
from engine.model.text import (
    SYNTHETIC_END,
    StreamDecoder,
    Tokenizer,
    byte_characters,
    load_tokenizer,
    synthetic_json,
)

BYTE_LEVEL = load_tokenizer("synthetic")
ODD = [
    "plain text",
    "👨‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽",
    "देवनागरी क्षत्रिय",
    "ﷺ Ω̃ é\u0301 \u200d\u200b\ufeff",
    "\x00\x01\t\r\n  spaces   ",
    "\ufffd already",
    "日本語と한국어",
]


def sentencepiece_like() -> Tokenizer:
    """A tokenizer of Llama 2's kind: marked spaces, byte fallback, a stripped first space."""
    vocab = {f"<0x{b:02X}>": b for b in range(256)}
    for piece in ("▁", *"abcdehlmnoprstw", "▁th", "the", "é"):
        vocab.setdefault(piece, len(vocab))
    inner = Inner(models.BPE(vocab=vocab, merges=[], byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return Tokenizer(inner.to_str(), ())


FALLBACK = sentencepiece_like()


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.push(i) for i in ids), stream.finish()]


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, FALLBACK], ids=["bytes", "fallback"])
def test_text_survives_encoding_and_streaming(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    pieces = streamed(tokenizer, ids)
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in p for p in pieces)


@given(st.lists(st.integers(0, 511), max_size=60))
def test_any_tokens_stream_to_the_whole_decode(ids):
    whole = BYTE_LEVEL.decode(ids)
    assert "".join(streamed(BYTE_LEVEL, ids)) == whole
    assert whole == Inner.from_str(synthetic_json(512)).decode(ids, skip_special_tokens=True)


@given(st.lists(st.integers(0, 255), max_size=30))
def test_any_bytes_through_byte_fallback_stream_to_the_whole_decode(ids):
    assert "".join(streamed(FALLBACK, ids)) == FALLBACK.decode(ids)


@given(st.integers(0, 2**32), st.sampled_from([256, 250, 0]))
def test_a_long_stream_joins_to_the_whole_decode(seed, lowest):
    drawn = Random(seed)
    ids = [drawn.randrange(lowest, 285) for _ in range(drawn.randrange(60, 400))]
    assert "".join(streamed(FALLBACK, ids)) == FALLBACK.decode(ids)


def test_a_token_costs_the_same_however_long_the_answer_is():
    decoded = []

    def decode(ids):
        decoded.append(len(ids))
        return FALLBACK.decode(ids)

    stream = StreamDecoder(decode, None, frozenset(range(256)), frozenset(range(275)))
    for token in [FALLBACK.encode("the")[0]] * 2_000:
        stream.push(token)
    assert max(decoded) < 100


@given(st.text(max_size=40))
def test_any_text_comes_back(text):
    assume(SYNTHETIC_END not in text)  # written out, a special token is still special
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode(text)) == text


def test_half_a_character_is_never_shown():
    ids = BYTE_LEVEL.encode("€")
    assert len(ids) == 3
    assert streamed(BYTE_LEVEL, ids) == ["", "", "€", ""]
    assert streamed(BYTE_LEVEL, ids[:2]) == ["", "", "\ufffd"]


def test_special_and_unknown_tokens_are_no_text():
    assert BYTE_LEVEL.decode([0, *BYTE_LEVEL.encode("a"), 0, 9_999]) == "a"
    assert BYTE_LEVEL.eos_ids == (0,)
    assert BYTE_LEVEL.vocab_size == 512


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, FALLBACK], ids=["bytes", "fallback"])
def test_the_pieces_of_tokens_join_to_the_text_with_its_spaces(tokenizer):
    text = "the hat é 🙂 the"
    assert b"".join(map(tokenizer.piece, tokenizer.encode(text))).decode().lstrip() == text
    assert tokenizer.piece(9_999) == b""


def test_a_lone_surrogate_does_not_break_encoding():
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode("a\ud800b")) == "a\ufffdb"


def test_every_byte_has_a_character_of_its_own():
    assert len(set(byte_characters().values())) == 256


def test_damaged_tokenizers_are_refused():
    with pytest.raises(ModelError, match="tokenizer cannot be read"):
        Tokenizer(json.dumps({"version": "1.0"}), ())


def test_a_file_that_was_trained_with_truncation_cuts_and_pads_nothing():
    inner = Inner.from_str(synthetic_json(512))
    inner.enable_truncation(4)
    inner.enable_padding(length=8)
    tokenizer = Tokenizer(inner.to_str(), (0,))
    assert tokenizer.encode("0123456789") == BYTE_LEVEL.encode("0123456789")
    assert len(tokenizer.encode("0")) == 1


def test_text_and_made_adapters_load_no_torch(tmp_path):
    code = f"""
import sys
from pathlib import Path
from engine.model import fetch, gguf, hf_config, hub
from engine.model.config import model_config
from engine.model.made_adapters import make_adapter
from engine.model.text import load_tokenizer
load_tokenizer("synthetic").encode("x")
fetch.plan_download("smollm2-135m", Path({str(tmp_path)!r}))
make_adapter(Path({str(tmp_path)!r}) / "a", model_config("synthetic"), 4)
assert not {{"torch", "huggingface_hub", "gguf"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
