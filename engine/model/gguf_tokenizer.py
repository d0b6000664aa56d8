"""A GGUF file's tokenizer, as `tokenizers` writes one down. Imports no torch.

How a text is cut before the merges is not in the file, only a name of it; names whose cut is not
known here are refused, for a near miss would be another tokenizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import ModelError
from engine.model.gguf_metadata import CONTROL, Metadata

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NORMAL, _UNKNOWN, _USER, _UNUSED, _BYTE = 1, 2, 4, 5, 6  # token types
_WORD = "▁"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
# How llama.cpp's names cut a text; the same regular expressions as the models' own files have.
_LLAMA3_CUT = f"{_CONTRACTIONS}|{_LETTERS}|\\p{{N}}{{1,3}}|{_REST}"
_QWEN2_CUT = f"{_CONTRACTIONS}|{_LETTERS}|\\p{{N}}|{_REST}"
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
_SERVED = "'smollm', 'llama-bpe', 'qwen2' and 'gpt-2'"


def tokenizer_json(data: Metadata) -> str:
    """The content of a tokenizer.json. Raises ModelError for a kind that is not known."""
    kind = data.text("tokenizer.ggml.model")
    if kind == "gpt2":
        built = _byte_level(data)
    elif kind == "llama":
        built = _sentence_piece(data)
    else:
        raise ModelError(
            f"{data.where}: tokenizer.ggml.model is {kind!r}; only 'gpt2' and 'llama' are served"
        )
    _add_special(data, built)
    _add_ends(data, built)
    return str(built.to_str())


def special_tokens(data: Metadata) -> dict[str, str]:
    """What a chat template may name: bos_token, eos_token and the like, as text."""
    tokens = data.list("tokenizer.ggml.tokens")
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    found = {"bos_token": "", "eos_token": ""}
    for key, name in names.items():
        if (at := data.token(key)) is not None:
            found[name] = str(tokens[at])
    return found


def _cut(data: Metadata) -> str:
    return str(data.get("tokenizer.ggml.pre") or "")


def _texts(data: Metadata, key: str) -> list[str]:
    found = data.list(key)
    if not all(isinstance(text, str) for text in found):
        raise ModelError(f"{data.where}: {key} is not a list of texts")
    return found


def _each(data: Metadata, key: str) -> list[float]:
    """A number for each token."""
    found, tokens = data.list(key), data.list("tokenizer.ggml.tokens")
    if len(found) != len(tokens) or not all(isinstance(n, int | float) for n in found):
        raise ModelError(f"{data.where}: {len(tokens)} tokens but {len(found)} {key}")
    return found


def _vocabulary(data: Metadata) -> dict[str, int]:
    tokens = _texts(data, "tokenizer.ggml.tokens")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise ModelError(f"{data.where}: tokenizer.ggml.tokens has a token twice")
    return vocabulary


def _byte_level(data: Metadata) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    cut, llama3 = _cut(data), _cut(data) in _LLAMA3
    split = [m.partition(" ") for m in _texts(data, "tokenizer.ggml.merges")]
    merges = [(first, second) for first, _, second in split]
    try:
        bpe = models.BPE(vocab=_vocabulary(data), merges=merges, ignore_merges=llama3)
    except Exception as e:  # the library raises plain Exception
        raise ModelError(
            f"{data.where}: tokenizer.ggml.merges do not fit its tokens: {e}"
        ) from None
    built = Tokenizer(bpe)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if cut == "smollm":
        before: list[Any] = [pre_tokenizers.Digits(individual_digits=True), gpt2]
    elif llama3 or cut == "qwen2":
        regex = Regex(_LLAMA3_CUT if llama3 else _QWEN2_CUT)
        before = [pre_tokenizers.Split(regex, "isolated"), bytes_only]
        if cut == "qwen2":
            built.normalizer = normalizers.NFC()
    elif cut in ("gpt-2", "gpt2"):
        before = [gpt2]
    else:
        found = f"is {cut[:40]!r}" if cut else "is missing"
        raise ModelError(
            f"{data.where}: tokenizer.ggml.pre {found}, and how it cuts a text is not known here: "
            f"{_SERVED} are served; a folder with the model's tokenizer.json is too"
        )
    built.pre_tokenizer = pre_tokenizers.Sequence(before)
    built.decoder = decoders.ByteLevel()
    return built


def _sentence_piece(data: Metadata) -> Tokenizer:
    """SentencePiece's BPE as Llama 2's own tokenizer.json has it: marked spaces, bytes for what
    the vocabulary lacks."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = _vocabulary(data)
    kinds = _each(data, "tokenizer.ggml.token_type")
    scores = _each(data, "tokenizer.ggml.scores")
    bytes_there = [f"<0x{b:02X}>" in vocabulary for b in range(256)].count(True)
    if bytes_there != 256 or kinds.count(_BYTE) != 256:
        raise ModelError(
            f"{data.where}: a SentencePiece vocabulary with {min(bytes_there, kinds.count(_BYTE))} "
            "of 256 byte tokens; only whole byte fallback is served"
        )
    unknown = next((t for t, i in vocabulary.items() if kinds[i] == _UNKNOWN), None)
    # Special and byte tokens are never made by joining text: "<0x0A>" written out is six letters.
    joined = {t: i for t, i in vocabulary.items() if kinds[i] in (_NORMAL, _UNUSED)}
    merges = _merges(joined, scores)
    built = Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True
        )
    )
    prefix = data.flag("tokenizer.ggml.add_space_prefix", True)
    spaces = normalizers.Replace(" ", _WORD)
    parts = [normalizers.Prepend(_WORD), spaces] if prefix else [spaces]
    built.normalizer = normalizers.Sequence(parts)
    steps: list[Any] = [decoders.Replace(_WORD, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    built.decoder = decoders.Sequence(steps)
    return built


def _merges(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Pairs of pieces that join to a piece, the highest score first; among equal scores longer
    first halves first, as the conversion of Llama 2's own files orders them."""
    found: list[tuple[float, int, int, str, str]] = []
    for piece, i in vocabulary.items():
        for cut in range(1, len(piece)):
            first, second = piece[:cut], piece[cut:]
            if first in vocabulary and second in vocabulary:
                found.append((-scores[i], -len(first), -len(second), first, second))
    found.sort(key=lambda m: m[:3])
    return [(first, second) for *_, first, second in found]


def _add_special(data: Metadata, built: Tokenizer) -> None:
    from tokenizers import AddedToken

    tokens = data.list("tokenizer.ggml.tokens")
    named = list(zip(tokens, _each(data, "tokenizer.ggml.token_type"), strict=True))
    special = (CONTROL, _UNKNOWN) if data.get("tokenizer.ggml.model") == "llama" else (CONTROL,)
    built.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, k in named if k in special]
    )
    built.add_tokens(
        [AddedToken(t, special=False, normalized=False) for t, k in named if k == _USER]
    )


def _add_ends(data: Metadata, built: Tokenizer) -> None:
    """The tokens put before and after every text."""
    from tokenizers import processors

    tokens = data.list("tokenizer.ggml.tokens")
    llama = data.text("tokenizer.ggml.model") == "llama" or _cut(data) in _LLAMA3
    pattern, used = ["$A"], []
    for key, begins, default in (("bos", True, llama), ("eos", False, False)):
        if not data.flag(f"tokenizer.ggml.add_{key}_token", default):
            continue
        if (at := data.token(key)) is None:
            raise ModelError(f"{data.where}: tokenizer.ggml.{key}_token_id is missing")
        used.append((tokens[at], at))
        pattern.insert(0 if begins else len(pattern), tokens[at])
    if used:
        # Written as pieces, for a token may hold the `:` and `$` of a pattern's text.
        built.post_processor = processors.TemplateProcessing(
            single=pattern,
            pair=[*pattern, *(p.replace("$A", "$B") for p in pattern)],
            special_tokens=used,
        )
