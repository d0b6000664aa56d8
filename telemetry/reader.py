"""What every source of stored rows answers, in terms of one question: `run`. Opens nothing."""

from __future__ import annotations

from typing import Any, Protocol

from telemetry.ask import reading
from telemetry.ask.reading import READ, Result


class Source(Protocol):
    """Anything that can be asked for stored rows. Instants are unix seconds."""

    def read(self, table: str, start: float, end: float) -> list[Any]:
        """Rows of a table as its dataclass, in order of time: minute rows whose bucket starts in
        [start, end), requests that arrived in it, events, policies and steps at an instant in it;
        all rows of `engine_run` and `adapter`. Infinite bounds are allowed.

        Raises QueryError for an unknown table; StoreError when there is no answer to be had.
        """
        ...

    def query(self, name: str, **parameters: Any) -> Result:
        """The answer of `telemetry/queries/<name>.sql`. Raises QueryError, StoreError."""
        ...

    def span(self) -> tuple[float, float] | None:
        """Start of the first bucket and end of the last one; None when there is none."""
        ...

    def close(self) -> None: ...


class Reader:
    """The questions, in terms of one: `run`."""

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        raise TypeError("a source says how it runs a question")

    def read(self, table: str, start: float, end: float) -> list[Any]:
        return reading.to_rows(table, self.run(READ + table, {"start": start, "end": end}))

    def query(self, name: str, **parameters: Any) -> Result:
        return self.run(name, parameters)

    def span(self) -> tuple[float, float] | None:
        [(first, last)] = self.run("span", {}).rows
        return None if first is None else (first, last)

    def close(self) -> None:
        """Nothing is held."""
