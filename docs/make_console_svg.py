"""Draws the pictures of the screens at the height of the recorded incident.

python docs/make_console_svg.py

console.svg is the demo's live table; console-overview.svg and console-table.svg are the console's.
"""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path

from console.app import ConsoleApp
from console.command import opening, read_time
from console.judge import LiveJudge
from console.live import LiveApp
from console.replay import replay_incident
from console.sight import RecordEdge, Sight
from sample_incidents import incident_path

AT_S = 72.0  # into the recording: the flood is at its height
SIZE = (84, 26)
INCIDENT = "five-pm-fanout"


async def draw() -> str:
    clock = iter([0.0])
    feed = replay_incident(
        INCIDENT,
        clock=lambda: next(clock, AT_S),
        judge=LiveJudge(recent_s=20.0, tz=UTC),
        tz=UTC,
    )
    app = LiveApp(feed, no_actions="a recorded run cannot be changed", tz=UTC)
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(20):
            await pilot.pause(0.1)
        return app.export_screenshot(title="tenantscope demo --replay")


async def draw_console(size: tuple[int, int], *keys: str) -> str:
    where = str(incident_path(INCIDENT) / "store")
    source = opening(where)()
    first, _ = source.span()
    source.close()
    sight = Sight(opening(where), RecordEdge(UTC), tz=UTC)
    app = ConsoleApp(sight, read_time=read_time, tz=UTC, at=first + AT_S + 8.0)
    async with app.run_test(size=size) as pilot:
        while app.picture is None or app.picture.edge is None:
            await pilot.pause(0.1)
        await pilot.press(*keys)
        await pilot.pause(0.2)
        return app.export_screenshot(title="tenantscope console")


def main() -> None:
    folder = Path(__file__).parent
    pictures = {
        "console.svg": draw(),
        "console-overview.svg": draw_console((80, 24)),
        "console-table.svg": draw_console((120, 20), "a"),
    }
    for name, drawn in pictures.items():
        target = folder / name
        target.write_text(asyncio.run(drawn))
        print(target)


if __name__ == "__main__":
    main()
