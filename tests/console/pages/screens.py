"""The pages as text, kept as files: drawn anew by `python -m tests.console.pages.screens`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from console.lines import ASCII
from console.screens import Place
from tests.console.pages import world
from tests.console.pages.world import SIZES

FOLDER = Path(__file__).parent / "screens"
PLACES = {
    "tenant": Place(tenant="globex"),
    "requests": Place(sort="slowest"),
    "events": Place().turn("only", "every"),
    "policy": Place(),
    "heat": Place(),
    "matrix": Place(),
    "adapters": Place(),
}


@cache
def screens() -> Mapping[str, str]:
    """Every screen by name."""
    out = {
        f"{page}-{size[0]}x{size[1]}": world.text(page, place, size)
        for page, place in PLACES.items()
        for size in SIZES
    }
    out["tenant-ascii-80x24"] = world.text("tenant", PLACES["tenant"], glyphs=ASCII)
    return {name: "".join(f"{line}\n" for line in lines) for name, lines in out.items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in screens().items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
        print(FOLDER / f"{name}.txt")


if __name__ == "__main__":
    main()
