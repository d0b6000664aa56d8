"""Puts a log into a store: reads, batches, commits, and leaves nothing half done unsaid.

Owns the run's identity (the file's content) and the order of writing: the run's own row comes
last, so that a run without one was interrupted, and reading it again completes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path

from engine.simulation.store_out import Whole
from postmortem.importers.lacks import Lack, lacks_of
from postmortem.importers.logged import Account, ImportProblem, Logged
from postmortem.importers.minutes import ENGINE, Minutes, Place, coverage, record_of
from postmortem.importers.published import trace_rows, vllm_rows
from postmortem.importers.stamps import Stamps
from postmortem.importers.tabular import rows_of
from telemetry.conventions import Emitter
from telemetry.pipeline.exporter import Inline
from telemetry.records import Batch, EngineRun, LogRow, MinuteRow
from telemetry.source import open_source
from telemetry.store.store import Store

FORMATS = ("azure", "mooncake", "vtc", "vllm-bench", "csv", "jsonl", "parquet")
GENERIC = ("csv", "jsonl", "parquet")
FALLBACK_UNIX_S = 1_767_225_600.0  # 2026-01-01 00:00 UTC: where a log without a date is put
BATCH_ROWS = 4096
MOST_CELLS = 60_000  # tenant-minutes held before they are written as a part of their own
PROGRESS_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Options:
    """How a log is read. `origin` None: stamps that count from 0 are put after FALLBACK_UNIX_S."""

    form: str
    mapping: dict[str, str]
    pool: str = "imported"
    bucket_s: float = 60.0
    slo_ttft_s: float | None = None
    origin: float | None = None
    unit: str | None = None
    zone: tzinfo | None = None
    skip_bad: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one file. `notes` say what was assumed; `examples` quote bad lines."""

    path: str
    run_id: str
    read: int
    kept: int
    bad: int
    first: float
    last: float
    tenants: int
    notes: tuple[str, ...]
    examples: tuple[str, ...]
    lacks: tuple[Lack, ...]


Told = Callable[[str, int], None]  # file, rows so far


