"""The figures: each incident's row, and what the rows of a set come to. Pure; runs nothing.

Share error is the total variation distance between a method's shares and the truth's, over the
tenants that the verdict calls hurt: half the sum of the absolute differences, 0 = as in truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from benchmarks.attribution.methods import METHODS, RUNG_2, Judged
from benchmarks.attribution.scenarios import Scenario
from benchmarks.attribution.truth import (
    CULPRIT,
    HARM_S,
    INNOCENT,
    NONE,
    UNCLEAR,
    Facts,
    Runs,
    facts,
    truth_for,
)

FIRST_AT_LEAST, ERROR_AT_MOST, FALSE_AT_MOST = 0.98, 0.10, 0.01


@dataclass(frozen=True, slots=True)
class Said:
    """One method on one incident. `error` None: it has no shares, or the truth has none; `guilt`:
    what the one it names made of the excess by truth, None where it names nobody."""

    first: str | None
    named: str | None
    score: float
    error: float | None
    guilt: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One incident, as a line of JSON. `judged`: somebody was found hurt and a baseline was there;
    `leaders` may be first; `culprit`: the word was said."""

    seed: int
    kind: str
    policy: str
    perturbed: str
    requests: int
    truth: str
    victims: int
    missed: int
    excess_s: float
    shares: Mapping[str, float]
    leaders: tuple[str, ...]
    verdict: str
    tenant: str | None
    culprit: bool
    abstained: bool
    judged: bool
    headline: str
    said: Mapping[str, Said]

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Row:
        said = {m: Said(**s) for m, s in raw["said"].items()}
        return cls(**{**raw, "leaders": tuple(raw["leaders"]), "said": said})

    def dump(self) -> dict[str, Any]:
        return asdict(self)


def row(scenario: Scenario, runs: Runs, judged: Judged) -> Row:
    truth = facts(runs)
    own = truth_for(runs, judged.victims, judged.measure)
    made = truth_for(runs, judged.victims, judged.measure, HARM_S).shares
    said: dict[str, Said] = {}
    for answer in judged.answers:
        error = distance(answer.shares, own.shares) if answer.shares and own.shares else None
        guilt = None if answer.named is None else _guilt(answer.named, truth, made)
        said[answer.method] = Said(answer.first, answer.named, answer.score, error, guilt)
    verdict = judged.verdict
    return Row(
        scenario.seed, scenario.kind, scenario.policy, scenario.perturbed, scenario.requests,
        truth.kind, len(truth.victims), truth.missed, truth.excess_s, dict(truth.shares),
        truth.first, verdict.kind, verdict.tenant, verdict.culprit is not None, judged.abstained,
        bool(judged.victims), verdict.headline, said,
    )  # fmt: skip


def _guilt(tenant: str, truth: Facts, own: Mapping[str, float]) -> float:
    """The larger of its parts: of those who missed by it, and of those the verdict calls hurt."""
    return max(truth.shares.get(tenant, 0.0), own.get(tenant, 0.0))


def distance(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    return 0.5 * sum(abs(a.get(k, 0.0) - b.get(k, 0.0)) for k in {*a, *b})


# ---------------------------------------------------------------- of a set


@dataclass(frozen=True, slots=True)
class Figures:
    """One method over a set. `first` of those judged, `first_of_all` of all incidents with
    culprits; errors over `errors` incidents; `accused_none`: anybody named where truth has no
    culprit and not the guilty one; `accused_innocent`: an innocent named where it has one."""

    method: str
    first: float | None
    first_of_all: float | None
    error_mean: float | None
    error_median: float | None
    error_p90: float | None
    errors: int
    accused_none: int
    accused_innocent: int


@dataclass(frozen=True, slots=True)
class Summary:
    """`unclear` incidents have a culprit in part; `missed`: with culprits, and nobody found hurt;
    `unnamed`: with culprits, judged, and no tenant named. `first` and `false` are ours: incidents
    with culprits, judged, in which the first is the truth's, and those that accuse falsely."""

    incidents: int
    culprits: int
    without: int
    unclear: int
    abstained: int
    missed: int
    unnamed: int
    first: int
    false: int
    figures: tuple[Figures, ...]

    @property
    def false_accusations(self) -> float:
        """The part of all incidents."""
        return self.false / self.incidents if self.incidents else 0.0

    @property
    def met(self) -> Mapping[str, bool]:
        """The three aims, for ours."""
        ours = next(f for f in self.figures if f.method == RUNG_2)
        return {
            f"culprit first >= {FIRST_AT_LEAST}": (ours.first or 0.0) >= FIRST_AT_LEAST,
            f"share error <= {ERROR_AT_MOST}": (ours.error_mean or 0.0) <= ERROR_AT_MOST,
            f"false accusations <= {FALSE_AT_MOST}": self.false_accusations <= FALSE_AT_MOST,
        }


def is_false(row: Row, method: str) -> bool:
    """It names a tenant that made at most INNOCENT of anybody's excess."""
    guilt = row.said[method].guilt
    return guilt is not None and guilt <= INNOCENT


def summarise(rows: Sequence[Row]) -> Summary:
    culprits = [r for r in rows if r.truth == CULPRIT]
    without = [r for r in rows if r.truth == NONE]
    figures = tuple(_figures(m, rows, culprits, without) for m in METHODS)
    false = sum(is_false(r, RUNG_2) for r in rows)
    return Summary(
        len(rows),
        len(culprits),
        len(without),
        sum(r.truth == UNCLEAR for r in rows),
        sum(r.abstained for r in rows),
        sum(not r.judged for r in culprits),
        sum(r.judged and r.said[RUNG_2].named is None for r in culprits),
        sum(r.judged and r.said[RUNG_2].first in r.leaders for r in culprits),
        false,
        figures,
    )


def _figures(
    method: str, rows: Sequence[Row], culprits: Sequence[Row], without: Sequence[Row]
) -> Figures:
    right = [r.said[method].first in r.leaders for r in culprits]
    of_judged = [ok for ok, r in zip(right, culprits, strict=True) if r.judged]
    errors = sorted(e for r in rows if (e := r.said[method].error) is not None)
    return Figures(
        method,
        fmean(of_judged) if of_judged else None,
        fmean(right) if right else None,
        fmean(errors) if errors else None,
        median(errors) if errors else None,
        errors[int(0.9 * (len(errors) - 1))] if errors else None,
        len(errors),
        sum(is_false(r, method) for r in without),
        sum(is_false(r, method) for r in culprits),
    )


def wilson(k: int, n: int) -> tuple[float, float]:
    """Where a part of which `k` of `n` were seen lies, 95% sure (Wilson, 1927); all of 0 to 1 where
    nothing was seen."""
    if not n:
        return 0.0, 1.0
    z, seen = 1.959964, k / n
    middle = (seen + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(seen * (1 - seen) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def groups(rows: Sequence[Row], by: Callable[[Row], str]) -> dict[str, Summary]:
    """The summary of each group, in the order of their names."""
    return {g: summarise([r for r in rows if by(r) == g]) for g in sorted({by(r) for r in rows})}
