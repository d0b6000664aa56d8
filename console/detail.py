"""A page's own rows: which named questions it asks, and what came back. Opens nothing.

A picture (`console.panels.Snapshot`) is the same for every page; what one page alone needs it asks
for with these, on the feed's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from console.account import REMEMBERED
from telemetry.ask.reading import Result

MOST_ASKS = 12  # of one page
MOST_ROWS = 20_000  # of one answer that is kept; what is beyond is said
Value = str | float | int | bool


class Answers(Protocol):
    """Whatever answers named questions (`console.gather.Asked`, a test's rows)."""

    def query(self, name: str, **parameters: Any) -> Result: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: `name` is what the page calls the answer, `query` a file of
    `telemetry/queries` or `read.<table>`. `start` and `end` (unix seconds) are of no question that
    does not take them."""

    name: str
    query: str
    start: float | None = None
    end: float | None = None
    parameters: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        query: str,
        start: float | None = None,
        end: float | None = None,
        **parameters: Value,
    ) -> Ask:
        return cls(name, query, start, end, tuple(sorted(parameters.items())))

    @property
    def about(self) -> tuple[str, str, tuple[tuple[str, Value], ...]]:
        """The question without its time: answers about the same may stand until the next come."""
        return (self.name, self.query, self.parameters)

    def given(self) -> dict[str, Value]:
        bounds = {"start": self.start, "end": self.end}
        return {**{k: v for k, v in bounds.items() if v is not None}, **dict(self.parameters)}


Asks = tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Detail:
    """The answers to a page's questions. `notes` say what they lack. `trouble`: why there are none
    (or why none are newer), in the words of what refused."""

    asks: Asks = ()
    answers: Mapping[str, Result] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trouble: str | None = None

    @property
    def heard(self) -> bool:
        return bool(self.answers)

    @property
    def until(self) -> float | None:
        """Up to when the rows reach, unix seconds; None where no question has a time."""
        return max((a.end for a in self.asks if a.end is not None), default=None)

    def is_about(self, asks: Asks) -> bool:
        """Whether these answer the same questions, perhaps of another time."""
        return tuple(a.about for a in self.asks) == tuple(a.about for a in asks)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of one answer by column; none where it has not been heard. The same
        list at every draw: whoever changes it copies it."""
        answer = self.answers.get(name)
        return [] if answer is None else REMEMBERED.of(answer, "dicts", answer.dicts)


NOTHING = Detail()


def fetch(source: Answers, asks: Asks) -> Detail:
    """Ask them all, one after the other. Raises whatever the source raises."""
    notes: dict[str, None] = {}
    answers: dict[str, Result] = {}
    for ask in asks[:MOST_ASKS]:
        answer = source.query(ask.query, **ask.given())
        notes.update(dict.fromkeys(answer.partial))
        if len(answer.rows) > MOST_ROWS:
            notes[f"{ask.name}: the first {MOST_ROWS} of {len(answer.rows)} rows"] = None
            answer = Result(answer.columns, answer.rows[:MOST_ROWS], answer.partial)
        answers[ask.name] = answer
    return Detail(asks, answers, tuple(notes))
