"""The console's pages by name, in the order of their keys. A new page is a line here."""

from __future__ import annotations

from console.pages.adapters import AdaptersPage
from console.pages.events import EventsPage
from console.pages.heat import HeatPage
from console.pages.matrix import MatrixPage
from console.pages.overview import OverviewPage
from console.pages.policy import PolicyPage
from console.pages.requests import RequestsPage
from console.pages.tenant import TenantPage
from console.pages.wide import WidePage
from console.screens import Page

PAGES: dict[str, Page] = {
    page.name: page
    for page in (
        OverviewPage(),
        WidePage(),
        TenantPage(),
        HeatPage(),
        MatrixPage(),
        AdaptersPage(),
        RequestsPage(),
        EventsPage(),
        PolicyPage(),
    )
}
