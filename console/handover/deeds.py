"""What the hand-over's keys do: each takes the app (`console.app.ConsoleApp`). Draws nothing.

Whatever may take long is done on `Hand`'s thread, and says at its end what came of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from console.handover import copied, files, notes, window
from console.handover.hand import Do, Hand, Said
from console.handover.rows import EVERY_TENANT, as_csv, page_rows
from console.once import newest_incident
from console.screens import OF_A_TENANT
from telemetry.plain import safe

Status = Callable[[str], None]


def _start(app: Any, what: str, do: Do) -> None:
    hand: Hand = app.hand
    if not hand.start(what, do, app.hear_hand):
        app.say(f"the {hand.busy} is still being made: one after the other", "warning")


def _picture(app: Any) -> Any:
    if app.picture is None:
        app.say("there is nothing on the screen yet")
    return app.picture


# ---------------------------------------------------------------- notes


def note(app: Any) -> None:
    """A note onto the timeline, by who is logged in."""
    picture = _picture(app)
    if picture is None:
        return
    hand: Hand = app.hand
    pool = picture.pool or ""

    def accept(text: str) -> None:
        said = notes.checked(text)
        _start(app, "note", lambda status: Said(notes.write_note(hand.place, pool, hand.who, said)))

    app.open_prompt("note", f"onto the timeline, as {safe(hand.who)}", "", accept)


# ---------------------------------------------------------------- copies


def copy(app: Any) -> None:
    """The row chosen, else the command that shows this view again."""
    if _picture(app) is None:
        return
    cursor = app.place.cursor
    row = next((x for x in app._body.shown if cursor is not None and x.row == cursor), None)
    text = copied.plain_text(row.plain) if row is not None else _view(app)
    if text is None:
        app.say("no store can be named for this view: choose a row to copy that")
        return
    app.copy_to_clipboard(text)
    app.say(f"copied: {text[:200]}")


def _view(app: Any) -> str | None:
    hand: Hand = app.hand
    if hand.place is None:
        return None
    past = app.picture.now if app.picture.edge is not None else None
    return copied.view_command(
        hand.place.options,
        page=app.page.name,
        pool=app.picture.pool,
        at=past,
        tenant=_whose(app),
    )


def _whose(app: Any) -> str | None:
    """Whose page is open, where it is one tenant's."""
    alone = app.page.name in OF_A_TENANT and app.place.switch("everyone", "no") == "no"
    tenant: str | None = app.place.tenant if alone else None
    return tenant


def copy_incident(app: Any) -> None:
    """The id of the pool's newest incident, which alerts, notes and reports share."""
    picture = _picture(app)
    if picture is None:
        return
    hand: Hand = app.hand
    if hand.place is None:
        app.say("no store can be named for this view: its incidents are not known")
        return
    where, pool = hand.place.where, picture.pool or ""

    def ask(status: Status) -> Said:
        from telemetry.source import open_source

        source = open_source(where)
        try:
            found = newest_incident(source, time.time(), pool, live=False)
        finally:
            source.close()
        if found is None:
            return Said(f"no incident of pool {pool} is known")
        return Said(f"copied: {found}", copy=copied.plain_text(found))

    _start(app, "incident's id", ask)


# ---------------------------------------------------------------- files


def _written(app: Any, what: str, form: str, text: str) -> None:
    hand: Hand = app.hand
    name = files.file_name(what, app.picture.pool, app.picture.now, form, app._tz)
    try:
        app.say(f"written: {files.write(hand.folder, name, text)}")
    except OSError as e:
        app.say(files.why(e, hand.folder), "warning")


def svg(app: Any) -> None:
    """The screen as it is, as a picture."""
    if _picture(app) is not None:
        _written(app, app.page.name, "svg", app.export_screenshot(title="tenantscope"))


def csv(app: Any) -> None:
    """The page's figures, every row of them."""
    if _picture(app) is None:
        return
    if app.page.name in EVERY_TENANT:  # they are written with columns that the screen may not need
        app.with_columns(partial(_csv, app))
    else:
        _csv(app)


def _csv(app: Any) -> None:
    scene = app.scene()
    found = None if scene is None else page_rows(app.page.name, scene)
    if found is None:
        app.say("this page has no figures yet")
        return
    _written(app, app.page.name, "csv", as_csv(found.columns, found.rows))


def report(app: Any) -> None:
    """A window as a report (HTML), made by a process of its own."""
    _window(app, "report", _report)


def trace(app: Any) -> None:
    """A window's requests as a trace for Perfetto or chrome://tracing."""
    _window(app, "trace", _trace)


def _window(app: Any, what: str, make: Callable[..., Said]) -> None:
    picture = _picture(app)
    if picture is None:
        return
    hand: Hand = app.hand
    if hand.place is None:
        app.say(f"no store can be named for this view: a {what} needs one")
        return

    def accept(text: str) -> None:
        start, end = window.read(text, picture, app._read_time)
        name = files.file_name(what, picture.pool, start, _FORMS[what], app._tz)
        do = partial(make, hand, name, start, end, picture.pool)
        _start(app, what, lambda status: _or_why(hand, partial(do, status)))

    shown = window.told(window.usual(picture), app._tz)
    app.open_prompt(what, "from what time to what time", shown, accept)


_FORMS = {"report": "html", "trace": "json"}


def _or_why(hand: Hand, do: Callable[[], Said]) -> Said:
    try:
        return do()
    except TimeoutError:
        raise
    except OSError as e:
        return Said(files.why(e, hand.folder), failed=True)


def _report(
    hand: Hand, name: str, start: float, end: float, pool: str | None,
    status: Status,
) -> Said:  # fmt: skip
    assert hand.place is not None
    with files.placed(hand.folder, name) as (draft, done):
        words = [*report_words(hand.place.where, start, end, pool), "-o", str(draft)]
        code, said = hand.process(words, status, "making the report")
        if code:
            raise ReportRefused(said or f"its process ended with code {code}")
    return Said(f"the report is in {done[0]}")


class ReportRefused(Exception):
    """The report's process ended without one; its last words say why."""


def report_words(where: str, start: float, end: float, pool: str | None) -> list[str]:
    """The command that makes it, as a process."""
    from telemetry.service import listen

    option = "--connect" if listen.is_address(where) else "--store"
    words = [
        sys.executable, "-c", "from console.cli import main; main()", "postmortem", "report",
        option, where, "--from", f"{start:.3f}", "--to", f"{end:.3f}", "--format", "html",
    ]  # fmt: skip
    return words if pool is None else [*words, "--pool", pool]


def _trace(
    hand: Hand, name: str, start: float, end: float, pool: str | None,
    status: Status,
) -> Said:  # fmt: skip
    from console.handover.traces import write_trace

    assert hand.place is not None
    status("writing the trace")
    done = write_trace(hand.place.where, hand.folder, name, start, end)
    return Said(f"{done.requests} requests are in {done.path}: open it in ui.perfetto.dev")
