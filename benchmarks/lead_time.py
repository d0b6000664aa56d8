"""How early is the first signal: lead over the first miss, and the false alarms that it costs.

    python benchmarks/lead_time.py [NAME ...] [--before-s 2700] [--hours 3] [--seeds 1] [--json]

Each sample incident is played again, after three quarters of an hour of its everyday, its rows
leaving every 10 s, and the alert rules are asked every 10 s about the rows of then, as the store's
process asks them: rule by rule, through the same hysteresis. A signal is an alert that fires; the
first miss is the instant the first target of somebody not at fault passes, whether the request
still waits or not. Lead = first miss - first signal: above 0 the signal came first. A verdict on
the same rows (its last ten minutes), as the console has it, is a signal too: from when on it says
that somebody is hurt, and from when on a cause. Signals within three minutes before the onset count
for the incident, earlier ones are false.

False alarms: the quiet day, and the steady heavy bystander without its incident, played for hours
with other seeds; every opening of an alert (one that warns or pages) is a false one, and so is
every time that the verdict begins to say that somebody is hurt.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.attribution.truth import Rows
from engine.simulation.columns import Columns
from engine.simulation.setup import START_UNIX_S, make_setup
from engine.simulation.simulate import simulate
from engine.simulation.workload import Workload, read_workload
from sample_incidents import incident_path, list_incidents
from sample_incidents.expected import read_expected
from telemetry.alerts.hysteresis import START, Hysteresis, step
from telemetry.alerts.rules import INFO, RULES, conditions, for_s
from telemetry.alerts.settings import AlertSettings
from telemetry.findings.lately import SLOW_S, Lately, lately_of
from telemetry.verdict import CAPACITY, EVERYONE, SELF, TENANT, judge
from telemetry.window import Window, window_of

TICK_S = 10.0
SLOW_EVERY_S = 60.0  # how often the long sums are made anew, as the store's process does
HOUR_S = 3600.0
BEFORE_S = 180.0  # a signal so long before the onset belongs to it
JUDGED_S = 600.0
DAY_S = 86_400.0
FALSE_ON = ("quiet-day", "steady-heavy-bystander")


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alert that began to fire, `at_s` on the workload's clock."""

    alert: str
    severity: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Lead:
    """One incident. Seconds since the onset; None = never. `lead_s` = miss - signal, of the alerts;
    `hurt_lead_s` the same of a verdict that says that somebody is hurt."""

    name: str
    signal: str | None
    signal_s: float | None
    page_s: float | None
    hurt_s: float | None
    verdict_s: float | None
    verdict: str | None
    miss_s: float | None
    early: int  # alarms long before the onset

    @property
    def lead_s(self) -> float | None:
        if self.miss_s is None or self.signal_s is None:
            return None
        return self.miss_s - self.signal_s

    @property
    def hurt_lead_s(self) -> float | None:
        if self.miss_s is None or self.hurt_s is None:
            return None
        return self.miss_s - self.hurt_s


@dataclass(frozen=True, slots=True)
class Quiet:
    """Alarms over hours in which nobody was at fault; `notes` are those that only inform, `said`
    how often a verdict began to say that somebody is hurt."""

    name: str
    hours: float
    alarms: int
    notes: int
    said: int
    missed: int
    alerts: tuple[str, ...]

    @property
    def a_day(self) -> float:
        return self.alarms * 24 / self.hours

    @property
    def said_a_day(self) -> float:
        return self.said * 24 / self.hours


def played(workload: Workload, end_s: float = math.inf) -> tuple[Window, Columns]:
    """The workload's rows, one bucket a tick, and what became of its requests."""
    rows = Rows()
    setup = replace(make_setup(workload), bucket_s=TICK_S)
    result = simulate(workload.stream(0.0, end_s), setup, rows=rows)
    t = rows.tables
    base = setup.start_unix_s
    window = window_of(
        setup.pools[0].name,
        base,
        base + result.simulated_s,
        engine_rows=t.get("engine_minute", ()),
        tenant_rows=t.get("tenant_minute", ()),
        matrix_rows=t.get("interference_minute", ()),
        events=t.get("event", ()),
        policies=t.get("policy", ()),
        runs=t.get("engine_run", ()),
    )
    return window, result.columns


