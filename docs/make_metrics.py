"""Writes what is made from the vocabulary: docs/metrics.md and the dashboards in deploy/grafana.

python docs/make_metrics.py
"""

from __future__ import annotations

from pathlib import Path

from telemetry.prometheus import grafana, metrics_page

ROOT = Path(__file__).parents[1]


def made() -> dict[Path, str]:
    """Every made file and its text."""
    folder = ROOT / "deploy" / "grafana" / "dashboards"
    pages = {folder / f"{name}.json": text for name, text in grafana.dashboards().items()}
    return {ROOT / "docs" / "metrics.md": metrics_page.page(), **pages}


def main() -> None:
    for path, text in made().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
