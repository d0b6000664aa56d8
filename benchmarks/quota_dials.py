"""The three dials: what requests, tokens and concurrency each stop, alone and together.

    python benchmarks/quota_dials.py [--seconds 300] [--json]

Three tenants game one dial each and stay inside the other two as long as they can: `many-small`
sends very many tiny requests, `few-huge` few requests with very long prompts, `long-held` few with
long answers, which hold their slots. `steady` is an ordinary neighbour, inside every limit. The
real quota door, and behind it a service model of one line: first come first served on 32 slots, a
request holds one for its prompt at 4,000 tokens/s and its output at 30 ms a token.

Printed: share of the service (prompt + 2 x output) and slots held, a tenant, by the dials that
are set; and how long `steady` waited for a slot.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections import deque
from dataclasses import asdict, dataclass, field, replace

from engine.arguments import span
from engine.config import Limits, Settings, Tenant
from engine.scheduling.quota import Admitted, QuotaDoor

SLOTS = 32
PREFILL_TOKENS_PER_S = 4000.0
TPOT_S = 0.03
STEADY = "steady"
DIALS = {
    "none": {},
    "rpm": {"rpm": 120},
    "tpm": {"tpm": 60_000},
    "concurrency": {"concurrency": 8},
    "all three": {"rpm": 120, "tpm": 60_000, "concurrency": 8},
}


@dataclass(frozen=True, slots=True)
class Load:
    """One tenant's even stream of equal requests."""

    tenant: str
    rate_per_s: float
    prompt: int
    output: int

    @property
    def service(self) -> int:
        return self.prompt + 2 * self.output

    @property
    def hold_s(self) -> float:
        return self.prompt / PREFILL_TOKENS_PER_S + self.output * TPOT_S


LOADS = (
    Load("many-small", 100.0, 16, 8),
    Load("few-huge", 12.0, 4000, 8),
    Load("long-held", 1.9, 32, 900),
    Load(STEADY, 1.0, 200, 100),
)


@dataclass(slots=True)
class Got:
    """What one tenant had of the pool."""

    offered: int = 0
    refused: int = 0
    ended: int = 0
    service_share: float = 0.0
    slots_held: float = 0.0
    waits_s: list[float] = field(default_factory=list)


def play(dials: dict[str, int], seconds: float) -> dict[str, Got]:
    """Every load against one door and one pool, in virtual time."""
    door = QuotaDoor(
        Settings(
            tenants=tuple(replace(Tenant(x.tenant), **dials) for x in LOADS),
            limits=Limits(max_context=8192, queue_per_tenant=10_000, queue=40_000),
        )
    )
    got = {x.tenant: Got() for x in LOADS}
    service = dict.fromkeys(got, 0)
    queue: deque[tuple[Load, Admitted, float]] = deque()
    ends: list[tuple[float, int, Load, Admitted]] = []  # (at, number, ...)
    arrivals = [(0.0, i) for i in range(len(LOADS))]
    free = SLOTS
    while arrivals:
        if ends and ends[0][0] <= arrivals[0][0]:
            now, _, load, ticket = heapq.heappop(ends)
            door.settle(ticket, load.output, now)
            mine = got[load.tenant]
            mine.ended += 1
            service[load.tenant] += load.service
            free += 1
        else:
            now, i = heapq.heappop(arrivals)
            load = LOADS[i]
            mine = got[load.tenant]
            if now + 1 / load.rate_per_s < seconds:
                heapq.heappush(arrivals, (now + 1 / load.rate_per_s, i))
            mine.offered += 1
            verdict = door.admit(load.tenant, load.prompt, load.output, now)
            if isinstance(verdict, Admitted):
                queue.append((load, verdict, now))
            else:
                mine.refused += 1
        while free and queue:
            load, ticket, since = queue.popleft()
            free -= 1
            mine = got[load.tenant]
            mine.waits_s.append(now - since)
            mine.slots_held += max(0.0, min(load.hold_s, seconds - now)) / seconds
            heapq.heappush(ends, (now + load.hold_s, ticket.number, load, ticket))
    total = sum(service.values())
    for tenant, mine in got.items():
        mine.service_share = service[tenant] / total
    return got


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=span, default=300.0, help="virtual seconds a run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = {name: play(dials, options.seconds) for name, dials in DIALS.items()}
    if options.json:
        plain = {
            name: {
                tenant: {k: v for k, v in asdict(g).items() if k != "waits_s"}
                | {"wait_p99_s": percentile(g.waits_s, 0.99)}
                for tenant, g in got.items()
            }
            for name, got in runs.items()
        }
        print(json.dumps({"slots": SLOTS, "dials": DIALS, "runs": plain}, indent=2))
        return
    names = [x.tenant for x in LOADS]
    print("share of the service / slots held of 32, by the dials that are set")
    print(f"{'dials':<12}" + "".join(f"{n:>18}" for n in names) + f"{'steady waits p50/p99':>24}")
    for name, got in runs.items():
        cells = [f"{got[n].service_share:7.1%} /{got[n].slots_held:5.1f}" for n in names]
        waits = got[STEADY].waits_s
        wait = f"{percentile(waits, 0.5):.1f} / {percentile(waits, 0.99):.1f} s"
        print(f"{name:<12}" + "".join(f"{c:>18}" for c in cells) + f"{wait:>24}")
    print()
    print("refused of offered")
    for name, got in runs.items():
        cells = [f"{got[n].refused} of {got[n].offered}" for n in names]
        print(f"{name:<12}" + "".join(f"{c:>18}" for c in cells))


if __name__ == "__main__":
    main()
