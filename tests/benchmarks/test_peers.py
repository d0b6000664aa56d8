"""What the peers' benchmark reads off token times, and that one contender runs at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peer_sides import process
from benchmarks.peer_sides.process import Contender, ContenderFailed
from benchmarks.peer_sides.read_off import agreement, rates
from benchmarks.peer_sides.report import Cell, Run, claims, rows_of, table
from benchmarks.peer_sides.wire import Ask, Job, Played

EIGHT, SIXTEEN = Cell(8, 32), Cell(16, 32)
SIDE = f"""
import sys
sys.path.insert(0, {str(process.HERE)!r})
from wire import Played, serve

class Echo:
    def __init__(self, job):
        print("an engine's own noise")
        if job.how == "broken":
            raise SystemExit("no such model")

    def about(self):
        return "echo 1"

    def play(self, ask):
        if ask.output_tokens > 9:
            raise SystemExit("out of memory")
        return Played([(0.5, [0]), (1.0, [0])], ask.prompts)

    def close(self):
        print("gone")

serve(Echo)
"""


def together(streams: int, prefill_s: float, step_s: float, steps: int) -> Played:
    """All streams start and end together."""
    times = [(prefill_s + i * step_s, list(range(streams))) for i in range(steps)]
    return Played(times, [[7] * steps for _ in range(streams)])


def one_by_one(streams: int, prefill_s: float, step_s: float, steps: int) -> Played:
    """A stream begins when the one before it has ended."""
    times, at = [], 0.0
    for stream in range(streams):
        for i in range(steps):
            at += step_s if i else prefill_s
            times.append((at, [stream]))
    return Played(times, [[7] * steps for _ in range(streams)])


def test_decode_counts_the_time_in_which_all_streams_decode_and_end_to_end_all_of_it():
    found = rates(together(4, 3.0, 0.1, 31))
    assert found.window
    assert found.decode_tokens_per_s == pytest.approx(40.0)
    assert found.end_to_end_tokens_per_s == pytest.approx(4 * 31 / 6.0)
    assert found.ttft_s == 3.0


def test_who_decodes_one_stream_after_the_other_is_not_charged_with_their_prompts():
    found = rates(one_by_one(4, 3.0, 0.1, 31))
    assert not found.window
    assert found.decode_tokens_per_s == pytest.approx(10.0)
    assert found.end_to_end_tokens_per_s == pytest.approx(4 * 31 / 24.0)


def test_one_token_a_stream_says_nothing_about_decode():
    with pytest.raises(ValueError, match="decode rate"):
        rates(together(2, 1.0, 0.1, 1))


def test_streams_that_were_left_out_agree_with_nobody():
    found = agreement([[1, 2, 3, 4], [5, 6], [9]], [[1, 2, 8, 4], [5, 6], []])
    assert (found.streams, found.same_first, found.same_whole) == (2, 2, 1)
    assert found.mean_prefix == pytest.approx(0.75)


def test_an_aim_is_judged_at_the_most_streams_and_within_rounds():
    run = Run()
    for slow_s in (0.1, 0.4):  # a machine that is four times slower in the second round
        for cell in (EIGHT, SIXTEEN, Cell(8, 1)):
            n = cell.streams
            run.rates.setdefault((cell, "ours"), []).append(rates(together(n, 1.0, slow_s, 40)))
            factor = {EIGHT: 5, SIXTEEN: 3}.get(cell, 1)
            run.rates.setdefault((cell, "peft-mixed"), []).append(
                rates(together(n, 5.0, factor * slow_s, 40))
            )
    rows = rows_of(run, [EIGHT, SIXTEEN, Cell(8, 1)])
    assert [r.contender for r in rows] == ["ours", "peft-mixed"] * 3
    decode = {text.split(",")[1]: ok for ok, text in claims(rows) if "decode" in text}
    assert decode == {" 8 adapters": True, " 16 adapters": False}
    assert sum("peft-mixed" in line for line in table(rows)) == 3


def job(how: str = "") -> Job:
    return Job("m", "f", "bfloat16", (), "", (), 1, 16, 4, 4, how)


def state(contender: Contender) -> str:
    stat = Path(f"/proc/{contender._popen.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]


def test_a_contender_is_held_while_it_is_not_asked_and_its_noise_is_no_answer(tmp_path):
    script = tmp_path / "side.py"
    script.write_text(SIDE)
    echo = Contender("echo", str(script), sys.executable, job(), tmp_path)
    try:
        assert echo.about == "echo 1"
        assert state(echo) == "T"
        played = echo.play(Ask([[1, 2]], [None], 2))
        assert played.tokens == [[1, 2]]
        assert state(echo) == "T"
        with pytest.raises(ContenderFailed, match=r"echo ended: .*out of memory"):
            echo.play(Ask([[1, 2]], [None], 10))
    finally:
        echo.close()
    assert "gone" not in (tmp_path / "echo.log").read_text()


def test_one_that_does_not_start_says_why(tmp_path):
    script = tmp_path / "side.py"
    script.write_text(SIDE)
    with pytest.raises(ContenderFailed, match="no such model"):
        Contender("echo", str(script), sys.executable, job("broken"), tmp_path)
