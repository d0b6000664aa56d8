"""The link model: what a load takes alone, and behind others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.link import DISKS, LINKS, LinkSpec, LoadPath, Stage

MB = 1_000_000


@pytest.mark.parametrize(("link", "ms"), [("pcie-gen4-x16", 6.4), ("pcie-gen5-x16", 2.5)])
def test_160_mb_take_as_long_as_the_link_is_wide(link, ms):
    assert LINKS[link].duration_s(160 * MB) == pytest.approx(ms / 1000, rel=1e-12)
    passage = LoadPath(LINKS[link], DISKS["nvme-gen4"]).begin(160 * MB, 5.0)
    assert passage.end_s - 5.0 == pytest.approx(ms / 1000)


def test_loads_queue_behind_each_other():
    stage = Stage(LinkSpec(100.0, 0.5))
    assert stage.begin(100, 0.0, 0.0) == (0.0, 1.5)
    assert stage.ends_s(100, 1.0) == 3.0
    assert stage.begin(100, 1.0, 1.0) == (1.5, 3.0)
    assert stage.busy_s(1.0) == 2.0
    assert stage.begin(50, 9.0, 9.0) == (9.0, 10.0)
    assert stage.busy_s(20.0) == 0.0


def test_a_load_from_disk_is_read_first_and_holds_up_nobody_in_host_memory():
    path = LoadPath(LinkSpec(100.0), LinkSpec(10.0))
    cold = path.begin(100, 0.0, from_disk=True)
    assert (cold.host_s, cold.start_s, cold.end_s) == (10.0, 10.0, 11.0)
    warm = path.begin(100, 1.0)
    assert (warm.host_s, warm.start_s, warm.end_s) == (1.0, 1.0, 2.0)
    big = path.begin(900, 2.0)
    assert big.start_s == 11.0, "it does not fit before the cold one's promised span"
    second = path.begin(100, 2.0, from_disk=True)
    assert (second.host_s, second.start_s, second.end_s) == (20.0, 20.0, 21.0)


@given(
    st.lists(
        st.tuples(st.integers(1, 500), st.sampled_from([0.0, 0.5, 3.0]), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_spans_never_overlap_never_begin_early_and_no_time_is_left_that_would_have_fitted(loads):
    path = LoadPath(LinkSpec(100.0), LinkSpec(40.0, 0.25))
    now, spans = 0.0, []
    for size, pause, from_disk in loads:
        now += pause
        p = path.begin(size, now, from_disk=from_disk)
        assert p.host_s >= now
        assert p.start_s >= p.host_s
        assert p.end_s == p.start_s + size / 100.0
        for start, end in spans:
            assert p.end_s <= start or p.start_s >= end
        starts = [p.host_s, *(end for _, end in spans if p.host_s <= end < p.start_s)]
        for start in starts:
            if start < p.start_s:
                length = size / 100.0
                assert any(s < start + length and start < e for s, e in spans)
        if size:
            spans.append((p.start_s, p.end_s))


@pytest.mark.parametrize(("rate", "latency"), [(0, 0), (-1, 0), (1, -1), (float("nan"), 0)])
def test_an_impossible_link_is_refused(rate, latency):
    with pytest.raises(ValueError, match="rate must be above 0"):
        LinkSpec(rate, latency)
