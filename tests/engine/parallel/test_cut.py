"""Ranks of a model and of an adapter together are the whole, and no more than the whole."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from together import small_config

from engine.errors import AdapterError, ConfigError
from engine.memory.packing import padded_row_bytes
from engine.model.config import MODULES, SMOLLM2_135M, synthetic_config
from engine.model.loaders import synthetic_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.model.tensor_names import EMBEDDING, HEAD, linear_name
from engine.parallel.adapters import CutReader
from engine.parallel.cut import BY_INPUT, BY_OUTPUT, Cut, check_cut, cuts
from engine.parallel.model import cut_model
from engine.runner.arena import kv_page_bytes

DTYPES = [torch.float32, torch.bfloat16]


def test_every_linear_is_cut_one_way() -> None:
    assert set(MODULES) == BY_INPUT | BY_OUTPUT
    assert not BY_INPUT & BY_OUTPUT


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), st.integers(1, 40))
def test_ranks_tile_heads_kv_heads_and_mlp_and_a_query_head_meets_its_kv_head(
    of: int, kv_each: int, group: int, ff_each: int
) -> None:
    whole = synthetic_config(heads=of * kv_each * group, kv_heads=of * kv_each, ff=of * ff_each)
    parts = [Cut(rank, of) for rank in range(of)]
    for part in parts:
        config = part.config(whole)
        assert (config.heads * of, config.kv_heads * of) == (whole.heads, whole.kv_heads)
        assert config.ff * of == whole.ff
        heads, kv = part.part(whole.heads), part.part(whole.kv_heads)
        met = {head // group for head in range(heads.start, heads.stop)}
        assert met == set(range(kv.start, kv.stop))
    tiled = [i for p in parts for i in range(whole.q_width)[p.part(whole.q_width)]]
    assert tiled == list(range(whole.q_width))


@given(st.integers(1, 24), st.integers(1, 24), st.integers(1, 96), st.integers(0, 24))
def test_a_cut_is_refused_exactly_where_it_does_not_divide(
    heads: int, kv: int, ff: int, of: int
) -> None:
    whole = synthetic_config(heads=heads * kv, kv_heads=kv, ff=ff)
    if of in cuts(whole):
        check_cut(whole, of)
        assert heads * kv % of == kv % of == ff % of == 0
    else:
        with pytest.raises(ConfigError):
            check_cut(whole, of)


def test_a_refused_cut_is_told_with_the_numbers_and_those_that_would_do() -> None:
    numbers = r"tp = 2: the model has 9 heads, 3 KV heads, 1536 MLP columns.*use one of 1, 3$"
    with pytest.raises(ConfigError, match=numbers):
        check_cut(SMOLLM2_135M, 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_parts_of_a_model_put_together_are_the_model(dtype: torch.dtype) -> None:
    whole = synthetic_model(small_config(biased=MODULES, head_norms=True), dtype)
    for name, tensor in whole.weights.items():  # a made-up model's biases are zero
        if name.endswith("bias"):
            whole.weights.put(name, torch.randn(tensor.shape))
    parts = [cut_model(whole, Cut(rank, 3)) for rank in range(3)]
    for layer in range(whole.config.layers):
        for module in MODULES:
            name = linear_name(layer, module)
            weights = [p.weights[f"{name}.weight"] for p in parts]
            biases = [p.weights[f"{name}.bias"] for p in parts]
            side = 1 if module in BY_INPUT else 0
            assert torch.equal(torch.cat(weights, side), whole.weights[f"{name}.weight"])
            joined = sum(biases) if module in BY_INPUT else torch.cat(biases)
            assert torch.equal(joined, whole.weights[f"{name}.bias"])
    assert all(torch.equal(p.weights[EMBEDDING], whole.weights[EMBEDDING]) for p in parts)
    assert torch.equal(parts[0].weights[HEAD], whole.weights[HEAD])
    assert all(HEAD not in p.weights for p in parts[1:])
    assert {(p.name, p.hash) for p in parts} == {(whole.name, whole.hash)}


def rows(adapter, layer: int, module: str, side: str) -> torch.Tensor:
    """A block as it lies in the image: [rank, width]."""
    places = [(s.layer, s.module, s.side) for s in adapter.blocks]
    at = places.index((layer, module, side))
    spec = adapter.blocks[at]
    found = torch.empty(spec.rank, spec.width, dtype=adapter.dtype)
    for span in (s for s in adapter.layout.spans if s.block == at):
        lies = adapter.image[span.page, span.offset : span.offset + span.rows * spec.row_bytes]
        bare = lies.reshape(span.rows, spec.row_bytes)[:, : spec.width * adapter.dtype.itemsize]
        values = torch.from_numpy(bare.copy()).view(adapter.dtype)
        found[span.first_row : span.first_row + span.rows] = values
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rank", "modules"), [(5, MODULES), (70, ("q_proj", "o_proj")), (1, ("down_proj",))]
)
def test_the_shares_of_an_adapter_put_together_are_the_adapter(tmp_path, dtype, rank, modules):
    config = small_config()
    folder = make_adapter(tmp_path / "a", config, rank, modules)
    page_bytes = kv_page_bytes(config, 16, dtype)
    whole = read_adapter(folder, config, dtype, page_bytes)
    cut = CutReader(config, dtype, page_bytes, 3)(folder)
    for layer in range(config.layers):
        for module in modules:
            for side in ("A", "Bt"):
                expected = rows(whole, layer, module, side)
                parts = [rows(s, layer, module, side) for s in cut.shares]
                if side == ("A" if module in BY_INPUT else "Bt"):
                    assert torch.equal(torch.cat(parts, 1), expected)
                else:
                    assert all(torch.equal(p, expected) for p in parts)
    assert (cut.key, cut.rank, cut.synthetic) == (whole.key, whole.rank, whole.synthetic)
    assert {s.pages for s in cut.shares} == {cut.pages}
    assert {s.image.shape for s in cut.shares} == {(cut.pages, page_bytes // 3)}
    assert cut.device_bytes == sum(s.device_bytes for s in cut.shares)


def test_a_share_is_smaller_than_the_adapter_by_all_that_is_cut(tmp_path) -> None:
    config = small_config(hidden=384, head_dim=64, ff=768)  # rows of whole 128 B in every cut
    folder = make_adapter(tmp_path / "a", config, 8)
    page_bytes = kv_page_bytes(config, 16, torch.float32)
    whole = read_adapter(folder, config, torch.float32, page_bytes)
    (share, *_) = CutReader(config, torch.float32, page_bytes, 3)(folder).shares
    cut = sum(
        s.rank * s.row_bytes
        for s in whole.blocks
        if s.side == ("A" if s.module in BY_INPUT else "Bt")
    )
    assert share.device_bytes == whole.device_bytes - cut + cut // 3


def test_a_row_larger_than_a_ranks_part_of_a_page_is_refused_with_the_folder(tmp_path) -> None:
    config = small_config(hidden=2048)
    folder = make_adapter(tmp_path / "wide", config, 2)
    page_bytes = kv_page_bytes(config, 8, torch.float32)
    assert padded_row_bytes(2048, 4) > page_bytes // 3
    read_adapter(folder, config, torch.float32, page_bytes)
    with pytest.raises(AdapterError, match=r"wide.*row of 8192 bytes does not fit.*larger pages"):
        CutReader(config, torch.float32, page_bytes, 3)(folder)
