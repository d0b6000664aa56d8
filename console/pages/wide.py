"""The wide table as a page: every tenant is a row, a heading can be clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from console.lines import Line, Row
from console.pages.overview import first_to_look_at
from console.screens import TENANT, Open, Page, Place, Scene, Step
from console.settings import NAME
from console.wide import (
    View,
    column_at,
    columns_of,
    known_ranks,
    next_group,
    next_sort,
    ranked,
    wide_lines,
)
from console.wide_columns import PICTURED

GROUP = "group"


def view_of(scene: Scene) -> View:
    """How the place looks at the table; what it does not say the settings do."""
    usual, place = View.of(scene.settings), scene.place
    view = replace(usual, group=place.switch(GROUP, usual.group), filter=place.filter,
                   first=place.first)  # fmt: skip
    if not place.sort:
        return replace(view, descending=usual.descending == place.descending)
    return replace(view, sort=place.sort, descending=place.descending)


def placed(place: Place, view: View) -> Place:
    """The place from which the table is looked at as `view` says."""
    return replace(
        place.turn(GROUP, view.group),
        sort=view.sort,
        descending=view.descending,
        filter=view.filter,
        first=view.first,
    )


class WidePage(Page):
    name: ClassVar[str] = "table"
    title: ClassVar[str] = "ALL"
    whole: ClassVar[bool] = True
    filter_hint: ClassVar[str] = "names that match this (!this: all the others)"
    every_column: ClassVar[bool] = True

    def lines(self, scene: Scene) -> Sequence[Line]:
        return wide_lines(
            scene.picture, view_of(scene), scene.cells, scene.lines, scene.look, scene.settings
        )

    def rows(self, scene: Scene) -> Sequence[Row]:
        account = scene.picture.account
        if account is None:
            return ()
        return [Row(TENANT, t.name) for t in known_ranks(account.tenants, view_of(scene))[0]]

    def wants_columns(self, scene: Scene) -> bool:
        view = view_of(scene)
        shown = (view.sort, *(c.key for c in columns_of(view, scene.cells)))
        return not PICTURED.issuperset(shown)

    def turn(self, scene: Scene, what: str) -> Place:
        view = view_of(scene)
        turned = {
            GROUP: lambda: next_group(view),
            "sort": lambda: next_sort(view, scene.cells),
            "sort_before": lambda: next_sort(view, scene.cells, -1),
            "reverse": lambda: replace(view, descending=not view.descending, first=0),
        }.get(what)
        return scene.place if turned is None else placed(scene.place, turned())

    def click(self, scene: Scene, line: Line, x: int) -> Place | None:
        """A click on a heading sorts by it, and again the other way."""
        if line.tint != "head" or not line.plain.lstrip().startswith("tenant "):
            return None
        view = view_of(scene)
        key = column_at(view, scene.cells, x)
        if key is None:
            return None
        if key == view.sort:
            return placed(scene.place, replace(view, descending=not view.descending, first=0))
        return placed(scene.place, replace(view, sort=key, descending=key != NAME, first=0))

    def check_filter(self, text: str) -> None:
        ranked((), View(filter=text))

    def enter(self, scene: Scene) -> Step | None:
        if scene.place.cursor is not None:
            return super().enter(scene)
        named = first_to_look_at(scene)
        return None if named is None else Open(TENANT, named)
