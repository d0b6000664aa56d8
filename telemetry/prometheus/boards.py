"""What the dashboards show, as data: panels and their queries. Knows no JSON.

Three boards: tenants (who is hurt, who asks), waits (why they wait), holders (behind whom).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.conventions import CHARGE_REASONS, NAMESPACE, WAIT_REASONS

_POOL = 'engine=~"$engine",pool=~"$pool"'
_TENANT = f'{_POOL},tenant=~"$tenant"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph: (query, legend) pairs; `about` comes before the metrics' own meanings."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    about: str = ""
    stack: bool = False
    wide: bool = False
    below_zero: bool = False


def _rate(metric: str, by: str, selector: str = _TENANT) -> str:
    return f"sum by ({by}) (rate({NAMESPACE}_{metric}[$__rate_interval]))".replace(
        "[", f"{{{selector}}}[", 1
    )


def _quantile(q: float, metric: str) -> str:
    inner = _rate(f"{metric}_bucket", "le, tenant")
    return f"histogram_quantile({q}, {inner})"


_BY_TENANT = "{{tenant}}"

TENANTS = (
    Panel(
        "SLO misses",
        ((_rate("tenant_slo_missed_total", "tenant"), _BY_TENANT),),
        "reqps",
        "Who is hurt.",
        wide=True,
    ),
    Panel(
        "Goodput: met of those judged",
        (
            (
                f"{_rate('tenant_slo_met_total', 'tenant')}"
                f" / {_rate('tenant_slo_eligible_total', 'tenant')}",
                _BY_TENANT,
            ),
        ),
        "percentunit",
    ),
    Panel("TTFT, p99", ((_quantile(0.99, "tenant_ttft_seconds"), _BY_TENANT),), "s"),
    Panel(
        "Share of the service",
        (
            (
                f"{_rate('tenant_service_total', 'engine, pool, tenant')}"
                " / on (engine, pool) group_left ()"
                f" {_rate('tenant_service_total', 'engine, pool', _POOL)}",
                _BY_TENANT,
            ),
        ),
        "percentunit",
        "Of all that the pool computed. A large share alone hurts nobody.",
        stack=True,
    ),
    Panel(
        "Offered requests",
        ((_rate("tenant_offered_requests_total", "tenant"), _BY_TENANT),),
        "reqps",
    ),
    Panel(
        "Rejected requests",
        tuple(
            (_rate(f"tenant_rejected_{r}_requests_total", "tenant"), f"{_BY_TENANT} {r}")
            for r in ("rpm", "tpm", "concurrency", "queue", "impossible")
        ),
        "reqps",
    ),
    Panel("Output tokens", ((_rate("tenant_output_tokens_total", "tenant"), _BY_TENANT),), "short"),
    Panel(
        "Ahead of the last, in seconds of the pool",
        ((f"{NAMESPACE}_tenant_vtc_gap_seconds{{{_TENANT}}}", _BY_TENANT),),
        "s",
        below_zero=True,
    ),
    Panel(
        "KV held",
        ((f"{NAMESPACE}_tenant_kv_avg_bytes{{{_TENANT}}}", _BY_TENANT),),
        "bytes",
        stack=True,
    ),
)

WAITS = (
    Panel(
        "Waiting, by reason",
        tuple(
            (
                f"sum(rate({NAMESPACE}_tenant_wait_{r}_seconds_total{{{_TENANT}}}[$__rate_interval]))",
                r,
            )
            for r in WAIT_REASONS
        ),
        "short",
        "Seconds waited a second: how many requests wait at once, and for what.",
        stack=True,
        wide=True,
    ),
    *(
        Panel(
            f"Waiting for {what}",
            ((_rate(f"tenant_wait_{r}_seconds_total", "tenant"), _BY_TENANT),),
            "short",
            stack=True,
        )
        for r, what in zip(
            WAIT_REASONS, ("a slot", "the step's budget", "pages", "an adapter"), strict=True
        )
    ),
    Panel(
        "Stalled by others' prefill", ((_rate("tenant_stall_seconds_total", "tenant"), _BY_TENANT),)
    ),
    Panel(
        "Oldest wait", ((f"{NAMESPACE}_tenant_oldest_wait_seconds{{{_TENANT}}}", _BY_TENANT),), "s"
    ),
    Panel(
        "Adapters found on the device",
        (
            (
                f"{_rate('tenant_found_device_total', 'tenant')}"
                f" / {_rate('tenant_adapter_lookups_total', 'tenant')}",
                _BY_TENANT,
            ),
        ),
        "percentunit",
    ),
    Panel(
        "The engine's time",
        tuple(
            (_rate(f"engine_{c}_seconds_total", "engine, pool", _POOL), f"{{{{pool}}}} {c}")
            for c in ("busy", "predicted", "capacity", "idle")
        ),
        "percentunit",
        "Capacity is what steps take beyond the cost model.",
    ),
    Panel(
        "Since the last token",
        ((f"{NAMESPACE}_engine_last_token_age_seconds{{{_POOL}}}", "{{engine}} {{pool}}"),),
        "s",
    ),
)

_CHARGED = "interference_charged_seconds_total"
HOLDERS = (
    Panel(
        "Charged to",
        ((_rate(_CHARGED, "holder_kind, holder", _POOL), "{{holder_kind}} {{holder}}"),),
        "short",
        "Who held what others waited for: bookkeeping, not an accusation.",
        stack=True,
        wide=True,
    ),
    *(
        Panel(
            f"Charged, {reason}",
            (
                (
                    _rate(_CHARGED, "holder_kind, holder", f'{_POOL},reason="{reason}"'),
                    "{{holder_kind}} {{holder}}",
                ),
            ),
            stack=True,
        )
        for reason in CHARGE_REASONS
    ),
    Panel(
        "The pool's bytes",
        tuple(
            (
                f"sum by (engine, pool) ({NAMESPACE}_engine_{c}_avg_bytes{{{_POOL}}})",
                f"{{{{pool}}}} {c}",
            )
            for c in ("kv", "adapter", "cached", "free")
        ),
        "bytes",
        stack=True,
    ),
    Panel(
        "Evictions and preemptions caused",
        (
            (_rate("tenant_evictions_caused_total", "tenant"), f"{_BY_TENANT} evictions"),
            (_rate("tenant_preemptions_caused_total", "tenant"), f"{_BY_TENANT} preemptions"),
        ),
    ),
)
BOARDS: dict[str, tuple[str, Sequence[Panel]]] = {
    "tenants": ("Tenantscope: tenants", TENANTS),
    "waits": ("Tenantscope: waits by reason", WAITS),
    "holders": ("Tenantscope: holders", HOLDERS),
}
