"""From a store's rows to what is replayed: who is judged, which stretch, on which setup.

Owns the choice of the stretch (cut at changes of settings, and to what the time allows) and every
note about it. Reads a source; replays nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from postmortem.whatif import rebuild
from postmortem.whatif.arrivals import from_rows
from postmortem.whatif.fit import Fitted, fit_costs
from postmortem.whatif.measure import of_rows
from postmortem.whatif.model import NoConclusion, Outcome
from postmortem.whatif.policies import Facts
from postmortem.whatif.rebuild import Changed
from postmortem.whatif.replay import Stretch
from postmortem.whatif.start import LONGEST_LEAD_S, Start, plan_start
from postmortem.whatif.usual import usual_of
from telemetry.case import Case, open_case
from telemetry.findings import examine
from telemetry.plain import name, percent, safe, span_s
from telemetry.records import EngineRun, RequestRecord
from telemetry.verdict import judge_case, when
from telemetry.window import Bucket, Reads, Window

TOP_SHARE = 0.2  # of the victims' excess: from here on its holder is worth a remedy of its own
LONGEST_CALM_S = 1800.0
LEAD = 0.1  # of the requests there is time for: so many may lie before the onset
_ARRIVED = attrgetter("arrived")
CACHED = 0.05  # of the prompt tokens: more is worth a note
SHORTER = 0.95  # output over max_tokens: less is worth a note


@dataclass(frozen=True, slots=True)
class Prepared:
    """`calm` is the stretch before the incident that limits are tried on; None = there is none.
    `facts` are what remedies are made from, its setup what was in force."""

    case: Case
    start: Start
    facts: Facts
    fitted: Fitted
    window: Stretch
    calm: Stretch | None
    recorded: Outcome
    usual_p99_s: dict[str, float | None]
    notes: tuple[str, ...]

    @property
    def of(self) -> frozenset[str]:
        return frozenset((*self.facts.victims, *self.facts.culprits))


def who(
    case: Case, victims: Sequence[str] | None, culprits: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(victims, culprits): those given, else those the verdict names. Raises NoConclusion where
    nobody is hurt."""
    if culprits is None:
        verdict = judge_case(case, examine(case))
        named = verdict.tenant
        if named is None:
            top = next((x for x in case.lines if x.holder.is_tenant), None)
            named = top.holder.name if top is not None and top.share >= TOP_SHARE else None
        culprits = () if named is None else (named,)
    if victims is None:
        hurt = [v.tenant for v in case.victims] or [v.tenant for v in case.hurt]
        victims = [t for t in hurt if t not in culprits] or hurt
    if not victims:
        raise NoConclusion("nobody is hurt in this window: there is nothing to prevent")
    return tuple(dict.fromkeys(victims)), tuple(dict.fromkeys(culprits))


def rows_of(window: Window) -> int:
    """How many rows of requests and of the matrix were read for it."""
    return len(window.requests) + sum(len(b.matrix) for b in (*window.past, *window.buckets))


