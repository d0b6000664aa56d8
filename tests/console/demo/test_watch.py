"""A play is watched in the very console, or as plain lines of the very pictures, to its end."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

from console.act.desk import Desk
from console.command import opening
from console.demo import watch
from console.demo.watch import POLICY_KEY, deed, pictures, screen, sight, summary_line, text
from console.lines import ASCII, UNICODE
from console.overview import Look, overview_lines, phase_lines
from console.poller import Now
from console.sight import LiveEdge, ReplayEdge
from sample_incidents import incident_path
from telemetry.errors import StoreUnreachable
from tests.console import places
from tests.console import rows as made
from tests.console.act.stage import until
from tests.console.on_screen import HURT, Mute, app_of, hear, shown


class Turned:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def played(speed: float = 1.0):
    clock = Turned()
    source = places.memory(replace(made.incident(), runs=(made.run(bucket_s=10.0),)))
    return sight(lambda: source, ReplayEdge(speed, clock)), clock


def test_a_recording_runs_to_its_end_and_says_that_it_ends_there():
    feed, clock = played(10.0)
    rests: list[float] = []

    def rest() -> None:
        clock.now += 4.0
        rests.append(clock.now)

    seen = list(pictures(feed, rest))
    assert [p.now - made.T0 for p in seen] == [10.0, 50.0, 90.0, 130.0, 170.0, 180.0]
    assert seen[-1].ticker[-1].text.startswith("the recording ends here")
    assert not any(t.kind == "end" for p in seen[:-1] for t in p.ticker)
    assert len(rests) == 5


def test_its_figures_are_of_half_a_minute_and_its_waits_of_one():
    feed, clock = played()
    feed.snapshot()
    clock.now = 169.0
    picture = feed.snapshot()
    assert picture.covered_s == watch.WINDOW_S
    assert picture.account.span_s == watch.ACCOUNT_S


def test_the_overview_of_a_play_says_where_it_has_got_to_and_under_which_policy():
    feed, clock = played()
    picture = feed.snapshot()
    assert phase_lines(picture, 80, Look()) == ()
    [line] = phase_lines(picture, 80, Look(phases=True))
    assert line.plain.startswith("▸ the play has not begun")
    clock.now = 125.0
    picture = feed.snapshot()
    lines = [x.plain for x in overview_lines(picture, 80, 24, Look(phases=True))]
    assert lines[1].startswith("▸ acme fans out long contexts ")
    assert lines[1].endswith("policy fcfs v1")
    assert len(lines) == 24
    names = replace(picture, phase="[red]\x1b[31mnoon", policy="f\ncfs")
    [line] = phase_lines(names, 60, Look(phases=True, glyphs=ASCII))
    assert line.plain.startswith("> [red]\\x1b[31mnoon")
    assert line.width == 60


def test_the_plain_text_is_the_overview_and_its_summary_one_line():
    feed, clock = played()
    feed.snapshot()
    clock.now = 165.0
    picture = feed.snapshot()
    page = text(picture, UNICODE)
    assert "CULPRIT acme" in page
    assert "─HURT" in page
    assert max(len(line) for line in page.splitlines()) <= 80
    odd = replace(picture, phase="a\nb", policy=None)
    line = summary_line(odd)
    assert "\n" not in line
    assert "a\\x0ab | - | waiting " in line


def test_the_shipped_recording_shows_the_harm_under_fcfs_and_the_recovery_under_vtc():
    clock = Turned()
    feed = sight(opening(str(incident_path("five-pm-fanout") / "store")), ReplayEdge(1.0, clock))
    said = {}
    for at_s in (0.0, 75.0, 135.0):
        clock.now = at_s
        said[at_s] = " ".join(feed.snapshot().verdict.lines)
    feed.close()
    assert "CULPRIT acme" in said[75.0]
    assert "EARLIER" not in said[75.0]
    assert said[135.0].startswith("QUIET")
    assert "EARLIER" in said[135.0]


class Playing:
    """A play of some looks: a phase each, then it is over."""

    def __init__(self, *phases: str) -> None:
        self._left = list(phases)
        self.phase: str | None = None

    def is_alive(self) -> bool:
        return bool(self._left)

    def join(self, within_s: float) -> None:
        self.phase = self._left.pop(0)


def test_without_a_screen_every_phase_is_a_line_and_between_them_comes_the_picture(monkeypatch):
    monkeypatch.setattr(watch, "EVERY_S", 0.0)
    source = places.memory(made.incident())
    feed = sight(lambda: source, LiveEdge(lambda: made.T0 + 181.0))
    play = Playing("calm", "calm", "flood")
    said: list[str] = []
    watch.watch_lines(feed, play, play, said.append)
    assert [said[0], said[-1]] == ["== calm", "== flood"]
    assert "CULPRIT acme" in said[1]


def test_a_store_that_does_not_answer_is_a_line_and_no_end():
    class Down:
        def snapshot(self):
            raise StoreUnreachable("nothing answers at unix:/x")

    said: list[str] = []
    watch.tell_now(Down(), said.append)
    assert said == ["no figures now: nothing answers at unix:/x"]


class Asked:
    """What a key's act tells the screen."""

    is_running = True

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.told = threading.Event()

    def say(self, sentence: str, severity: str) -> None:
        self.said.append((sentence, severity))
        self.told.set()

    def call_from_thread(self, call, *given) -> None:
        call(*given)


