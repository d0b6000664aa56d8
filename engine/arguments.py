"""Types for the options of scripts: whole numbers and numbers in a range, and lists of them.

For argparse, which words what they raise and exits with 2. Owns no option and reads no file.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

MOST = 10**12
N = TypeVar("N", int, float)


def count(text: str) -> int:
    """A whole number >= 1. Raises ArgumentTypeError, as all of these do."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number >= 1")
    return number


def amount(text: str) -> float:
    """A finite number > 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number > 0")
    return number


def span(text: str) -> float:
    """Seconds, 10 at least: in less nothing would come of some tenants."""
    number = amount(text)
    if number < 10:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, at least 10")
    return number


def amount_or_none(text: str) -> float:
    """A finite number >= 0."""
    return 0.0 if text.strip() in ("0", "0.0") else amount(text)


def counts(text: str) -> list[int]:
    """Whole numbers >= 1 with commas between."""
    return _listed(text, count)


def amounts(text: str) -> list[float]:
    """Finite numbers > 0 with commas between."""
    return _listed(text, amount)


def amounts_or_none(text: str) -> list[float]:
    """Finite numbers >= 0 with commas between."""
    return _listed(text, amount_or_none)


def _listed(text: str, one: Callable[[str], N]) -> list[N]:
    return [one(part) for part in text.split(",")]
