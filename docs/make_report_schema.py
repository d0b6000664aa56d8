"""Writes docs/report.schema.json from the types a report is made of.

    python docs/make_report_schema.py [--check]

`--check` writes nothing and exits 1 when the file is not what the code says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from postmortem.report.schema import schema

TARGET = Path(__file__).with_name("report.schema.json")


def text() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(TARGET.read_text(encoding="utf-8") != text())
    TARGET.write_text(text(), encoding="utf-8")
    print(f"written: {TARGET}")