def until(window: Window, start: float, end: float) -> Window:
    """What was known at an instant, asked about from `start` on."""
    return replace(
        window,
        start=start,
        end=end,
        buckets=tuple(b for b in window.buckets if b.end <= end + 1e-6),
        events=tuple(e for e in window.events if e.at < end),
        policies=tuple(p for p in window.policies if p.at < end),
        runs=tuple(r for r in window.runs if r.started < end),
    )


def latelies(window: Window) -> Iterator[Lately]:
    """The sums at every tick. The long ones are read again once a minute."""
    slow: Lately | None = None
    read_at = -math.inf
    for bucket in window.buckets:
        now = bucket.end
        if now - read_at >= SLOW_EVERY_S or slow is None:
            slow, read_at = lately_of(until(window, now - SLOW_S, now)), now
            yield slow
            continue
        known = until(window, now - HOUR_S, now)
        near = replace(known, buckets=tuple(b for b in known.buckets if b.start >= now - HOUR_S))
        yield replace(lately_of(near), slow=slow.slow, slow_long=slow.slow_long)


def alarms(window: Window) -> Iterator[Alarm]:
    """Every alert that begins to fire; of one alert the most severe rule speaks."""
    settings = AlertSettings()
    held: dict[str, Hysteresis] = {}
    for lately in latelies(window):
        for c in conditions(lately, settings.limits, RULES):
            was = held.get(c.rule.key, START)
            now = step(was, c.finding.holds, TICK_S, for_s=for_s(c.rule, settings.limits),
                       clear_s=settings.clear_s)  # fmt: skip
            held[c.rule.key] = now
            if now.firing and not was.firing:
                yield Alarm(c.rule.alert, c.rule.severity, lately.at - window.start)


def misses(workload: Workload, columns: Columns) -> list[tuple[float, str]]:
    """When a target passed, and whose, in order."""
    slos = {t.name: t.slo for t in workload.tenants}
    found: list[tuple[float, str]] = []
    for i, number in enumerate(columns.tenant):
        tenant = columns.tenants[number]
        slo = slos[tenant]
        if slo.ttft_s is not None and not columns.ttft_s[i] <= slo.ttft_s:
            found.append((columns.arrived_s[i] + slo.ttft_s, tenant))
        elif slo.max_gap_s is not None and columns.max_gap_s[i] > slo.max_gap_s:
            # When in its life the gap was is not kept: its end is the latest it can have been.
            found.append((columns.ended_s[i], tenant))
    return sorted(found)


def preceded(workload: Workload, more_s: float) -> Workload:
    """The same with so much more of the everyday before it; the wall clock of the incident stays.
    What is usual of a share is taken from hours, and the samples begin minutes before."""
    traffic = tuple(
        replace(t, start_s=t.start_s + more_s * (t.start_s > 0), end_s=t.end_s + more_s)
        for t in workload.traffic
    )
    starts = workload.starts_unix_s
    return replace(
        workload,
        traffic=traffic,
        calm_s=workload.calm_s + more_s,
        incidents=tuple(
            replace(i, at_s=i.at_s + more_s, end_s=i.end_s + more_s) for i in workload.incidents
        ),
        faults=tuple(replace(f, at_s=f.at_s + more_s) for f in workload.faults),
        changes=tuple(replace(c, at_s=c.at_s + more_s) for c in workload.changes),
        starts_unix_s=(START_UNIX_S if starts is None else starts) - more_s,
    )


def lead(name: str, before_s: float) -> Lead:
    expected = read_expected(name)
    workload = preceded(read_workload(incident_path(name) / "workload.toml"), before_s)
    window, columns = played(workload)
    assert expected.onset is not None
    onset = expected.onset - window.start
    loud = [a for a in alarms(window) if a.severity != INFO]
    mine = [a for a in loud if a.at_s >= onset - BEFORE_S]
    own = () if expected.kind == "self" else expected.who
    missed = [at for at, t in misses(workload, columns) if at >= onset and t not in own]
    first = min(mine, key=lambda a: a.at_s, default=None)
    pages = [a.at_s for a in mine if a.severity == "page"]
    hurt_at, named_at, named = _named(window, onset)
    return Lead(
        name,
        first.alert if first else None,
        first.at_s - onset if first else None,
        min(pages) - onset if pages else None,
        hurt_at,
        named_at,
        named,
        missed[0] - onset if missed else None,
        len(loud) - len(mine),
    )