class Importing:
    """A context: a store being filled. Left by an error or an interrupt it takes away a folder
    that it made; rows added to a store that was there stay, and the same import completes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._there = folder.exists()
        self._fresh = not self._there or (folder.is_dir() and not any(folder.iterdir()))
        self._known = frozenset() if self._fresh else _runs_of(folder)
        self._read: dict[str, Path] = {}  # of this import, by run
        self._store = Store.open(folder)
        self._inline = Inline(self._store.take)
        self._seq = itertools.count(1)

    @property
    def fresh(self) -> bool:
        """The folder held nothing before."""
        return self._fresh

    def load(self, path: Path, options: Options, told: Told | None = None) -> Imported:
        """Read one file in. Raises ImportProblem: a bad line (unless skipped), a file of another
        form, none of its rows readable, or a run that the store has already."""
        run_id = run_of(path)
        if (twin := self._read.get(run_id)) is not None:
            same = "is named twice" if twin == path else f"holds the same as {twin}"
            raise ImportProblem(f"{path} {same}: its rows would be doubled; leave one out")
        if run_id in self._known:
            raise ImportProblem(
                f"{path}: the store {self._folder} has this very file already, as run {run_id}: "
                "its rows would not be doubled, and are left as they are"
            )
        place = Place(run_id, options.pool, options.bucket_s, options.slo_ttft_s)
        account = Account(options.skip_bad)
        stamps = Stamps(options.unit, options.zone, _origin(options))
        minutes, names = Minutes(place), _Names(path)
        tenants: set[str] = set()
        parts = 0
        logs: list[LogRow] = []
        for row in _rows(path, options, stamps, account):
            account.keep(row)
            tenants.add(row.tenant or "")
            minutes.add(row)
            logs.append(record_of(row, place, names.of(row, account.kept)))
            if len(logs) >= BATCH_ROWS:
                self._send(place, logs=logs)
                logs = []
            if minutes.cells >= MOST_CELLS:
                parts += 1
                self._send_minutes(minutes, place, parts)
            if told is not None and account.kept % PROGRESS_ROWS == 0:
                told(str(path), account.kept)
        if account.first is None or account.last is None:
            raise ImportProblem(_nothing(path, account))
        self._send(place, logs=logs)
        self._send_minutes(minutes, place, parts + 1)
        covered = coverage(minutes.buckets, place)
        for chunk in _chunks(covered.rows):
            self._send(place, minutes=chunk)
        run = EngineRun(
            engine=ENGINE,
            run_id=run_id,
            pool=options.pool,
            started=account.first,
            model=f"imported from {path.name}",
            bucket_s=options.bucket_s,
        )
        self._send(place, logs=[run])
        self._read[run_id] = path
        notes = [*account.notes, *stamps.notes(), *account.clock_notes()]
        if names.again:
            notes.append(f"{names.again:,} request ids came again: '#' and the row follow them")
        if covered.silences:
            notes.append(
                f"{covered.silences:,} silences of over an hour, the longest "
                f"{covered.longest_s / 3600:.1f} h, are kept as unknown, not as idle"
            )
        return Imported(
            str(path), run_id, account.read, account.kept, account.bad, account.first,
            account.last, len(tenants), tuple(notes), tuple(account.examples),
            lacks_of(account, slo=options.slo_ttft_s is not None),
        )  # fmt: skip

    def _send_minutes(self, minutes: Minutes, place: Place, part: int) -> None:
        """Rows of one part. A later part of the same minute goes under a run of its own, and
        adds: that is how runs of one engine add up everywhere."""
        run_id = place.run_id if part == 1 else f"{place.run_id}.{part}"
        for chunk in _chunks(minutes.drain(run_id)):
            self._send(replace(place, run_id=run_id), minutes=chunk)

    def _send(
        self, place: Place, *, logs: list[LogRow] | None = None,
        minutes: list[MinuteRow] | None = None,
    ) -> None:  # fmt: skip
        if not logs and not minutes:
            return
        batch = Batch(
            engine=ENGINE,
            run_id=place.run_id,
            pool=place.pool,
            emitter=Emitter.WORKER,
            sealed=True,
            seq=next(self._seq),
            minutes=tuple(minutes or ()),
            logs=tuple(logs or ()),
        )
        with Whole():
            before = self._store.info().refused_points
            self._inline.submit(batch)
            refused = self._store.info().refused_points - before
        if refused:
            raise ImportProblem(
                f"the store refused {refused} values of {place.run_id}: see the warning above"
            )

    def __enter__(self) -> Importing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with Whole():
                self._store.close_old_days(time.time())
                self._store.close()
            return
        # What closing complains of would hide the error that is on its way.
        with contextlib.suppress(Exception):
            self._store.close()
        if self._fresh:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._there:
                self._folder.mkdir(exist_ok=True)


def run_of(path: Path) -> str:
    """The run a file is imported as: by its content, whatever it is called."""
    if not path.is_file():
        raise ImportProblem(f"{path}: {'a folder' if path.is_dir() else 'no such file'}")
    with path.open("rb") as f:
        return f"import-{hashlib.file_digest(f, 'sha256').hexdigest()[:12]}"


class _Names:
    """Gives each row an id: the log's own, or file and line. One that comes again is marked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[int] = set()  # of hashes: a few tens of bytes an id
        self.again = 0

    def of(self, row: Logged, number: int) -> str:
        if row.request_id is None:
            return f"{self._path.name} row {number}"
        mark = hash(row.request_id)
        if mark in self._seen:
            self.again += 1
            return f"{row.request_id}#{number}"
        self._seen.add(mark)
        return row.request_id


def _rows(path: Path, options: Options, stamps: Stamps, account: Account) -> Iterator[Logged]:
    form = options.form
    if form in GENERIC:
        return rows_of(path, form, options.mapping, stamps, account)
    if form == "vllm-bench":
        return vllm_rows(path, options.origin, account, FALLBACK_UNIX_S)
    return trace_rows(path, form, options.origin, account, FALLBACK_UNIX_S)


def _origin(options: Options) -> float:
    return FALLBACK_UNIX_S if options.origin is None else options.origin


def _nothing(path: Path, account: Account) -> str:
    if not account.read:
        return f"{path}: no rows in it"
    first = f"; the first: {account.examples[0]}" if account.examples else ""
    return f"{path}: none of its {account.read:,} rows can be read{first}"


def _runs_of(folder: Path) -> frozenset[str]:
    """Runs whose import was finished."""
    source = open_source(str(folder))
    try:
        rows = source.read("engine_run", float("-inf"), float("inf"))
        return frozenset(r.run_id for r in rows)
    finally:
        source.close()


def _chunks(rows: object) -> Iterator[list[MinuteRow]]:
    it = iter(rows)  # type: ignore[call-overload]
    while chunk := list(itertools.islice(it, BATCH_ROWS)):
        yield chunk
