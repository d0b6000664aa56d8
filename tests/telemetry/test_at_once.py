"""Rows made of columns are the rows that their constructor makes."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.at_once import rows_at_once
from telemetry.records import InterferenceMinute, TenantMinute

KEYS = {"bucket_start": 60.0, "bucket_s": 60.0, "engine": "e", "run_id": "r", "pool": "p"}
OWN = [f.name for f in fields(TenantMinute) if f.name not in KEYS and f.name != "tenant"]


@given(
    st.lists(st.text(max_size=4), max_size=5),
    st.sets(st.sampled_from(OWN)),
    st.sets(st.sampled_from(OWN)),
)
def test_a_row_of_columns_is_the_row_of_the_constructor(tenants, columns, same):
    given_columns = {name: list(range(len(tenants))) for name in columns}
    in_every = dict.fromkeys(same - columns, 7)
    made = rows_at_once(
        TenantMinute, len(tenants), {**KEYS, **in_every}, {"tenant": tenants, **given_columns}
    )
    assert made == [
        TenantMinute(**KEYS, **in_every, tenant=t, **dict.fromkeys(given_columns, i))
        for i, t in enumerate(tenants)
    ]
    assert [asdict(row)["tenant"] for row in made] == tenants


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match="2 values of tenant for 1 rows"):
        rows_at_once(TenantMinute, 1, KEYS, {"tenant": ["a", "b"]})
    with pytest.raises(ValueError, match="no value for tenant of TenantMinute"):
        rows_at_once(TenantMinute, 1, KEYS, {})
    with pytest.raises(ValueError, match="InterferenceMinute has no field tenant"):
        rows_at_once(InterferenceMinute, 1, KEYS, {"tenant": ["a"]})
