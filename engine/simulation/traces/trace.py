"""What every trace reader gives: arrivals in order of time, and an account of what it left out.

Owns the bounds on lengths, the time window, the counting and the spreading over tenants of rows
that name none; knows no format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.errors import WorkloadError
from engine.simulation.lengths import LONGEST
from engine.simulation.popularity import Zipf, fingerprint
from engine.simulation.workload import Arrival

OVER = ("drop", "cap")
_SHOWN = 3  # bad rows quoted in a report


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a trace is read. Instants are seconds of the trace's own time, from its first row.

    Only rows in [start_s, end_s) are kept, and come `speed` times as fast, from 0 on. Rows longer
    than a bound are dropped or cut to it (`over`). `tenants` and `zipf`: over how many tenants the
    rows of a trace without tenants are spread. `clients`: of ServeGen's, only these. `strict`:
    the first bad row is an error instead of a count.
    """

    start_s: float = 0.0
    end_s: float = float("inf")
    speed: float = 1.0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    over: str = "drop"
    tenants: int = 8
    zipf: float = 1.0
    seed: int = 0
    clients: tuple[int, ...] = ()
    strict: bool = False

    def check(self) -> None:
        """Raises WorkloadError naming the option, its value and what is allowed."""
        for name, good, allowed in (
            ("start_s", self.start_s >= 0, "a number >= 0"),
            ("end_s", self.end_s > self.start_s, f"more than start_s = {self.start_s:g}"),
            ("speed", 0 < self.speed < float("inf"), "a number > 0"),
            ("max_prompt_tokens", _bound(self.max_prompt_tokens), "a whole number >= 1"),
            ("max_output_tokens", _bound(self.max_output_tokens), "a whole number >= 1"),
            ("over", self.over in OVER, f"one of {', '.join(OVER)}"),
            ("tenants", self.tenants >= 1, "a whole number >= 1"),
            ("zipf", self.zipf >= 0, "a number >= 0"),
        ):
            if not good:
                raise WorkloadError(f"trace: {name} = {getattr(self, name)!r}: expected {allowed}")


def _bound(tokens: int | None) -> bool:
    return tokens is None or tokens >= 1


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What became of a trace's rows: read = kept + dropped (by reason) + outside (of the window).

    `notes` say what the reader supplied because the trace does not hold it; `examples` quote the
    first bad rows with file and line.
    """

    format: str
    read: int
    kept: int
    outside: int
    dropped: tuple[tuple[str, int], ...]
    capped_prompts: int
    capped_outputs: int
    notes: tuple[str, ...]
    examples: tuple[str, ...]

    def why_nothing(self) -> str:
        """A sentence, where no row was kept."""
        if not self.read:
            return f"no rows in it: is it a whole trace of format {self.format}?"
        said = f"none of its {self.read:,} rows can be played: dropped {self._gone()}"
        if self.outside:
            said += f", {self.outside:,} outside the window asked for"
        return f"{said}; the first: {self.examples[0]}" if self.examples else said

    def _gone(self) -> str:
        return ", ".join(f"{n:,} {reason}" for reason, n in self.dropped) or "none"

    def lines(self) -> list[str]:
        """For people."""
        out = [
            f"{self.format} trace: {self.read:,} rows read, {self.kept:,} kept, dropped: "
            f"{self._gone()}"
        ]
        if self.outside:
            out.append(f"outside the window: {self.outside:,}")
        if self.capped_prompts or self.capped_outputs:
            out.append(f"cut: {self.capped_prompts:,} prompts, {self.capped_outputs:,} answers")
        return [*out, *self.notes, *self.examples]


class BadRow(Exception):
    """A row that cannot be read: `reason` is what is counted, the message what is quoted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Row:
    """A trace's request before window, bounds and speed. `at_s` counts from the first row."""

    at_s: float
    tenant: str
    prompt_tokens: int
    output_tokens: int
    where: str  # file and line
    prefix: tuple[int, ...] | None = None
    block_tokens: int = 1  # of a prefix block
    # What a published run measured, where the trace holds it; `refused`: the run turned it away.
    ttft_s: float | None = None
    latency_s: float | None = None
    refused: bool = False


class Account:
    """Counts while a trace is read."""

    def __init__(self, options: TraceOptions) -> None:
        self._strict = options.strict
        self.read = self.kept = self.outside = self.capped_prompts = self.capped_outputs = 0
        self.dropped: Counter[str] = Counter()
        self.notes: list[str] = []
        self.examples: list[str] = []
        self.origin_unix_s: float | None = None  # of `at_s` = 0, where the trace says

    def bad(self, row: BadRow) -> None:
        """Count a bad row. Raises WorkloadError when reading strictly."""
        if self._strict:
            raise WorkloadError(str(row))
        self.dropped[row.reason] += 1
        if len(self.examples) < _SHOWN:
            self.examples.append(str(row))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