def _named(window: Window, onset: float) -> tuple[float | None, float | None, str | None]:
    """From when on a verdict on what was known says that somebody is hurt, from when on a cause,
    and which."""
    hurt: float | None = None
    for bucket in window.buckets:
        at = bucket.end - window.start
        if at < onset:
            continue
        verdict = judge(until(window, bucket.end - JUDGED_S, bucket.end))
        if hurt is None and verdict.hurt:
            hurt = at - onset
        if verdict.kind in (TENANT, CAPACITY, SELF, EVERYONE):
            return hurt, at - onset, f"{verdict.kind} {verdict.tenant or ''}".strip()
        if at - onset > JUDGED_S:
            break
    return hurt, None, None


def said(window: Window) -> int:
    """How often a verdict begins to say that somebody is hurt, asked at every tick once there is
    something to compare with."""
    openings, was = 0, False
    for bucket in window.buckets:
        if bucket.end - window.start < JUDGED_S:
            continue
        now = bool(judge(until(window, bucket.end - JUDGED_S, bucket.end)).hurt)
        openings += now and not was
        was = now
    return openings


def calm(workload: Workload, hours: float, seed: int) -> Workload:
    """Without its incidents, for hours, with another seed."""
    floods = {(i.tenant, i.at_s) for i in workload.incidents}
    kept = [t for t in workload.traffic if not any((n, t.start_s) in floods for n in t.tenants)]
    traffic = tuple(replace(t, end_s=hours * HOUR_S) for t in kept if t.start_s == 0)
    return replace(workload, traffic=traffic, incidents=(), faults=(), changes=(), seed=seed)


def quiet(name: str, hours: float, seed: int) -> Quiet:
    workload = calm(read_workload(incident_path(name) / "workload.toml"), hours, seed)
    window, columns = played(workload)
    found = list(alarms(window))
    loud = [a for a in found if a.severity != INFO]
    return Quiet(name, hours, len(loud), len(found) - len(loud), said(window),
                 len(misses(workload, columns)),
                 tuple(f"{a.alert} at {a.at_s:.0f} s" for a in loud))  # fmt: skip


def _s(value: float | None) -> str:
    return "never" if value is None else f"{value:+.0f} s"


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Lead of the first signal over the first miss, with false alarms a day.",
        epilog="example: python benchmarks/lead_time.py five-pm-contexts --hours 6",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="sample incidents (all simulated)")
    parser.add_argument("--before-s", type=float, default=2700.0,
                        help="more of the everyday before each incident (2700)")  # fmt: skip
    parser.add_argument("--hours", type=float, default=3.0, help="of quiet, each seed; 0 = none")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(args)
    unknown = [n for n in given.names if n not in list_incidents()]
    if unknown:
        parser.error(f"no incident {unknown[0]!r}: there are {', '.join(list_incidents())}")
    chosen = [
        n for n in given.names or list_incidents()
        if (e := read_expected(n)).recorded == "simulate" and e.onset is not None
    ]  # fmt: skip
    leads: list[Lead] = []
    for name in chosen:
        leads.append(lead(name, given.before_s))
        if not given.json:
            x = leads[-1]
            print(
                f"{x.name:<24} first miss {_s(x.miss_s):>8}  signal {_s(x.signal_s):>8} "
                f"({x.signal or '-'})  page {_s(x.page_s):>8}  lead {_s(x.lead_s):>8}  "
                f"verdict {_s(x.hurt_s):>8}  lead {_s(x.hurt_lead_s):>8}  "
                f"cause {_s(x.verdict_s):>8} ({x.verdict or '-'})  early {x.early}",
                flush=True,
            )
    still = [
        quiet(n, given.hours, seed)
        for n in FALSE_ON
        for seed in range(1000, 1000 + given.seeds)
        if given.hours > 0
    ]
    if given.json:
        body = {
            "leads": [
                {**asdict(x), "lead_s": x.lead_s, "hurt_lead_s": x.hurt_lead_s} for x in leads
            ],
            "quiet": [{**asdict(q), "a_day": q.a_day, "said_a_day": q.said_a_day} for q in still],
        }
        print(json.dumps(body, indent=2, allow_nan=False))
        return 0
    for q in still:
        print(
            f"{q.name:<24} {q.hours:g} h, {q.missed} misses: {q.alarms} false alarms "
            f"({q.a_day:.1f} a day), {q.notes} notes, {q.said} verdicts that somebody is hurt "
            f"({q.said_a_day:.1f} a day) {'; '.join(q.alerts)}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
