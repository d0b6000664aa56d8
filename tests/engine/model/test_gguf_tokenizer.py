"""A GGUF file's tokenizer cuts and merges a text as the model's own does."""

from __future__ import annotations

import json
import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Inner
from tokenizers import models, pre_tokenizers, trainers

from engine.errors import ModelError
from engine.model.gguf_header import GgufHeader
from engine.model.gguf_metadata import Metadata
from engine.model.gguf_tokenizer import _merges, special_tokens, tokenizer_json
from engine.model.text import Tokenizer

# What the cuts differ in: digits, contractions, line ends, runs of spaces, marks and letters.
SAMPLE = (
    "It's 12345 o'clock, we'LL see\r\n\r\n  3.14159 and  7 100000 times\n\tdon't stop!!! ((x)) "
    "naïve café 東京2024年 12 345 000 she'd've\n   \n  end... <b>ok</b> 99bottles b2b A1"
)
TEXTS = st.text(alphabet="aet' \n\r\t0123459.!(é東İlsdv", max_size=40) | st.lists(
    st.sampled_from(SAMPLE.split(" ")), max_size=12
).map(" ".join)


def byte_level(cut: str, **more) -> Metadata:
    """A vocabulary whose merges cross every border that a cut may set, so that cuts are seen."""
    trained = Inner(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = [SAMPLE[i : i + n] for n in (3, 5, 9) for i in range(len(SAMPLE))]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(pieces, trainer)
    made = json.loads(trained.to_str())["model"]
    tokens = [*sorted(made["vocab"], key=made["vocab"].get), "<|end|>", "<tool>"]
    return metadata(
        {
            "model": "gpt2", "pre": cut, "tokens": tokens,
            "merges": [m if isinstance(m, str) else " ".join(m) for m in made["merges"]],
            "token_type": [1] * (len(tokens) - 2) + [3, 4],
            "eos_token_id": len(tokens) - 2, "bos_token_id": len(tokens) - 2,
        }
        | more
    )  # fmt: skip


def metadata(keys) -> Metadata:
    found = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return Metadata("x.gguf", GgufHeader(found | {"general.architecture": "llama"}, {}, 0))


def ours(data: Metadata) -> Tokenizer:
    return Tokenizer(tokenizer_json(data), ())


def of_transformers(data: Metadata):
    from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

    named = {"model": "tokenizer_type", "pre": "pre_tokenizer_type"}
    keys = ("model", "pre", "tokens", "merges", "token_type")
    raw = {named.get(k, k): data.get(f"tokenizer.ggml.{k}") for k in keys}
    return convert_gguf_tokenizer("llama", raw)[0]


BYTE_LEVEL = {
    cut: byte_level(cut, add_bos_token=False) for cut in ("smollm", "llama-bpe", "qwen2", "gpt-2")
}
OURS = {cut: ours(data) for cut, data in BYTE_LEVEL.items()}


@pytest.fixture(scope="module")
def theirs():
    """smollm's cut is not among transformers'."""
    return {cut: of_transformers(BYTE_LEVEL[cut]) for cut in ("llama-bpe", "qwen2", "gpt-2")}


def without_whole_words(data: Metadata) -> Tokenizer:
    """Llama 3 takes a word that is a token whole, which transformers leaves out for GGUF."""
    raw = json.loads(tokenizer_json(data))
    raw["model"]["ignore_merges"] = False
    return Tokenizer(json.dumps(raw), ())


MERGED = OURS | {"llama-bpe": without_whole_words(BYTE_LEVEL["llama-bpe"])}


@given(text=TEXTS)
def test_byte_level_cuts_are_those_of_transformers(theirs, text):
    for cut, other in theirs.items():
        if cut == "qwen2":  # whose own tokenizer composes characters first
            text = unicodedata.normalize("NFC", text)
        assert MERGED[cut].encode(text) == other.encode(text, add_special_tokens=False).ids


def test_qwen_composes_characters_first():
    assert OURS["qwen2"].encode("e\u0301") == OURS["qwen2"].encode("é")
    assert OURS["gpt-2"].encode("e\u0301") != OURS["gpt-2"].encode("é")


def test_the_cuts_tell_digits_contractions_and_line_ends_apart():
    seen = {cut: tuple(t.encode(SAMPLE)) for cut, t in OURS.items()}
    assert len(set(seen.values())) == 4
    cuts = {
        cut: [text for text, _ in t._inner.pre_tokenizer.pre_tokenize_str("it'S 12345\n\nb")]
        for cut, t in OURS.items()
    }
    assert cuts == {
        "smollm": ["it", "'", "S", "Ġ", "1", "2", "3", "4", "5", "Ċ", "Ċ", "b"],
        "gpt-2": ["it", "'", "S", "Ġ12345", "Ċ", "Ċ", "b"],
        "llama-bpe": ["it", "'S", "Ġ", "123", "45", "ĊĊ", "b"],
        "qwen2": ["it", "'S", "Ġ", "1", "2", "3", "4", "5", "ĊĊ", "b"],
    }


def test_llama3_takes_a_whole_word_that_is_a_token_before_any_merge():
    tokens = ["a", "b", "c", "ab", "bc", "abc", "<|end|>"]
    keys = {"tokens": tokens, "merges": ["a b"], "token_type": [1] * 6 + [3], "model": "gpt2"}
    for cut, ids in (("llama-bpe", [5]), ("qwen2", [3, 2])):
        assert ours(metadata(keys | {"pre": cut, "add_bos_token": False})).encode("abc") == ids


def test_begin_and_end_tokens_are_added_where_the_file_says_so():
    begin = len(BYTE_LEVEL["qwen2"].list("tokenizer.ggml.tokens")) - 2
    plain = OURS["qwen2"].encode("ok")
    for cut, more, expected in (
        ("qwen2", {}, plain),
        ("qwen2", {"add_bos_token": True}, [begin, *plain]),
        ("qwen2", {"add_bos_token": True, "add_eos_token": True}, [begin, *plain, begin]),
        ("llama-bpe", {}, [begin, *OURS["llama-bpe"].encode("ok")]),
    ):
        found = ours(byte_level(cut, **more))
        assert found.encode("ok") == expected
        assert found.chat is not None
    with pytest.raises(ModelError, match="bos_token_id is missing"):
        ours(byte_level("qwen2", add_bos_token=True, bos_token_id=None))


def test_control_tokens_are_silent_and_user_tokens_are_spoken():
    found = OURS["qwen2"]
    ids = found.encode("a<|end|><tool>")
    assert len(ids) == 3
    assert found.decode(ids) == "a<tool>"
    assert special_tokens(BYTE_LEVEL["qwen2"]) == {"bos_token": "<|end|>", "eos_token": "<|end|>"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"pre": "tekken"}, "tokenizer.ggml.pre is 'tekken', and how it cuts .*'qwen2' and"),
        ({"pre": "default"}, "tokenizer.ggml.pre is 'default'"),
        ({"pre": None}, "tokenizer.ggml.pre is missing"),
        ({"model": "bert"}, "tokenizer.ggml.model is 'bert'; only 'gpt2' and 'llama'"),
        ({"merges": ["zz qq"]}, "tokenizer.ggml.merges do not fit its tokens"),
        ({"tokens": ["a", "a"]}, "has a token twice"),
        ({"tokens": [1, 2]}, "not a list of texts"),
        ({"token_type": [1]}, "702 tokens but 1 tokenizer.ggml.token_type"),
        ({"eos_token_id": 9_999, "add_eos_token": True}, "eos_token_id is 9999: none of its 702"),
    ],
)
def test_tokenizers_that_are_not_known_are_refused_by_name(more, says):
    with pytest.raises(ModelError, match=re.compile(says)):
        ours(byte_level("qwen2", **more))


