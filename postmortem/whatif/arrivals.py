"""The window's requests as arrivals for the simulator. Owns what is made up and counts it; pure.

A recorded request comes when it came, with the prompt it had and as many output tokens as it
made. Where it made none to the end (refused, given up, timed out, still under way) its length is
drawn from the tenant's finished ones: *imputed*. Requests the minutes count and no row tells of
are imputed whole. Arrivals are open-loop: nobody stays away because he was refused.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.simulation.workload import Arrival
from postmortem.whatif.model import NoConclusion
from telemetry.records import RequestRecord
from telemetry.window import Bucket

_APART_S = 1e-6  # two arrivals never share an instant: it is what an outcome is found again by
_SPARE_S = 30.0  # of its usual amount a tenant may send at once before it counts as excess


class Offered(NamedTuple):
    """One arrival. `at_s` since the replay's start, unique; `judged`: it arrived in the window;
    `front_s` was spent in the front, which is not simulated."""

    at_s: float
    tenant: str
    adapter: str | None
    prompt_tokens: int
    output_tokens: int
    judged: bool = True
    imputed: bool = False
    retry: bool = False
    front_s: float = 0.0


def to_arrivals(offered: Iterable[Offered]) -> Iterator[Arrival]:
    for o in offered:
        yield Arrival(o.at_s, o.tenant, o.adapter, o.prompt_tokens, o.output_tokens, 0)


def from_rows(
    rows: Sequence[RequestRecord],
    buckets: Sequence[Bucket],
    *,
    begin: float,
    judged: tuple[float, float],
    until: float,
    adapters: Mapping[str, str],
    seed: int = 0,
) -> tuple[Offered, ...]:
    """Requests that arrived in [begin, until), with those under way at `begin` before them.

    `adapters`: the simulated adapter by the recorded name; a name that is not there is served by
    the base model. Raises NoConclusion where nothing is known to draw lengths from.
    """
    drawn = Lengths(rows, seed)
    out = [c for r in rows if (c := _carried(r, begin, adapters)) is not None]
    here = [r for r in rows if begin <= r.arrived < until]
    for r in here:
        prompt, prompt_made_up = drawn.prompt(r)
        output, output_made_up = drawn.output(r)
        front = r.wait_front_s or 0.0
        out.append(
            Offered(
                r.arrived + front - begin,
                r.tenant,
                adapters.get(r.adapter) if r.adapter is not None else None,
                prompt,
                output,
                judged[0] <= r.arrived < judged[1],
                prompt_made_up or output_made_up,
                bool(r.is_retry),
                front,
            )
        )
    out += _absent(here, buckets, begin, judged, until, drawn)
    return apart(out)


def _carried(r: RequestRecord, begin: float, adapters: Mapping[str, str]) -> Offered | None:
    """A request that was waiting or running at `begin`, with what it still had to do."""
    if r.outcome == "rejected" or r.arrived >= begin or r.ended is None or r.ended <= begin:
        return None
    prompt, output = r.prompt_tokens, r.output_tokens
    if not prompt or not output:
        return None
    done = 0
    if r.first_token is not None and r.first_token < begin:
        last = r.last_token or r.ended
        passed = (begin - r.first_token) / (last - r.first_token) if last > r.first_token else 1.0
        done = min(output - 1, int(passed * output))
    # What was generated is context that has to be there again.
    adapter = adapters.get(r.adapter) if r.adapter is not None else None
    left = max(1, prompt - (r.cached_tokens or 0)) + done
    return Offered(0.0, r.tenant, adapter, left, output - done, judged=False)


def _absent(
    rows: Iterable[RequestRecord],
    buckets: Sequence[Bucket],
    begin: float,
    judged: tuple[float, float],
    until: float,
    drawn: Lengths,
) -> list[Offered]:
    """Requests that a whole bucket counted and no row tells of, evenly over the bucket."""
    inside = [b for b in buckets if b.start >= begin and b.end <= until]
    if not inside:
        return []
    starts = {b.start: i for i, b in enumerate(inside)}
    length = max(b.length_s for b in inside)
    told: Counter[tuple[float, str]] = Counter()
    for r in rows:
        start = math.floor(r.arrived / length) * length
        if start in starts:
            told[start, r.tenant] += 1
    out = []
    for b in inside:
        for tenant, row in sorted(b.tenants.items()):
            missing = (row.offered_requests or 0) - told[b.start, tenant]
            for k in range(missing):
                at = b.start + (k + 0.5) / missing * b.length_s
                prompt, output = drawn.whole(tenant)
                within = judged[0] <= at < judged[1]
                out.append(Offered(at - begin, tenant, None, prompt, output, within, True))
    return out


class Lengths:
    """Draws what is not known of a request from the tenant's finished ones, else from all."""

    def __init__(self, rows: Iterable[RequestRecord], seed: int) -> None:
        self._random = random.Random(seed)
        self._of: dict[str, list[tuple[int, int]]] = {}
        self._all: list[tuple[int, int]] = []
        for r in rows:
            if r.outcome == "finished" and r.prompt_tokens and r.output_tokens:
                known = (r.prompt_tokens, r.output_tokens)
                self._of.setdefault(r.tenant, []).append(known)
                self._all.append(known)

    def whole(self, tenant: str) -> tuple[int, int]:
        """(prompt, output) tokens of some finished request."""
        known = self._of.get(tenant) or self._all
        if not known:
            raise NoConclusion(
                "no finished request has both its prompt and its output recorded: there is "
                "nothing to replay"
            )
        return self._random.choice(known)

    def prompt(self, r: RequestRecord) -> tuple[int, bool]:
        """Tokens to compute, cached ones excluded; and whether they are made up."""
        if r.prompt_tokens:
            return max(1, r.prompt_tokens - (r.cached_tokens or 0)), False
        return self.whole(r.tenant)[0], True

    def output(self, r: RequestRecord) -> tuple[int, bool]:
        if r.outcome == "finished" and r.output_tokens:
            return r.output_tokens, False
        if r.reject_reason == "impossible" and r.max_tokens:
            return r.max_tokens, False  # it was refused for what it asked, and will be again
        most = r.max_tokens or 1 << 30
        return max(1, min(most, max(r.output_tokens or 0, self.whole(r.tenant)[1]))), True


