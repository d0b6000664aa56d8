"""From logged requests to rows: request records and tenant-minutes of what a log can tell.

Owns which minute a number belongs to and which columns stay absent; knows no file and no store.
A column that a log cannot fill is None, in every minute: nothing here writes a 0 that nobody
counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from postmortem.importers.logged import NO_TENANT, Logged
from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.records import EngineMinute, RequestRecord, TenantMinute

ENGINE = "import"
BRIDGED = 60  # buckets without a request that are still taken for idle ones
PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 2  # service, as everywhere


@dataclass(slots=True)
class _Cell:
    """What one tenant did in one bucket, as far as the log tells."""

    counts: dict[str, int] = field(default_factory=dict)
    hists: dict[str, list[int]] = field(default_factory=dict)

    def add(self, column: str, n: int = 1) -> None:
        self.counts[column] = self.counts.get(column, 0) + n

    def time(self, column: str, seconds: float) -> None:
        hist = self.hists.setdefault(column, [0] * (len(LATENCY_BOUNDS_S) + 1))
        hist[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where imported rows belong. `slo_ttft_s` None: nobody was promised anything."""

    run_id: str
    pool: str
    bucket_s: float
    slo_ttft_s: float | None = None


def record_of(row: Logged, place: Place, request_id: str) -> RequestRecord:
    """The request's row; what the log does not say is absent."""
    ending = row.ending
    ttft_s = row.ttft_s
    first = None if ttft_s is None else row.arrived + ttft_s
    ended = None if row.latency_s is None else row.arrived + row.latency_s
    answered = ending == "finished" and bool(row.output_tokens)
    last = ended if answered else None
    met, missed = _judged(row, place)
    return RequestRecord(
        engine=ENGINE,
        run_id=place.run_id,
        pool=place.pool,
        request_id=request_id,
        tenant=row.tenant or NO_TENANT,
        adapter=row.adapter,
        outcome=ending or "unknown",
        reject_reason=row.reject_reason,
        is_retry=row.is_retry,
        arrived=row.arrived,
        first_token=first,
        last_token=last,
        ended=ended,
        prompt_tokens=row.prompt_tokens,
        max_tokens=row.max_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
        ttft_s=ttft_s,
        tpot_s=_tpot_s(row),
        max_gap_s=row.max_gap_s,
        slo_met=met,
        missed_ttft=missed,
    )


def _tpot_s(row: Logged) -> float | None:
    if row.tpot_s is not None:
        return row.tpot_s
    if row.ttft_s is None or row.latency_s is None or row.ending != "finished":
        return None
    if row.output_tokens is None or row.output_tokens < 2:
        return None
    return max(0.0, row.latency_s - row.ttft_s) / (row.output_tokens - 1)


def _judged(row: Logged, place: Place) -> tuple[bool | None, bool | None]:
    """(met, missed its TTFT target); None where the log cannot say. A failure is a miss, an answer
    without a TTFT is neither."""
    if place.slo_ttft_s is None or row.ending == "rejected":
        return None, None
    if row.ending in ("failed", "timed_out"):
        return False, None
    if row.ttft_s is None:
        return None, None
    missed = row.ttft_s > place.slo_ttft_s
    if row.ending == "aborted" and not missed:
        return None, False
    return not missed, missed


