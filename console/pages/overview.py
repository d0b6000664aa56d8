"""The overview as a page: the tenants of HURT and HOLDS can be chosen and opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from console.lines import Line
from console.overview import overview_lines
from console.screens import TENANT, Open, Page, Say, Scene, Step


class OverviewPage(Page):
    name: ClassVar[str] = "overview"
    title: ClassVar[str] = "OVERVIEW"
    whole: ClassVar[bool] = True

    def lines(self, scene: Scene) -> Sequence[Line]:
        return overview_lines(scene.picture, scene.cells, scene.lines, scene.look)

    def enter(self, scene: Scene) -> Step | None:
        if scene.place.cursor is not None:
            return super().enter(scene)
        named = first_to_look_at(scene)
        return Say("no tenant has been heard of yet") if named is None else Open(TENANT, named)


def first_to_look_at(scene: Scene) -> str | None:
    """Whom to open where no row is chosen: whom the verdict names, who is hurt most, who holds."""
    s = scene.picture
    if s.verdict.named is not None:
        return s.verdict.named
    if s.account is None or not s.account.tenants:
        return None
    worst = s.account.hurt[0]
    return worst.name if worst.wait_s or worst.missed else s.account.holds[0].name