Reading = Callable[[Account], Iterator[Row]]


class Trace:
    """A trace to iterate over, once or again; each time from the start.

    `report` tells of the latest iteration, as far as it has gone. `tenants` are the names its
    rows may carry.
    """

    def __init__(
        self, form: str, options: TraceOptions, tenants: tuple[str, ...], rows: Reading
    ) -> None:
        self.format = form
        self.options = options
        self.tenants = tenants
        self.source = f"{form} trace"  # as messages name it
        self._rows = rows
        self._account = Account(options)

    @property
    def report(self) -> TraceReport:
        a = self._account
        return TraceReport(
            self.format,
            a.read,
            a.kept,
            a.outside,
            tuple(sorted(a.dropped.items())),
            a.capped_prompts,
            a.capped_outputs,
            tuple(a.notes),
            tuple(a.examples),
        )

    @property
    def origin_unix_s(self) -> float | None:
        """The instant of `at_s` = 0, unix seconds; None where the trace does not say, and before
        its first row is read."""
        return self._account.origin_unix_s

    def __iter__(self) -> Iterator[Arrival]:
        account = self._account = Account(self.options)
        return self._readable(account)

    def rows(self) -> Iterator[Row]:
        """The readable rows as they stand in the file: no window, no bounds, no speed, in the
        file's order. `report` tells of what could not be read. Raises as iterating does."""
        account = self._account = Account(self.options)
        try:
            for row in self._rows(account):
                account.kept += 1
                yield row
        except UnicodeDecodeError:
            raise WorkloadError(f"{self.source}: not UTF-8 text, as {self.format} is") from None

    def _readable(self, account: Account) -> Iterator[Arrival]:
        try:
            yield from self._arrivals(account)
        except UnicodeDecodeError:
            raise WorkloadError(f"{self.source}: not UTF-8 text, as {self.format} is") from None

    def _arrivals(self, account: Account) -> Iterator[Arrival]:
        o, before_s = self.options, 0.0
        cap = o.over == "cap"
        for row in self._rows(account):
            if row.at_s < before_s:
                message = f"{row.where}: {row.at_s:.6f} s comes after {before_s:.6f} s"
                account.bad(BadRow("out of order", message))
                continue
            before_s = row.at_s
            if not o.start_s <= row.at_s < o.end_s:
                account.outside += 1
                continue
            prompt, output, prefix = row.prompt_tokens, row.output_tokens, row.prefix
            long_prompt = o.max_prompt_tokens is not None and prompt > o.max_prompt_tokens
            long_output = o.max_output_tokens is not None and output > o.max_output_tokens
            if (long_prompt or long_output) and not cap:
                account.dropped["prompt too long" if long_prompt else "output too long"] += 1
                continue
            if long_prompt and o.max_prompt_tokens is not None:
                prompt = o.max_prompt_tokens
                if row.prefix is not None:
                    prefix = row.prefix[: -(-prompt // row.block_tokens)]
                account.capped_prompts += 1
            if long_output and o.max_output_tokens is not None:
                output = o.max_output_tokens
                account.capped_outputs += 1
            account.kept += 1
            yield Arrival(
                (row.at_s - o.start_s) / o.speed,
                row.tenant,
                None,
                prompt,
                output,
                fingerprint(f"{o.seed}/{account.kept}") % 2**31,
                prefix,
            )


class Spread:
    """Gives tenants to rows that name none: Zipf shares, by a key, so that the same key (a row's
    number, a conversation) always gets the same one."""

    def __init__(self, options: TraceOptions) -> None:
        self._zipf = Zipf(options.tenants, options.zipf)
        self._seed = options.seed
        self.names = tuple(f"t{i}" for i in range(options.tenants))
        self.note = (
            f"tenants are made up: the trace names none; {options.tenants} by Zipf "
            f"{options.zipf:g}, seed {options.seed}"
        )

    def of(self, key: object) -> str:
        point = fingerprint(f"{self._seed}/spread/{key}") / 2**64
        return self.names[self._zipf.at(min(point, 1 - 2**-53))]


def shown(value: object) -> str:
    """A cell in a message: what somebody else wrote may be as long as a book."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def tokens(text: object, column: str, where: str) -> int:
    """A length as a trace writes it. Raises BadRow unless it is a whole number >= 1."""
    try:
        count = int(text) if isinstance(text, int | str) else None
    except ValueError:
        count = None
    if count is None or isinstance(text, bool):
        raise BadRow("unreadable", f"{where}: {column} = {shown(text)}: expected a whole number")
    if count < 1:
        raise BadRow("no tokens", f"{where}: {column} = {shown(count)}: expected at least 1")
    if count > LONGEST:
        raise BadRow(
            "unreadable", f"{where}: {column} = {shown(count)}: expected at most {LONGEST}"
        )
    return count
