"""A blank name, as of a variable that is not set, never means the current folder."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from console.cli import tenantscope
from telemetry.named_path import NamedPath

_CSV = ("export", "--store", ".", "--format", "csv")
_BLANK = [
    ("store", "info", ""),
    ("store", "size", " "),
    ("store", "retention", ""),
    ("store", "backup", "", "--store", "."),
    ("store", "restore", "", "new"),
    ("store", "restore", "backup.tar", ""),
    (*_CSV, "-o", ""),
    ("collect", "--store", ""),
    ("collect", "--store", "s", "--tokens", ""),
    ("doctor", "--store", "", "--connect", ""),
    ("query", "runs", "--store", "", "--connect", ""),
    ("sql", "select 1", "--store", "", "--connect", ""),
    ("watch", "--store", "", "--connect", ""),
    ("incidents", "list", "--store", "", "--connect", ""),
    ("store", "forget", "acme", "--store", "", "--connect", ""),
    ("serve", "--store", "", "--config", "pool.toml"),
    ("serve", "--config", ""),
    ("config", "check", ""),
    ("adapters", "inspect", ""),
    ("adapters", "make", ""),
    ("generate", "--prompt", "x", "--adapter", ""),
    ("simulate", ""),
    ("simulate", "--store", ""),
    ("postmortem", "import", "", "--format", "csv", "--store", "s"),
    ("postmortem", "import", "a.csv", "--format", "csv", "--store", ""),
    ("postmortem", "report", "-o", ""),
    ("postmortem", "watch", "--out", ""),
]


@pytest.mark.parametrize("words", _BLANK, ids=" ".join)
def test_a_blank_name_is_refused_and_nothing_is_written(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(tenantscope, list(words))
    assert ended.exit_code == 2
    assert "names nothing" in ended.output or "give --store DIR or --connect ADDR" in ended.output
    assert list(tmp_path.iterdir()) == []


def test_a_named_path_is_clicks_own():
    made = NamedPath(exists=True, file_okay=False)
    assert made.convert(".", None, None) == "."
    with pytest.raises(click.BadParameter, match="does not exist"):
        made.convert("no such folder", None, None)
