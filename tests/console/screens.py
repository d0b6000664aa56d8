"""The console's screens as text, kept as files: drawn anew by `python -m tests.console.screens`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from functools import cache
from pathlib import Path

from console.account import EXCESS, TenantNow
from console.lines import ASCII, Piece
from console.overview import Look, overview_lines
from console.panels import Holder, Level, Snapshot, VerdictLines
from console.rows import Rows
from console.settings import ConsoleSettings
from console.snapshot import build_snapshot
from console.wide import View, wide_lines
from tests.console import rows as made

FOLDER = Path(__file__).parent / "screens"
END = made.T0 + 180.0
QUIET = VerdictLines(
    level=Level.QUIET,
    lines=(
        "QUIET: nobody is hurt; busiest: acme 25% of the service (fair 25%)",
        "NOT engine: 41ms",
    ),
    excluded=1,
)
KEYS_LINE = (Piece("(the keys of the page)"),)  # what it says is a test of its own
SIZES = ((60, 20), (80, 24), (120, 40), (160, 45))


def picture(rows: Rows, at: float, verdict: VerdictLines, **more: object) -> Snapshot:
    """A picture whose seconds are those of the rows' own charges: what is tested here is how they
    are shown, and not how excess is told from them."""
    s = build_snapshot(rows, at, verdict=verdict, accounted=True, **more)  # type: ignore[arg-type]
    assert s.account is not None
    held: dict[tuple[str, str, str], float] = defaultdict(float)
    for r in rows.interference:
        if r.reason != "stall":
            held[r.victim, r.holder_kind, r.holder] += r.charged_s or 0.0
    tenants = tuple(_charged(t, held) for t in s.account.tenants)
    kinds = sorted({kind for _, kind, _ in held} - {"tenant"})
    apart = tuple((k, sum(x for (_, kind, _), x in held.items() if kind == k)) for k in kinds)
    account = replace(s.account, tenants=tenants, not_tenants=apart, total_s=sum(held.values()),
                      basis=EXCESS)  # fmt: skip
    return replace(s, account=account)


def _charged(t: TenantNow, held: Mapping[tuple[str, str, str], float]) -> TenantNow:
    behind = {(k, h): x for (victim, k, h), x in held.items() if victim == t.name}
    whole = sum(behind.values())
    (kind, name), most = max(behind.items(), key=lambda x: x[1], default=(("", ""), 0.0))
    return replace(
        t,
        wait_s=whole,
        held_s=sum(x for (_, k, h), x in held.items() if k == "tenant" and h == t.name),
        behind=Holder(kind=kind, name=name, charged_s=most, share=most / whole) if whole else None,
        behind_reason="slot" if whole else None,
    )


def _overview(s: Snapshot, cells: int, lines: int, **look: object) -> str:
    drawn = overview_lines(s, cells, lines, Look(tz=UTC, keys=KEYS_LINE, **look))  # type: ignore[arg-type]
    return "".join(f"{line.plain.rstrip()}\n" for line in drawn)


def _table(s: Snapshot, cells: int, lines: int, view: View) -> str:
    look = Look(tz=UTC, keys=KEYS_LINE)
    drawn = wide_lines(s, view, cells, lines, look, ConsoleSettings())
    return "".join(f"{line.plain.rstrip()}\n" for line in drawn)


@cache
def screens() -> Mapping[str, str]:
    """Every screen by name."""
    hurt = picture(made.incident(), END, made.verdict())
    down = picture(
        made.incident(),
        END,
        made.verdict(),
        notes=("the store is not answering: connection refused", "from the worker's memory"),
        store_down_s=240.0,
    )
    out = {f"incident-{c}x{n}": _overview(hurt, c, n) for c, n in SIZES}
    out |= {f"table-{c}x{n}": _table(hurt, c, n, View()) for c, n in SIZES}
    out["table-waits-80x24"] = _table(hurt, 80, 24, View("waits", "wait_slot_s", filter="!acme"))
    out["quiet-80x24"] = _overview(picture(made.calm(), made.T0 + 120.0, QUIET), 80, 24)
    out["store-down-80x24"] = _overview(down, 80, 24)
    out["ascii-80x24"] = _overview(hurt, 80, 24, glyphs=ASCII)
    out["stale-80x24"] = _overview(replace(hurt, stale=True, now=END + 240.0), 80, 24)
    out["banner-80x24"] = _overview(hurt, 80, 24, banner="connection refused", age_s=12.0)
    out["past-80x24"] = _overview(replace(hurt, edge=END + 90.0), 80, 24)
    return out


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in screens().items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
        print(FOLDER / f"{name}.txt")


if __name__ == "__main__":
    main()
