"""ServeGen's description of clients (Xiang et al., 2025; Apache-2.0), sampled. Reads only.

A folder holds, for client N, `chunk-N-trace.csv` (no header: window start s, requests/s, CV,
family, two parameters; windows of 600 s) and `chunk-N-dataset.json` (window -> distributions of
lengths, each a *string* of a Python dict). It holds no requests: they are drawn, with a seed.

In a window of a client: rate x 600 s requests (the rates are counts over 600 s); the gaps are of
its family and first parameter (the shape), scaled to fill the window, so that the count is that of
the trace. Lengths are drawn from the latest dataset window that is not empty. A client without a
dataset borrows that of another one that has lengths for most of the time, by its number, and the
report says so.
"""

from __future__ import annotations

import ast
import bisect
import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.errors import WorkloadError
from engine.simulation.popularity import Floats, Ints, generator
from engine.simulation.traces.trace import Account, BadRow, Row, Trace, TraceOptions

WINDOW_S = 600.0
_TRACE = re.compile(r"chunk-(\d+)-trace\.csv")
_DATASET = re.compile(r"chunk-(\d+)-dataset\.json")
_MOST_PER_S = 10_000.0  # beyond it a row is taken for damage, not for load


@dataclass(frozen=True, slots=True)
class _Window:
    """How often a client asked, and with what gaps, in one window."""

    start_s: float
    count: int
    family: str
    shape: float


@dataclass(frozen=True, slots=True)
class _Lengths:
    """A distribution: `values` with the running sum of their shares."""

    values: Ints
    upto: Floats

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        at = np.searchsorted(self.upto, rng.random(n) * self.upto[-1], side="right")
        drawn: Ints = self.values[np.minimum(at, len(self.values) - 1)]
        return drawn


@dataclass(frozen=True, slots=True)
class _Dataset:
    """Distributions by window start, empty windows left out."""

    starts_s: tuple[float, ...]
    prompts: tuple[_Lengths, ...]
    outputs: tuple[_Lengths, ...]

    def at(self, at_s: float) -> tuple[_Lengths, _Lengths]:
        """Those in force; before the first, the first."""
        i = max(0, bisect.bisect_right(self.starts_s, at_s) - 1)
        return self.prompts[i], self.outputs[i]


def servegen(path: Path, options: TraceOptions) -> Trace:
    """Raises WorkloadError when the folder lacks the clients asked for, or all datasets."""
    traces = _numbered(path, _TRACE)
    datasets = {n: d for n, f in _numbered(path, _DATASET).items() if (d := _dataset(f))}
    wanted = options.clients or tuple(sorted(traces))
    missing = [n for n in wanted if n not in traces]
    if missing or not wanted:
        raise WorkloadError(
            f"{path}: no chunk-{missing[0] if missing else 'N'}-trace.csv; "
            f"clients with a trace: {', '.join(map(str, sorted(traces))) or 'none'}"
        )
    if not datasets:
        raise WorkloadError(f"{path}: no chunk-N-dataset.json with a length in it")

    def rows(account: Account) -> Iterator[Row]:
        account.note(f"requests are drawn from ServeGen's clients with seed {options.seed}")
        # Lenders are those who have lengths for a good part of the time.
        fullest = max(len(d.starts_s) for d in datasets.values())
        having = sorted(n for n, d in datasets.items() if 2 * len(d.starts_s) >= fullest)
        borrowed = [n for n in wanted if n not in datasets]
        of = {n: datasets[n if n in datasets else having[n % len(having)]] for n in wanted}
        if borrowed:
            account.note(
                "clients without lengths of their own borrow another's: "
                + ", ".join(f"{n} from {having[n % len(having)]}" for n in borrowed)
            )
        windows: dict[float, list[tuple[int, _Window]]] = {}
        for n in wanted:
            for w in _windows(traces[n], account):
                if w.start_s < options.end_s and w.start_s + WINDOW_S > options.start_s:
                    windows.setdefault(w.start_s, []).append((n, w))
        for start_s in sorted(windows):
            yield from _drawn(windows[start_s], of, options.seed, account)

    return Trace("servegen", options, tuple(f"client-{n}" for n in wanted), rows)


