"""Prometheus exposition: a `Counting` as metric families. Owns the shape; counts nothing.

A collector of prometheus_client, so that both text formats are theirs. OpenMetrics carries the
exemplars. Histograms have buckets and no sum: none is measured, and a made-up one would be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as PrometheusExemplar
from prometheus_client.samples import Sample

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.prometheus import exposed
from telemetry.prometheus.counting import Counting, Exemplar, Levels, Look
from telemetry.prometheus.exposed import Family
from telemetry.prometheus.running import Labels, Matrix

if TYPE_CHECKING:
    from telemetry.alerts import Alerts, AlertStats
    from telemetry.outbound.outbound import Outbound, OutboundStats

# The official parser of OpenMetrics fails at escapes inside an exemplar, though they are legal: one
# such request id would cost the whole scrape.
_ESCAPED = frozenset('"\\\n')
_BOUNDS = (*(str(float(b)) for b in LATENCY_BOUNDS_S), "+Inf")


class TenantscopeCollector(Collector):
    """All that a process has heard, at each scrape. A scrape costs by the series, and those are
    bounded, whatever the number of tenants."""

    def __init__(
        self,
        counting: Counting,
        clock: Callable[[], float] = time.time,
        exports: Outbound | None = None,
        alerts: Alerts | None = None,
    ) -> None:
        self._counting = counting
        self._clock = clock
        self._exports = exports
        self._alerts = alerts

    def describe(self) -> list[Metric]:
        """Every family, without samples."""
        return [_metric(f, ()) for f in exposed.families()]

    def collect(self) -> Iterator[Metric]:
        look = self._counting.look(self._clock())
        tenants, engines = self._counting.tenants, self._counting.engines
        yield from _table("tenant_minute", look.tenants, tenants.at, look.tenant_levels, look)
        yield from _table("engine_minute", look.engines, engines.at, look.engine_levels, look)
        yield from _table("interference_minute", look.charges, {"charged_s": slice(0, 1)}, [], look)
        yield from _own(look)
        yield from _exported(self._exports.stats() if self._exports is not None else None)
        yield from _alerted(self._alerts.stats() if self._alerts is not None else None)


def registry_of(
    counting: Counting,
    clock: Callable[[], float] = time.time,
    exports: Outbound | None = None,
    alerts: Alerts | None = None,
) -> CollectorRegistry:
    """A registry of its own: nothing that else runs in the process is exposed with it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(TenantscopeCollector(counting, clock, exports, alerts))
    return registry


def _table(
    table: str,
    totals: tuple[list[Labels], Matrix],
    at: dict[str, slice],
    levels: Levels,
    look: Look,
) -> Iterator[Metric]:
    labels, shown = totals
    for family in exposed.families_of(table):
        column = family.column
        assert column is not None  # families_of has one for each
        named = [dict(zip(family.labels, one, strict=True)) for one in labels]
        if family.type == "gauge":
            yield _metric(
                family,
                [
                    Sample(
                        family.name, dict(zip(family.labels, one, strict=True)), have[column.name]
                    )
                    for one, have in levels
                    if column.name in have
                ],
            )
            continue
        numbers = shown[:, at[column.name]]
        if family.type == "counter":
            name = f"{family.name}_total"
            yield _metric(
                family,
                [Sample(name, d, v) for d, v in zip(named, numbers[:, 0].tolist(), strict=True)],
            )
            continue
        samples: list[Sample] = []
        for one, its, counts in zip(labels, named, numbers.cumsum(axis=1).tolist(), strict=True):
            if counts[-1]:
                samples += _buckets(family, its, counts, look.exemplars.get((one, column.name)))
        yield _metric(family, samples)


def _buckets(
    family: Family,
    labels: dict[str, str],
    counts: Sequence[float],
    exemplars: list[Exemplar | None] | None,
) -> list[Sample]:
    """Cumulative counts; an exemplar only where the bucket has something of its own."""
    name, before, samples = f"{family.name}_bucket", 0.0, []
    for i, (bound, count) in enumerate(zip(_BOUNDS, counts, strict=True)):
        found = exemplars[i] if exemplars is not None and count > before else None
        shown = None
        if found is not None and _ESCAPED.isdisjoint(found.request_id):
            shown = PrometheusExemplar(
                {"request_id": found.request_id}, found.value_s, found.at_unix_s
            )
        samples.append(Sample(name, {**labels, "le": bound}, count, None, shown))
        before = count
    return samples


