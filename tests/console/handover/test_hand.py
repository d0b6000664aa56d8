"""What is slow runs beside the screen, one at a time, is bounded, and ends with the console."""

from __future__ import annotations

import sys
import threading
from datetime import UTC

import pytest

from console.command import read_time
from console.handover import hand, window
from console.handover.deeds import report_words
from console.handover.hand import Hand, Said
from tests.console.test_overview import END, picture

PYTHON = [sys.executable, "-c"]


class Heard:
    def __init__(self) -> None:
        self.said: list[Said] = []
        self.done = threading.Event()

    def __call__(self, said: Said) -> None:
        self.said.append(said)
        if said.sentence:
            self.done.set()

    def sentence(self) -> str:
        assert self.done.wait(30)
        return self.said[-1].sentence


def test_one_thing_is_under_way_and_its_end_is_said(tmp_path):
    own, heard, go = Hand(folder=tmp_path), Heard(), threading.Event()

    def slow(status):
        status("half")
        go.wait(30)
        return Said("done")

    assert own.start("report", slow, heard)
    assert own.busy == "report"
    assert not own.start("trace", slow, heard)
    go.set()
    assert heard.sentence() == "done"
    assert heard.said[0].status == "half"
    assert own.busy == ""


def test_what_is_refused_is_a_sentence(tmp_path):
    heard = Heard()

    def refused(status):
        raise ConnectionError("no store\nanswers")

    Hand(folder=tmp_path).start("report", refused, heard)
    assert heard.sentence() == "no report: no store answers"
    assert heard.said[-1].failed


def test_a_processs_last_words_and_code_are_heard(tmp_path):
    told: list[str] = []
    script = "import sys; print('x' * 300000); print('why', file=sys.stderr); sys.exit(1)"
    code, said = Hand(folder=tmp_path).process([*PYTHON, script], told.append, "making it")
    assert (code, said) == (1, "why")
    assert told[0] == "making it 0s"


class Leaps:
    """A clock that has gone on by an hour at every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 3600.0
        return self.now


def test_a_process_that_never_ends_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(hand, "TICK_S", 0.01)
    own = Hand(folder=tmp_path, monotonic=Leaps())
    with pytest.raises(TimeoutError, match="did not end within 300 s"):
        own.process([*PYTHON, "import threading; threading.Event().wait()"], lambda s: None, "x")
    assert own._process is None


def test_leaving_ends_the_process_and_says_nothing_more(tmp_path):
    own, heard, begun = Hand(folder=tmp_path), Heard(), threading.Event()
    ended = threading.Event()

    def slow(status):
        try:
            own.process([*PYTHON, "import threading; threading.Event().wait()"],
                        lambda s: begun.set(), "x")  # fmt: skip
        finally:
            ended.set()
        return Said("made")

    own.start("report", slow, heard)
    assert begun.wait(30)
    own.close()
    assert ended.wait(30)
    assert not heard.done.is_set()


def test_a_process_begun_after_leaving_is_ended_and_nothing_more_begins(tmp_path):
    own = Hand(folder=tmp_path)
    own.close()
    code, _ = own.process([*PYTHON, "import threading; threading.Event().wait()"], lambda s: None,
                          "x")  # fmt: skip
    assert code != 0
    assert not own.start("report", lambda status: Said("made"), Heard())
    assert own.busy == ""


def test_the_usual_window_is_the_incident_and_what_led_to_it():
    s = picture()
    start, end = window.usual(s)
    assert (start, end) == (s.verdict.since - window.BEFORE_S, END)
    told = window.told((start, end), UTC)
    assert window.read(told, s, read_time) == pytest.approx((start, end))


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("17:00", "expected two times"),
        ("noon to 17:00", "is no time"),
        ("end to start", "ends before it begins"),
        ("2027-01-01T00:00 to 2027-01-15T00:00", "longer than a day"),
    ],
)
def test_a_window_that_cannot_be_read_says_why(typed, why):
    with pytest.raises(ValueError, match=why):
        window.read(typed, picture(), read_time)


def test_the_report_is_made_by_the_command_that_a_person_would_type():
    words = report_words("/a store", 1.0, 2.5, "ma in")
    assert words[3:] == [
        "postmortem", "report", "--store", "/a store", "--from", "1.000", "--to", "2.500",
        "--format", "html", "--pool", "ma in",
    ]  # fmt: skip
    assert "--connect" in report_words("unix:/x/s", 1.0, 2.0, None)
