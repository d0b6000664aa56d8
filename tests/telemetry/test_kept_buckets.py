"""Windows over kept buckets are the same as windows made anew, whatever changed in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry import kept_buckets
from telemetry.kept_buckets import KeptBuckets
from telemetry.records import TenantMinute
from telemetry.verdict import judge
from telemetry.window import Window, window_of
from tests.console import rows as made

BUCKETS = 6
ROWS = made.incident(calm_buckets=3, bad_buckets=3)


def given_rows(there: set[int], grown: int | None) -> dict[str, tuple]:
    """The rows of some buckets; those of `grown` have moved on."""

    def of(rows):
        out = []
        for r in rows:
            at = round((r.bucket_start - made.T0) / made.BUCKET_S)
            if at in there:
                new = at == grown and hasattr(r, "observed_seconds")
                out.append(replace(r, observed_seconds=7.0) if new else r)
        return tuple(out)

    return {"engine_rows": of(ROWS.engines), "tenant_rows": of(ROWS.tenants),
            "matrix_rows": of(ROWS.interference)}  # fmt: skip


def told(w: Window) -> list[tuple]:
    return [(b.start, b.length_s, b.observed_s, b.engines, b.engine, dict(b.tenants),
             dict(b.matrix), b.charges_missing, b.workers) for b in w.buckets]  # fmt: skip


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, BUCKETS - 1)), st.none() | st.integers(0, BUCKETS - 1)),
        min_size=1,
        max_size=4,
    )
)
def test_a_kept_window_is_a_window(steps):
    kept = KeptBuckets()
    for there, grown in steps:
        rows = given_rows(there, grown)
        bounds = ("main", made.T0 + 10.0, made.T0 + 60.0)
        mine, whole = kept.window(*bounds, **rows), window_of(*bounds, **rows)
        assert told(mine) == told(whole)
        assert (mine.engines, mine.past) == (whole.engines, whole.past)
        parts = mine.part(mine.asked), whole.part(whole.asked)
        for column in ("service", "waits", "slo_missed", "stall_s"):
            ours, theirs = (p.totals(column) for p in parts)
            assert np.array_equal(ours, theirs, equal_nan=True)


def test_what_has_not_changed_is_the_very_same_bucket():
    kept, bounds = KeptBuckets(), ("main", made.T0, made.T0 + 60.0)
    before = kept.window(*bounds, **given_rows({0, 1, 2}, None))
    after = kept.window(*bounds, **given_rows({0, 1, 2}, 2))
    same = [a is b for a, b in zip(before.buckets, after.buckets, strict=True)]
    assert same == [True, True, False]


def test_another_pool_begins_anew():
    kept = KeptBuckets()
    kept.window("main", made.T0, made.T0 + 60.0, **given_rows({0, 1}, None))
    assert kept.window("other", made.T0, made.T0 + 60.0, **given_rows({0, 1}, None)).buckets == ()


def test_cells_of_the_past_are_forgotten(monkeypatch):
    monkeypatch.setattr(kept_buckets, "_FEWEST_CELLS", 3)
    kept, bounds = KeptBuckets(), ("main", made.T0, made.T0 + 60.0)
    kept.window(*bounds, **given_rows({3, 4, 5}, None))
    assert len(kept._catalogue.cells) > 3
    kept.forget(made.T0 + 600.0)
    assert len(kept._catalogue.cells) == 0
    rows = given_rows({4, 5}, None)
    assert told(kept.window(*bounds, **rows)) == told(window_of(*bounds, **rows))


def test_the_verdict_is_the_same_over_kept_buckets():
    kept, bounds = KeptBuckets(), ("main", made.T0 + 10.0, made.T0 + 60.0)
    rows = given_rows(set(range(BUCKETS)), None)
    for _ in range(2):
        assert (
            judge(kept.window(*bounds, **rows)).sentences
            == judge(window_of(*bounds, **rows)).sentences
        )


def test_rows_read_again_and_found_equal_are_compared_once(monkeypatch):
    kept, bounds = KeptBuckets(), ("main", made.T0, made.T0 + 60.0)
    before = kept.window(*bounds, **given_rows({0, 1}, None))
    again = {k: tuple(replace(r) for r in rows) for k, rows in given_rows({0, 1}, None).items()}
    same = kept.window(*bounds, **again)
    assert [a is b for a, b in zip(before.buckets, same.buckets, strict=True)] == [True, True]

    def compared(self, other):
        raise AssertionError("values were compared again")

    monkeypatch.setattr(TenantMinute, "__eq__", compared)
    third = kept.window(*bounds, **again)
    assert [a is b for a, b in zip(before.buckets, third.buckets, strict=True)] == [True, True]
