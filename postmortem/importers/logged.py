"""One request as somebody else's log tells it, and the account of what was read. Reads no file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

NO_TENANT = "unknown"  # the name that rows of a log without tenants carry
SHOWN = 3  # bad lines quoted at the end


class ImportProblem(Exception):
    """A log, an option or a store that is refused; the message says what to do."""


class BadLine(Exception):
    """A line that cannot be read: the message names file, line and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """A request of a log. None = the log does not say.

    `arrived` is unix seconds, UTC; durations are seconds. `outcome` is one of the vocabulary's, or
    None where the log tells none. `where` is file and line.
    """

    where: str
    arrived: float
    request_id: str | None = None
    tenant: str | None = None
    adapter: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    max_tokens: int | None = None
    ttft_s: float | None = None
    latency_s: float | None = None
    tpot_s: float | None = None
    max_gap_s: float | None = None
    outcome: str | None = None
    reject_reason: str | None = None
    is_retry: bool | None = None

    @property
    def ending(self) -> str | None:
        """The outcome told, or `finished` where an answer's tokens are: a log of answers."""
        if self.outcome is not None:
            return self.outcome
        return "finished" if self.output_tokens else None


# The columns whose absence a reader is told of, in the order of the table at the end.
WATCHED = (
    "tenant",
    "adapter",
    "prompt_tokens",
    "output_tokens",
    "max_tokens",
    "cached_tokens",
    "ttft_s",
    "latency_s",
    "outcome",
    "is_retry",
)


@dataclass(slots=True)
class Account:
    """Counts while a log is read. `skip_bad`: bad lines are counted, else the first one ends it."""

    skip_bad: bool = False
    read: int = 0
    kept: int = 0
    bad: int = 0
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)  # how many rows carry a column
    first: float | None = None
    last: float | None = None
    backwards: int = 0
    backwards_at: str = ""
    before: float | None = None

    def skip(self, line: BadLine) -> None:
        """Count a bad line. Raises ImportProblem unless they are to be skipped."""
        if not self.skip_bad:
            raise ImportProblem(f"{line} (--skip-bad passes over such lines and counts them)")
        self.bad += 1
        if len(self.examples) < SHOWN:
            self.examples.append(str(line))

    def keep(self, row: Logged) -> None:
        """Count a readable row, and whether its clock went back."""
        self.kept += 1
        if self.before is not None and row.arrived < self.before:
            self.backwards += 1
            self.backwards_at = self.backwards_at or row.where
        self.before = row.arrived
        self.first = row.arrived if self.first is None else min(self.first, row.arrived)
        self.last = row.arrived if self.last is None else max(self.last, row.arrived)
        for column in WATCHED:
            if getattr(row, column) is not None:
                self.told[column] += 1

    def note(self, text: str) -> None:
        """Something the reader supplied or assumed, once."""
        if text not in self.notes:
            self.notes.append(text)

    def clock_notes(self) -> list[str]:
        """What is odd about the log's clock."""
        if not self.backwards:
            return []
        return [
            f"the clock goes back {self.backwards:,} times, first at {self.backwards_at}: "
            "rows were put where their stamps say"
        ]


class Reads(Protocol):
    """A log that is read row by row; the account is filled on the way."""

    def __call__(self, account: Account) -> Iterator[Logged]: ...
