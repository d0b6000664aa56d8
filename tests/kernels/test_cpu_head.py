"""The native output head: float32 logits of a 16-bit weight, on every instruction set there is."""

from __future__ import annotations

import pytest
import torch

from kernels.cpu import Absent, Isa, Native, kind_of, native
from kernels.cpu_head import native_head

BEST = Isa.PLAIN if isinstance(native(), Absent) else native().isa


@pytest.fixture(scope="module", params=kind_of(BEST), ids=lambda isa: isa.name.lower())
def found(request) -> Native:
    here = native()
    if isinstance(here, Absent):
        pytest.skip(here.reason)
    if request.param > here.isa:
        pytest.skip(f"this CPU has no {request.param.name}")
    return Native(here.functions, request.param)


def made(
    vocab: int, width: int, rows: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(vocab + width + rows)
    weight = (torch.randn(vocab, width, generator=dice) * 0.05).to(dtype)
    return weight, torch.randn(rows, width, generator=dice) * 20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("vocab", "width", "rows"),
    [(100, 64, 1), (1000, 96, 33), (33, 160, 17), (31, 64, 3), (70, 50, 6), (64, 576, 70)],
)
def test_logits_are_as_near_to_float64_as_float32_comes(found, dtype, vocab, width, rows):
    weight, hidden = made(vocab, width, rows, dtype)
    head = native_head(weight, found)
    if head is None:
        assert (dtype, found.isa) == (torch.float16, Isa.PLAIN)
        return
    expected = hidden.double() @ weight.double().t()
    out = torch.full((rows, vocab + 5), 7.0)
    told = head(hidden, out[:, :vocab])
    nearest = (hidden.double().abs() @ weight.double().abs().t()) * 2.0**-21
    assert bool(((told.double() - expected).abs() <= nearest).all())
    assert bool((out[:, vocab:] == 7.0).all()), "nothing beyond a row is written"


@pytest.mark.parametrize(
    ("vocab", "width", "rows"), [(100, 64, 1), (1000, 96, 33), (33, 160, 17), (70, 64, 70)]
)
def test_the_best_of_a_row_is_its_largest_logit_and_of_equal_ones_the_first(
    found, vocab, width, rows
):
    weight, hidden = made(vocab, width, rows, torch.bfloat16)
    weight[[vocab // 3, vocab - 1]] = weight[vocab // 2] = weight[1] * 3  # equal ones
    head = native_head(weight, found)
    told = head.best(hidden)
    if told is None:
        assert found.isa != Isa.AMX
        return
    logits = head(hidden, torch.empty(rows, vocab))
    values, ids = told
    assert torch.equal(values, logits.amax(-1))
    first = [int((row == row.max()).nonzero()[0]) for row in logits]
    assert ids.tolist() == first
    hidden[0, 3] = float("nan")
    assert torch.isnan(head.best(hidden)[0][0])
    assert torch.equal(head.best(hidden)[0][1:], values[1:])


def test_a_rows_bits_do_not_depend_on_who_shares_the_call(found):
    weight, hidden = made(321, 128, 37, torch.bfloat16)
    head = native_head(weight, found)
    whole = head(hidden, torch.empty(37, 321))
    for first, last in ((0, 1), (5, 9), (30, 37)):
        part = head(hidden[first:last], torch.empty(last - first, 321))
        assert torch.equal(part, whole[first:last])


def test_a_row_that_is_not_finite_spoils_no_other(found):
    weight, hidden = made(64, 64, 4, torch.bfloat16)
    head = native_head(weight, found)
    whole = head(hidden, torch.empty(4, 64))
    hidden[1, 3], hidden[2, 5] = float("inf"), float("nan")
    told = head(hidden, torch.empty(4, 64))
    assert torch.equal(told[[0, 3]], whole[[0, 3]])
    assert not torch.isfinite(told[1:3].amax(-1)).any()


def test_what_does_not_fit_is_refused_before_the_call(found):
    weight, hidden = made(64, 64, 4, torch.bfloat16)
    head = native_head(weight, found)
    with pytest.raises(ValueError, match="hidden"):
        head(hidden.double(), torch.empty(4, 64))
    with pytest.raises(ValueError, match="not rows of 64 floats"):
        head(hidden, torch.empty(4, 65))
    with pytest.raises(ValueError, match="not rows of 64 floats"):
        head(hidden, torch.empty(64, 4).t())
    assert head(hidden[:0], torch.empty(0, 64)).shape == (0, 64)


def test_a_weight_it_does_not_serve_has_none():
    weight, _ = made(64, 64, 1, torch.float32)
    assert native_head(weight) is None
    assert native_head(weight.bfloat16().t()) is None
    assert native_head(weight.bfloat16(), Absent("no compiler")) is None