PIECES = ["▁", *"abcd", "ab", "bc", "▁a", "cd", "abc", "▁ab", "bcd", "▁abcd", "dd", "▁▁"]


def sentence_piece(**more) -> Metadata:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *PIECES]
    scores = [0.0] * 259 + [-float(i) for i in range(len(PIECES))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * len(PIECES)
    return metadata(
        {
            "model": "llama", "pre": "default", "tokens": tokens, "scores": scores,
            "token_type": kinds, "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0,
        }
        | more
    )  # fmt: skip


def brute_force(text: str) -> list[int]:
    """SentencePiece's BPE: join the neighbours whose piece has the highest score, leftmost first;
    what is left and no piece goes by bytes."""
    data = sentence_piece()
    tokens = data.list("tokenizer.ggml.tokens")
    ids = {t: i for i, t in enumerate(tokens)}
    scores = data.list("tokenizer.ggml.scores")
    parts = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        joined = [
            (-scores[ids[a + b]], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ids
        ]
        if not joined:
            break
        _, i = min(joined)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    out = [1]
    for part in parts:
        out += [ids[part]] if part in ids else [ids[f"<0x{b:02X}>"] for b in part.encode()]
    return out


SENTENCE_PIECE = ours(sentence_piece())


@given(text=st.text(alphabet="abcd xé🙂", max_size=24))
def test_sentence_piece_joins_the_best_pair_first_and_falls_back_to_bytes(text):
    assert SENTENCE_PIECE.encode(text) == brute_force(text)
    assert SENTENCE_PIECE.decode(SENTENCE_PIECE.encode(text)) == text


@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)), min_size=20, max_size=60))
def test_sentence_pieces_merges_are_those_of_transformers(pairs):
    from transformers.tokenization_utils_base import generate_merges

    pieces = list("abc▁")
    for one, other in pairs:
        joined = pieces[one % len(pieces)] + pieces[other % len(pieces)]
        if joined not in pieces and len(joined) < 9:
            pieces.append(joined)
    ids = {piece: i for i, piece in enumerate(pieces)}
    scores = [-float(i) for i in range(len(pieces))]
    expected = generate_merges(ids, dict(zip(pieces, scores, strict=True)))
    assert _merges(ids, scores) == expected


def test_a_special_or_byte_token_is_never_made_by_joining_letters():
    letters = [*PIECES, "<", "0", "x", "A", ">", "<0", "<0x", "<0xA", "<0xAA", "/s>", "</"]
    data = sentence_piece()
    count = 259 + len(letters)
    found = ours(
        sentence_piece(
            tokens=data.list("tokenizer.ggml.tokens")[:259] + letters,
            scores=[0.0] * 259 + [-float(i) for i in range(len(letters))],
            token_type=[2, 3, 3] + [6] * 256 + [1] * len(letters),
        )
    )
    assert found.vocab_size == count
    assert found.decode(found.encode("<0xAA>")) == "<0xAA>"


def test_sentence_piece_without_a_first_space_or_all_bytes():
    found = ours(sentence_piece(add_space_prefix=False, add_bos_token=False))
    assert found.decode(found.encode(" ab")) == " ab"
    assert found.encode("ab") == [3 + 256 + PIECES.index("ab")]
    kinds = sentence_piece().list("tokenizer.ggml.token_type")
    with pytest.raises(ModelError, match="255 of 256 byte tokens"):
        ours(sentence_piece(token_type=[*kinds[:3], 1, *kinds[4:]]))
    with pytest.raises(ModelError, match=r"tokens but 2 tokenizer.ggml.scores"):
        ours(sentence_piece(scores=[0.0, 0.0]))
