"""Reads TOML into frozen dataclasses. Owns the error messages; knows no particular setting.

Every message names file, key and value, and says what is allowed. Unknown keys are refused: a
mistyped limit must never be read as "no limit".
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class SettingsError(ValueError):
    """A settings file cannot be used as it is."""


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises SettingsError naming the file and, for bad syntax, the line."""
    try:
        with path.open("rb") as f:
            return tomllib.load(f)
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: is a folder, not a TOML file") from None
    except OSError as e:
        raise SettingsError(f"{path}: cannot be read: {(e.strerror or str(e)).lower()}") from None
    except UnicodeDecodeError as e:
        raise SettingsError(f"{path}: not UTF-8 text ({e.reason} at byte {e.start})") from None
    except tomllib.TOMLDecodeError as e:
        raise SettingsError(f"{path}: not valid TOML: {e}") from None


class Reader:
    """Takes typed values out of one TOML table and complains precisely.

    `where` is "file: [table]". Call `done()` at the end: it refuses keys nobody took.
    """

    def __init__(self, where: str, table: Mapping[str, Any]) -> None:
        if not isinstance(table, Mapping):
            raise SettingsError(f"{where}: expected a table, got {table!r}")
        self.where = where
        self._table = table
        self._taken: set[str] = set()

    def fail(self, key: str, allowed: str) -> SettingsError:
        value = self._table.get(key)
        return SettingsError(f"{self.where}: {key} = {value!r}: {allowed}")

    def has(self, key: str) -> bool:
        return key in self._table

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
        if not isinstance(value, str) or not value.strip():
            raise self.fail(key, "expected text, not blank")
        options = tuple(choices)
        if options and value not in options:
            raise self.fail(key, f"expected one of {', '.join(options)}")
        return value

    def number(
        self,
        key: str,
        default: Any = ...,
        *,
        at_least: float | None = None,
        above: float | None = None,
    ) -> Any:
        value = self._take(key, default)
        if value is default and key not in self._table:
            return value
        bad = (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        )
        if (
            bad
            or (at_least is not None and value < at_least)
            or (above is not None and value <= above)
        ):
            raise self.fail(key, "expected a number" + _range(at_least, above))
        return float(value)

    def integer(self, key: str, default: Any = ..., *, at_least: int | None = None) -> Any:
        value = self._take(key, default)
        if value is default and key not in self._table:
            return value
        bad = isinstance(value, bool) or not isinstance(value, int)
        if bad or (at_least is not None and value < at_least):
            raise self.fail(key, "expected a whole number" + _range(at_least, None))
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
        if len(set(value)) != len(value):
            raise self.fail(key, "a value stands in it twice")
        return tuple(value)

    def numbers(
        self, key: str, default: Any = ..., *, length: int | None = None
    ) -> tuple[float, ...]:
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or any(
            isinstance(v, bool) or not isinstance(v, int | float) for v in value
        ):
            raise self.fail(key, "expected a list of numbers")
        if length is not None and len(value) != length:
            raise self.fail(key, f"expected {length} numbers")
        return tuple(float(v) for v in value)

    def table(self, key: str) -> Reader:
        value = self._take(key, {})
        return Reader(f"{self.where}.{key}", value)

    def tables(self, key: str) -> list[Reader]:
        value = self._take(key, [])
        if not isinstance(value, list):
            raise self.fail(key, f"expected [[{key}]] tables")
        return [Reader(f"{self.where}[[{key}]] {i + 1}", v) for i, v in enumerate(value)]

    def done(self) -> None:
        for key in self._table:
            if key not in self._taken:
                near = difflib.get_close_matches(key, self._taken, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                known = ", ".join(sorted(self._taken))
                raise SettingsError(f"{self.where}: unknown key {key!r}{hint} (known: {known})")


def _range(at_least: float | None, above: float | None) -> str:
    if at_least is not None:
        return f" >= {at_least:g}"
    return f" > {above:g}" if above is not None else ""
