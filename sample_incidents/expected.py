"""What a report on a recorded incident ought to say. Reads `expected.toml`; judges nothing.

kind = "tenant"              # the verdict's: tenant, capacity, self, everyone, no_single, quiet
who = ["acme"]               # to blame; empty where nobody is
whom = ["globex"]            # hurt by it, those at least
innocent = ["hooli"]         # must not be named
causes = ["kv"]              # in plain words: what it was
onset = 2026-11-25T17:00:00Z
tolerance_s = 120            # how far off an onset may be told
window = [2026-11-25T16:57:00Z, 2026-11-25T17:12:00Z]
remedy = "concurrency"       # what would have prevented it
recorded = "simulate"        # or "demo": a real engine's run, which nothing regenerates
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sample_incidents import IncidentError, incident_path

FILE = "expected.toml"
KINDS = ("tenant", "capacity", "self", "everyone", "no_single", "quiet")
RECORDED = ("simulate", "demo")
CAUSES = (
    "kv", "slot", "budget", "adapter", "stall", "preemption", "own_limits", "retry_storm",
    "fixed_window", "slow_engine", "lost_engine", "frozen_engine", "change", "growth",
)  # fmt: skip
REMEDIES = (
    "none", "concurrency", "rpm", "tpm", "vtc", "tier", "adapter_floor", "chunk_budget",
    "dedicated_pool", "capacity", "revert", "sliding_window", "backoff",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expected:
    """See the file's form above. Instants are unix seconds; `onset` None where there is none."""

    name: str
    kind: str
    who: tuple[str, ...]
    whom: tuple[str, ...]
    innocent: tuple[str, ...]
    causes: tuple[str, ...]
    onset: float | None
    tolerance_s: float
    window: tuple[float, float]
    remedy: str
    recorded: str

    @property
    def store(self) -> Path:
        """The folder of the recorded telemetry."""
        return incident_path(self.name) / "store"


def read_expected(name: str) -> Expected:
    """Raises IncidentError for an unknown incident, or a file that says something else."""
    path = incident_path(name) / FILE
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as e:
        raise IncidentError(f"{path}: {e}") from None
    begin, end = raw.pop("window")
    made = Expected(
        name=name,
        kind=_one(path, "kind", raw.pop("kind"), KINDS),
        who=tuple(raw.pop("who")),
        whom=tuple(raw.pop("whom")),
        innocent=tuple(raw.pop("innocent", ())),
        causes=tuple(_one(path, "causes", c, CAUSES) for c in raw.pop("causes")),
        onset=_instant(path, raw.pop("onset")) if "onset" in raw else None,
        tolerance_s=float(raw.pop("tolerance_s", 120.0)),
        window=(_instant(path, begin), _instant(path, end)),
        remedy=_one(path, "remedy", raw.pop("remedy"), REMEDIES),
        recorded=_one(path, "recorded", raw.pop("recorded", "simulate"), RECORDED),
    )
    if raw:
        raise IncidentError(f"{path}: unknown key {next(iter(raw))!r}")
    if made.window[0] >= made.window[1]:
        raise IncidentError(f"{path}: window: expected its beginning before its end")
    return made


def _one(path: Path, key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise IncidentError(f"{path}: {key} = {value!r}: expected one of {', '.join(allowed)}")
    return str(value)


def _instant(path: Path, value: object) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise IncidentError(f"{path}: {value!r}: expected an instant with its zone")
    return value.timestamp()
