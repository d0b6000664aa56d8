"""What a page of the console is: where the reader stands on it, what it asks for, what it draws.

Values and one base class. A page is a function of a `Scene`: it reads nothing, keeps nothing and
draws no screen; the app keeps the reader's `Place` on each page and asks its questions on the
feed's thread. The pages themselves are in `console.pages`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from console.act.values import EngineState
from console.detail import NOTHING, Asks, Detail
from console.lines import Line, Row
from console.overview import Look
from console.panels import Snapshot
from console.settings import ConsoleSettings
from telemetry.watch.name_filter import NameFilter

TENANT = "tenant"  # the kind of a row that opens the tenant's page
OF_A_TENANT = ("tenant", "requests")  # pages that can be of one tenant alone


@dataclass(frozen=True, slots=True)
class Place:
    """How the reader stands on one page. `tenant`: whom it is about; `cursor`: the row chosen;
    `first`: so many rows are above the list's top; `sort` "" is the page's own order; `turned`: the
    page's own switches, by name."""

    tenant: str | None = None
    cursor: Row | None = None
    first: int = 0
    filter: str = ""
    sort: str = ""
    descending: bool = True
    turned: tuple[tuple[str, str], ...] = ()

    def switch(self, name: str, usual: str) -> str:
        return dict(self.turned).get(name, usual)

    def turn(self, name: str, value: str) -> Place:
        return replace(self, turned=tuple(sorted({**dict(self.turned), name: value}.items())))

    def next_of(self, name: str, values: Sequence[str]) -> Place:
        """The switch on to the next of its values; the first one is the usual one."""
        now = self.switch(name, values[0])
        at = values.index(now) if now in values else -1
        return self.turn(name, values[(at + 1) % len(values)])


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a page is drawn from. `detail` is what was heard of the page's own questions, and
    about this place: rows of another tenant are never in it. `lines` is the room of what the page
    draws, within the frame. `engines`: what operators' doors have said; none: nobody was asked."""

    picture: Snapshot
    place: Place
    cells: int
    lines: int
    look: Look
    detail: Detail = NOTHING
    settings: ConsoleSettings = field(default_factory=ConsoleSettings)
    engines: tuple[EngineState, ...] = ()


@dataclass(frozen=True, slots=True)
class Open:
    """Go on to a page, about a tenant."""

    page: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class GoTo:
    """Look at an instant (unix seconds)."""

    at: float


@dataclass(frozen=True, slots=True)
class Say:
    """Nothing is opened; why."""

    sentence: str


Step = Open | GoTo | Say


def bucket_s_of(picture: Snapshot) -> float:
    """How long a bucket is."""
    return picture.trend.bucket_s if picture.trend is not None else 60.0


def reach(picture: Snapshot, span_s: float) -> tuple[float, float]:
    """From when to when a page's own rows are asked for (unix seconds): up to the newest figures,
    back to the start of the bucket in which the span begins. Moves only when figures do."""
    end = picture.now if picture.data_at is None else picture.data_at
    bucket_s = bucket_s_of(picture)
    return (end - span_s) // bucket_s * bucket_s, end


class Page(ABC):
    """One page. `name` is also where its keys work (`console.keys`); `title` heads it; `whole`: it
    draws header and keys itself; `filter_hint` "" has no filter; `every_column`: as data it has all
    columns of a tenant's minute."""

    name: ClassVar[str]
    title: ClassVar[str]
    whole: ClassVar[bool] = False
    filter_hint: ClassVar[str] = ""
    every_column: ClassVar[bool] = False

    @abstractmethod
    def lines(self, scene: Scene) -> Sequence[Line]:
        """At most `scene.lines` lines of at most `scene.cells`; lines with a `row` can be chosen.
        Raises QueryError where the place's filter cannot be used: it is then let go."""

    def wants(self, picture: Snapshot, place: Place) -> Asks:
        """The questions whose answers it draws, the same ones while nothing is new: take their
        times from `reach`, or they are asked again for every picture."""
        return ()

    def wants_columns(self, scene: Scene) -> bool:
        """Whether what is seen needs columns of a tenant's minute that no picture has by itself:
        of a crowd they are as much again to ask for."""
        return False

    def heading(self, scene: Scene) -> str:
        """What stands in the page's rule beside its title: whom it is about, how it is sorted."""
        return ""

    def rows(self, scene: Scene) -> Sequence[Row]:
        """Every row that can be chosen, in order, shown or not."""
        return [line.row for line in self.lines(scene) if line.row is not None]

    def turn(self, scene: Scene, what: str) -> Place:
        """What a key of the page's own does (`turn('what')` in `console.keys`)."""
        return scene.place

    def click(self, scene: Scene, line: Line, x: int) -> Place | None:
        """A click beside every row, on a heading for example. None: it means nothing."""
        return None

    def check_filter(self, text: str) -> None:
        """Raises QueryError or ValueError for a filter that cannot be used."""
        NameFilter(text, time.monotonic)

    def enter(self, scene: Scene) -> Step | None:
        """What Enter opens; None: nothing. Without a row chosen: the first thing to look at."""
        row = scene.place.cursor
        if row is not None and row.kind == TENANT:
            return Open(TENANT, row.name)
        return None
