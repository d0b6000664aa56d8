"""Ready means that work gets anywhere: a worker answers, and while work waits tokens come."""

from __future__ import annotations

from front_bench import ThreadedPost, bench
from serving_fakes import FakeCore

from engine.serving.api.ready import STALLED_S, Progress


def test_an_idle_pool_is_ready_however_long_it_idles() -> None:
    progress = Progress(10.0)
    for now_s in (0.0, 100.0, 1000.0):
        progress.observe(3, 0, now_s)
        assert progress.stalled(now_s) is None
    progress.observe(3, 1, 1001.0)
    assert progress.stalled(1001.0) is None, "work that has just come does not wait since ever"


def test_work_without_a_word_for_too_long_is_a_stall_and_any_word_ends_it() -> None:
    progress = Progress(10.0)
    progress.observe(3, 0, 0.0)
    progress.observe(3, 2, 1.0)
    assert progress.stalled(9.9) is None
    progress.observe(3, 2, 10.0)
    assert progress.stalled(10.0) == 10.0
    progress.observe(4, 2, 11.0)
    assert progress.stalled(11.0) is None


def test_the_route_says_that_work_waits_and_says_ready_again_when_it_moves() -> None:
    core = FakeCore()
    with bench(core) as (b, client), ThreadedPost(b, client) as running:
        core.wait_for(lambda: len(core.asks) == 1)
        assert client.get("/ready").status_code == 200
        b.clock.turn(STALLED_S)
        waiting = client.get("/ready")
        core.end(core.asks[0], "length", 0)
        running.result()
        again = client.get("/ready")
    assert waiting.status_code == 503
    assert "no token has come for 30 s" in waiting.json()["reason"]
    assert again.status_code == 200