def test_the_key_of_the_demo_acts_off_the_screens_thread_and_tells_what_it_did():
    app, gate, calls = Asked(), threading.Event(), []

    def switch() -> str:
        calls.append(threading.current_thread())
        assert gate.wait(10)
        return "policy fcfs -> vtc"

    act = deed(switch)
    act(app)
    act(app)  # one at a time: while the first waits, the second is none
    gate.set()
    assert app.told.wait(10)
    assert app.said == [("policy fcfs -> vtc", "information")]
    assert len(calls) == 1
    assert calls[0] is not threading.current_thread()


def test_an_act_that_fails_and_one_of_a_recording_are_sentences():
    app = Asked()

    def fails() -> str:
        raise ConnectionError("the worker is gone")

    deed(fails)(app)
    assert app.told.wait(10)
    deed(None)(app)
    assert app.said == [("the worker is gone", "warning"),
                        ("a recorded run cannot be changed", "warning")]  # fmt: skip


def test_on_the_screen_p_switches_the_policy_and_the_console_has_all_its_other_keys():
    told: list[str] = []

    async def run() -> None:
        act = deed(lambda: told.append("switched") or "fcfs -> vtc")
        app = app_of(Mute(), phases=True, more_keys=(POLICY_KEY,), deeds={"policy": act})
        async with app.run_test(size=(80, 24)) as pilot:
            await hear(app, pilot, Now(HURT))
            assert shown(app)[1].startswith("▸ acme fans out long contexts")
            assert "p switch policy" in shown(app)[-1]
            assert "p pool" not in shown(app)[-1]
            await pilot.press("p")
            await until(pilot, lambda: app._notifications)
            assert [n.message for n in app._notifications] == ["fcfs -> vtc"]
            await pilot.press("question_mark")
            page = [line.plain for line in app.screen.query_one("#help").shown]
            assert page[0].split() == ["p", "switch", "the", "scheduling", "policy"]
            assert not any("the next pool" in line for line in page)
            await pilot.press("escape", "a")
            assert "ALL" in shown(app)[2]
            app._feed.close()

    asyncio.run(asyncio.wait_for(run(), 40))
    assert told == ["switched"]


def test_the_demos_screen_is_the_console():
    feed, _ = played()
    app = screen(feed, None, Desk())
    assert type(app).__name__ == "ConsoleApp"
