"""A folder that has not changed is read again in one native call; what has changed is noticed."""

from __future__ import annotations

import itertools
import os
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from engine.errors import AdapterError
from engine.model import adapter_again
from engine.model.adapter_reader import AdapterReader
from engine.model.config import MODULES
from engine.model.lora import read_adapter, read_new
from engine.model.made_adapters import make_adapter
from kernels import cpu_pack
from kernels.cpu import Absent, Isa, Native, native
from tests.engine.model.adapter_bench import (
    CONFIG,
    PAGE,
    WEIGHTS,
    Q,
    edit_options,
    edit_tensors,
    refused,
)

FOUND = native()
built = pytest.mark.skipif(isinstance(FOUND, Absent), reason=str(FOUND))
TYPES = [torch.float32, torch.bfloat16, torch.float16]
LATER_S = 3600.0  # by then what a test writes has settled
# Halves between two values of 16 bits, what is nearest to none, and signs.
ODD = [0.0, -0.0, 1.00390625, 1.01171875, -2.998046875, 1e-40, -1e-44, 6.1e-5, 60_000.0, -3e4]


def later() -> float:
    return time.time() + LATER_S


def reader(**more) -> AdapterReader:
    return AdapterReader(CONFIG, torch.float32, PAGE, **{"wall_s": later, **more})


@pytest.fixture
def folder(tmp_path):
    return make_adapter(tmp_path / "adapter", CONFIG, 4, seed=1)


@pytest.fixture(params=[Isa.PLAIN, Isa.AVX2], ids=lambda isa: isa.name.lower())
def isa(request, monkeypatch):
    if isinstance(FOUND, Absent) or request.param > FOUND.isa:
        pytest.skip(f"no native {request.param.name} here")
    monkeypatch.setattr(cpu_pack, "native", lambda: Native(FOUND.functions, request.param))
    return request.param


def same(one, other) -> bool:
    return (
        np.array_equal(one.image, other.image)
        and (one.key, one.warnings, one.blocks, one.layout, one.rank, one.device_bytes)
        == (other.key, other.warnings, other.blocks, other.layout, other.rank, other.device_bytes)
    )  # fmt: skip


