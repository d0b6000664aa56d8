"""`tenantscope demo --replay`: a recorded run in the live table. No torch, no model, no engine."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

INCIDENT = "five-pm-fanout"
RECENT_S = 20.0  # as in the demo: its buckets are ten seconds


def play_recording(store: Path | None, speed: float, interactive: bool) -> None:
    """Play the shipped incident, or any store, as if it were live."""
    from console.judge import LiveJudge
    from console.replay import ReplayFeed, open_recording, replay_incident

    if store is None:
        feed = replay_incident(INCIDENT, speed, judge=LiveJudge(recent_s=RECENT_S))
    else:
        feed = ReplayFeed(open_recording(store), speed, judge=LiveJudge(recent_s=RECENT_S))
    if interactive:
        from console.live import LiveApp

        LiveApp(feed, no_actions="a recorded run cannot be changed").show()
        return
    _play_lines(feed, speed)


def _play_lines(feed: object, speed: float) -> None:
    from console.lines import glyphs_for
    from console.replay import ReplayFeed
    from console.text import render_text

    assert isinstance(feed, ReplayFeed)
    glyphs = glyphs_for(sys.stdout.encoding)
    while True:
        click.echo(render_text(feed.snapshot(), glyphs=glyphs))
        if feed.finished:
            return
        time.sleep(10 / speed)
