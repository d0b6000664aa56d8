"""docs/metrics.md, as text: every table, column and family, as declared. Writes no file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from telemetry.conventions import (
    EVENT_KINDS,
    LATENCY_BOUNDS_S,
    PROMETHEUS_PREFIX,
    SPAN_ATTRIBUTES,
    Column,
    Emitter,
    Kind,
    metric_name,
    prometheus_name,
    prometheus_type,
)
from telemetry.prometheus import exposed
from telemetry.prometheus.counting import MOST_POOLS, STALE_S
from telemetry.prometheus.exposed import LABELS, OTHER, Family
from telemetry.prometheus.naming import MOST_NAMES, TOP
from telemetry.prometheus.totals import HORIZON_S
from telemetry.tables import TABLES, Table

_KINDS = {
    Kind.KEY: "key",
    Kind.SUM: "sum",
    Kind.AVG: "average",
    Kind.MAX: "maximum",
    Kind.LAST: "last",
    Kind.HIST: "histogram",
    Kind.ATTR: "",
}


def page() -> str:
    """The whole page, in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from ("# Metrics", "")
    yield from _said(
        "Made from the declarations in `telemetry/records.py` by `python docs/make_metrics.py`; "
        "do not edit by hand. What the words mean is in [definitions.md](definitions.md)."
    )
    yield from (
        "## Kinds",
        "",
        "| kind | over engines, runs and intervals | OTLP | Prometheus |",
        "|---|---|---|---|",
        "| key | part of the row's identity | attribute | label, or none |",
        "| sum | adds | delta sum | counter, `_total` |",
        "| average | weighs by `observed_seconds` | gauge | gauge |",
        "| maximum | the largest | gauge | gauge |",
        "| last | the value at the interval's end | gauge | gauge |",
        "| histogram | adds | delta histogram | histogram, `_bucket` |",
        "",
    )
    bounds = ", ".join(f"{b:g}" for b in LATENCY_BOUNDS_S)
    yield from _said(
        f"Histograms have the upper bounds {bounds} seconds, and one overflow bucket. "
        "Nothing measures their sum, so there is no `_sum` and no "
        '`_count`: `_bucket{le="+Inf"}` is the count. An absent value is not zero: it was not '
        "measured, or never reached."
    )
    yield from ("## Prometheus", "")
    yield from _said(
        "`tenantscope serve --metrics-port 9464` has the store process answer "
        "`http://127.0.0.1:9464/metrics`, in the text format and in OpenMetrics (with exemplars: "
        "the newest request of each histogram bucket, by `request_id`). 0, the default, is off. "
        "It listens on loopback only and asks for no token."
    )
    yield from _said(
        "Counters hold what was heard since the store process started. They only grow: an open "
        "interval is counted as far as it is known, every ten seconds, and a delivery that comes "
        "twice counts once. A restart of the store begins them anew, as any restart does.",
        f"Rows for a time more than {HORIZON_S / 60:.0f} minutes away are left out, and counted "
        "as such.",
        "Tenants with an SLO target in the settings have series of their own from the start, all "
        f"tenants where they are at most {MOST_NAMES - 2 * TOP}; so has who is "
        f"among the first {TOP} of a pool by service, or by SLO misses, from then on "
        f"and for the life of the process, up to {MOST_NAMES} names. Everybody else is `{OTHER}` "
        "together, which keeps what it had when one of them gets a name. A name that no settings "
        "file lists is never a label.",
        f"The first {MOST_POOLS} pools have series of their own; engine and pool of later ones "
        f"are `{OTHER}`.",
        f"Gauges show the newest interval; a pool unheard for {STALE_S:.0f} s has none. Of "
        f"`{OTHER}` averages and populations add up and maxima are the largest; the rest is "
        "absent.",
        "`interference_minute` is summed over victims; `holder` is empty where `holder_kind` is "
        "no tenant.",
        bullet="* ",
    )
    for table in TABLES.values():
        if not table.log:
            yield from _minute_table(table)
    yield from (
        "## The store process itself",
        "",
        "| Prometheus | type | meaning |",
        "|---|---|---|",
        *(_own_row(f) for f in exposed.OWN),
        "",
        "## Log rows",
        "",
    )
    yield from _said(
        "Rows that travel as OTLP log records, one a row, never sampled. The event name is "
        "`tenantscope.<table>`, an attribute's `tenantscope.<table>.<column>`."
    )
    for table in TABLES.values():
        if table.log:
            yield from _log_table(table)
    yield from _events()
    yield from _spans()


