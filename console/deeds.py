"""What keys do that is more than looking: by name, and where the code lies. Imports none of it.

`do('name')` of a key is `DEEDS[name]`, "module:function"; the function takes the app
(`console.app.ConsoleApp`) and is imported when it is first wanted, so that a console which only
looks starts without it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Deed = Callable[[Any], None]

DEEDS: dict[str, str] = {
    "minute": "console.pages.heat:go_to_minute",
    "note": "console.handover.deeds:note",
    "report": "console.handover.deeds:report",
    "trace": "console.handover.deeds:trace",
    "copy": "console.handover.deeds:copy",
    "copy_incident": "console.handover.deeds:copy_incident",
    "svg": "console.handover.deeds:svg",
    "csv": "console.handover.deeds:csv",
}


def deed(name: str) -> Deed:
    """Raises KeyError for a name that there is not."""
    module, _, function = DEEDS[name].partition(":")
    found: Deed = getattr(import_module(module), function)
    return found
