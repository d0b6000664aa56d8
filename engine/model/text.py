"""Text to token ids and back, in streams that never show half a character. Imports no torch."""

from __future__ import annotations

import codecs
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.model import chat_template
from engine.model.cache import is_whole, locked, make_folder, void, write_sealed
from engine.model.config import SMOLLM2_135M, ModelConfig, model_path, synthetic_config
from engine.model.fetch import SMOLLM2, fetch_smollm2

SYNTHETIC_END = "<|end|>"
_NO_CHAT = chat_template.NoTemplate("this model has no chat template: use POST /v1/completions")
_FALLBACK_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_WINDOW_TOKENS, _TAIL_TOKENS = 64, 8
_OTHER_TOKENIZERS = ("tokenizer.model", "tekken.json", "vocab.json")


class Tokenizer:
    """A `tokenizers` tokenizer with its end-of-text ids.

    `decode` leaves special tokens out. Ids the vocabulary does not know decode to nothing.
    """

    def __init__(
        self, text: str, eos_ids: Iterable[int], chat: chat_template.Template = _NO_CHAT
    ) -> None:
        """`text` is the content of a tokenizer.json. Raises ModelError when it cannot be read."""
        from tokenizers import Tokenizer as Inner

        try:
            self._inner = Inner.from_str(text)
        except Exception as e:  # the library raises plain Exception
            raise ModelError(f"the tokenizer cannot be read: {e}") from None
        self._inner.no_truncation()  # a file may carry how it was trained with
        self._inner.no_padding()
        self.eos_ids = tuple(eos_ids)
        self._chat = chat
        raw = json.loads(text)
        special = {t["id"] for t in raw.get("added_tokens") or () if t.get("special")}
        self._bytes: dict[int, bytes] | None = self._byte_table(raw, special)
        self.longest_bytes = self._longest_bytes(raw)
        vocab = {} if self._bytes is not None else self._inner.get_vocab(with_added_tokens=True)
        self._lone_bytes = frozenset(i for t, i in vocab.items() if _FALLBACK_BYTE.fullmatch(t))
        self._spoken = frozenset(vocab.values()) - special
        letters = sorted(self._spoken - self._lone_bytes)
        self._letter = next(([i] for i in letters if self.decode([i]).isalnum()), [])

    @property
    def vocab_size(self) -> int:
        return int(self._inner.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Token ids. Lone surrogates, which are no text, count as the replacement character."""
        return list(self._inner.encode(_clean(text)).ids)

    @property
    def chats(self) -> bool:
        """Whether the model has a chat template."""
        return not isinstance(self._chat, chat_template.NoTemplate)

    def chat(self, messages: Sequence[chat_template.Message]) -> list[int]:
        """Token ids of a conversation, up to where the assistant begins. The template writes the
        special tokens, so none are added. Raises ChatRefused, for the caller to read."""
        prompt = self._chat.render(messages)
        return list(self._inner.encode(_clean(prompt), add_special_tokens=False).ids)

    def piece(self, token: int) -> bytes:
        """The bytes one token stands for inside a text; none for a special or unknown one."""
        if self._bytes is not None:
            return self._bytes.get(token, b"")
        if token in self._lone_bytes:
            return bytes([int(str(self._inner.id_to_token(token))[3:5], 16)])
        # Behind a letter, for a decoder drops the space that an answer would begin with.
        before, both = self.decode(self._letter), self.decode([*self._letter, token])
        return (both[len(before) :] if both.startswith(before) else self.decode([token])).encode()

    def decode(self, ids: Iterable[int]) -> str:
        """The text of all `ids` at once; bytes that are no UTF-8 become U+FFFD."""
        if self._bytes is not None:
            return b"".join(self._bytes.get(i, b"") for i in ids).decode("utf-8", "replace")
        return str(self._inner.decode(list(ids), skip_special_tokens=True))

    def stream(self) -> StreamDecoder:
        """A decoder for one sequence's tokens as they come."""
        return StreamDecoder(self.decode, self._bytes, self._lone_bytes, self._spoken)

    def _byte_table(self, raw: dict[str, Any], special: set[int]) -> dict[int, bytes] | None:
        """Bytes of every token of a byte-level vocabulary; None when it is of another kind."""
        if (raw.get("decoder") or {}).get("type") != "ByteLevel":
            return None
        known = {char: byte for byte, char in byte_characters().items()}
        table: dict[int, bytes] = {}
        for token, i in self._inner.get_vocab(with_added_tokens=True).items():
            if i in special:
                table[i] = b""
            elif all(c in known for c in token):
                table[i] = bytes(known[c] for c in token)
            else:
                table[i] = token.encode()
        return table

    def _longest_bytes(self, raw: dict[str, Any]) -> int | None:
        """The most text that one token stands for, bytes; None where that has no bound: a
        normalizer drops text, or a token swallows the spaces beside it."""
        added = raw.get("added_tokens") or ()
        if self._bytes is None or raw.get("normalizer"):
            return None
        if any(t.get("lstrip") or t.get("rstrip") for t in added):
            return None
        words = (len(str(t.get("content") or "").encode()) for t in added)
        return max((*(len(b) for b in self._bytes.values()), *words), default=1) or 1


def _clean(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class StreamDecoder:
    """Turns one sequence's tokens into text piece by piece; the pieces join to the whole decode."""

    def __init__(
        self,
        decode: Callable[[Iterable[int]], str],
        table: dict[int, bytes] | None,
        lone_bytes: frozenset[int],
        spoken: frozenset[int],
    ) -> None:
        """table: bytes of every token, for byte-level vocabularies. In the others, lone_bytes: the
        tokens that stand for a byte; spoken: those that are text at all."""
        self._decode = decode
        self._table = table
        self._lone_bytes = lone_bytes
        self._spoken = spoken
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._ids: list[int] = []
        self._shown = ""

    def push(self, token: int) -> str:
        """The text that `token` completes; "" while a character is still incomplete."""
        if self._table is not None:
            return self._utf8.decode(self._table.get(token, b""))
        if token not in self._spoken:
            return ""  # nothing to `decode` either: bytes on both sides of it are one run
        self._ids.append(token)
        # One bad byte turns the whole run of bytes it is in to U+FFFD: wait for the run's end.
        return "" if token in self._lone_bytes else self._show(self._decode(self._ids))

    def finish(self) -> str:
        """What is left at the end: incomplete bytes become U+FFFD."""
        if self._table is not None:
            return self._utf8.decode(b"", final=True)
        return self._show(self._decode(self._ids))

    def _show(self, whole: str) -> str:
        if not whole.startswith(self._shown):
            return ""
        piece = whole[len(self._shown) :]
        self._shown = whole
        if len(self._ids) > _WINDOW_TOKENS:
            self._forget()
        return piece

    def _forget(self) -> None:
        """Go on from the last few tokens: decoding all of them for every new one costs the square
        of an answer's length. Some text must stay, or what follows would be taken for the answer's
        beginning, where a decoder drops the first space."""
        tail = self._ids[-_TAIL_TOKENS:]
        shown = self._decode(tail)
        if shown:
            self._ids, self._shown = tail, shown


def byte_characters() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in table:
            table[b] = chr(0x100 + len(table) - len(printable))
    return table


def load_tokenizer(
    name: str, cache_dir: Path | None = None, progress: Callable[[str], None] | None = None
) -> Tokenizer:
    """The tokenizer of a model by name (see `loaders.load_model`), without torch.

    Raises ModelError as `load_model` does.
    """
    if name == SMOLLM2:
        text, template = (
            _smollm2_copy(name, read, cache_dir, progress)
            for name, read in (
                ("tokenizer.json", "tokenizer_json"),
                (chat_template.TEMPLATE_FILE, "chat_template"),
            )
        )
        return Tokenizer(text, SMOLLM2_135M.eos_ids, chat_template.made(template))
    if name == "synthetic":
        config = synthetic_config()
        chat = chat_template.made(chat_template.SYNTHETIC_TEMPLATE)
        return Tokenizer(synthetic_json(config.vocab), config.eos_ids, chat)
    from engine.model.hf_config import read_hf_config
    from engine.model.hub import is_hub_name, tokenizer_folder

    if is_hub_name(name):
        folder = tokenizer_folder(name, progress)
        return folder_tokenizer(folder, read_hf_config(folder))
    path = model_path(name)
    if path.suffix == ".gguf":
        from engine.model.gguf import GgufFile

        file = GgufFile(path)
        return Tokenizer(file.tokenizer_json(), file.config().eos_ids, file.template())
    return folder_tokenizer(path, read_hf_config(path))


def folder_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    """The tokenizer of a Hugging Face folder. Raises ModelError."""
    path = folder / "tokenizer.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        other = next((f for f in _OTHER_TOKENIZERS if (folder / f).exists()), None)
        if other is None:
            raise ModelError(f"{path}: cannot be read ({e})") from None
        raise ModelError(
            f"model {str(folder)!r} has {other} but no tokenizer.json: make one with transformers' "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        ) from None
    return Tokenizer(text, config.eos_ids, chat_template.of_folder(folder))


def _smollm2_copy(
    name: str, read: str, cache_dir: Path | None, progress: Callable[[str], None] | None
) -> str:
    """What `GgufFile.<read>` says, kept beside the file as `name`: reading it out of the GGUF file
    takes seconds, the copy milliseconds."""
    gguf = fetch_smollm2(cache_dir, progress)
    path = gguf.with_name(name)
    with locked(make_folder(gguf.parent), lambda: None):
        if not is_whole(path):
            from engine.model.gguf import GgufFile

            text: str = getattr(GgufFile(gguf), read)()
            with contextlib.suppress(OSError):  # a read-only cache: it is read out again next time
                write_sealed(path, lambda part: void(part.write_text(text, encoding="utf-8")))
            return text
    return path.read_text(encoding="utf-8")


def synthetic_json(vocab: int) -> str:
    """A byte-level tokenizer of exactly `vocab` >= 257 tokens: an end mark, bytes, letter pairs."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters, vowels = "abcdefghijklmnopqrstuvwxyz", "aeiou"
    tokens = [SYNTHETIC_END, *byte_characters().values()]
    space = byte_characters()[0x20]
    merges = [(space, c) for c in letters] + [(c, v) for c in letters for v in vowels]
    merges += [(v, c) for v in vowels for c in letters if c not in vowels]
    if not len(tokens) <= vocab <= len(tokens) + len(merges):
        raise ModelError(
            f"a synthetic vocabulary has {len(tokens)} to {len(tokens) + len(merges)} tokens, "
            f"not {vocab}"
        )
    merges = merges[: vocab - len(tokens)]
    tokens += [a + b for a, b in merges]
    inner = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(SYNTHETIC_END, special=True, normalized=False)])
    return str(inner.to_str())