def prepare(
    source: Reads,
    window: Window,
    victims: Sequence[str] | None,
    culprits: Sequence[str] | None,
    most_requests: int,
    case: Case | None = None,
    hurry: Callable[[], None] = lambda: None,
) -> Prepared:
    """`most_requests` a replay may have; a longer window is cut to the incident. `case`: the
    window's, where it is open already. `hurry` is called before every part, and may raise. Raises
    NoConclusion."""
    hurry()
    if not any(b.known for b in window.asked):
        raise NoConclusion("no engine was heard in this window: there is nothing to replay")
    if case is None:
        case = open_case(window)
    hurry()
    hurt, named = who(case, victims, culprits)
    notes: list[str] = []
    onset = case.incident.onset if case.incident is not None else window.start
    hurry()
    here = _arrived(window.requests, window.start, window.end)
    if not here:
        raise NoConclusion("the window holds no request rows: minutes alone cannot be replayed")
    there = {r.tenant for r in window.requests}
    unknown = [t for t in (*hurt, *named) if t not in there]
    if unknown:
        raise NoConclusion(f"no request of {name(unknown[0])} is in this store")
    run, replicas = rebuild.one_run(window.runs, here)
    settings, changed, since, start, end = _in_force(window, run, onset, notes)
    start, end = _incident(case, start, end)
    start, end = cut(here, start, end, onset, most_requests, notes)
    plan = plan_start(
        start, end, window.requests, window.buckets, settings.tenants, run.started, since
    )
    rows = _near(window.requests, plan)
    rebuild.one_run(window.runs, rows)  # nor a restart in the lead or the tail
    # Calm minutes beside the incident help the fit: the machine is the same.
    first, last = min(plan.begin, window.start), max(plan.until, window.end)
    hurry()
    samples = [s for s in source.read("step_sample", first, last) if s.run_id == run.run_id]
    fitted = fit_costs(samples, window.buckets, window.bucket_s)
    recorded_adapters = rebuild.adapters_of(
        source.read("adapter", float("-inf"), float("inf")), run
    )
    keys = {n: a.adapter for n, a in recorded_adapters.items()}
    setup = rebuild.make(
        run,
        replicas,
        settings,
        fitted.costs,
        recorded_adapters.values(),
        {r.tenant for r in window.requests},
        rebuild.link_bytes_per_s(window.buckets),
        fitted.paces,
        plan.begin,
    )
    hurry()
    offered = from_rows(
        rows, window.buckets, begin=plan.begin, judged=(start, end), until=plan.until, adapters=keys
    )
    slos = {t.name: t.slo for t in setup.tenants}
    theirs = frozenset(hurt)
    used = sorted({keys[r.adapter] for r in here if r.tenant in theirs and r.adapter in keys})
    usual = {t: usual_of(t, case.baseline, window.requests) for t in named}
    notes += _notes(rows, plan, keys, fitted)
    hurry()
    return Prepared(
        case,
        plan,
        Facts(setup, hurt, named, usual, tuple(used), changed),
        fitted,
        Stretch(offered, start - plan.begin, end - start),
        _calm(window, case, max(LONGEST_CALM_S, end - start), most_requests, keys),
        of_rows(window.requests, start, end, slos, (*hurt, *named), hurt),
        _usual_p99(window, case, hurt),
        tuple(notes),
    )


def _incident(case: Case, start: float, end: float) -> tuple[float, float]:
    """The incident inside the stretch: calm minutes beside it would only thin the misses out. All
    of the stretch where there is none."""
    if case.incident is None:
        return start, end
    first, last = max(start, case.start), min(end, case.end)
    return (first, last) if first < last else (start, end)


def _in_force(
    window: Window, run: EngineRun, onset: float, notes: list[str]
) -> tuple[rebuild.Settings, Changed | None, float, float, float]:
    """(settings of the stretch, the change that may be the cause, since when they hold, start,
    end). A change up to a bucket after the onset begins the stretch; a later one, the response
    to it, ends it."""
    settings, changes = rebuild.history(run, window.policies)
    start, end = window.start, window.end
    cause: Changed | None = None
    since = run.started
    for change in changes:
        if change.at <= max(start, onset + window.bucket_s):
            settings, since = change.after, change.at
            cause = change if change.at >= onset - rebuild.CHANGE_BEFORE_S else None
            if change.at > start:
                notes.append(
                    f"replayed from {when(change.at)} on, when the settings changed "
                    f"({safe(change.words)})"
                )
            start = max(start, change.at)
        elif change.at < end:
            notes.append(
                f"replayed up to {when(change.at)}, when the settings changed "
                f"({safe(change.words)})"
            )
            end = change.at
    return settings, cause, since, start, end


def cut(
    rows: Sequence[RequestRecord],
    start: float,
    end: float,
    onset: float,
    most: int,
    notes: list[str],
) -> tuple[float, float]:
    """Not more requests than can be replayed: the stretch that holds the onset, and the end of the
    incident where there is room for both."""
    at = [r.arrived for r in rows if start <= r.arrived < end]
    if len(at) <= most:
        return start, end
    begin = max(0, bisect_left(at, onset) - int(LEAD * most))
    whole = begin >= len(at) - most
    begin = min(begin, len(at) - most)
    first = start if begin == 0 else at[begin]
    last = end if whole else at[begin + most]
    holds = "onset and the end" if whole else "onset, without the end"
    notes.append(
        f"replayed {span_s(last - first)} of {span_s(end - start)}, from {when(first)} on, with "
        f"the {holds}: {len(at):,} requests are more than the time allows"
    )
    return first, last


