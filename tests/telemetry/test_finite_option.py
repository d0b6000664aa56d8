"""No option takes NaN for a number: it is neither too small nor too large, and ends no wait."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from console.cli import tenantscope

_NAN = [
    ("keys", "new", "--days"),
    ("sql", "select 1", "--store", ".", "--timeout-s"),
    ("postmortem", "report", "--budget-s"),
    ("postmortem", "whatif", "--budget-s"),
    ("postmortem", "watch", "--every-s"),
    ("postmortem", "import", "a", "--format", "csv", "--store", "s", "--slo-ttft"),
    ("postmortem", "import", "a", "--format", "csv", "--store", "s", "--bucket"),
    ("simulate", "--speed"),
    ("generate", "--temperature"),
    ("bench", "throughput", "--top-p"),
]


@pytest.mark.parametrize("words", _NAN, ids=" ".join)
def test_nan_is_refused_as_no_number(words):
    ended = CliRunner().invoke(tenantscope, [*words, "nan"])
    assert ended.exit_code == 2
    assert "nan is no finite number" in ended.output
