"""The console's pages by name, in the order of their keys. A new page is a line here.

A page is imported when it is first opened: most of them bring NumPy, and the first screen is to be
there before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from console.screens import Page

_WHERE = {
    "overview": "console.pages.overview:OverviewPage",
    "table": "console.pages.wide:WidePage",
    "tenant": "console.pages.tenant:TenantPage",
    "heat": "console.pages.heat:HeatPage",
    "matrix": "console.pages.matrix:MatrixPage",
    "adapters": "console.pages.adapters:AdaptersPage",
    "requests": "console.pages.requests:RequestsPage",
    "events": "console.pages.events:EventsPage",
    "policy": "console.pages.policy:PolicyPage",
}


class Pages(Mapping[str, Page]):
    """Pages by name, each made once."""

    def __init__(self, where: Mapping[str, str]) -> None:
        self._where = dict(where)
        self._made: dict[str, Page] = {}

    def __getitem__(self, name: str) -> Page:
        made = self._made.get(name)
        if made is None:
            module, _, kind = self._where[name].partition(":")
            made = self._made.setdefault(name, getattr(import_module(module), kind)())
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, name: object) -> bool:
        return name in self._where


PAGES = Pages(_WHERE)
