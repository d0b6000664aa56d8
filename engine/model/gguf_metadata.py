"""The keys of one GGUF file, typed: what is missing or odd is told with its key. Reads no file."""

from __future__ import annotations

import math
from typing import Any

from engine.errors import ModelError
from engine.model.gguf_header import GgufHeader

CONTROL = 3  # the token type of special tokens


class Metadata:
    """Keys of one file; a missing or odd one is a ModelError that names file and key."""

    def __init__(self, where: str, header: GgufHeader) -> None:
        self.where = where
        self._found = header.metadata
        self.architecture = self.text("general.architecture")

    def get(self, key: str) -> Any:
        """Whatever is there, of any type; None where nothing is. `{arch}` in a key stands for the
        file's architecture."""
        return self._found.get(self._key(key))

    def flag(self, key: str, default: bool) -> bool:
        found = self.get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise ModelError(f"{self.where}: {self._key(key)} is {short(found)}; expected a bool")
        return found

    def text(self, key: str) -> str:
        found: str = self._typed(key, str, "text")
        return found

    def count(self, key: str, default: int | None = None) -> int:
        """A number of something, 1 or more."""
        if default is not None and self.get(key) is None:
            return default
        value: int = self._typed(key, int, "a whole number")
        if not 1 <= value < 1 << 31:
            raise ModelError(f"{self.where}: {self._key(key)} is {value}; expected 1 or more")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number above 0. Stored as float32: 9.999999747378752e-06 means 1e-5."""
        if default is not None and self.get(key) is None:
            return default
        value = self._typed(key, (int, float), "a number")
        if not 0 < value < math.inf:
            raise ModelError(f"{self.where}: {self._key(key)} is {value}; expected one above 0")
        return float(f"{value:.6g}")

    def token(self, key: str) -> int | None:
        """The id of a token that the file names by its use; None where it names none."""
        full = f"tokenizer.ggml.{key}_token_id"
        found, most = self.get(full), len(self.list("tokenizer.ggml.tokens"))
        if found is None:
            return None
        if type(found) is not int or not 0 <= found < most:
            raise ModelError(f"{self.where}: {full} is {short(found)}: none of its {most} tokens")
        return found

    def list(self, key: str) -> list[Any]:
        found: list[Any] = self._typed(key, list, "a list")
        return found

    def _typed(self, key: str, kind: Any, words: str) -> Any:
        key = self._key(key)
        if key not in self._found:
            raise ModelError(f"{self.where}: {key} is missing")
        value = self._found[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ModelError(f"{self.where}: {key} is {short(value)}; expected {words}")
        return value

    def _key(self, key: str) -> str:
        return key.replace("{arch}", self.architecture) if "{arch}" in key else key


def short(value: object) -> str:
    """As it is shown in a message."""
    return repr(value)[:60]