def _own(look: Look) -> Iterator[Metric]:
    for family, which in ((exposed.HEARD, 0), (exposed.BUCKET_END, 1)):
        yield _metric(
            family,
            [
                Sample(family.name, dict(zip(family.labels, labels, strict=True)), instants[which])
                for labels, instants in look.heard.items()
            ],
        )
    for family, value in (
        (exposed.STARTED, look.started_unix_s),
        (exposed.LAST_INGEST, look.last_ingest_unix_s),
        (exposed.BATCHES, look.batches),
        (exposed.ROWS, look.rows),
        (exposed.REFUSED, look.refused),
        (exposed.LATE, look.uncounted),
        (exposed.NAMED, look.named),
        (exposed.UNNAMED, look.left_out),
    ):
        yield _metric(family, [Sample(family.sample, {}, float(value))])


def _exported(stats: OutboundStats | None) -> Iterator[Metric]:
    lanes = stats.lanes if stats is not None else ()
    of = [{"endpoint": lane.endpoint, "signal": lane.signal} for lane in lanes]

    def each(family: Family, values: Iterable[float]) -> Metric:
        return _metric(
            family,
            [Sample(family.sample, one, float(v)) for one, v in zip(of, values, strict=True)],
        )

    yield each(exposed.EXPORT_SENT, (lane.sent for lane in lanes))
    yield each(exposed.EXPORT_WAITING, (lane.waiting for lane in lanes))
    yield each(exposed.EXPORT_RETRIES, (lane.retries for lane in lanes))
    yield _metric(
        exposed.EXPORT_DROPPED,
        [
            Sample(exposed.EXPORT_DROPPED.sample, {**one, "reason": why}, float(count))
            for one, lane in zip(of, lanes, strict=True)
            for why, count in lane.dropped.items()
        ],
    )
    yield _metric(
        exposed.TRACES_LEFT_OUT,
        [
            Sample(exposed.TRACES_LEFT_OUT.sample, {"reason": why}, float(count))
            for why, count in (stats.left_out if stats is not None else {}).items()
        ],
    )
    yield _metric(
        exposed.EXPORT_OVERRUN,
        []
        if stats is None
        else [Sample(exposed.EXPORT_OVERRUN.sample, {}, float(stats.overrun + stats.late))],
    )


def _alerted(stats: AlertStats | None) -> Iterator[Metric]:
    if stats is None:
        yield from (_metric(family, ()) for family in exposed.ALERTS)
        return
    targets = [({"target": t.target, "kind": t.kind}, t) for t in stats.targets]
    yield _metric(
        exposed.INCIDENTS,
        [
            Sample(exposed.INCIDENTS.sample, {"severity": severity}, float(count))
            for severity, count in stats.open.items()
        ],
    )
    for family, value in (
        (exposed.SILENCED, stats.silenced),
        (exposed.LOOKS, stats.looks),
        (exposed.LOOK_FAILURES, stats.failures),
        (exposed.LOOK_TIME, stats.last_look_s),
    ):
        yield _metric(family, [Sample(family.sample, {}, float(value))])
    yield _metric(
        exposed.TOLD,
        [
            Sample(exposed.TOLD.sample, {**of, "outcome": outcome}, float(count))
            for of, t in targets
            for outcome, count in (
                ("delivered", t.delivered),
                ("failed", t.failed),
                ("dropped", t.dropped),
            )
        ],
    )
    yield _metric(
        exposed.UNTOLD, [Sample(exposed.UNTOLD.sample, of, float(t.queued)) for of, t in targets]
    )


def _metric(family: Family, samples: Sequence[Sample]) -> Metric:
    metric = Metric(family.name, family.help, family.type, family.unit)
    metric.samples = list(samples)
    return metric
