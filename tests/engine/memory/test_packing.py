"""Blocks lie in pages whole unless they are larger; rows are padded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.packing import lay_out, padded_row_bytes


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([128, 256, 384])), max_size=20))
def test_blocks_are_contiguous_unless_larger_than_a_page(blocks):
    page_bytes = 1024
    layout = lay_out(blocks, page_bytes)
    taken = set()
    for index, (rows, row_bytes) in enumerate(blocks):
        spans = [s for s in layout.spans if s.block == index]
        assert sum(s.rows for s in spans) == rows
        if rows * row_bytes <= page_bytes:
            assert len(spans) <= 1
        for s in spans:
            assert s.page < layout.pages
            assert s.offset + s.rows * row_bytes <= page_bytes
            for byte in range(s.offset, s.offset + s.rows * row_bytes, 128):
                assert (s.page, byte) not in taken
                taken.add((s.page, byte))


def test_rows_are_padded_to_128_bytes_and_a_row_larger_than_a_page_is_refused():
    assert padded_row_bytes(1, 2) == 128
    assert padded_row_bytes(576, 2) == 1152
    with pytest.raises(ValueError, match="does not fit a page"):
        lay_out([(1, 4096)], 1024)