def _drawn(
    clients: list[tuple[int, _Window]], of: dict[int, _Dataset], seed: int, account: Account
) -> Iterator[Row]:
    """One window's requests of all clients, in order of time."""
    columns: list[tuple[Floats, Ints, Ints, Ints]] = []
    for n, w in clients:
        # The generator is the window's own: which other clients and windows are read is no matter.
        rng = generator(seed, "servegen", n, w.start_s)
        gaps = (
            rng.standard_gamma(w.shape, w.count + 1)
            if w.family == "Gamma"
            else rng.weibull(w.shape, w.count + 1)
        )
        upto = np.cumsum(gaps)
        if not 0 < upto[-1] < np.inf:  # of gaps so uneven that all vanish, or one is everything
            upto = np.arange(1.0, w.count + 2)
        at = w.start_s + WINDOW_S * upto[:-1] / upto[-1]
        prompts, outputs = of[n].at(w.start_s)
        who = np.full(w.count, n, dtype=np.int64)
        columns.append((at, who, prompts.draw(rng, w.count), outputs.draw(rng, w.count)))
    at, who, prompt, output = (np.concatenate(c) for c in zip(*columns, strict=True))
    names = {n: (f"client-{n}", f"chunk-{n}-trace.csv") for n, _ in clients}
    order = np.argsort(at, kind="stable")
    for at_s, n, p, o in zip(*(c[order].tolist() for c in (at, who, prompt, output)), strict=True):
        account.read += 1
        tenant, where = names[n]
        yield Row(at_s, tenant, p, o, where)


def _numbered(folder: Path, form: re.Pattern[str]) -> dict[int, Path]:
    if not folder.is_dir():
        raise WorkloadError(f"{folder}: expected a folder of chunk-N-trace.csv files")
    return {int(m[1]): p for p in folder.iterdir() if (m := form.fullmatch(p.name))}


def _windows(path: Path, account: Account) -> Iterator[_Window]:
    with path.open(encoding="utf-8", newline="") as f:
        for number, cells in enumerate(_cells(csv.reader(f), path), 1):
            try:
                window = _window(cells, f"{path}: line {number}")
            except BadRow as bad:
                account.read += 1
                account.bad(bad)
                continue
            if window.count:
                yield window


def _cells(rows: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as e:
        raise WorkloadError(f"{path}: no CSV: {e}") from None


def _window(cells: list[str], where: str) -> _Window:
    if len(cells) != 6:
        raise BadRow("unreadable window", f"{where}: {len(cells)} columns: expected 6")
    start, rate, family, shape = cells[0], cells[1], cells[3], cells[4]
    try:
        start_s, per_s, shape_value = float(start), float(rate), float(shape)
    except ValueError as e:
        raise BadRow("unreadable window", f"{where}: {e}") from None
    if not (0 <= start_s < 1e12 and 0 <= per_s <= _MOST_PER_S):
        raise BadRow("unreadable window", f"{where}: start {start}, rate {rate}: out of range")
    count = round(per_s * WINDOW_S)
    if count and (family not in ("Gamma", "Weibull") or not 0.01 <= shape_value < 1e6):
        raise BadRow(
            "unreadable window",
            f"{where}: family {family!r}, shape {shape}: expected Gamma or Weibull, shape >= 0.01",
        )
    return _Window(start_s, count, family, shape_value)


def _dataset(path: Path) -> _Dataset | None:
    """None when no window holds a length."""
    try:
        windows = json.loads(path.read_text(encoding="utf-8"))
        found = sorted(
            (float(start), _lengths(w["input_tokens"]), _lengths(w["output_tokens"]))
            for start, w in windows.items()
            if w["input_tokens"] != "{}" and w["output_tokens"] != "{}"
        )
    except (
        ValueError, KeyError, TypeError, AttributeError, SyntaxError, RecursionError, OverflowError
    ) as e:  # fmt: skip
        raise WorkloadError(
            f"{path}: expected windows of input_tokens and output_tokens, each a dict of "
            f"length -> share written as text: {e}"
        ) from None
    if not found:
        return None
    starts, prompts, outputs = zip(*found, strict=True)
    return _Dataset(starts, prompts, outputs)


def _lengths(text: str) -> _Lengths:
    """Raises ValueError. `literal_eval` takes literals only: nothing in the file is run."""
    shares = ast.literal_eval(text)
    if not isinstance(shares, dict) or not shares:
        raise ValueError(f"{text[:40]!r} is no dict of lengths")
    for length, share in shares.items():
        # A length of 0 stands for an answer that was cut off: it took one token at least.
        if type(length) is not int or length < 0 or not 0 < share <= 1:
            raise ValueError(f"length {length!r} with share {share!r}")
    values = np.maximum(np.array(list(shares), dtype=np.int64), 1)
    return _Lengths(values, np.cumsum(np.array(list(shares.values()), dtype=np.float64)))
