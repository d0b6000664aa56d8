"""Reads TOML into frozen dataclasses. Owns the error messages; knows no particular setting.

Every message names file, key and value, and says what is allowed. Unknown keys are refused: a
mistyped limit must never be read as "no limit".
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LARGEST_INTEGER = 1 << 53  # beyond it a float no longer counts by one
_SHOWN = 80
_LARGEST_FILE = 256 << 20  # a device that never ends is a mistake too
_NOTHING = ("", "null", "nil", "none", "nan", "inf", "infinity", "unlimited", "undefined", "~", "-")


class SettingsError(ValueError):
    """A settings file cannot be used as it is."""


def read_text(path: Path) -> str:
    """A text file's whole text. Raises SettingsError: what is wrong with it, without its name."""
    try:
        with path.open("rb") as f:
            data = f.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise SettingsError("no such file") from None
    except IsADirectoryError:
        raise SettingsError("is a folder, not a file") from None
    except OSError as e:
        raise SettingsError(f"cannot be read: {(e.strerror or str(e)).lower()}") from None
    if len(data) > _LARGEST_FILE:
        raise SettingsError(f"larger than {_LARGEST_FILE >> 20} MiB: is it the right file?")
    try:
        return data.decode("utf-8-sig")  # some editors put a mark before the text
    except UnicodeDecodeError as e:
        raise SettingsError(f"not UTF-8 text ({e.reason} at byte {e.start})") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises SettingsError naming the file and, for bad syntax, the line."""
    try:
        text = read_text(path)
    except SettingsError as e:
        raise SettingsError(f"{path}: {e}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise SettingsError(f"{path}: not valid TOML: {e}{_line_of(e, text)}") from None
    except RecursionError:
        raise SettingsError(f"{path}: not usable TOML: nested too deep") from None
    except ValueError as e:  # a number of thousands of digits
        raise SettingsError(
            f"{path}: not usable TOML: {str(e).partition(';')[0].lower()}"
        ) from None


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> str:
    """The line a syntax error stands in, and the cure of the commonest one."""
    at = re.search(r"at line (\d+)", str(error))
    lines = text.splitlines()
    if at is None or int(at[1]) > len(lines):
        return ""
    line = lines[int(at[1]) - 1].strip()
    value = line.partition("=")[2].partition("#")[0].strip()
    cure = ""
    if "overwrite" in str(error) or "twice" in str(error) or "Duplicate" in str(error):
        cure = ": it stands in the same table twice; keep one"
    elif "=" in line and value.lower() in _NOTHING:
        cure = ": TOML has no null; leave the key out to have its default"
    return f": {shown(line)}{cure}"


def shown(value: object) -> str:
    """A value as a message quotes it: never longer than a line."""
    try:
        text = repr(value)
    except ValueError:  # an integer too long to be written down
        return "(a number of thousands of digits)"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Reader:
    """Takes typed values out of one TOML table and complains precisely.

    `where` is "file" or "file: [table]", `inside` the table's part of it. Call `done()` at the
    end: it refuses keys nobody took.
    """

    def __init__(self, where: str, table: Mapping[str, Any], *, inside: str = "") -> None:
        self.where = f"{where}: {inside}" if inside else where
        if not isinstance(table, Mapping):
            raise SettingsError(f"{self.where}: expected a table, got {shown(table)}")
        self._file = where
        self.inside = inside
        self._table = table
        self._taken: set[str] = set()

    def fail(self, key: str, allowed: str) -> SettingsError:
        value = self._table.get(key)
        return SettingsError(f"{self.where}: {key} = {shown(value)}: {allowed}")

    def has(self, key: str) -> bool:
        return key in self._table

    def has_tables(self, key: str) -> bool:
        """True where [[key]] tables stand, and no plain value."""
        return isinstance(self._table.get(key), list)

    def is_text(self, key: str, word: str) -> bool:
        """True where the key is given and is this word; it is then taken."""
        found = self._table.get(key) == word
        if found:
            self._taken.add(key)
        return found

    def _take(self, key: str, default: Any) -> Any:
        self._taken.add(key)
        if key in self._table:
            return self._table[key]
        if default is ...:
            raise SettingsError(f"{self.where}: {key} is missing")
        return default

    def text(self, key: str, default: Any = ..., *, choices: Iterable[str] = ()) -> Any:
        value = self._take(key, default)
        if value is default and key not in self._table:
            return value
        options = tuple(choices)
        if options and value not in options:
            near = difflib.get_close_matches(str(value), options, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise self.fail(key, f"expected one of {', '.join(options)}{hint}")
        if not isinstance(value, str) or not value.strip():
            raise self.fail(key, "expected text, not blank")
        if _controls(value):
            raise self.fail(key, "expected text without control characters")
        return value

    def number(
        self,
        key: str,
        default: Any = ...,
        *,
        at_least: float | None = None,
        above: float | None = None,
        at_most: float | None = None,
    ) -> Any:
        value = self._take(key, default)
        if value is default and key not in self._table:
            return value
        good = isinstance(value, int | float) and not isinstance(value, bool)
        # Compared before it is turned: an integer may be larger than any float.
        if (
            not good
            or (isinstance(value, float) and not math.isfinite(value))
            or abs(value) > (at_most if at_most is not None else 1e300)
            or (at_least is not None and value < at_least)
            or (above is not None and value <= above)
        ):
            allowed = "expected a number" + _range(at_least, above, at_most)
            raise self.fail(key, allowed + _hint(value, default))
        return float(value)

    def integer(
        self,
        key: str,
        default: Any = ...,
        *,
        at_least: int | None = None,
        at_most: int = LARGEST_INTEGER,
    ) -> Any:
        value = self._take(key, default)
        if value is default and key not in self._table:
            return value
        good = isinstance(value, int) and not isinstance(value, bool)
        if not good or (at_least is not None and value < at_least) or abs(value) > at_most:
            upper = at_most if good and abs(value) > at_most else None
            allowed = "expected a whole number" + _range(at_least, None, upper)
            raise self.fail(key, allowed + _hint(value, default))
        return value

    def flag(self, key: str, default: Any = ...) -> Any:
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.fail(key, "expected true or false")
        return value

    def texts(self, key: str, default: Any = ()) -> tuple[str, ...]:
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or any(
            not isinstance(v, str) or not v.strip() for v in value
        ):
            raise self.fail(key, "expected a list of texts, none blank")
        if any(map(_controls, value)):
            raise self.fail(key, "expected texts without control characters")
        seen: set[str] = set()
        for v in value:
            if v in seen:
                raise self.fail(key, f"{shown(v)} stands in it twice")
            seen.add(v)
        return tuple(value)

    def integers(
        self, key: str, default: Any = (), *, at_least: int = 0, at_most: int = LARGEST_INTEGER
    ) -> tuple[int, ...]:
        """A list of whole numbers, each once."""
        value = self._take(key, default)
        if (
            not isinstance(value, list | tuple)
            or any(isinstance(v, bool) or not isinstance(v, int) for v in value)
            or any(not at_least <= v <= at_most for v in value)
        ):
            allowed = _range(at_least, None, at_most)
            raise self.fail(key, f"expected a list of whole numbers{allowed}")
        for n, v in enumerate(value):
            if v in value[:n]:
                raise self.fail(key, f"{v} stands in it twice")
        return tuple(value)

    def numbers(
        self, key: str, default: Any = ..., *, length: int | None = None
    ) -> tuple[float, ...]:
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or any(
            isinstance(v, bool)
            or not isinstance(v, int | float)
            or (isinstance(v, float) and not math.isfinite(v))
            or abs(v) > LARGEST_INTEGER
            for v in value
        ):
            raise self.fail(key, "expected a list of numbers")
        if length is not None and len(value) != length:
            raise self.fail(key, f"expected {length} numbers")
        return tuple(float(v) for v in value)

    def secrets(self, key: str) -> dict[str, str]:
        """A table of texts that no message may quote: it names their keys only."""
        value = self._take(key, {})
        if not isinstance(value, Mapping):
            raise SettingsError(f"{self.where}: {key}: expected a table of texts")
        for name, text in value.items():
            if not isinstance(text, str) or not text:
                raise SettingsError(f"{self.where}: {key}: {shown(name)}: expected text in quotes")
        return dict(value)

    def table(self, key: str) -> Reader:
        value = self._take(key, {})
        return Reader(self._file, value, inside=f"{self.inside} [{key}]".strip())

    def tables(self, key: str) -> list[Reader]:
        value = self._take(key, [])
        if not isinstance(value, list):
            raise self.fail(key, f"expected [[{key}]] tables")
        return [
            Reader(self._file, v, inside=f"{self.inside} [[{key}]] {_which(i, v)}".strip())
            for i, v in enumerate(value)
        ]

    def done(self) -> None:
        for key in self._table:
            if key not in self._taken:
                near = difflib.get_close_matches(key, self._taken, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                known = ", ".join(sorted(self._taken))
                raise SettingsError(
                    f"{self.where}: unknown key {shown(key)}{hint} (known: {known})"
                )


def _controls(text: str) -> bool:
    return any(c < " " or "\x7f" <= c < "\xa0" for c in text)


def _which(index: int, table: object) -> str:
    """A table of an array by its place, and by its name where it has one."""
    name = table.get("name") if isinstance(table, Mapping) else None
    return f"{index + 1} {shown(name)}" if isinstance(name, str) and name else f"{index + 1}"


def _range(at_least: float | None, above: float | None, at_most: float | None) -> str:
    low = f" >= {_plain(at_least)}" if at_least is not None else ""
    if above is not None:
        low = f" > {_plain(above)}"
    if at_most is None:
        return low
    high = f" <= {_plain(at_most)}"
    return low + (" and" if low else "") + high


def _plain(bound: float) -> str:
    """A bound in full where that is short enough to be read: 60000000, 0.001, 1e+30."""
    whole = bound == int(bound) and abs(bound) <= LARGEST_INTEGER
    return str(int(bound)) if whole else f"{bound:g}"


def _hint(value: object, default: object) -> str:
    """The cure of what people write where a number belongs."""
    if not isinstance(value, str):
        return ""
    text = value.strip().lower()
    if text in _NOTHING:
        return "; leave the key out for no limit" if default is None else "; leave the key out"
    if re.fullmatch(r"[\d_.,]+\s*[kmg]i?b?", text):
        return "; write the number in full, without a suffix and without quotes"
    if re.fullmatch(r"[\d_.]+", text):
        return "; write it without quotes"
    return ""