def _near(requests: Iterable[RequestRecord], plan: Start) -> list[RequestRecord]:
    """The rows of the replay, and of those under way when it begins."""
    first = plan.begin - LONGEST_LEAD_S
    return [
        r
        for r in requests
        if first <= r.arrived < plan.until
        and (r.arrived >= plan.begin or (r.ended is not None and r.ended > plan.begin))
    ]


def _calm(
    window: Window, case: Case, longest_s: float, most: int, keys: dict[str, str]
) -> Stretch | None:
    """The last calm buckets in a row before the incident, no longer and no more requests."""
    line: list[Bucket] = []
    for b in reversed(case.baseline.buckets):
        if line and (b.end < line[-1].start - 1e-6 or line[0].end - b.start > longest_s):
            break
        line.append(b)
    if not line:
        return None
    begin, end = line[-1].start, line[0].end
    rows = _arrived(window.requests, begin, end)
    if not rows:
        return None
    if len(rows) > most:
        begin = rows[-most].arrived
        rows = rows[-most:]
    try:
        offered = from_rows(
            rows, window.buckets, begin=begin, judged=(begin, end), until=end, adapters=keys
        )
    except NoConclusion:  # nothing finished in it: lengths are not known
        return None
    return Stretch(offered, 0.0, end - begin)


def _usual_p99(window: Window, case: Case, victims: Iterable[str]) -> dict[str, float | None]:
    """The victims' TTFT p99 in the calm buckets (None: too few requests)."""
    wanted = tuple(victims)
    spans = [(b.start, b.end) for b in case.baseline.buckets]  # in order of time
    if not spans:
        return dict.fromkeys(wanted)
    rows = [r for start, end in spans for r in _arrived(window.requests, start, end)]
    calm = of_rows(rows, spans[0][0], spans[-1][1], {}, wanted, ())
    return {n.tenant: n.ttft_p99_s for n in calm.tenants}


def _arrived(requests: Sequence[RequestRecord], start: float, end: float) -> list[RequestRecord]:
    """Those that arrived in [start, end); a window's requests are in that order."""
    first = bisect_left(requests, start, key=_ARRIVED)
    return [*requests[first : bisect_left(requests, end, lo=first, key=_ARRIVED)]]


def _notes(
    rows: Sequence[RequestRecord], plan: Start, keys: dict[str, str], fitted: Fitted
) -> list[str]:
    out = ["arrivals are open-loop: nobody stays away, or comes again, because of a new policy"]
    if plan.quotas != "none":
        how = "all limits stood full" if plan.quotas == "full" else "limits have refilled since"
        out.append(f"the replay begins {span_s(plan.start - plan.begin)} early: {how}")
    here = [r for r in rows if plan.begin <= r.arrived < plan.until]
    cached = sum(r.cached_tokens or 0 for r in here)
    prompt = sum(r.prompt_tokens or 0 for r in here)
    if prompt and cached > CACHED * prompt:
        out.append(
            f"{percent(cached / prompt)} of the prompt tokens came from the prefix cache: "
            "they are left out of the prompts, whatever a policy would have evicted"
        )
    finished = [r for r in here if r.outcome == "finished" and r.max_tokens and r.output_tokens]
    asked = sum(r.max_tokens or 0 for r in finished)
    made = sum(r.output_tokens or 0 for r in finished)
    if asked and made < SHORTER * asked:
        out.append(
            f"requests made {percent(made / asked)} of their max_tokens: a limit on tokens a "
            "minute is replayed on what they made, and refuses more in truth"
        )
    strange = {r.adapter for r in here if r.adapter is not None and r.adapter not in keys}
    if strange:
        out.append(f"{len(strange)} adapters are of unknown size: replayed as the base model")
    given_up = sum(r.outcome == "aborted" for r in here)
    if given_up:
        out.append(f"{given_up} requests were given up by their clients: in a replay they stay")
    here_s = [f for at, long, f in fitted.paces if at < plan.until and at + long > plan.begin]
    if here_s:
        out.append(
            f"buckets replayed at the pace they had, not the cost model's: {len(here_s)}, "
            f"{min(here_s):.2f} to {max(here_s):.2f} times the model's steps"
        )
    return out
