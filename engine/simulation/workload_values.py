"""The values of a stream's table that say when requests come and how long they are. Reads only.

rate_per_s = 2                         spacing = "even" | "uniform" | "poisson" | "gamma" (+ cv)
rate_per_s = 2  on_off_s = [60, 60]    on for 60 s, off for 60 s, and again
rate_per_s = 0.2  ramp_to_per_s = 2    in a straight line over the stream's span
spacing = "recorded"                   times_s = [0.0, 1.5] or times_file = "instants.txt"

prompt_tokens = 256 | [200, 600] | { mean = 128, cv = 1 } | { median = 100, p95 = 900 }
              | { recorded = [5, 7] } | { file = "lengths.txt" }
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.simulation.arrivals import (
    SPACINGS,
    Arrivals,
    OnOff,
    Process,
    Ramp,
    Rate,
    Recorded,
    Spacing,
    Steady,
)
from engine.simulation.lengths import LONGEST, Even, Lengths, Lognormal, RecordedLengths
from telemetry.settings import Reader, SettingsError, read_text, shown

SMALLEST_CV, LARGEST_CV = 0.01, 100.0
MOST_PER_S = 1e6  # beyond it instants run together, and time would stand still
# What a key needs beside it: said where it is given without.
_NEEDS = {
    "cv": 'spacing = "gamma"',
    "times_s": 'spacing = "recorded"',
    "times_file": 'spacing = "recorded"',
    "rate_per_s": 'a spacing that is not "recorded"',
    "on_off_s": 'a spacing that is not "recorded"',
    "ramp_to_per_s": 'a spacing that is not "recorded"',
}


def read_arrivals(
    r: Reader, raw: Mapping[str, Any], folder: Path, span_s: float, spacing: str
) -> Arrivals:
    """When requests come. `spacing` is the default. Raises SettingsError."""
    kind = r.text("spacing", spacing, choices=SPACINGS)
    recorded = kind == "recorded"
    for key, needs in _NEEDS.items():
        goes = kind == "gamma" if key == "cv" else recorded == key.startswith("times")
        if key in raw and not goes:
            raise r.fail(key, f"goes with {needs}, and it is {kind!r}: leave the key out")
    if recorded:
        return _recorded(r, folder, span_s)
    cv = {"even": 0.0, "uniform": 0.0, "poisson": 1.0}.get(kind)
    if cv is None:
        cv = r.number("cv", at_least=SMALLEST_CV, at_most=LARGEST_CV)
    return Process(Spacing(cv), _rate(r, span_s))


def _rate(r: Reader, span_s: float) -> Rate:
    if r.has("on_off_s") and r.has("ramp_to_per_s"):
        raise SettingsError(f"{r.where}: expected at most one of on_off_s and ramp_to_per_s")
    if r.has("ramp_to_per_s"):
        first = r.number("rate_per_s", at_least=0, at_most=MOST_PER_S)
        last = r.number("ramp_to_per_s", at_least=0, at_most=MOST_PER_S)
        if first == last == 0:
            raise r.fail("ramp_to_per_s", "expected a rate above 0 at one end at least")
        return Ramp(first, last, span_s)
    per_s = r.number("rate_per_s", above=0, at_most=MOST_PER_S)
    if not r.has("on_off_s"):
        return Steady(per_s)
    on_s, off_s = r.numbers("on_off_s", length=2)
    if on_s <= 0 or off_s < 0:
        raise r.fail("on_off_s", "expected [seconds on > 0, seconds off >= 0]")
    return OnOff(per_s, on_s, off_s)


def _recorded(r: Reader, folder: Path, span_s: float) -> Recorded:
    if r.has("times_s") == r.has("times_file"):
        raise SettingsError(
            f"{r.where}: recorded arrivals: expected either times_s = [...] or times_file"
        )
    if r.has("times_s"):
        key, at = "times_s", r.numbers("times_s")
    else:
        key, at = "times_file", _numbers_in(r, "times_file", folder)
    if not at:
        raise r.fail(key, "expected instants, in seconds since start_s; there are none")
    for i, instant in enumerate(at):
        if not 0 <= instant < math.inf:
            raise r.fail(key, f"instant {i + 1} = {instant:g}: expected seconds >= 0")
    for i, (before, after) in enumerate(itertools.pairwise(at)):
        if after < before:
            raise r.fail(key, f"instant {i + 2} = {after:g} comes before {before:g}: sort them")
    if at[0] >= span_s:
        raise r.fail(
            key,
            f"the first comes {at[0]:g} s after the stream begins, and it lasts {span_s:g} s: "
            "instants count from its beginning",
        )
    return Recorded(at)


def read_lengths(r: Reader, key: str, raw: Mapping[str, Any], folder: Path) -> Lengths:
    """How long they are. Raises SettingsError."""
    value = raw.get(key)
    if isinstance(value, list):
        low, high = r.numbers(key, length=2)
        if low < 1 or high < low or low != int(low) or high != int(high):
            raise r.fail(key, "expected two whole numbers, 1 <= low <= high")
        return Even(int(low), int(high))
    if isinstance(value, Mapping):
        return _distribution(r.table(key), folder)
    if key in raw and not isinstance(value, int):
        raise r.fail(
            key,
            "expected a whole number, [low, high], { mean, cv }, { median, p95 }, "
            "{ recorded = [...] } or { file }",
        )
    fixed = r.integer(key, at_least=1, at_most=LONGEST)
    return Even(fixed, fixed)


def _distribution(r: Reader, folder: Path) -> Lengths:
    ways = [k for k in ("mean", "median", "recorded", "file") if r.has(k)]
    if len(ways) != 1:
        raise SettingsError(
            f"{r.where}: expected one of mean (with cv), median (with p95), recorded, file"
        )
    way = ways[0]
    lengths: Lengths
    if way in ("mean", "median"):
        lengths = _lognormal(r, way)
    else:
        tokens = r.numbers("recorded") if way == "recorded" else _numbers_in(r, "file", folder)
        if not tokens:
            raise r.fail(way, "expected whole numbers >= 1; there are none")
        for i, t in enumerate(tokens):
            if not 1 <= t <= LONGEST or t != int(t):
                raise r.fail(way, f"number {i + 1} = {t:g}: expected whole numbers >= 1")
        lengths = RecordedLengths(tuple(int(t) for t in tokens))
    r.done()
    return lengths


def _lognormal(r: Reader, way: str) -> Lognormal:
    least = r.integer("least", 1, at_least=1)
    most = r.integer("most", LONGEST, at_least=least)
    if way == "mean":
        mean = r.number("mean", at_least=1, at_most=LONGEST)
        cv = r.number("cv", at_least=0, at_most=LARGEST_CV)
        return Lognormal.of_mean(mean, cv, least, most)
    median = r.number("median", at_least=1, at_most=LONGEST)
    p95 = r.number("p95", at_least=median, at_most=LONGEST)
    return Lognormal.of_median(median, p95, least, most)


def _numbers_in(r: Reader, key: str, folder: Path) -> tuple[float, ...]:
    """One number a line, in a file beside the workload; blank lines and `#` lines are passed."""
    path = folder / r.text(key)
    try:
        lines = read_text(path).splitlines()
    except SettingsError as e:
        raise r.fail(key, f"{e}; expected a text file, one number a line") from None
    found: list[float] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            found.append(float(text))
        except ValueError:
            raise r.fail(key, f"line {number}: {shown(text)} is no number") from None
    return tuple(found)
