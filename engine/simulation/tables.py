"""A simulation's result as plain text: tables a person reads. Names are data, never control codes.

Owns columns and words; computes nothing but the sums of the tenants left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.simulation.results import PoolResult, Result, Spread, TenantResult
from engine.simulation.terminal_plot import plot
from telemetry.plain import cells, percent
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
    result: Result, *, top: int = TOP, width: int = 100, colour: bool = False, plain: bool = False
) -> list[str]:
    """One run: its headline, pools, three tables of the `top` tenants by service, the plot."""
    shown = sorted(result.tenants, key=lambda t: (-t.service, t.tenant))[:top]
    lines = [
        f"{fitted(result.name, 60)} on {result.machine}, policy {result.policy}, seed "
        f"{result.seed}: {result.offered:,} requests of {len(result.tenants):,} tenants in "
        f"{seconds(result.simulated_s)}",
        "",
        *map(_pool, result.pools),
        f"largest difference in service of two tenants while both waited: "
        f"{result.accumulated_difference:,.0f} (at the end "
        f"{result.accumulated_difference_at_end:,.0f}; {result.compared} compared)",
    ]
    for head, columns in (
        ("What they got", GOT),
        ("How long it took", TOOK),
        ("What they waited for, summed over requests", WAITED),
    ):
        lines += ["", head, *tenant_table(shown, columns)]
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
        lines += [
            "",
            f"simulated in {w.wall_s:.2f} s: {w.simulated_s_per_s:,.0f} simulated seconds and "
            f"{w.requests_per_s:,.0f} requests a second",
        ]
    return lines


def _pool(pool: PoolResult) -> str:
    fair = "-" if pool.jain is None else f"{pool.jain:.3f}"
    return (
        f"pool {fitted(pool.pool, 30)}: {pool.tokens_per_s:,.0f} tokens/s "
        f"({pool.output_tokens_per_s:,.0f} of them output), {pool.finished:,} finished in "
        f"{pool.steps:,} steps, {pool.preemptions:,} preemptions, adapter hit rate "
        f"{_part(pool.hit_rate)}, Jain's index {fair}"
    )


def tenant_table(tenants: Sequence[TenantResult], columns: Sequence[Column]) -> list[str]:
    rows = [[fitted(t.tenant, NAME_CELLS), *(show(t) for _, show in columns)] for t in tenants]
    return grid(["tenant", *(head for head, _ in columns)], rows)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they must be; the first is set left, the others right."""
    table = [head, *rows]
    widths = [max(cells(row[i]) for row in table) for i in range(len(head))]
    return [
        "  ".join(
            text + " " * (w - cells(text)) if i == 0 else " " * (w - cells(text)) + text
            for i, (text, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def comparison(results: Sequence[Result], *, top: int = TOP) -> list[str]:
    """The same arrivals under several policies, side by side."""
    policies = [
        [
            r.policy,
            f"{sum(p.tokens_per_s for p in r.pools):,.0f}",
            "-" if r.pools[0].jain is None else f"{r.pools[0].jain:.3f}",
            f"{r.accumulated_difference:,.0f}",
            f"{r.accumulated_difference_at_end:,.0f}",
            f"{sum(t.slo_missed for t in r.tenants):,}",
            f"{sum(t.goodput_tokens for t in r.tenants):,}",
            seconds(_worst(r)),
        ]
        for r in results
    ]
    lines = [
        f"{fitted(results[0].name, 60)} on {results[0].machine}, seed {results[0].seed}: "
        f"{results[0].offered:,} requests, the same under each policy",
        "",
        *grid(
            ["policy", "tokens/s", "Jain", "difference", "at the end", "SLO missed", "goodput tok",
             "worst p99 TTFT"],
            policies,
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
        lines += ["", title, *grid(["tenant", *(r.policy for r in results)], rows)]
    if len(names) > top:
        lines.append(f"and {len(names) - top:,} other tenants")
    return lines


def _worst(result: Result) -> float | None:
    return max((t.ttft.p99_s for t in result.tenants if t.ttft.p99_s is not None), default=None)
