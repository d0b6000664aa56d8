"""The decode cohort against a twin that visits every row in every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.cohort import Cohort
from engine.scheduling.request import Ask, Request

PAGE = 4
ROW_S, CONTEXT_S, ADAPTER_S = 0.5, 0.001, 0.25


@dataclass
class Row:
    """What the twin knows of a row, step by step."""

    produced: int
    computed: int
    max_gap: float | None
    last: float
    stall: float = 0.0


def request(number: int, index: int, prompt: int, most: int, adapter: str | None) -> Request:
    ask = Ask(f"r{number}", f"t{index}", range(prompt), most, 0.0, 0.0, adapter)
    r = Request(ask, number, 0.0, index, "", f"t{index}", prompt)
    r.produced, r.computed = 1, prompt
    r.pages = list(range(-(-prompt // PAGE)))
    r.last_token_s = 0.0
    return r


moves = st.lists(
    st.one_of(
        st.tuples(
            st.just("join"),
            st.integers(0, 3),
            st.integers(1, 30),
            st.integers(2, 40),
            st.sampled_from([None, "a", "b"]),
        ),
        st.tuples(st.just("leave"), st.integers(0, 50)),
        st.tuples(st.just("step"), st.floats(0.01, 5.0), st.floats(0.0, 1.0)),
        st.tuples(st.just("jump"), st.integers(1, 5), st.floats(0.01, 2.0)),
    ),
    max_size=60,
)


@given(moves)
def test_a_row_brought_up_to_date_is_as_if_it_had_been_visited_in_every_step(plan):
    cohort, now, number = Cohort(PAGE, 2), 0.0, 0
    rows: dict[int, tuple[Request, Row]] = {}

    def one_step(now: float, stall: float) -> None:
        for _, row in rows.values():
            gap = now - row.last
            row.max_gap = gap if row.max_gap is None else max(gap, row.max_gap)
            row.produced += 1
            row.computed += 1
            row.last = now
            row.stall += stall

    def settle_growth() -> None:
        due = {r.sequence for r in cohort.growing()}
        short = {
            n
            for n, (r, row) in rows.items()
            if r.prompt_tokens + row.produced > len(r.pages) * PAGE
        }
        assert due == short
        for n in due:
            r = rows[n][0]
            r.pages.append(0)
            cohort.wants_page(r, cohort.length(r), len(r.pages))

    def settle_ends() -> None:
        done = {r.sequence for r in cohort.finishing()}
        assert done == {n for n, (r, row) in rows.items() if row.produced >= r.ask.max_tokens}
        for n in done:
            leave(n)

    def leave(n: int) -> None:
        r, row = rows.pop(n)
        cohort.leave(r)
        assert (r.produced, r.computed) == (row.produced, row.computed)
        assert r.max_gap_s == pytest.approx(row.max_gap, abs=1e-9)
        assert r.stall_s == pytest.approx(row.stall, abs=1e-9)
        assert r.last_token_s == pytest.approx(row.last, abs=1e-9)

    for move in plan:
        if move[0] == "join":
            number += 1
            r = request(number, *move[1:])
            r.last_token_s = now
            rows[number] = (r, Row(1, r.computed, None, now))
            cohort.join(r, 4)
        elif move[0] == "leave" and rows:
            leave(sorted(rows)[move[1] % len(rows)])
        elif move[0] == "step" and rows:
            settle_growth()
            now += move[1]
            for r in cohort.fresh():
                gap = now - r.last_token_s
                r.max_gap_s = gap if r.max_gap_s is None else max(gap, r.max_gap_s)
            one_step(now, move[2])
            cohort.stepped(now, move[2])
            settle_ends()
        elif move[0] == "jump" and rows and not list(cohort.fresh()):
            count = cohort.steady_steps(move[1])
            ends = [now + (i + 1) * move[2] for i in range(count)]
            if ends:
                for end in ends:
                    one_step(end, 0.0)
                now = ends[-1]
                cohort.jumped(ends)
                settle_growth()
        check_arrays(cohort, rows)


def check_arrays(cohort: Cohort, rows: dict[int, tuple[Request, Row]]) -> None:
    width = len(cohort.rows_of)
    count, context, cost = np.zeros(width), np.zeros(width), np.zeros(width)
    users: dict[str, int] = {}
    for r, _ in rows.values():
        if r.ask.adapter:
            users[r.ask.adapter] = users.get(r.ask.adapter, 0) + 1
    beside = {"a": 2, "c": 1}
    for r, row in rows.values():
        count[r.index] += 1
        context[r.index] += r.prompt_tokens + row.produced
        cost[r.index] += ROW_S + CONTEXT_S * (r.prompt_tokens + row.produced)
        if r.ask.adapter:
            cost[r.index] += ADAPTER_S / (users[r.ask.adapter] + beside.get(r.ask.adapter, 0))
    assert np.array_equal(cohort.rows_of, count)
    assert np.array_equal(cohort.context_of, context)
    assert cohort.context == context.sum()
    assert cohort.adapters == users
    got = cohort.decode_cost_s(ROW_S, CONTEXT_S, ADAPTER_S, beside)
    assert got == pytest.approx(cost, abs=1e-9)