def apart(offered: Iterable[Offered]) -> tuple[Offered, ...]:
    """In order of time, no two at one instant."""
    out: list[Offered] = []
    last = -1.0
    for o in sorted(offered, key=lambda o: (o.at_s, o.tenant)):
        at = max(o.at_s, 0.0)
        if at <= last:
            at = last + _APART_S
        last = at
        out.append(o if at == o.at_s else o._replace(at_s=at))
    return tuple(out)


def shaken(offered: Sequence[Offered], seed: int) -> tuple[Offered, ...]:
    """Everybody a moment sooner or later: each arrival moves by up to half the way to the
    tenant's next one on either side. Seed 0 leaves them as they were."""
    if seed == 0:
        return tuple(offered)
    rng = random.Random(seed)
    by_tenant: dict[str, list[int]] = {}
    for i, o in enumerate(offered):
        by_tenant.setdefault(o.tenant, []).append(i)
    out = list(offered)
    for tenant in sorted(by_tenant):
        places = by_tenant[tenant]
        for k, i in enumerate(places):
            at = offered[i].at_s
            before = offered[places[k - 1]].at_s if k else at
            after = offered[places[k + 1]].at_s if k + 1 < len(places) else at
            out[i] = offered[i]._replace(at_s=at + rng.uniform(before - at, after - at) / 2)
    return apart(out)


def jolted(offered: Sequence[Offered], most_s: float) -> tuple[Offered, ...]:
    """Every arrival by up to `most_s` sooner or later, always by the same."""
    if most_s <= 0:
        return tuple(offered)
    rng = random.Random(0)
    return apart(o._replace(at_s=o.at_s + rng.uniform(-most_s, most_s)) for o in offered)


def without_retries(offered: Sequence[Offered]) -> tuple[Offered, ...]:
    return tuple(o for o in offered if not o.retry)


def thinned(
    offered: Sequence[Offered],
    tenant: str,
    requests_per_s: float,
    tokens_per_s: float,
    largest_tokens: int,
) -> tuple[tuple[Offered, ...], int]:
    """Without the tenant's excess: arrivals above its usual requests and tokens a second are left
    out; its largest usual request always fits in time. Returns what is left, and how many of the
    window's requests were left out."""
    kept: list[Offered] = []
    most_requests = max(1.0, requests_per_s * _SPARE_S)
    most_tokens = max(float(largest_tokens), tokens_per_s * _SPARE_S)
    requests, tokens = most_requests, most_tokens
    since, out = 0.0, 0
    for o in offered:
        if o.tenant != tenant:
            kept.append(o)
            continue
        requests = min(most_requests, requests + requests_per_s * (o.at_s - since))
        tokens = min(most_tokens, tokens + tokens_per_s * (o.at_s - since))
        since = o.at_s
        size = o.prompt_tokens + o.output_tokens
        if requests_per_s > 0 and requests >= 1 and tokens >= size:
            requests, tokens = requests - 1, tokens - size
            kept.append(o)
        elif o.judged:
            out += 1
    return tuple(kept), out
