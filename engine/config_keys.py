"""How a settings key is declared and read: its meaning and bounds stand beside the dataclass field.

Owns the grammar of declarations, the generic reader and the way back from JSON; knows no
particular setting. The file's reader, `config explain` and docs/config.md all live off the same
declarations, so that nothing is written twice.
"""

from __future__ import annotations

import functools
import types
import typing
import unicodedata
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, TypeVar

from telemetry.settings import LARGEST_INTEGER, Reader

_KEY = "key"
LONGEST_NAME = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key:
    """A declared key. `absent` says what leaving it out means where the default does not;
    `table` is the name of the table, or tables, that its value is read from."""

    meaning: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    absent: str = ""
    is_name: bool = False
    table: str = ""


def key(
    meaning: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    absent: str = "",
    is_name: bool = False,
    table: str = "",
) -> Mapping[str, Key]:
    """Metadata for a dataclass field that is a settings key."""
    return {_KEY: Key(meaning, at_least, above, at_most, choices, absent, is_name, table)}


@dataclass(frozen=True, slots=True)
class Declared:
    """One key of a settings dataclass: its field's name and type beside the declaration."""

    name: str
    type: Any
    key: Key
    default: Any  # MISSING = it must be given

    @property
    def required(self) -> bool:
        return self.default is MISSING


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def declared(cls: type) -> tuple[Declared, ...]:
    """The keys of a settings dataclass, in the order they are written in."""
    hints = _hints(cls)
    return tuple(
        Declared(f.name, hints[f.name], f.metadata[_KEY], _default(f))
        for f in fields(cls)
        if _KEY in f.metadata
    )


def without_none(annotation: Any) -> Any:
    """`int` of `int | None`; anything else as it is."""
    if isinstance(annotation, types.UnionType):
        return next(a for a in typing.get_args(annotation) if a is not types.NoneType)
    return annotation


def read_name(r: Reader, key: str = "name", default: Any = ...) -> Any:
    """A name is data: any printable text up to 200 characters. Raises SettingsError."""
    name = r.text(key, default)
    if name is None:
        return name
    # Who cannot see a character cannot find it either: a joiner inside an emoji, a soft hyphen.
    unseen = next((c for c in name if not c.isprintable()), None)
    if unseen is not None or len(name) > LONGEST_NAME:
        which = f"it has {len(name)}"
        if unseen is not None:
            called = unicodedata.name(unseen, "it has no name")
            which = f"U+{ord(unseen):04X} ({called.lower()}) is none"
        raise r.fail(key, f"expected up to {LONGEST_NAME} printable characters; {which}")
    return name


def read_keys(r: Reader, cls: type[T], base: T | None = None, **given: Any) -> T:
    """Read one table as a settings dataclass; what is left out is taken from `base`, else it has
    its default. `given` are fields that somebody else has read. Raises SettingsError."""
    values = dict(given)
    table: type = cls
    for d in declared(table):
        if d.name not in given:
            values[d.name] = _read(r, d, d.default if base is None else getattr(base, d.name))
    r.done()
    return cls(**values)


def _read(r: Reader, d: Declared, default: Any) -> Any:
    default = ... if default is MISSING else default
    kind, rule = without_none(d.type), d.key
    if rule.is_name:
        return read_name(r, d.name, default)
    if kind is bool:
        return r.flag(d.name, default)
    if kind is int:
        low = None if rule.at_least is None else int(rule.at_least)
        if rule.at_most is None:
            return r.integer(d.name, default, at_least=low)
        return r.integer(d.name, default, at_least=low, at_most=int(rule.at_most))
    if kind is float:
        bounds = {"at_least": rule.at_least, "above": rule.above, "at_most": rule.at_most}
        return r.number(d.name, default, **bounds)
    if kind is str:
        return r.text(d.name, default, choices=rule.choices)
    if isinstance(kind, type) and is_dataclass(kind):
        return read_keys(r.table(d.name), kind, None if default is ... else default)
    if kind == tuple[int, ...]:
        low, high = int(rule.at_least or 0), int(rule.at_most or LARGEST_INTEGER)
        return r.integers(d.name, default, at_least=low, at_most=high)
    return r.texts(d.name, default)


def from_plain(annotation: Any, value: Any) -> Any:
    """A value of that type out of what JSON made of it (`asdict`, dumped and loaded)."""
    kind = without_none(annotation)
    if value is None:
        return None
    if is_dataclass(kind):
        return _rebuilt(kind, value)
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)
        if inner[-1] is Ellipsis:
            return tuple(from_plain(inner[0], v) for v in value)
        return tuple(from_plain(a, v) for a, v in zip(inner, value, strict=True))
    return value


def _rebuilt(cls: Any, values: Mapping[str, Any]) -> Any:
    hints = _hints(cls)
    return cls(**{name: from_plain(hints[name], v) for name, v in values.items()})


def _default(f: Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default