class Minutes:
    """Adds requests up by bucket and tenant. `cells` is what is held; `drain` hands it over."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._cells: dict[float, dict[str, _Cell]] = {}
        self.cells = 0
        self.buckets: set[float] = set()  # every one in which something happened

    def add(self, row: Logged) -> None:
        """Count a request in the minutes of its arrival, its first token and its end."""
        at, place = row.arrived, self._place
        tenant = row.tenant or NO_TENANT
        here = self._cell(at, tenant)
        ending = row.ending
        asked = None
        if row.prompt_tokens is not None and row.max_tokens is not None:
            asked = row.prompt_tokens + row.max_tokens
        here.add("offered_requests")
        if asked is not None:
            here.add("offered_tokens", asked)
        if row.is_retry is not None:
            here.add("offered_retries", int(row.is_retry))
        if ending == "rejected":
            if row.reject_reason is not None:
                here.add(f"rejected_{row.reject_reason}_requests")
                if asked is not None:
                    here.add(f"rejected_{row.reject_reason}_tokens", asked)
            return
        if ending is not None:
            here.add("admitted_requests")
            if asked is not None:
                here.add("admitted_tokens", asked)
        first = at if row.ttft_s is None else at + row.ttft_s
        end = first if row.latency_s is None else at + row.latency_s
        self._tokens(row, tenant, first, end)
        if row.ttft_s is not None:
            self._cell(first, tenant).time("ttft", row.ttft_s)
        last = self._cell(end, tenant)
        if ending is not None:
            last.add(ending)
        if (tpot_s := _tpot_s(row)) is not None:
            last.time("tpot", tpot_s)
        if row.max_gap_s is not None:
            last.time("max_gap", row.max_gap_s)
        if place.slo_ttft_s is not None:
            self._verdict(row, tenant, end)

    def _tokens(self, row: Logged, tenant: str, first: float, end: float) -> None:
        computed = row.prompt_tokens
        if computed is not None and row.cached_tokens is not None:
            self._cell(first, tenant).add("cached_tokens", row.cached_tokens)
            computed = max(0, computed - row.cached_tokens)
        if computed is not None:
            self._cell(first, tenant).add("prompt_tokens", computed)
        if row.output_tokens is not None:
            self._cell(end, tenant).add("output_tokens", row.output_tokens)

    def _verdict(self, row: Logged, tenant: str, end: float) -> None:
        met, missed_ttft = _judged(row, self._place)
        target_s = self._place.slo_ttft_s
        if met is None or target_s is None:
            return
        # A miss is booked in the minute its target is passed, a target met when it ends.
        at = row.arrived + target_s if missed_ttft else end
        cell = self._cell(at, tenant)
        cell.add("slo_eligible")
        cell.add("slo_met", int(met))
        cell.add("slo_missed", int(not met))
        cell.add("slo_missed_ttft", int(bool(missed_ttft)))
        if met and row.output_tokens is not None:
            cell.add("goodput_tokens", row.output_tokens)

    def _cell(self, at: float, tenant: str) -> _Cell:
        start = at // self._place.bucket_s * self._place.bucket_s
        self.buckets.add(start)
        tenants = self._cells.setdefault(start, {})
        cell = tenants.get(tenant)
        if cell is None:
            cell = tenants[tenant] = _Cell()
            self.cells += 1
        return cell

    def drain(self, run_id: str) -> Iterator[TenantMinute]:
        """The rows held, by bucket; they are gone from here then."""
        cells, self._cells, self.cells = self._cells, {}, 0
        place = self._place
        for start in sorted(cells):
            for tenant, cell in sorted(cells[start].items()):
                yield TenantMinute(
                    bucket_start=start,
                    bucket_s=place.bucket_s,
                    engine=ENGINE,
                    run_id=run_id,
                    pool=place.pool,
                    tenant=tenant,
                    service=_service(cell),
                    observed_seconds=place.bucket_s,
                    **cell.counts,  # type: ignore[arg-type]
                    **{k: tuple(v) for k, v in cell.hists.items()},  # type: ignore[arg-type]
                )


def _service(cell: _Cell) -> float | None:
    prompt, output = cell.counts.get("prompt_tokens"), cell.counts.get("output_tokens")
    if prompt is None and output is None:
        return None
    return float(PROMPT_WEIGHT * (prompt or 0) + OUTPUT_WEIGHT * (output or 0))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The buckets a log vouches for, and the silences too long to be called idle."""

    rows: tuple[EngineMinute, ...]
    silences: int
    longest_s: float


def coverage(buckets: set[float], place: Place) -> Coverage:
    """Engine-minutes that say nothing but "covered". Between two requests at most BRIDGED buckets
    apart nobody asked; a longer silence may be a cut in the log, and stays unknown."""
    rows: list[EngineMinute] = []
    silences, longest_s, before = 0, 0.0, None
    for start in sorted(buckets):
        at = start if before is None else before + place.bucket_s
        if before is not None and (start - at) / place.bucket_s > BRIDGED:
            silences += 1
            longest_s = max(longest_s, start - at)
            at = start
        while at <= start:
            rows.append(_covered(at, place))
            at += place.bucket_s
        before = start
    return Coverage(tuple(rows), silences, longest_s)


def _covered(start: float, place: Place) -> EngineMinute:
    return EngineMinute(
        bucket_start=start,
        bucket_s=place.bucket_s,
        engine=ENGINE,
        run_id=place.run_id,
        pool=place.pool,
        observed_seconds=place.bucket_s,
    )
