"""A workload's arrivals: in order, repeatable, independent of each other, in bounded memory."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.simulation.arrivals import OnOff, Process, Recorded, Spacing, Steady
from engine.simulation.lengths import Even, Lognormal, RecordedLengths
from engine.simulation.popularity import Zipf
from engine.simulation.workload import Traffic
from engine.simulation.workload_stream import stream


def traffic(name, arrivals=None, **kw):
    return Traffic(
        **{
            "name": name,
            "tenants": (name,),
            "adapters": (),
            "start_s": 0.0,
            "end_s": 100.0,
            "arrivals": arrivals or Process(Spacing(1.0), Steady(20.0)),
            "prompt_tokens": Lognormal.of_mean(100, 1.0),
            "output_tokens": Even(1, 50),
            **kw,
        }
    )


def arrivals(*streams, seed=7, start_s=0.0, end_s=float("inf"), pace=1.0):
    return list(stream(streams, seed, start_s, end_s, pace))


A = traffic("a", adapters=("x", "y"))
B = traffic("b", Process(Spacing(2.0), OnOff(50.0, 5.0, 5.0)))
C = traffic("c", Recorded((0.0, 0.0, 3.0, 3.0, 3.0)), start_s=50.0)


def test_arrivals_of_all_streams_come_in_order_of_time():
    drawn = arrivals(A, B, C)
    assert [a.at_s for a in drawn] == sorted(a.at_s for a in drawn)
    assert Counter(a.tenant for a in drawn)["c"] == 5
    assert min(Counter(a.tenant for a in drawn).values()) > 0


def test_the_same_seed_gives_the_same_and_another_one_does_not():
    assert arrivals(A, B) == arrivals(A, B)
    assert arrivals(A, B) != arrivals(A, B, seed=8)


def test_one_stream_more_changes_nothing_of_the_others():
    alone = arrivals(A, B)
    assert [a for a in arrivals(C, A, traffic("d"), B) if a.tenant in "ab"] == alone


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 100), st.floats(0, 100))
def test_a_span_holds_what_the_whole_holds_there(one, other):
    start_s, end_s = min(one, other), max(one, other)
    whole = arrivals(A, B, C)
    inside = [a for a in whole if start_s <= a.at_s < end_s]
    assert arrivals(A, B, C, start_s=start_s, end_s=end_s) == inside


def test_two_readers_at_once_do_not_disturb_each_other():
    whole = arrivals(A, B)
    first, second = stream((A, B), 7, 0.0, 1e9, 1.0), stream((A, B), 7, 0.0, 1e9, 1.0)
    mixed = [pair for pair in zip(first, second, strict=True)]  # noqa: C416
    assert [p for p, _ in mixed] == whole == [q for _, q in mixed]


def test_equal_instants_keep_the_order_of_the_streams():
    many = Recorded(tuple([1.0] * 20_000))  # more than a block holds
    same = [traffic(n, many, end_s=2.0) for n in ("z", "a", "m")]
    drawn = [a.tenant for a in arrivals(*same)]
    assert drawn == ["z"] * 20_000 + ["a"] * 20_000 + ["m"] * 20_000


def test_lengths_do_not_hang_on_the_pace():
    slow, fast = arrivals(A, pace=0.5), arrivals(A, pace=1.0)
    pairs = list(zip(slow, fast, strict=False))
    assert len(fast) > 1.5 * len(slow)
    assert all(s.prompt_tokens == f.prompt_tokens and s.seed == f.seed for s, f in pairs)


def test_recorded_requests_are_replayed_one_by_one():
    t = traffic(
        "a",
        Recorded((0.5, 1.0, 4.0)),
        prompt_tokens=RecordedLengths((10, 20, 30)),
        output_tokens=RecordedLengths((1, 2, 3)),
    )
    drawn = [(a.at_s, a.prompt_tokens, a.max_tokens) for a in arrivals(t)]
    assert drawn == [(0.5, 10, 1), (1.0, 20, 2), (4.0, 30, 3)]


def test_a_crowd_gets_zipf_shares():
    names = tuple(f"t{i}" for i in range(100))
    t = traffic(
        "crowd", Process(Spacing(1.0), Steady(500.0)), tenants=names, tenant_zipf=1.0,
        adapters=("x", "y", "z"), adapter_zipf=0.0,
    )  # fmt: skip
    drawn = arrivals(t)
    seen = Counter(a.tenant for a in drawn)
    for name, share in list(zip(names, Zipf(100, 1.0).shares, strict=True))[:5]:
        assert seen[name] / len(drawn) == pytest.approx(share, rel=0.1)
    used = Counter(a.adapter for a in drawn)
    assert min(used.values()) / len(drawn) == pytest.approx(1 / 3, rel=0.05)


def test_adapters_by_tenant_tie_each_tenant_to_one():
    t = traffic("c", tenants=("p", "q", "r"), adapters=("x", "y"), adapters_by="tenant")
    assert {(a.tenant, a.adapter) for a in arrivals(t)} == {("p", "x"), ("q", "y"), ("r", "x")}


def test_an_endless_stream_is_never_held_at_once():
    big = traffic("big", Process(Spacing(1.0), Steady(100_000.0)), end_s=1e9)
    endless = stream((big, replace(A, end_s=1e9)), 1, 0.0, 1e9, 1.0)
    assert isinstance(endless, Iterator)
    tracemalloc.start()
    try:
        count = sum(1 for _ in itertools.islice(endless, 150_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 150_000
    assert peak < 8e6, "as a list they are 20 MB and more"


@pytest.mark.parametrize("pace", [0.0, -1.0, float("nan")])
def test_a_pace_must_be_above_zero(pace):
    with pytest.raises(ValueError, match="pace"):
        stream((A,), 1, 0.0, 1.0, pace)
