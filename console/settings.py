"""What a reader may set about the console: thresholds, the table's first look, the period.

A TOML file; every error names the file, the key, the value and what is allowed. Owns no default
place: the command says which file.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Amber from the first number on, red from the second one. Seconds, shares of 1, or counts.
DEFAULT_THRESHOLDS: Mapping[str, tuple[float, float]] = {
    "oldest": (2.0, 10.0),
    "oldest_wait_s": (2.0, 10.0),
    "miss_share": (0.01, 0.1),
    "refused": (1.0, math.inf),
    "excess_s": (1.0, 30.0),
    "held_s": (30.0, math.inf),
    "slo_missed": (1.0, math.inf),
    "failed": (1.0, math.inf),
    "timed_out": (1.0, math.inf),
    "preemptions_suffered": (1.0, math.inf),
}
NAME = "tenant"


class ConsoleConfigError(Exception):
    """The console's settings cannot be used; says which key of which file, and what is allowed."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """`thresholds`: by column, (amber, red). `sort` and `group` are the wide table's first look."""

    thresholds: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: dict(DEFAULT_THRESHOLDS)
    )
    sort: str = "share"
    group: str = "now"
    period_s: float = 1.0


def read_settings(path: Path) -> ConsoleSettings:
    """The settings in a file; what it leaves out is the default. Raises ConsoleConfigError."""
    # Only here: without a file nobody has to know the columns before a table is open.
    from console.wide_columns import COLUMNS, GROUPS

    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise ConsoleConfigError(f"{path}: cannot be read: {e}") from None
    except tomllib.TOMLDecodeError as e:
        raise ConsoleConfigError(f"{path}: no TOML: {e}") from None
    allowed = ("thresholds", "sort", "group", "period_s")
    for key in said:
        if key not in allowed:
            raise ConsoleConfigError(
                f"{path}: {key}: no such key{_near(key, allowed)}; there are {', '.join(allowed)}"
            )
    plain = ConsoleSettings()
    return ConsoleSettings(
        thresholds={**DEFAULT_THRESHOLDS, **_thresholds(path, said.get("thresholds", {}), COLUMNS)},
        sort=_one_of(path, "sort", said.get("sort", plain.sort), (NAME, *COLUMNS)),
        group=_one_of(path, "group", said.get("group", plain.group), tuple(GROUPS)),
        period_s=_period(path, said.get("period_s", plain.period_s)),
    )


def _thresholds(
    path: Path, said: Any, columns: Mapping[str, Any]
) -> dict[str, tuple[float, float]]:
    if not isinstance(said, dict):
        raise ConsoleConfigError(f"{path}: thresholds = {said!r}: expected a table of columns")
    out = {}
    for key, value in said.items():
        if key not in columns:
            raise ConsoleConfigError(
                f"{path}: thresholds.{key}: no such column{_near(key, tuple(columns))}"
            )
        numbers = value if isinstance(value, list) else [value]
        good = all(_is_number(v) for v in numbers) and 1 <= len(numbers) <= 2
        if not good or sorted(numbers) != numbers:
            raise ConsoleConfigError(
                f"{path}: thresholds.{key} = {value!r}: expected [amber, red], two numbers in "
                "order, or amber alone"
            )
        out[key] = (float(numbers[0]), float(numbers[1]) if len(numbers) == 2 else math.inf)
    return out


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _one_of(path: Path, key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ConsoleConfigError(
            f"{path}: {key} = {value!r}: expected one of {', '.join(allowed[:12])}"
            f"{', ...' if len(allowed) > 12 else ''}{_near(str(value), allowed)}"
        )
    return value


def _period(path: Path, value: Any) -> float:
    if not _is_number(value) or not 0.2 <= value <= 3600.0:
        raise ConsoleConfigError(f"{path}: period_s = {value!r}: expected 0.2 to 3600 seconds")
    return float(value)


def _near(key: str, allowed: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(key, allowed, 1)
    return f", perhaps {found[0]}" if found else ""
