"""One look at everything: reads each pool, asks the findings, moves the incidents, tells.

Owns what lies between two looks (hysteresis, incidents, what was offered to whom); the thread, the
store and the couriers are handed in. Every duration is counted by `mono`, a clock that nobody sets;
the wall clock only dates. Nothing here raises: what fails is logged, and the rest goes on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from telemetry.alerts import bodies, state
from telemetry.alerts import incident as incidents
from telemetry.alerts.delivery import Parcel, Receipt, TargetStats
from telemetry.alerts.ears import Ears
from telemetry.alerts.hysteresis import START, Hysteresis, Phase, step
from telemetry.alerts.incident import Incident, State, Words
from telemetry.alerts.reading import Reader, judge_words
from telemetry.alerts.rules import (
    PAGE,
    RULES,
    SEVERITIES,
    Condition,
    Rule,
    at_least,
    conditions,
    for_s,
)
from telemetry.alerts.settings import ALERTMANAGER, AlertSettings, Target
from telemetry.alerts.silences import is_silenced
from telemetry.errors import StoreError
from telemetry.findings.lately import Lately
from telemetry.records import Batch

if TYPE_CHECKING:
    from telemetry.source import Source

log = logging.getLogger(__name__)

WORDS_EVERY_S = 60.0
WORDS_PAUSE = 20.0  # times as long as the last verdict took
WRITE_EVERY_S = 60.0
ASLEEP_LOOKS = 3.0  # looks missed, after which the store's own process was asleep
AFTER_GIVEN_UP_S = 300.0  # what was given up is tried anew so much later
_NEVER = -1e9
_JUDGED_S, _JUDGED_MOST_S = 300.0, 1800.0
_ACTS_BACK_S = 120.0
_WORDED = ("TenantscopeGoodputBurn", "TenantscopeShare", "TenantscopeAdapter",
           "TenantscopeEngineStalled")  # fmt: skip


class Carries(Protocol):
    """A courier, as a look sees it."""

    @property
    def target(self) -> Target: ...

    def offer(self, parcel: Parcel) -> None: ...

    def stats(self) -> TargetStats: ...


@dataclass(frozen=True, slots=True)
class AlertStats:
    """`open` by severity, silenced ones among them; `looks` since the start, `failures` of a pool's
    look or a write; `last_look_s`: how long the last one took."""

    open: Mapping[str, int]
    silenced: int
    looks: int
    failures: int
    last_look_s: float
    targets: tuple[TargetStats, ...]


class Evaluator:
    """`tick` from one thread; `received` and `stats` from any."""

    def __init__(
        self,
        source: Source,
        write: Callable[[tuple[Batch, ...]], object],
        ears: Ears,
        settings: AlertSettings,
        couriers: Sequence[Carries],
        wall: Callable[[], float],
        mono: Callable[[], float],
        rules: tuple[Rule, ...] = RULES,
    ) -> None:
        self._source, self._write, self._ears = source, write, ears
        self._settings, self._couriers = settings, couriers
        self._wall, self._mono, self._rules = wall, mono, rules
        self._reader = Reader(source, settings.limits)
        self._last_wall: float | None = None
        self._last_mono: float | None = None
        self._held: dict[tuple[str, str], Hysteresis] = {}
        self._current: dict[str, Incident] = {}
        self._written: dict[str, tuple[Incident, float]] = {}
        self._worded: dict[str, tuple[float, str]] = {}
        self._offered: dict[tuple[str, str], int] = {}
        self._resent: dict[tuple[str, str], float] = {}
        self._given_up: dict[tuple[str, str], float] = {}
        self._repeated: dict[str, float] = {}
        self._known = state.Known()
        self._receipts: deque[Receipt] = deque(maxlen=10_000)
        self._recalled = False
        self._looks = self._failures = 0
        self._last_look_s = 0.0

    # --- from the store, before the first look ---

    def recall(self) -> None:
        """Take up what was before a restart. Raises StoreError where the store cannot answer."""
        now = self._wall()
        self._known = state.recall(self._source, now)
        self._current = self._known.latest()
        for pool, incident in self._current.items():
            self._written[pool] = (incident, self._mono())
            # What fired does so until the rows say that it is clear: a restart closes nothing.
            fired = {a.alert for a in incident.alerts if a.firing} | set(incident.muted)
            for rule in reversed(self._rules):
                if rule.alert in fired:
                    self._held[pool, rule.key] = _FIRING
        day = 86_400.0
        found = self._source.query("alert_pools", start=now - day, end=now + day).dicts()
        for row in found:
            stopped, last = row["stopped_s"], row["last_s"]
            over = stopped is not None and stopped >= last - 1.0
            self._ears.recall(row["engine"], row["pool"], last, stopped if over else None)
        self._recalled = True

    # --- a look ---

    def tick(self) -> None:
        if not self._recalled:
            try:
                self.recall()
            except StoreError as e:
                self._failed("nothing is judged before the store answers: %s", e)
                return
        wall, mono = self._wall(), self._mono()
        dt = self._passed(mono)
        self._take_acts(wall)
        self._take_receipts(mono)
        heard = self._ears.pools()
        for pool in sorted({*heard, *(p for p, i in self._current.items() if i.live)}):
            try:
                if pool in heard:
                    lately = self._reader.lately(pool, heard[pool], mono)
                    self._look(lately, dt, wall, mono)
                else:
                    # Unheard for a day: whatever it was, it is gone.
                    self._current[pool] = incidents.resolve(self._current[pool], wall)
            except StoreError as e:
                self._failed("pool %r was not looked at: %s", pool, e)
            except Exception:
                self._failures += 1
                log.exception("alerts: pool %r was not looked at", pool)
        for pool in sorted(self._current):
            self._settle(pool, wall, mono)
        self._last_wall, self._last_mono = wall, mono
        self._looks += 1
        self._last_look_s = self._mono() - mono

    def _passed(self, mono: float) -> float:
        """Seconds since the last look, as far as this process ran."""
        if self._last_mono is None:
            return 0.0
        passed, most = mono - self._last_mono, ASLEEP_LOOKS * self._settings.every_s
        if passed > most:
            self._ears.forgive(passed - self._settings.every_s)
            return self._settings.every_s
        return passed

    def _look(self, lately: Lately, dt: float, wall: float, mono: float) -> None:
        limits, pool = self._settings.limits, lately.pool
        said = conditions(lately, limits, self._rules)
        firing: list[Condition] = []
        for c in said:
            was = self._held.get((pool, c.rule.key), START)
            now_is = step(was, c.finding.holds, dt, for_s=for_s(c.rule, limits),
                          clear_s=self._settings.clear_s)  # fmt: skip
            self._held[pool, c.rule.key] = now_is
            if now_is.firing:
                firing.append(c)
        was_incident = self._current.get(pool)
        words = self._words(lately, firing, was_incident, wall, mono)
        # Of one alert the most severe rule that fires speaks.
        spoken: dict[str, Condition] = {}
        for c in firing:
            spoken.setdefault(c.rule.alert, c)
        became = incidents.advance(was_incident, pool, lately.engine, list(spoken.values()), wall,
                                   self._settings.rejoin_s, words)  # fmt: skip
        if became is not None:
            self._current[pool] = became

    def _words(
        self, lately: Lately, firing: list[Condition], was: Incident | None, wall: float,
        mono: float,
    ) -> Words | None:  # fmt: skip
        """The verdict's, at the opening, when something new fires, and once a minute."""
        about = sorted({c.rule.alert for c in firing if c.rule.alert.startswith(_WORDED)})
        if not about or not lately.current:
            return None
        not_before, of = self._worded.get(lately.pool, (_NEVER, ""))
        what = ",".join(about)
        if mono < not_before and of == what:
            return None
        since = wall - was.first_seen if was is not None and was.live else 0.0
        back = min(_JUDGED_MOST_S, max(0.0, since) + _JUDGED_S)
        self._worded[lately.pool] = (mono + WORDS_EVERY_S, what)
        try:
            window = self._reader.window(
                lately.pool, lately.at - back, lately.at, len(lately.fast_long.tenants)
            )
            words = judge_words(window)
            # A verdict on many tenants takes seconds: it may have a twentieth of a core.
            pause = max(WORDS_EVERY_S, WORDS_PAUSE * (self._mono() - mono))
            self._worded[lately.pool] = (mono + pause, what)
            return words
        except Exception:
            # The alert goes out with the finding's own sentence.
            self._failures += 1
            log.exception("alerts: no verdict for pool %r", lately.pool)
            return None

    # --- people ---

    def _take_acts(self, wall: float) -> None:
        first = min(wall, wall if self._last_wall is None else self._last_wall) - _ACTS_BACK_S
        try:
            rows = self._source.query(
                "alert_events", start=first, end=float("inf"), states=False
            ).rows
        except StoreError as e:
            self._failed("acts were not read: %s", e)
            return
        mine = {i.id: i for i in self._current.values()}
        before = self._known.incidents
        self._known = state.fold(rows, state.Known({**before, **mine}, self._known.silences,
                                                   self._known.acts))  # fmt: skip
        for pool, incident in list(self._current.items()):
            self._current[pool] = self._known.incidents[incident.id]
        self._forget_past({str(r[2]) for r in rows}, first)

    def _forget_past(self, read: set[str], first: float) -> None:
        """What is over is in the store: memory holds what is current, whatever has been."""
        mine = {i.id for i in self._current.values()}
        self._known = state.Known(
            {k: v for k, v in self._known.incidents.items() if k in mine},
            {k: v for k, v in self._known.silences.items() if v.until >= first},
            self._known.acts & read,
        )
        for kept in (self._offered, self._resent, self._given_up):
            for key in [k for k in kept if k[0] not in mine]:
                del kept[key]
        for name in [n for n in self._repeated if n not in mine]:
            del self._repeated[name]

    # --- telling ---

    def received(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)

    def _take_receipts(self, mono: float) -> None:
        while self._receipts:
            r = self._receipts.popleft()
            for pool, incident in self._current.items():
                if incident.id != r.parcel.incident or not r.parcel.counts:
                    continue
                if r.ok:
                    self._current[pool] = incidents.told(incident, r.target, r.parcel.notice)
                elif incident.notice == r.parcel.notice:
                    self._offered.pop((incident.id, r.target), None)
                    self._given_up[incident.id, r.target] = mono

    def _settle(self, pool: str, wall: float, mono: float) -> None:
        """Write what became of it, then tell: what was told must be known after a kill."""
        incident = self._current[pool]
        silenced = is_silenced(incident, self._known.silences.values(), wall)
        self._current[pool] = self._repeat(replace(incident, silenced=silenced), wall, mono)
        try:
            self._keep(pool, wall, mono)
        except StoreError as e:
            # Told all the same, and written at a later look.
            self._failed("incident %s was not written: %s", incident.id, e)
        for courier in self._couriers:
            incident = self._current[pool]
            self._current[pool] = self._tell_one(courier, incident, wall, mono)

    def _repeat(self, incident: Incident, wall: float, mono: float) -> Incident:
        if incident.state is not State.OPEN or incident.severity != PAGE or incident.silenced:
            self._repeated.pop(incident.id, None)
            return incident
        since = self._repeated.setdefault(incident.id, mono)
        if mono - since < self._settings.renotify_s:
            return incident
        self._repeated[incident.id] = mono
        return incidents.renotify(incident, wall)

    def _tell_one(self, courier: Carries, incident: Incident, wall: float, mono: float) -> Incident:
        target = courier.target
        if incident.silenced or not at_least(incident.severity, target.minimum):
            return incident
        key = (incident.id, target.name)
        told = max(incident.told_to(target.name), self._offered.get(key, 0))
        if incident.notice > told:
            if told == 0 and not incident.live:
                # Nobody there heard that it began.
                return incidents.told(incident, target.name, incident.notice)
            if mono - self._given_up.get(key, _NEVER) < AFTER_GIVEN_UP_S:
                return incident
            self._offered[key] = incident.notice
            self._resent[key] = mono
            courier.offer(self._parcel(target, incident, wall, counts=True))
            return incident
        due = mono - self._resent.get(key, _NEVER) >= self._settings.resend_s
        if target.kind == ALERTMANAGER and incident.live and due:
            self._resent[key] = mono
            courier.offer(self._parcel(target, incident, wall, counts=False))
        return incident

    def _parcel(self, target: Target, incident: Incident, wall: float, *, counts: bool) -> Parcel:
        made = (
            bodies.alertmanager_body(incident, self._settings, wall)
            if target.kind == ALERTMANAGER
            else bodies.webhook_body(incident, self._settings)
        )
        return Parcel(incident.id, incident.notice, bodies.dedup_key(incident), made, counts)

    # --- keeping ---

    def _keep(self, pool: str, wall: float, mono: float) -> None:
        """Write what has changed: a transition at once, what only goes on once a minute."""
        incident = self._current[pool]
        was, at = self._written.get(pool, (None, _NEVER))
        recent = not incident.live or mono - at < WRITE_EVERY_S
        if was is not None and recent and _same(was, incident):
            return
        new = was is None or was.id != incident.id or was.notice != incident.notice
        incident = replace(incident, seq=incident.seq + 1)
        self._write((state.state_batch(incident, wall, say=new),))
        self._current[pool] = incident
        self._written[pool] = (incident, mono)

    def _failed(self, words: str, *values: object) -> None:
        self._failures += 1
        log.error(f"alerts: {words}", *values)

    # --- out ---

    def current(self) -> tuple[Incident, ...]:
        """The newest incident of each pool."""
        return tuple(self._current.values())

    def stats(self) -> AlertStats:
        live = [i for i in list(self._current.values()) if i.live]
        return AlertStats(
            {s: sum(i.severity == s for i in live) for s in SEVERITIES},
            sum(i.silenced for i in live),
            self._looks,
            self._failures,
            self._last_look_s,
            tuple(c.stats() for c in self._couriers),
        )


_FIRING = Hysteresis(Phase.FIRING)


def _same(a: Incident, b: Incident) -> bool:
    """But for what moves at every look."""

    def still(i: Incident) -> Incident:
        alerts = tuple(replace(s, sentence="", last_seen=0.0, evidence=()) for s in i.alerts)
        return replace(i, last_seen=0.0, seq=0, alerts=alerts)

    return still(a) == still(b)
