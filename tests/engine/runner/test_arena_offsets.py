"""Offsets are int64: pages past 2**31 elements hold what was written to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.errors import ConfigError
from engine.model.config import SMOLLM2_135M
from engine.runner.arena import Arena

LARGE = replace(SMOLLM2_135M, layers=32, heads=8, kv_heads=8, head_dim=128)  # 2**20 elements a page
PAGE_TOKENS, PAGES = 16, 2**11 + 3


@pytest.fixture(scope="module")
def arena():
    """Over 4 GiB of addresses, of which the OS commits the pages that are touched."""
    try:
        arena = Arena(LARGE, PAGES, PAGE_TOKENS, torch.bfloat16)
    except ConfigError as e:
        pytest.skip(f"no address space for an arena past 2**31 elements: {e}")
    assert arena.elements.numel() > 2**31
    assert arena.elements.shape[1] == 2**20
    return arena


def numbers(*shape):
    """Whole numbers that bfloat16 holds exactly."""
    count = int(torch.tensor(shape).prod())
    return (torch.arange(count) % 251).to(torch.bfloat16).view(*shape)


@pytest.mark.parametrize("page", [2**11 - 1, 2**11, PAGES - 1])
def test_kv_written_past_2_31_elements_is_read_back_from_there_and_nowhere_else(arena, page):
    first, row = torch.tensor([0]), 2 * LARGE.kv_width
    arena.clear(torch.tensor([0, page]))
    pages = torch.full((PAGE_TOKENS,), page)
    rows = arena.slot_rows(pages, torch.arange(PAGE_TOKENS))
    assert rows.dtype == torch.int64
    layer = LARGE.layers - 1
    assert int(rows[layer, -1]) * row + row == (page + 1) * 2**20, "the page's last row"
    kv = numbers(PAGE_TOKENS, row)
    arena.write(rows[layer], kv)
    assert torch.equal(arena.gather(layer, torch.tensor([page])).view(PAGE_TOKENS, row), kv)
    start = page * arena.page_bytes + layer * PAGE_TOKENS * row * 2
    raw = arena.bytes.view(-1)[start : start + 2 * kv.numel()]
    assert torch.equal(raw.view(torch.bfloat16).view_as(kv), kv), "at this very byte"
    for other in range(LARGE.layers):
        assert not arena.gather(other, first).any()
        assert other == layer or not arena.gather(other, torch.tensor([page])).any()


def test_an_adapter_past_2_31_elements_is_read_back(arena):
    page, rows, width = PAGES - 2, 5, 64
    block = numbers(rows, width)
    arena.clear(torch.tensor([page]))
    arena.load(page, block.view(torch.uint8).view(-1).numpy())
    assert torch.equal(arena.block(page, 0, rows, width * 2, width), block)
    assert torch.equal(arena.block(page, 2 * width * 2, 2, width * 2, width), block[2:4])
    arena.clear(torch.tensor([page]))
    assert not arena.elements[page].any()
