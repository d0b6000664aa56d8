"""Click types for what somebody names: a path, or a store's place. Own the refusal of a blank one.

A blank text is what a variable that is not set leaves in a script, and pathlib takes it for the
current folder: a store would be written, or its rows dropped, where nobody meant it. Opens nothing.
"""

from __future__ import annotations

from typing import Any

import click


class NamedPath(click.Path):
    """`click.Path` whose value is never blank; `.` is the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        _refuse_blank(self, value, param, ctx)
        return super().convert(value, param, ctx)


class NamedPlace(click.ParamType[str]):
    """A folder or an address, as text, never blank."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        _refuse_blank(self, value, param, ctx)
        return value


def _refuse_blank(
    kind: click.ParamType[Any], value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    if isinstance(value, str) and not value.strip():
        kind.fail(f"{value!r} is blank and names nothing; . is the current folder", param, ctx)
