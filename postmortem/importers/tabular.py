"""Generic logs: CSV, JSON lines and Parquet, row by row in bounded memory. Reads only.

Owns the files' forms and what a cell means; which column is what is `mapping`'s.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from postmortem.importers.logged import Account, BadLine, ImportProblem, Logged
from postmortem.importers.mapping import resolve
from postmortem.importers.stamps import Stamps
from telemetry.conventions import OUTCOMES, REJECT_REASONS
from telemetry.otlp.read import LONGEST_NAME

Cells = Mapping[str, Any]
_ABSENT = ("", "null", "none", "nan", "-", "n/a")
_YES, _NO = ("true", "1", "yes", "t"), ("false", "0", "no", "f")
MOST_TOKENS = 10**9
LONGEST_S = 366 * 86_400.0
_PARQUET_ROWS = 2048
_HEAD_ROWS = 200
_LONGEST_CELL = 1 << 20
_WORDS = {
    "success": "finished", "succeeded": "finished", "ok": "finished", "completed": "finished",
    "stop": "finished", "length": "finished", "cancelled": "aborted", "canceled": "aborted",
    "abort": "aborted", "error": "failed", "failure": "failed", "timeout": "timed_out",
    "ratelimited": "rejected", "rate_limited": "rejected", "throttled": "rejected",
}  # fmt: skip


def rows_of(
    path: Path, form: str, given: Mapping[str, str], stamps: Stamps, account: Account
) -> Iterator[Logged]:
    """The rows of one file. Raises ImportProblem for a file that is not of the form, a column that
    is not there, and the first bad line unless the account skips them."""
    cells = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}[form](path, account)
    # Of JSON lines a key may be missing in the first ones: a few hundred say which there are.
    head = list(itertools.islice(cells, _HEAD_ROWS if form == "jsonl" else 1))
    if not head:
        return
    columns = resolve(given, list(dict.fromkeys(k for _, row in head for k in row)), str(path))
    for where, row in itertools.chain(head, cells):
        account.read += 1
        try:
            yield _logged(row, columns, where, stamps)
        except BadLine as bad:
            account.skip(bad)


def _csv(path: Path, account: Account) -> Iterator[tuple[str, Cells]]:
    csv.field_size_limit(_LONGEST_CELL)
    with _opened(path) as f:
        reader = csv.reader(f)
        try:
            header = [c.strip() for c in next(reader, [])]
            if not header:
                raise ImportProblem(f"{path}: empty: expected a line of column names")
            if len(set(header)) < len(header):
                twice = next(c for c in header if header.count(c) > 1)
                raise ImportProblem(f"{path}: line 1: two columns are called {twice!r}")
            for line in reader:
                if not line:
                    continue
                where = f"{path}:{reader.line_num}"
                if len(line) != len(header):
                    account.read += 1
                    account.skip(BadLine(
                        f"{where}: {len(line)} cells, expected {len(header)}: {_shown(line)}"
                    ))  # fmt: skip
                    continue
                yield where, dict(zip(header, line, strict=True))
        except csv.Error as e:
            raise ImportProblem(f"{path}:{reader.line_num}: no CSV: {e}") from None
        except UnicodeDecodeError as e:
            raise ImportProblem(f"{path}: not UTF-8 text: {e.reason}") from None


def _jsonl(path: Path, account: Account) -> Iterator[tuple[str, Cells]]:
    with _opened(path) as f:
        try:
            for number, line in enumerate(f, 1):
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as e:
                    account.read += 1
                    account.skip(BadLine(f"{where}: no JSON: {e}: {_shown(line.strip())}"))
                    continue
                if not isinstance(row, dict):
                    account.read += 1
                    account.skip(BadLine(f"{where}: expected an object: {_shown(line.strip())}"))
                    continue
                yield where, row
        except UnicodeDecodeError as e:
            raise ImportProblem(f"{path}: not UTF-8 text: {e.reason}") from None


def _parquet(path: Path, account: Account) -> Iterator[tuple[str, Cells]]:
    import duckdb

    with duckdb.connect(config={"threads": 2}) as con:
        try:
            relation = con.read_parquet(str(path))
            # Instants with a zone come as text, offset included: as values they would need a
            # library that is not at hand.
            zoned = [str(t).upper() == "TIMESTAMP WITH TIME ZONE" for t in relation.types]
            names = list(relation.columns)
            columns = [
                duckdb.ColumnExpression(n).cast("VARCHAR").alias(n)
                if z
                else duckdb.ColumnExpression(n)
                for n, z in zip(names, zoned, strict=True)
            ]
            # Run once as a query: a relation would be run again for each piece of it.
            found = con.execute(relation.select(*columns).sql_query())
            number = 0
            while rows := found.fetchmany(_PARQUET_ROWS):
                for row in rows:
                    number += 1
                    yield f"{path}: row {number}", dict(zip(names, row, strict=True))
        except duckdb.Error as e:
            said = str(e).splitlines()[0]
            raise ImportProblem(f"{path}: cannot be read as Parquet: {said}") from None


def _opened(path: Path) -> Any:
    return path.open(encoding="utf-8-sig", newline="")


def _logged(row: Cells, columns: Mapping[str, str], where: str, stamps: Stamps) -> Logged:
    """One row by its columns. Raises BadLine naming line, column and value."""
    raw = {target: row.get(column) for target, column in columns.items()}
    cell = _Row(raw, columns, where)
    arrived = stamps.read(raw["arrived"], where)
    outcome, reason = cell.outcome()
    latency_s = cell.seconds("latency")
    if latency_s is None and not _absent(raw.get("ended")):
        latency_s = stamps.read(raw["ended"], where) - arrived
        if latency_s < 0:
            raise BadLine(f"{where}: ended {raw['ended']!r} lies before its arrival")
    ttft_s = cell.seconds("ttft")
    if ttft_s is not None and latency_s is not None and ttft_s > latency_s + 1e-6:
        raise BadLine(
            f"{where}: time to the first token {ttft_s:g} s is longer than the whole "
            f"{latency_s:g} s: are both in the unit they are mapped as?"
        )
    return Logged(
        where=where,
        arrived=arrived,
        request_id=cell.text("request_id"),
        tenant=cell.text("tenant"),
        adapter=cell.text("adapter"),
        prompt_tokens=cell.tokens("prompt_tokens"),
        cached_tokens=cell.tokens("cached_tokens"),
        output_tokens=cell.tokens("output_tokens"),
        max_tokens=cell.tokens("max_tokens"),
        ttft_s=ttft_s,
        latency_s=latency_s,
        outcome=outcome,
        reject_reason=cell.reason() or reason,
        is_retry=cell.flag("is_retry"),
    )


class _Row:
    """The mapped cells of one row, read as what they are mapped to."""

    def __init__(self, raw: Cells, columns: Mapping[str, str], where: str) -> None:
        self._raw = raw
        self._columns = columns
        self._where = where

    def text(self, target: str) -> str | None:
        value = self._raw.get(target)
        if _absent(value):
            return None
        name = str(value).strip()
        if len(name) > LONGEST_NAME:
            raise self._bad(target, name, f"expected a name of at most {LONGEST_NAME:,} characters")
        return name

    def tokens(self, target: str) -> int | None:
        value = self._raw.get(target)
        if _absent(value) or value == -1 or value == "-1":  # written where nothing was measured
            return None
        number = self._number(target, value)
        if number != int(number) or not 0 <= number <= MOST_TOKENS:
            raise self._bad(target, value, f"expected a whole number, 0 to {MOST_TOKENS:,}")
        return int(number)

    def seconds(self, what: str) -> float | None:
        for unit, per_s in (("s", 1.0), ("ms", 1000.0)):
            target = f"{what}_{unit}"
            value = self._raw.get(target)
            if _absent(value) or value == -1 or value in ("-1", "-1.0"):
                continue
            number = self._number(target, value) / per_s
            if not 0 <= number <= LONGEST_S:
                raise self._bad(target, value, "expected a duration, 0 or more")
            return number
        return None

    def flag(self, target: str) -> bool | None:
        value = self._raw.get(target)
        if _absent(value):
            return None
        word = str(value).strip().lower()
        if word not in (*_YES, *_NO):
            raise self._bad(target, value, "expected true or false")
        return word in _YES

    def reason(self) -> str | None:
        value = self.text("reject_reason")
        if value is not None and value not in REJECT_REASONS:
            raise self._bad("reject_reason", value, f"expected {', '.join(REJECT_REASONS)}")
        return value

    def outcome(self) -> tuple[str | None, str | None]:
        """(outcome, why it was rejected). An HTTP status tells both, but 429 not by which limit."""
        word = self.text("outcome")
        if word is None:
            return None, None
        low = word.lower().replace("-", "_")
        if low in OUTCOMES:
            return low, None
        if low in _WORDS:
            return _WORDS[low], None
        if low.isdigit() and 100 <= int(low) < 600:
            return _of_status(int(low))
        raise self._bad("outcome", word, f"expected {', '.join(OUTCOMES)}, or an HTTP status")

    def _number(self, target: str, value: object) -> float:
        try:
            number = float(value) if not isinstance(value, bool) else math.nan  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):  # a whole number may be past every float
            number = math.nan
        if not math.isfinite(number):
            raise self._bad(target, value, "expected a number")
        return number

    def _bad(self, target: str, value: object, expected: str) -> BadLine:
        column = self._columns[target]
        return BadLine(f"{self._where}: {column} = {_shown(value)}: {expected}")


def _of_status(status: int) -> tuple[str, str | None]:
    if status == 429:
        return "rejected", None
    if status in (400, 413, 422):
        return "rejected", "impossible"
    if status == 499:
        return "aborted", None
    if status in (408, 504):
        return "timed_out", None
    return ("finished" if 200 <= status < 400 else "failed"), None


def _absent(value: object) -> bool:
    if isinstance(value, float) and math.isnan(value):
        return True
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text[:60] + ("..." if len(text) > 60 else ""))