# -- the native call


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("stored", TYPES, ids=str)
def test_what_is_packed_natively_is_to_the_bit_what_numpy_packs(isa, folder, dtype, stored):
    def odd(tensors):
        for name, t in tensors.items():
            t.view(-1)[:: max(1, t.numel() // 37)][: len(ODD)] = torch.tensor(ODD)
            tensors[name] = t.to(stored)

    edit_tensors(folder, odd)
    edit_options(folder, lora_alpha=0.7)
    plain = read_adapter(folder, CONFIG, dtype, PAGE)
    found, recipe = read_new(folder, CONFIG, dtype, PAGE, later)
    assert recipe is not None
    assert same(found, plain)
    assert same(adapter_again.read_again(folder, recipe), plain)


@settings(max_examples=25, deadline=None)
@given(
    rank=st.integers(1, 40),
    page=st.sampled_from([1024, 1536, 8192, 1 << 16]),
    modules=st.lists(st.sampled_from(MODULES), min_size=1, max_size=3, unique=True),
    alpha=st.floats(-3, 3),
    of=st.sampled_from(list(itertools.product(TYPES, TYPES))),
)
@built
def test_any_rank_and_page_is_packed_alike(tmp_path_factory, rank, page, modules, alpha, of):
    stored, dtype = of
    place = tmp_path_factory.mktemp("any")
    folder = make_adapter(place / "a", CONFIG, rank, modules, seed=rank, alpha=alpha)
    tensors = {n: t.to(stored) for n, t in load_file(folder / WEIGHTS).items()}
    save_file(tensors, folder / WEIGHTS)
    found, recipe = read_new(folder, CONFIG, dtype, page, later)
    assert recipe is not None
    assert same(found, read_adapter(folder, CONFIG, dtype, page))


@built
def test_what_is_not_finite_or_overflows_is_refused_by_the_same_sentence(folder):
    def both(dtype):
        with pytest.raises(AdapterError) as plain:
            read_adapter(folder, CONFIG, dtype, PAGE)
        with pytest.raises(AdapterError) as found:
            read_new(folder, CONFIG, dtype, PAGE, later)
        assert str(found.value) == str(plain.value)
        return str(plain.value)

    edit_tensors(folder, lambda ts: ts[f"{Q}.lora_B.weight"][3, 1].fill_(1e5))
    assert "lora_B overflows float16" in both(torch.float16)
    assert read_new(folder, CONFIG, torch.bfloat16, PAGE, later)[1] is not None
    for bad in (float("nan"), float("-inf")):
        edit_tensors(folder, lambda ts, bad=bad: ts[f"{Q}.lora_B.weight"][3, 1].fill_(bad))
        assert "holds NaN or infinite values" in both(torch.bfloat16)


@built
def test_linears_that_do_nothing_are_found_idle(folder):
    edit_tensors(folder, lambda ts: ts[f"{Q}.lora_B.weight"].fill_(-0.0))
    found, _ = read_new(folder, CONFIG, torch.float32, PAGE, later)
    assert "changes nothing there; the first is layer 0 q_proj" in found.warnings[0]
    edit_options(folder, lora_alpha=0)
    found, _ = read_new(folder, CONFIG, torch.float32, PAGE, later)
    assert found.warnings == read_adapter(folder, CONFIG, torch.float32, PAGE).warnings
    assert "has no effect" in found.warnings[0]


# -- reading again


@built
def test_an_unchanged_folder_is_neither_parsed_nor_hashed_again(folder, monkeypatch):
    read = reader()
    first = read(folder)
    monkeypatch.setattr(adapter_again.ContentHash, "add", lambda *a: pytest.fail("hashed again"))
    again = read(folder)
    assert same(again, first)
    assert again.image is not first.image
    assert (read.parsed, read.repeated) == (1, 1)


@built
def test_a_file_that_was_written_over_is_another_adapter_even_with_its_old_time(folder, tmp_path):
    read = reader()
    was = read(folder)
    before = os.stat(folder / WEIGHTS)
    other = make_adapter(tmp_path / "other", CONFIG, 4, seed=2)
    (folder / WEIGHTS).write_bytes((other / WEIGHTS).read_bytes())
    os.utime(folder / WEIGHTS, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(folder / WEIGHTS).st_size == before.st_size
    now = read(folder)
    assert now.key != was.key
    assert same(now, read_adapter(other, CONFIG, torch.float32, PAGE))
    assert (read.parsed, read.repeated) == (2, 0)


@built
def test_a_change_of_the_options_alone_is_noticed(folder):
    read = reader()
    was = read(folder)
    edit_options(folder, lora_alpha=9)
    assert read(folder).key != was.key
    assert read.repeated == 0


@built
@pytest.mark.parametrize("how", ["a bit", "two words change places"])
def test_bytes_that_change_without_a_stamp_are_noticed(folder, how, monkeypatch):
    stamps = adapter_again.stamps_of(folder)
    for module in ("adapter_again", "lora"):
        monkeypatch.setattr(f"engine.model.{module}.stamps_of", lambda folder: stamps)
    read = reader()
    was = read(folder)
    raw = bytearray((folder / WEIGHTS).read_bytes())
    if how == "a bit":
        raw[-5] ^= 1
    else:
        raw[-64:-56], raw[-32:-24] = raw[-32:-24], raw[-64:-56]
    (folder / WEIGHTS).write_bytes(raw)
    assert read(folder).key != was.key
    assert (read.parsed, read.repeated) == (2, 0)


@built
def test_a_file_that_is_cut_or_gone_is_refused_by_the_plain_readers_sentence(folder):
    read = reader()
    read(folder)
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:-100])
    with pytest.raises(AdapterError, match="damaged or cut short"):
        read(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(AdapterError, match=f"{WEIGHTS} is missing"):
        read(folder)
    (folder / WEIGHTS).write_bytes(whole)
    assert read(folder).key
    refused(folder.with_name("elsewhere"), "no such folder")


@built
def test_a_file_cut_while_it_is_read_ends_in_a_sentence(folder, monkeypatch):
    stamps = adapter_again.stamps_of(folder)
    read = reader()
    read(folder)
    for module in ("adapter_again", "lora"):
        monkeypatch.setattr(f"engine.model.{module}.stamps_of", lambda folder: stamps)
    os.truncate(folder / WEIGHTS, os.stat(folder / WEIGHTS).st_size - 100)
    with pytest.raises(AdapterError, match="damaged or cut short"):
        read(folder)


@built
def test_what_was_written_a_moment_ago_may_change_unseen_and_is_read_whole(folder):
    written_s = os.stat(folder / WEIGHTS).st_ctime
    read = reader(wall_s=lambda: written_s + adapter_again.SETTLED_S / 2)
    assert read(folder).key == read(folder).key
    assert (read.parsed, read.repeated) == (2, 0)
    read = reader(wall_s=lambda: written_s - 60)  # a clock that was set back
    read(folder), read(folder)
    assert read.repeated == 0


@built
def test_what_is_kept_of_folders_is_bounded(folder, tmp_path):
    other = make_adapter(tmp_path / "other", CONFIG, 2, seed=2)
    read = reader(most_recipes=1)
    for place in (folder, other, other, folder):
        read(place)
    assert (read.parsed, read.repeated) == (3, 1)


def test_without_the_native_library_every_read_is_a_whole_one(folder, monkeypatch):
    monkeypatch.setattr(cpu_pack, "native", lambda: Absent("no compiler"))
    read = reader()
    assert same(read(folder), read(folder))
    assert (read.parsed, read.repeated) == (2, 0)


@built
def test_a_reader_is_as_nice_as_before_however_nice_the_reading_was(folder):
    read = reader()
    whole = read(folder)
    before = os.nice(0)
    assert adapter_again.NICER > 0
    assert same(read(folder), whole)
    assert read.repeated == 1
    assert os.nice(0) == before


# -- what C is told


def job(**changes):
    whole = {
        "sides": np.array([[0, 0, 2, 4, 0, 128, 0, 1]], np.int64),
        "spans": np.array([[0, 2, 0]], np.int64),
        "scales": np.ones(1, np.float32),
    }
    return cpu_pack.PackJob(**{**whole, **changes})


@built
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (job(sides=np.zeros((1, 7), np.int64)), "sides are"),
        (job(spans=np.zeros((1, 3), np.int32)), "spans are"),
        (job(scales=np.ones(2, np.float32)), "scales are"),
        (job(sides=np.array([[-1, 0, 2, 4, 0, 128, 0, 1]])), "lies before its file"),
        (job(sides=np.array([[0, 3, 2, 4, 0, 128, 0, 1]])), "has no rows"),
        (job(sides=np.array([[0, 0, 2, 4, 0, 128, 0, 2]])), "spans that are not there"),
        (job(sides=np.array([[0, 0, 2, 40, 0, 128, 0, 1]])), "160 bytes is longer"),
        (job(spans=np.array([[0, 3, 0]])), "or have other rows"),
        (job(spans=np.array([[0, 2, 8]])), "outside the 256 bytes"),
        (job(spans=np.array([[0, 2, -128]])), "outside the 256 bytes"),
    ],
)
def test_a_job_that_does_not_fit_is_refused_before_the_call(tmp_path, bad, said):
    image = np.zeros((1, 256), np.uint8)
    (tmp_path / "f").write_bytes(bytes(32))
    with (tmp_path / "f").open("rb") as f:
        packer = cpu_pack.native_pack(FOUND)
        with pytest.raises(ValueError, match=said):
            packer(f.fileno(), bad, image, torch.float32)
        with pytest.raises(ValueError, match="the image is"):
            packer(f.fileno(), job(), image.astype(np.int8), torch.float32)
        assert packer(f.fileno(), job(), image, torch.float32).most.tolist() == [0.0]
    with pytest.raises(OSError, match="cannot be read"):
        packer(10_000, job(), image, torch.float32)  # no open file