def _events() -> Iterator[str]:
    yield from ("## Kinds of event", "")
    yield from _said(
        "What a row of `event` can be, by its column `kind`. Beside its identity a row fills the "
        "columns named; the others are absent."
    )
    yield from ("| kind | by | fills | meaning |", "|---|---|---|---|")
    for kind in EVENT_KINDS.values():
        filled = ", ".join(f"`{c}`" for c in kind.fills)
        yield _row(f"`{kind.name}`", kind.by, filled, kind.meaning)
    yield ""


def _spans() -> Iterator[str]:
    yield from ("## Span attributes", "")
    yield from _said(
        "A request may be exported as a trace, a sampled copy of its row for other back ends; no "
        "table is made from it. Names that begin with `gen_ai.` are OpenTelemetry's for generative "
        "AI, or what servers of such models commonly say where it has none."
    )
    yield from ("| attribute | unit | meaning |", "|---|---|---|")
    for attribute in SPAN_ATTRIBUTES:
        yield _row(f"`{attribute.name}`", f"`{attribute.unit}`", attribute.meaning)


def _minute_table(table: Table) -> Iterator[str]:
    keys = ", ".join(f"`{k}`" for k in table.key)
    yield from (f"## {table.name}", "", f"{_about(table)} Key: {keys}.")
    if table.name in PROMETHEUS_PREFIX:
        labels = ", ".join(f"`{n}`" for n in LABELS[table.name])
        yield f"Labels in Prometheus: {labels}."
    else:
        yield "Not in Prometheus: a series each would have no bound. Ask the store."
    yield from (
        "",
        "| column | unit | kind | by | meaning | OTLP | Prometheus |",
        "|---|---|---|---|---|---|---|",
    )
    for column in table.columns:
        if column.kind is Kind.KEY:
            continue
        by = "front" if column.emitter is Emitter.FRONT else "worker"
        otlp = f"`{metric_name(table.name, column.name)}`"
        yield _row(
            f"`{column.name}`", f"`{column.unit}`", _KINDS[column.kind], by,
            column.meaning, otlp, _shown(table, column),
        )  # fmt: skip
    yield ""


def _shown(table: Table, column: Column) -> str:
    name, kind = prometheus_name(table.name, column), prometheus_type(column.kind)
    if name is None or kind is None:
        return "—"
    return f"`{Family(name, kind, '').sample}`"


def _own_row(family: Family) -> str:
    labels = f" Labels: {', '.join(f'`{n}`' for n in family.labels)}." if family.labels else ""
    return _row(f"`{family.sample}`", family.type, family.help + labels)


def _log_table(table: Table) -> Iterator[str]:
    yield from (f"### {table.name}", "", _about(table), "")
    yield from ("| column | type | unit | meaning |", "|---|---|---|---|")
    for column in table.columns:
        yield _row(f"`{column.name}`", column.sql.lower(), f"`{column.unit}`", column.meaning)
    yield ""


def _said(*paragraphs: str, bullet: str = "") -> Iterator[str]:
    """Prose, wrapped."""
    for paragraph in paragraphs:
        yield from textwrap.wrap(
            paragraph, 100, initial_indent=bullet, subsequent_indent=" " * len(bullet),
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip
    yield ""


def _about(table: Table) -> str:
    return (table.row.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def _row(*cells: str) -> str:
    return f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |"
