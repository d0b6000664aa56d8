"""What the README shows is what the commands print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Fenced blocks of one language, in order."""
    out: list[str] = []
    inside: list[str] | None = None
    wanted = False
    for line in README.splitlines():
        if line.startswith("```"):
            if inside is None:
                inside, wanted = [], line[3:] == language
            else:
                if wanted:
                    out.append("\n".join(inside))
                inside = None
        elif inside is not None:
            inside.append(line)
    return out


def test_two_set_up_lines_are_shown():
    lines = [x for x in README.splitlines() if x.startswith("pip install -e")]
    assert lines == [
        "pip install -e . && tenantscope demo",
        "pip install -e '.[test]' && pytest",
    ]


def test_the_report_shown_is_the_report_printed():
    command = next(b for b in blocks("sh") if "postmortem report" in b).replace("\\\n", " ")
    done = subprocess.run(
        [sys.executable, "-c", "from console.cli import main; main()", *shlex.split(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TZ": "UTC"},
    )
    shown = next(b for b in blocks("") if "WHO HELD IT" in b)
    printed = done.stdout.splitlines()
    for line in shown.splitlines():
        assert not line or line in printed, line


@pytest.mark.parametrize("path", re.findall(r"\]\(([a-z_/.]+)\)", README))
def test_links_lead_somewhere(path):
    assert (ROOT / path).exists()
