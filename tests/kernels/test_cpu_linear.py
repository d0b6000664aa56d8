"""The tile linear equals float32 rounded once, whatever the shape, and gives a row the same bits
whoever is beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.cpu import Absent, Isa, native
from kernels.cpu_linear import TileLinear, can_pack

FOUND = native()
HAVE = not isinstance(FOUND, Absent) and FOUND.isa == Isa.AMX
pytestmark = pytest.mark.skipif(
    not HAVE, reason=str(FOUND) if isinstance(FOUND, Absent) else "this CPU has no tiles"
)
BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(out: int, into: int, bias: bool, seed: int = 0):
    """A linear of random weights, its weight, and its bias."""
    torch.manual_seed(seed)
    weight = (torch.randn(out, into) * into**-0.5).to(BF16)
    added = torch.randn(out).to(BF16) if bias else None
    return TileLinear(weight, added), weight, added


@settings(max_examples=15)
@given(
    outs=st.integers(1, 9),
    ins=st.integers(1, 6),
    rows=st.integers(1, 100),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape_equals_float32_rounded_once(outs, ins, rows, bias, seed):
    linear, weight, added = made(16 * outs, 32 * ins, bias, seed)
    x = torch.randn(rows, 32 * ins).to(BF16)
    exact = x.double() @ weight.double().t()
    if added is not None:
        exact += added.double()
    torch.testing.assert_close(linear(x).double(), exact, atol=2e-5, rtol=2**-8)


@pytest.mark.parametrize("out", [16, 32, 48, 96])
def test_the_weight_comes_back_as_it_was_given(out):
    linear, weight, _ = made(out, 96, False)
    assert torch.equal(linear.weight(), weight)


def test_a_rows_bits_do_not_depend_on_the_other_rows_or_threads():
    linear, _, _ = made(80, 160, True)
    x = torch.randn(70, 160).to(BF16)
    whole = linear(x)
    for rows in (1, 15, 16, 17, 32, 33, 47, 64):
        torch.set_num_threads(1 + rows % 3)
        assert torch.equal(linear(x[:rows]), whole[:rows])
    assert torch.equal(linear(x[41:43]), whole[41:43])


def test_a_nan_stays_in_its_row():
    linear, _, _ = made(48, 64, False)
    x = torch.ones(40, 64, dtype=BF16)
    x[20, 3] = float("nan")
    rows = linear(x).isnan()
    assert rows[20].all()
    assert rows.any(1).nonzero().tolist() == [[20]]


def test_nothing_beyond_the_rows_is_read_or_written():
    linear, _, _ = made(48, 64, False)
    memory = torch.full((30, 64), float("nan"), dtype=BF16)
    memory[5:22] = 1.0
    assert linear(memory[5:22]).isfinite().all()


def test_what_does_not_fit_the_tiles_is_not_packed_and_wrong_rows_are_refused():
    assert can_pack(torch.zeros(48, 64, dtype=BF16))
    assert not can_pack(torch.zeros(40, 64, dtype=BF16))
    assert not can_pack(torch.zeros(48, 48, dtype=BF16))
    assert not can_pack(torch.zeros(48, 64))
    linear, _, _ = made(48, 64, False)
    for x in (torch.zeros(2, 32, dtype=BF16), torch.zeros(2, 64), torch.zeros(64, 2).to(BF16).t()):
        with pytest.raises(ValueError, match="a linear of 64 inputs was given"):
            linear(x)
