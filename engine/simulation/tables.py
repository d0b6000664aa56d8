"""A simulation's result as plain text: tables a person reads. Names are data, never control codes.

Owns columns and words; computes nothing but the sums of the tenants left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.scheduling.policies.counters import WQ
from engine.simulation.results import PoolResult, Result, Spread, TenantResult
from engine.simulation.terminal_plot import plot
from telemetry.plain import cells, percent, wrap
from telemetry.plain import name as fitted

TOP = 20
NAME_CELLS = 28

Column = tuple[str, Callable[[TenantResult], str]]


def seconds(value: float | None) -> str:
    """Three figures: 4.2ms, 0.31s, 12.4s, 812s; - for none."""
    if value is None:
        return "-"
    if not value:
        return "0s"
    if value < 0.1:
        return f"{1000 * value:.3g}ms"
    if value < 10:
        return f"{value:.2f}s"
    return f"{value:.1f}s" if value < 100 else f"{value:,.0f}s"


def _part(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _some(count: int) -> str:
    return f"{count:,}" if count else "-"


GOT: tuple[Column, ...] = (
    ("service", lambda t: f"{t.service:,.0f}"),
    ("share", lambda t: percent(t.share)),
    ("offered", lambda t: f"{t.offered:,}"),
    ("refused", lambda t: _some(sum(t.rejected.values()))),
    ("finished", lambda t: f"{t.finished:,}"),
    ("failed", lambda t: _some(t.failed + t.timed_out + t.aborted)),
    ("under way", lambda t: _some(t.unfinished)),
    ("goodput tok", lambda t: f"{t.goodput_tokens:,}"),
    ("SLO missed", lambda t: _some(t.slo_missed)),
)
TOOK: tuple[Column, ...] = (
    ("TTFT p50", lambda t: seconds(t.ttft.p50_s)),
    ("p90", lambda t: seconds(t.ttft.p90_s)),
    ("p99", lambda t: seconds(t.ttft.p99_s)),
    ("TPOT p50", lambda t: seconds(t.tpot.p50_s)),
    ("p99", lambda t: seconds(t.tpot.p99_s)),
    ("gap p99", lambda t: seconds(t.max_gap.p99_s)),
    ("most", lambda t: seconds(t.max_gap.max_s)),
)
WAITED: tuple[Column, ...] = (
    ("slot", lambda t: seconds(t.waits_s["slot"])),
    ("budget", lambda t: seconds(t.waits_s["budget"])),
    ("kv", lambda t: seconds(t.waits_s["kv"])),
    ("adapter", lambda t: seconds(t.waits_s["adapter"])),
    ("preempted", lambda t: _some(t.preemptions)),
    ("hit rate", lambda t: _part(t.hit_rate)),
    ("refused for", lambda t: _reasons(t.rejected)),
)


def _both(spread: Spread) -> str:
    return f"{seconds(spread.p50_s)} / {seconds(spread.p99_s)}"


SIDE_BY_SIDE: tuple[Column, ...] = (
    ("TTFT, median / p99", lambda t: _both(t.ttft)),
    ("Service, tokens", lambda t: f"{t.service:,.0f}"),
    ("Longest gap between tokens, p99", lambda t: seconds(t.max_gap.p99_s)),
)


def _reasons(rejected: dict[str, int]) -> str:
    return " ".join(f"{reason} {count:,}" for reason, count in rejected.items()) or "-"


def report(
    result: Result,
    *,
    top: int = TOP,
    width: int = 100,
    fold: bool = False,
    colour: bool = False,
    plain: bool = False,
) -> list[str]:
    """One run: its headline, pools, three tables of the `top` tenants by service, the plot.
    `fold`: tables that are wider than `width` go on below."""
    shown = sorted(result.tenants, key=lambda t: (-t.service, t.tenant))[:top]
    head = (
        f"{fitted(result.name, 60)} on {result.machine}, policy {result.policy}, seed {result.seed}"
    )
    if not result.offered:
        return wrap(
            f"{head}: no request came in {seconds(result.simulated_s)}. See the streams' rates and "
            "spans, and --until if it was given",
            width,
        )
    lines = [
        *wrap(
            f"{head}: {_many(result.offered, 'request')} of "
            f"{_many(len(result.tenants), 'tenant')} in {seconds(result.simulated_s)}",
            width,
        ),
        "",
    ]
    for pool in result.pools:
        lines += wrap(_pool(pool), width, "  ")
    lines += wrap(_difference(result), width, "  ")
    for title, columns in (
        (f"What they got (service: prompt tokens computed + {WQ:g} x output)", GOT),
        ("How long it took", TOOK),
        ("What they waited for, summed over requests", WAITED),
    ):
        lines += ["", *wrap(title, width), *tenant_table(shown, columns, width if fold else 0)]
    left = len(result.tenants) - len(shown)
    if left:
        rest = sum(t.share for t in result.tenants) - sum(t.share for t in shown)
        lines.append(f"and {left:,} others with {percent(max(0.0, rest))} of the service")
    number = {t.tenant: i for i, t in enumerate(result.tenants)}
    curves = [(t.tenant, [s[number[t.tenant]] for s in result.series]) for t in shown[:6]]
    drawn = plot(
        result.series_at_s,
        curves,
        width=min(width, 100),
        unit="tokens of service",
        colour=colour,
        plain=plain,
    )
    if drawn:
        lines += ["", "Service over time", *drawn]
    if result.wall is not None:
        w = result.wall
        said = (
            f"simulated in {w.wall_s:.2f} s: {w.simulated_s_per_s:,.0f} simulated seconds and "
            f"{w.requests_per_s:,.0f} requests a second"
        )
        lines += ["", *wrap(said, width)]
    return lines


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _difference(result: Result) -> str:
    if result.compared < 2:
        return "no two tenants waited: no difference in service to tell"
    return (
        f"largest difference in service of two tenants while both waited: "
        f"{result.accumulated_difference:,.0f} tokens (at the end "
        f"{result.accumulated_difference_at_end:,.0f}; {result.compared} tenants compared)"
    )


def _pool(pool: PoolResult) -> str:
    fair = "-" if pool.jain is None else f"{pool.jain:.3f}"
    return (
        f"pool {fitted(pool.pool, 30)}: {pool.tokens_per_s:,.0f} tokens/s "
        f"({pool.output_tokens_per_s:,.0f} of them output), {pool.finished:,} finished in "
        f"{_many(pool.steps, 'step')}, {_many(pool.preemptions, 'preemption')}, adapter hit rate "
        f"{_part(pool.hit_rate)}, Jain's index {fair}"
    )


def tenant_table(
    tenants: Sequence[TenantResult], columns: Sequence[Column], width: int = 0
) -> list[str]:
    room = max(8, min(NAME_CELLS, width // 3)) if width else NAME_CELLS
    rows = [[fitted(t.tenant, room), *(show(t) for _, show in columns)] for t in tenants]
    return grid(["tenant", *(head for head, _ in columns)], rows, width)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0) -> list[str]:
    """Columns as wide as they must be; the first is set left, the others right. What does not fit
    into `width` (0 = any) goes on below, each part beginning with the first column again."""
    table = [head, *rows]
    widths = [max(cells(row[i]) for row in table) for i in range(len(head))]
    parts: list[list[int]] = [[]]
    used = widths[0]
    for i in range(1, len(head)):
        if width and parts[-1] and used + 2 + widths[i] > width:
            parts.append([])
            used = widths[0]
        parts[-1].append(i)
        used += 2 + widths[i]
    lines: list[str] = []
    for part in parts:
        for row in table:
            name = row[0] + " " * (widths[0] - cells(row[0]))
            rest = (" " * (2 + widths[i] - cells(row[i])) + row[i] for i in part)
            lines.append((name + "".join(rest)).rstrip())
    return lines


def comparison(results: Sequence[Result], *, top: int = TOP, width: int = 0) -> list[str]:
    """The same arrivals under several policies, side by side."""
    policies = [
        [
            r.policy,
            f"{sum(p.tokens_per_s for p in r.pools):,.0f}",
            " ".join("-" if p.jain is None else f"{p.jain:.3f}" for p in r.pools),
            f"{r.accumulated_difference:,.0f}",
            f"{r.accumulated_difference_at_end:,.0f}",
            f"{sum(t.slo_missed for t in r.tenants):,}",
            f"{sum(t.goodput_tokens for t in r.tenants):,}",
            seconds(_worst(r)),
        ]
        for r in results
    ]
    first = results[0]
    if not first.offered:
        return report(first, width=width or 100)
    jain = "Jain" if len(first.pools) == 1 else f"Jain of {' '.join(_short(first))}"
    lines = [
        f"{fitted(first.name, 60)} on {first.machine}, seed {first.seed}: "
        f"{_many(first.offered, 'request')}, the same under each policy",
        "",
        *grid(
            ["policy", "tokens/s", jain, "difference", "at the end", "SLO missed", "goodput tok",
             "worst p99 TTFT"],
            policies,
            width,
        ),
        *wrap(
            "difference: the most that two tenants' service per weight came apart while both "
            "waited, in tokens; and as it stood at the end",
            width or 100,
        ),
    ]  # fmt: skip
    by_policy = [{t.tenant: t for t in r.tenants} for r in results]
    names = [t.tenant for t in sorted(results[0].tenants, key=lambda t: (-t.service, t.tenant))]
    for title, pick in SIDE_BY_SIDE:
        rows = [
            [fitted(name, NAME_CELLS), *(pick(by[name]) for by in by_policy)]
            for name in names[:top]
            if all(name in by for by in by_policy)
        ]
        lines += ["", title, *grid(["tenant", *(r.policy for r in results)], rows, width)]
    if len(names) > top:
        lines.append(f"and {len(names) - top:,} other tenants")
    return lines


def _short(result: Result) -> list[str]:
    return [fitted(p.pool, 12) for p in result.pools]


def _worst(result: Result) -> float | None:
    return max((t.ttft.p99_s for t in result.tenants if t.ttft.p99_s is not None), default=None)
