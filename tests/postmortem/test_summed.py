"""What a report reads instead of whole rows says what whole rows say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postmortem.report.build import build_report
from postmortem.report.markdown import render
from postmortem.report.requests import Requests
from postmortem.summed import Sums
from telemetry.ask.reading import filled
from telemetry.charged import Catalogue
from telemetry.coded import CodedMatrix
from telemetry.records import InterferenceMinute, TenantMinute
from telemetry.source import open_source
from telemetry.window import buckets_of, read_window

SAMPLES = sorted((Path(__file__).parents[2] / "sample_incidents").glob("*/store"))
PER_RUN = [pytest.param(s, id=s.parent.name, marks=pytest.mark.full) for s in SAMPLES]
QUICK = [s for s in SAMPLES if s.parent.name == "five-pm-fanout"]


class Whole:
    """A store's rows as they are, without its queries."""

    def __init__(self, source) -> None:
        self.read, self.span = source.read, source.span


@pytest.mark.parametrize("store", [*QUICK, *PER_RUN])
def test_the_columns_a_report_reads_are_all_that_anybody_looks_at(store: Path):
    source = open_source(store)
    start, end = source.span()
    lean, whole = (
        render(build_report(read_window(r, start, end), gather=lambda case: Requests()))
        for r in (Sums(source), Whole(source))
    )
    source.close()
    assert lean == whole


NAMES = st.sampled_from(["a", "b", "`|", "=x("])
CHARGES = st.lists(
    st.tuples(
        st.integers(0, 3), NAMES, st.sampled_from(["slot", "kv"]), NAMES,
        st.none() | st.floats(0, 1e6),
    ),
    max_size=40,
)  # fmt: skip


def as_rows(charges) -> list[InterferenceMinute]:
    rows = []
    for at, victim, reason, holder, seconds in charges:
        known = {
            "bucket_start": 60.0 * at, "bucket_s": 60.0, "engine": "e", "run_id": "r",
            "pool": "main", "victim": victim, "reason": reason, "holder_kind": "tenant",
            "holder": holder, "charged_s": seconds,
        }  # fmt: skip
        names = InterferenceMinute.__dataclass_fields__
        rows.append(InterferenceMinute(**{n: known.get(n) for n in names}))
    return rows


def as_answer(charges) -> list[tuple]:
    """What `report_matrix` answers."""
    cells = sorted({(v, r, "tenant", h) for _, v, r, h, _ in charges})
    out: list[tuple] = [(i, *cell, None, None, None) for i, cell in enumerate(cells)]
    for at, v, r, h, seconds in charges:
        place = cells.index((v, r, "tenant", h))
        out.append((place, None, None, None, None, 60.0 * at, 60.0, seconds))
    return out


@settings(max_examples=20)
@given(CHARGES, st.randoms())
def test_a_matrix_as_columns_is_the_matrix_as_rows(charges, random):
    answer = as_answer(charges)
    random.shuffle(answer)
    coded = CodedMatrix.of_rows("main", answer)
    rows = buckets_of("main", (), (), as_rows(charges), Catalogue())
    columns = buckets_of("main", (), (), [coded], Catalogue())
    assert [b.start for b in columns] == [b.start for b in rows]
    for a, b in zip(columns, rows, strict=True):
        assert dict(a.matrix).keys() == dict(b.matrix).keys()
        assert all(math.isclose(a.matrix[c], s) for c, s in b.matrix.items())
        assert (a.charges_missing, a.length_s) == (b.charges_missing, b.length_s)


def test_columns_of_several_stretches_add_up_and_other_pools_stay_out():
    one, two = (CodedMatrix.of_rows("main", as_answer([(0, "a", "kv", "b", s)])) for s in (1, 2))
    other = CodedMatrix.of_rows("other", as_answer([(0, "a", "kv", "b", 9)]))
    [bucket] = buckets_of("main", (), (), [one, other, two], Catalogue())
    assert list(bucket.matrix.values()) == [3.0]


def test_fields_that_were_not_asked_for_are_absent():
    [row] = filled(TenantMinute, ("tenant", "service"), [("a", 3.0)])
    assert (row.tenant, row.service, row.finished, row.ttft) == ("a", 3.0, None, None)
