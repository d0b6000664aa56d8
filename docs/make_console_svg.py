"""Draws docs/console.svg: the live table at the height of the recorded incident.

python docs/make_console_svg.py
"""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path

from console.judge import LiveJudge
from console.live import LiveApp
from console.replay import replay_incident

AT_S = 72.0  # into the recording: the flood is at its height
SIZE = (84, 26)


async def draw() -> str:
    clock = iter([0.0])
    feed = replay_incident(
        "five-pm-fanout",
        clock=lambda: next(clock, AT_S),
        judge=LiveJudge(recent_s=20.0, tz=UTC),
        tz=UTC,
    )
    app = LiveApp(feed, no_actions="a recorded run cannot be changed", tz=UTC)
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(20):
            await pilot.pause(0.1)
        return app.export_screenshot(title="tenantscope demo --replay")


def main() -> None:
    target = Path(__file__).with_name("console.svg")
    target.write_text(asyncio.run(draw()))
    print(target)


if __name__ == "__main__":
    main()
