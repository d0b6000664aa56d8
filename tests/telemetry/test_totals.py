"""Running totals: in whatever order deliveries come, sums are exact and nothing goes back."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter
from telemetry.prometheus.counting import MOST_POOLS, STALE_S, Counting
from telemetry.prometheus.exposed import OTHER
from telemetry.prometheus.naming import Naming
from telemetry.prometheus.totals import HORIZON_S, SETTLED_S
from telemetry.records import Batch, EngineRun, TenantMinute
from tests.telemetry.delivered import RUN, T0, batch, charge, engine_minute, minute

TENANTS = ("a", "b", "c", "d", "e")


def run_of(*contracted: str, known: tuple[str, ...] = TENANTS) -> EngineRun:
    tenants = [
        {"name": n, "slo": {"ttft_s": 1.0 if n in contracted else None}}
        for n in dict.fromkeys((*contracted, *known))
    ]
    return EngineRun(started=T0, model="m", config=json.dumps({"tenants": tenants}), **RUN)


def counting(*contracted: str, **naming: Any) -> Counting:
    """Those under contract are named at once, and by default one more by service or misses."""
    made = Counting(T0, Naming(**naming or {"top": 1, "most": 2 + len(contracted)}))
    made.hear([batch(run_of(*contracted))], T0)
    return made


def shown(of: Counting, column: str, now: float = T0 + 60) -> dict[str, float]:
    """What a scrape shows of a tenant column, by tenant, over engines and pools."""
    labels, matrix = of.look(now).tenants
    out: dict[str, float] = {}
    for one, row in zip(labels, matrix[:, of.tenants.at[column]].sum(axis=1), strict=True):
        out[one[2]] = out.get(one[2], 0.0) + float(row)
    return out


def test_a_delivery_counts_once_however_often_it_comes():
    heard = counting("a")
    sealed = batch(minute("a", output_tokens=7), seq=3)
    for _ in range(3):
        heard.hear([sealed], T0 + 60)
    assert shown(heard, "output_tokens")["a"] == 7
    heard.hear([replace(sealed, minutes=(minute("a", T0 + 60, output_tokens=5),))], T0 + 120)
    assert shown(heard, "output_tokens")["a"] == 12


def test_an_open_bucket_grows_into_its_sealed_state():
    heard = counting("a")
    for seq, sealed, tokens in ((1, False, 3), (2, False, 5), (3, True, 9), (2, False, 5)):
        heard.hear([batch(minute("a", output_tokens=tokens), sealed=sealed, seq=seq)], T0 + 60)
    assert shown(heard, "output_tokens")["a"] == 9


def test_front_and_worker_write_one_row_and_do_not_hide_each_other():
    heard = counting("a")
    heard.hear([batch(minute("a", output_tokens=4), seq=9)], T0 + 60)
    front = batch(minute("a", offered_requests=2), emitter=Emitter.FRONT, seq=1)
    heard.hear([front, front], T0 + 61)
    assert shown(heard, "output_tokens")["a"] == 4
    assert shown(heard, "offered_requests")["a"] == 2


def test_parts_of_a_sealed_bucket_may_come_after_it_is_settled():
    heard = counting("a", "b")
    heard.hear([batch(minute("a", output_tokens=4), seq=1)], T0 + 60)
    later = T0 + 60 + SETTLED_S + 60
    heard.hear([batch(minute("a", T0 + 180, output_tokens=1), seq=2)], later)
    for _ in range(2):
        heard.hear([batch(minute("a", output_tokens=4), minute("b", output_tokens=6))], later + 1)
    assert shown(heard, "output_tokens") == {"a": 5, "b": 6, OTHER: 0}


def test_a_bucket_an_hour_away_is_left_out_and_said():
    heard = counting("a")
    old, ahead = T0 - HORIZON_S - 61, T0 + HORIZON_S + 1
    heard.hear([batch(minute("a", old, output_tokens=4), minute("a", ahead, output_tokens=4))], T0)
    assert shown(heard, "output_tokens")["a"] == 0
    assert heard.look(T0).uncounted == 2
    heard.hear([batch(minute("a", output_tokens=2))], T0)
    assert shown(heard, "output_tokens")["a"] == 2


def test_what_a_store_held_before_is_not_counted_again():
    """A store process is killed after a commit and started again; the sender delivers again."""
    heard = counting("a")
    stored = minute("a", output_tokens=10, offered_requests=3)
    heard.remember(
        {
            "tenant_minute": [stored],
            "engine_minute": [engine_minute(steps=5)],
            "interference_minute": [charge("a", "b", 4.0)],
        },
        T0 + 30,
    )
    again = batch(minute("a", output_tokens=12), engine_minute(steps=7), charge("a", "b", 5.0))
    front = batch(minute("a", offered_requests=3), emitter=Emitter.FRONT)
    heard.hear([again, front], T0 + 60)
    assert shown(heard, "output_tokens")["a"] == 2
    assert shown(heard, "offered_requests")["a"] == 0
    look = heard.look(T0 + 60)
    assert look.engines[1][:, heard.engines.at["steps"]].sum() == 2
    assert look.charges[1].sum() == 1.0


def test_a_matrix_is_replaced_as_a_whole_and_its_totals_never_go_back():
    heard = counting("a", "b", "c")

    def held() -> dict[str, float]:
        labels, seconds = heard.look(T0 + 60).charges
        return {one[4]: float(s) for one, s in zip(labels, seconds[:, 0], strict=True)}

    heard.hear([batch(charge("a", "b", 4.0), charge("c", "b", 1.0), sealed=False, seq=1)], T0 + 10)
    assert held() == {"b": 5.0}
    heard.hear([batch(engine_minute(), charge("a", "c", 6.0), sealed=False, seq=2)], T0 + 20)
    assert held() == {"b": 5.0, "c": 6.0}  # b has none any more: what was shown stays
    heard.hear([batch(engine_minute(), charge("a", "b", 6.0), seq=3)], T0 + 60)
    assert held() == {"b": 6.0, "c": 6.0}
    assert {k[4]: float(v[0]) for k, v in heard.charges.running.exact().items()} == {
        "b": 6.0,
        "c": 0.0,
    }


# --- names ---------------------------------------------------------------------------------------


def test_tenants_with_targets_are_there_at_zero_before_they_ask():
    assert shown(counting("a", "b"), "output_tokens") == {"a": 0, "b": 0, OTHER: 0}


def test_where_tenants_are_few_all_of_them_are_named_at_once():
    heard = Counting(T0)
    heard.hear([batch(run_of())], T0)
    assert shown(heard, "output_tokens") == dict.fromkeys((*TENANTS, OTHER), 0)


def test_who_comes_first_gets_a_name_and_keeps_it_and_others_keep_what_they_had():
    heard = counting(top=1, most=4)
    heard.hear([batch(minute("b", service=5.0, output_tokens=5, slo_missed=0), seq=1)], T0 + 60)
    heard.hear(
        [
            batch(
                minute("c", T0 + 60, service=50.0, output_tokens=50, slo_missed=0),
                minute("d", T0 + 60, service=1.0, output_tokens=1, slo_missed=9),
                minute("e", T0 + 60, service=2.0, output_tokens=2),
                seq=2,
            )
        ],
        T0 + 120,
    )
    assert heard.naming.named == ("b", "c", "d")
    assert shown(heard, "output_tokens") == {"b": 5, "c": 50, "d": 1, OTHER: 2}
    later = minute("e", T0 + 120, service=900.0, output_tokens=90)
    heard.hear([batch(later, seq=3)], T0 + 180)
    assert heard.naming.named == ("b", "c", "d", "e")
    assert shown(heard, "output_tokens") == {"b": 5, "c": 50, "d": 1, OTHER: 2, "e": 90}


def test_names_end_and_who_finds_none_is_counted_among_the_others():
    heard = counting(top=1, most=2)
    for i, tenant in enumerate(TENANTS):
        row = minute(tenant, T0 + 60 * i, service=10.0 ** (i + 1), output_tokens=i + 1)
        heard.hear([batch(row, seq=i + 1)], T0 + 60 * i)
    assert heard.naming.named == ("a", "b")
    assert shown(heard, "output_tokens") == {"a": 1, "b": 2, OTHER: 12}
    assert heard.look(T0).left_out == 3


def test_no_settings_list_it_so_it_never_becomes_a_label():
    heard = counting("a")
    heard.hear([batch(minute("x" * 9, service=1e9, slo_missed=99, output_tokens=8))], T0 + 60)
    assert heard.naming.named == ("a",)
    assert shown(heard, "output_tokens")[OTHER] == 8


def test_a_tenant_called_other_is_one_of_the_others():
    heard = counting(OTHER)
    heard.hear([batch(minute(OTHER, service=5.0, output_tokens=5))], T0 + 60)
    assert OTHER not in heard.naming.named
    assert shown(heard, "output_tokens") == {OTHER: 5}


def test_engines_and_reasons_that_senders_invent_share_one_series():
    heard = Counting(T0)
    for i in range(3 * MOST_POOLS):
        row = replace(engine_minute(steps=1), engine=f"e{i}")
        made = replace(charge("a", "b", 1.0), engine=f"e{i}", reason=f"why{i}", holder_kind=f"k{i}")
        heard.hear([Batch(f"e{i}", "r1", "main", Emitter.WORKER, True, 1, (row, made))], T0 + 60)
    look = heard.look(T0 + 60)
    assert len(look.engines[0]) == len(look.charges[0]) == MOST_POOLS + 1
    assert look.engines[1][:, heard.engines.at["steps"]].sum() == 3 * MOST_POOLS


# --- levels --------------------------------------------------------------------------------------


def test_levels_are_the_newest_buckets_and_vanish_with_a_silent_pool():
    heard = counting("a")
    rows = (
        engine_minute(waiting_avg=3.0),
        minute("a", kv_bytes_avg=5.0, weight=2.0),
        minute("b", kv_bytes_avg=7.0, kv_bytes_max=9.0, vtc_counter=4.0),
        minute("c", kv_bytes_avg=1.0, kv_bytes_max=2.0, vtc_counter=8.0),
    )
    heard.hear([batch(*rows, sealed=False)], T0 + 10)
    look = heard.look(T0 + 11)
    assert dict(look.tenant_levels) == {
        ("e1", "main", "a"): {"kv_bytes_avg": 5.0, "weight": 2.0},
        ("e1", "main", OTHER): {"kv_bytes_avg": 8.0, "kv_bytes_max": 9.0},
    }
    assert dict(look.engine_levels) == {("e1", "main"): {"waiting_avg": 3.0}}
    silent = heard.look(T0 + 11 + STALE_S)
    assert (silent.tenant_levels, silent.engine_levels) == ([], [])


# --- properties ----------------------------------------------------------------------------------

COUNTED = ("output_tokens", "slo_missed", "service")
values = st.integers(0, 1000)


@st.composite
def histories(draw: Any, growing: bool) -> list[Batch]:
    """Buckets of two runs: open states, which grow or are corrected, a sealed one for most;
    tenants come and go."""
    made: list[Batch] = []
    for run in ("r1", "r2"):
        seq = 0
        for i in range(draw(st.integers(1, 3))):
            rows: dict[str, list[int]] = {}
            for step in range(draw(st.integers(1, 3))):
                for tenant in draw(st.sets(st.sampled_from(TENANTS))):
                    grown = rows.setdefault(tenant, [0, 0, 0])
                    rows[tenant] = [growing * v + draw(values) for v in grown]
                seq += 1
                places = (*rows.get("a", [0])[:1], *(0 for _ in LATENCY_BOUNDS_S))
                minutes = tuple(
                    TenantMinute(
                        bucket_start=T0 + 60 * i, bucket_s=60.0, engine="e1", run_id=run,
                        pool="main", tenant=t, output_tokens=v[0], slo_missed=v[1],
                        service=float(v[2]), ttft=places,
                    )
                    for t, v in rows.items()
                )  # fmt: skip
                sealed = step == 2
                made.append(Batch("e1", run, "main", Emitter.WORKER, sealed, seq, minutes))
    return made


def newest(history: list[Batch]) -> dict[str, int]:
    """Sums over the newest state of every row, worked out with no cleverness."""
    best: dict[tuple[str, float, str], tuple[tuple[bool, int], TenantMinute]] = {}
    for one in history:
        for row in one.minutes:
            assert isinstance(row, TenantMinute)
            key, mark = (one.run_id, row.bucket_start, row.tenant), (one.sealed, one.seq)
            if key not in best or mark > best[key][0]:
                best[key] = (mark, row)
    return {c: sum(getattr(row, c) for _, row in best.values()) for c in COUNTED}


def scattered(history: list[Batch], seed: int) -> list[Batch]:
    """The same deliveries, some twice, some in parts, in any order."""
    rng = random.Random(seed)
    out = []
    for one in history:
        rows = list(one.minutes)
        rng.shuffle(rows)
        cut = rng.randint(0, len(rows))
        out += [replace(one, minutes=tuple(part)) for part in (rows[:cut], rows[cut:])]
        out += [one] * rng.randint(0, 2)
    rng.shuffle(out)
    return out


@given(histories(growing=False), st.integers(0, 1 << 30))
def test_rates_never_see_a_reset_and_totals_are_the_senders_to_the_token(
    history: list[Batch], seed: int
) -> None:
    heard = counting("a", top=1, most=3)
    before: dict[Any, np.ndarray] = {}
    for i, one in enumerate(scattered(history, seed)):
        heard.hear([one], T0 + 200 + i)
        labels, matrix = heard.look(T0 + 200 + i).tenants
        now = dict(zip(labels, matrix, strict=True))
        assert all((now[k] >= v).all() for k, v in before.items())
        before = now
    exact = sum(heard.tenants.running.exact().values())
    for column, wanted in newest(history).items():
        assert exact[heard.tenants.at[column]].sum() == wanted


@settings(max_examples=50, deadline=None)
@given(histories(growing=True))
def test_in_order_what_is_shown_is_exact_at_every_moment(history: list[Batch]) -> None:
    heard = counting("a", top=1, most=3)
    for i, one in enumerate(history):
        heard.hear([one], T0 + 200)
        wanted = newest(history[: i + 1])
        assert {c: sum(shown(heard, c).values()) for c in COUNTED} == wanted
