"""The matrix: who waited, in rows, behind whom, in columns; seconds of the last five minutes.

Draws what `console.matrix` adds up. Charged is who held what was waited for, and no accusation;
excess is what is charged beyond usual: both close to the overview's totals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from console.account import CHARGED, EXCESS, REMEMBERED, Account, closing
from console.cells import clip, fit
from console.formats import span
from console.lines import Line, Piece, Row, cut
from console.listing import shown_name
from console.marks import MARK_ROLES, MARKS
from console.matrix import MORE, REST, HeldBy, Matrix, MatrixRow, matrix_of, victims_of
from console.panels import Mark, Snapshot
from console.screens import TENANT, Page, Place, Scene
from telemetry.conventions import TENANT as TENANT_KIND
from telemetry.conventions import WAIT_REASONS

BASIS, ONLY, ALL = "basis", "only", "all"
FINE_S = 20.0  # sums below it are told in tenths
_MARK_CELLS, _LEAST_NAME, _MOST_NAME = 3, 10, 24
_LEAST_CELL, _CELL, _WIDEST_CELL, _TOTAL = 4, 8, 16, 9


class MatrixPage(Page):
    name: ClassVar[str] = "matrix"
    title: ClassVar[str] = "MATRIX"

    def heading(self, scene: Scene) -> str:
        account = scene.picture.account
        if account is None:
            return ""
        basis, reason = _basis(scene), _reason(scene)
        said = [f"{basis} seconds, last {span(account.span_s)}"]
        if account.basis == CHARGED and account.no_baseline is not None:
            said = [f"charged seconds, last {span(account.span_s)} (no excess: no baseline yet)"]
        if reason is not None:
            said.append(f"{reason} alone")
        if account.gaps:
            said.append(f"{account.gaps} not observed")
        return ", ".join(said)

    def lines(self, scene: Scene) -> Sequence[Line]:
        account = scene.picture.account
        if account is None or account.cells is None:
            return (Line((Piece("  no engine has been heard yet", "dim"),)),)
        m = _matrix(scene, account)
        if not m.rows:
            words = "nobody waited" if _basis(scene) == CHARGED else "nobody waited beyond usual"
            return (Line((Piece(f"  {words}", "dim"),)),)
        name, cell = _widths(scene, m)
        digits = 1 if m.total_s < FINE_S else 0
        totals = closing([r.total_s for r in m.rows], m.total_s, digits)
        columns = closing(m.totals, m.total_s, digits)
        return (
            _heading(m, name, cell, scene),
            *(_row(r, t, m, name, cell, digits, scene)
              for r, t in zip(m.rows, totals, strict=True)),
            _sums(m, columns, name, cell, digits, scene),
        )[: scene.lines]  # fmt: skip

    def rows(self, scene: Scene) -> Sequence[Row]:
        account = scene.picture.account
        if account is None or account.cells is None:
            return ()
        cells, basis, reason = account.cells, _basis(scene), _reason(scene)
        names = REMEMBERED.of(cells, (basis, reason), lambda: victims_of(cells, basis, reason))
        return [Row(TENANT, v) for v in names]

    def turn(self, scene: Scene, what: str) -> Place:
        place = scene.place
        if what == BASIS:
            return place.next_of(BASIS, (EXCESS, CHARGED))
        if what == ONLY:
            return place.next_of(ONLY, (ALL, *WAIT_REASONS))
        return place


def _basis(scene: Scene) -> str:
    account = scene.picture.account
    if account is not None and account.basis == CHARGED:
        return CHARGED  # nothing is usual yet: what is charged is all that can be said
    return scene.place.switch(BASIS, EXCESS)


def _reason(scene: Scene) -> str | None:
    chosen = scene.place.switch(ONLY, ALL)
    return None if chosen == ALL else chosen


def _matrix(scene: Scene, account: Account) -> Matrix:
    cells, basis, reason = account.cells, _basis(scene), _reason(scene)
    assert cells is not None
    room = scene.cells - _MARK_CELLS - _LEAST_NAME - _TOTAL
    columns = max(1, room // (_CELL + 1))
    rows = max(1, scene.lines - 2)
    fits = max(1, room // (_LEAST_CELL + 1))
    key = ("matrix", basis, reason, rows, columns, fits, scene.place.first)
    return REMEMBERED.of(cells, key, lambda: matrix_of(
        cells, basis, reason, rows=rows, columns=columns, first=scene.place.first)
        .narrowed(fits))  # fmt: skip


def _widths(scene: Scene, m: Matrix) -> tuple[int, int]:
    """Cells of a victim's name, and of a column."""
    n = max(1, len(m.columns))
    spare = scene.cells - _MARK_CELLS - _LEAST_NAME - _TOTAL
    cell = min(_WIDEST_CELL, max(_LEAST_CELL, spare // n - 1))
    left = scene.cells - _MARK_CELLS - _TOTAL - n * (cell + 1)
    return max(_LEAST_NAME, min(_MOST_NAME, left)), cell


def column_name(c: HeldBy) -> str:
    """A tenant by its name; what is none in brackets, so that neither passes for the other."""
    if c.kind == TENANT_KIND:
        return shown_name(c.name)
    if c.kind == REST:
        return REST
    return f"(+{c.tenants})" if c.kind == MORE else f"({c.kind})"


def _heading(m: Matrix, name: int, cell: int, scene: Scene) -> Line:
    ellipsis = scene.look.glyphs.ellipsis
    pieces = [Piece(fit("   waited", _MARK_CELLS + name), "head"),
              Piece(fit("total", _TOTAL, "right"), "head")]  # fmt: skip
    for c in m.columns:
        named = c.kind == TENANT_KIND and c.name == scene.picture.verdict.named
        text = fit(clip(column_name(c), cell, ellipsis), cell, "right")
        role = "named" if named else "head" if c.kind == TENANT_KIND else "aside"
        pieces.append(Piece(f" {text}", role))
    return cut(Line(tuple(pieces), "head"), scene.cells, ellipsis)


def _mark(victim: str | None, picture: Snapshot) -> Mark:
    if victim is None:
        return Mark.NONE
    if victim in picture.verdict.victims:
        return Mark.HURT
    return Mark.NAMED if victim == picture.verdict.named else Mark.NONE


def _row(
    r: MatrixRow, total: float, m: Matrix, name: int, cell: int, digits: int, scene: Scene
) -> Line:
    glyphs = scene.look.glyphs
    mark = _mark(r.victim, scene.picture)
    role = "aside" if r.victim is None else MARK_ROLES[mark]
    text = f"others ({r.tenants})" if r.victim is None else shown_name(r.victim)
    pieces = [
        Piece(fit(MARKS[mark], _MARK_CELLS), role),
        Piece(fit(clip(text, name, glyphs.ellipsis), name), role),
        Piece(fit(f"{total:.{digits}f}s", _TOTAL, "right"), "value"),
    ]
    for seconds in r.seconds:
        share = seconds / r.total_s if r.total_s > 0.0 else 0.0
        look = (
            "dim"
            if share < 0.05
            else "hurt"
            if share >= 0.5
            else "warn"
            if share >= 0.2
            else "text"
        )
        pieces.append(Piece(f" {fit(_seconds(seconds, digits), cell, 'right')}", look))
    about = None if r.victim is None else Row(TENANT, r.victim)
    return cut(Line(tuple(pieces), "", about), scene.cells, glyphs.ellipsis)


def _seconds(seconds: float, digits: int) -> str:
    if seconds <= 0.0:
        return ""
    text = f"{seconds:.{digits}f}"
    return text if float(text) else "<.1" if digits else "<1"


def _sums(
    m: Matrix, columns: Sequence[float], name: int, cell: int, digits: int, scene: Scene
) -> Line:
    pieces = [
        Piece(fit("   all", _MARK_CELLS + name), "label"),
        Piece(fit(f"{m.total_s:.{digits}f}s", _TOTAL, "right"), "value"),
    ]
    pieces += [Piece(f" {fit(f'{c:.{digits}f}', cell, 'right')}", "value") for c in columns]
    return cut(Line(tuple(pieces), "head"), scene.cells, scene.look.glyphs.ellipsis)
