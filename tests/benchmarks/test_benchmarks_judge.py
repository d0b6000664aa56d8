"""The timed window is one that a verdict has something to say about."""

from __future__ import annotations

import json

from benchmarks.judge_time import made, main
from telemetry.verdict import judge


def test_the_one_who_asks_more_is_named_among_many(capsys):
    assert main(["--tenants", "30", "--minutes", "12", "--before", "10", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["named"], row["hurt"]) == ("t0000", 30)
    assert row["charges"] > 30 * 22 * 7


def test_the_same_seed_is_the_same_window():
    one, other = (judge(made(12, 10, 8, seed=3)) for _ in range(2))
    assert one.lines() == other.lines()
    assert one.tenant == "t0000"
