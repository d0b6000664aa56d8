"""The tail after a burst: 429s and waits under bucket, fixed and sliding window, same average.

    python benchmarks/quota_tail.py [--json]

One tenant at 600 requests a minute is quiet for a minute, sends two minutes' worth at once around
a minute's boundary (1,200 requests from 119 s to 121 s), and 5 a second evenly from then on.
Whoever is refused comes back after exactly `Retry-After`, until admitted. The real quota door in
virtual time.

Printed: 429s, waits from the first try to admission of the burst's requests and of the even ones,
how long until the burst is through, and the most that was let through within 2, 10 and 60 s, in
minutes' worth of the limit. A fixed window lets two minutes' worth through within 2 s. A bucket
never lets more through than it holds and what refills meanwhile: over a whole minute that, too, can
come to two, and a smaller burst makes it less. `Retry-After` is honest for a retry that comes
alone: of a crowd that comes back together most are told again.
"""

from __future__ import annotations

import argparse
import heapq
import json
from bisect import bisect_left
from dataclasses import asdict, dataclass

from engine.config import Limits, Settings, Tenant
from engine.scheduling.quota import Admitted, QuotaDoor

RPM = 600
BURST, BURST_FROM_S, BURST_S = 1200, 119.0, 2.0
TENANTS = {
    "bucket": Tenant("t", rpm=RPM),
    "bucket, burst 60": Tenant("t", rpm=RPM, rpm_burst=60),
    "fixed": Tenant("t", rpm=RPM, window="fixed"),
    "sliding": Tenant("t", rpm=RPM, window="sliding"),
}


@dataclass(frozen=True, slots=True)
class Tail:
    """What a burst left behind. `through_*` in minutes' worth of the limit."""

    requests: int
    refusals: int
    burst_wait_p50_s: float
    burst_wait_p99_s: float
    even_wait_p50_s: float
    even_wait_p99_s: float
    drained_s: float  # from the burst's start until its last request was admitted
    through_2s: float
    through_10s: float
    through_60s: float


def play(tenant: Tenant) -> Tail:
    door = QuotaDoor(
        Settings(tenants=(tenant,), limits=Limits(queue_per_tenant=10**6, queue=10**6))
    )
    even = [121.0 + i / 5 for i in range(5 * 420)]
    firsts = [BURST_FROM_S + BURST_S * i / BURST for i in range(BURST)] + even
    tries = [(at, i) for i, at in enumerate(firsts)]
    heapq.heapify(tries)
    refusals = 0
    admitted: list[tuple[float, int]] = []
    while tries:
        now, i = heapq.heappop(tries)
        verdict = door.admit(tenant.name, 10, 10, now)
        if isinstance(verdict, Admitted):
            door.settle(verdict, 10, now)
            admitted.append((now, i))
        else:
            refusals += 1
            assert verdict.retry_after_s is not None
            heapq.heappush(tries, (now + verdict.retry_after_s, i))
    burst = sorted(at - firsts[i] for at, i in admitted if i < BURST)
    evens = sorted(at - firsts[i] for at, i in admitted if i >= BURST)
    instants = [at for at, _ in admitted]
    return Tail(
        requests=len(firsts),
        refusals=refusals,
        burst_wait_p50_s=burst[len(burst) // 2],
        burst_wait_p99_s=burst[int(0.99 * len(burst))],
        even_wait_p50_s=evens[len(evens) // 2],
        even_wait_p99_s=evens[int(0.99 * len(evens))],
        drained_s=max(at for at, i in admitted if i < BURST) - BURST_FROM_S,
        through_2s=most_within(instants, 2.0) / RPM,
        through_10s=most_within(instants, 10.0) / RPM,
        through_60s=most_within(instants, 60.0) / RPM,
    )


def most_within(instants: list[float], span_s: float) -> int:
    """The most of ascending `instants` that lie in any half-open span."""
    return max(bisect_left(instants, at + span_s) - i for i, at in enumerate(instants))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tails = {name: play(tenant) for name, tenant in TENANTS.items()}
    if options.json:
        print(json.dumps({name: asdict(tail) for name, tail in tails.items()}, indent=2))
        return
    print(f"{RPM} requests a minute; {BURST} at once around a minute's boundary, then 5/s evenly")
    print(
        f"{'window':<18}{'429s':>8}{'burst waits p50/p99':>22}{'even waits p50/p99':>22}"
        f"{'drained':>9}{'most in 2 s':>14}{'10 s':>8}{'60 s':>8}"
    )
    for name, t in tails.items():
        burst = f"{t.burst_wait_p50_s:.1f} / {t.burst_wait_p99_s:.1f} s"
        even = f"{t.even_wait_p50_s:.1f} / {t.even_wait_p99_s:.1f} s"
        print(
            f"{name:<18}{t.refusals:>8}{burst:>22}{even:>22}{t.drained_s:>7.0f} s"
            f"{t.through_2s:>12.2f} x{t.through_10s:>6.2f} x{t.through_60s:>6.2f} x"
        )


if __name__ == "__main__":
    main()
