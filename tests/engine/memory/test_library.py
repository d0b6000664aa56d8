"""The library keeps the copies that residency counts, and reads the others again."""

from __future__ import annotations

import shutil

import pytest

from engine.errors import AdapterError
from engine.library import AdapterLibrary
from engine.memory.pool import PagePool
from engine.memory.residency import Place, Residency
from engine.model.loaders import load_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter

PAGE_BYTES = 1 << 16


@pytest.fixture(scope="module")
def model():
    return load_model("synthetic", "float32")


@pytest.fixture
def folders(model, tmp_path):
    made = [tmp_path / name for name in "xyz"]
    for rank, folder in enumerate(made, start=1):
        make_adapter(folder, model.config, rank)
    return made


def test_the_library_and_residency_agree_on_what_is_in_host_memory(model, folders):
    library = AdapterLibrary(model, PAGE_BYTES, 2)
    pool = PagePool(1000, PAGE_BYTES)
    residency = Residency(pool, host_cap=2)
    keys = []
    for folder in folders:
        weights = library.add(folder)
        keys.append(weights.key)
        residency.register(weights.key, weights.pages, in_host=True)
    x, y, z = keys
    assert library.kept == (y, z)
    for key in residency.take_dropped():
        library.drop(key)
    assert [k for k in keys if residency.place(k) is Place.HOST] == [y, z]
    order, _ = residency.try_order(x, "a", 0)
    assert order.from_disk
    for key in residency.take_dropped():
        library.drop(key)
    assert library.fetch(x).key == x
    residency.arrived(x, 1)
    assert set(library.kept) == {x, z}
    assert residency.place(y) is Place.DISK


def test_bytes_bound_the_copies_as_their_number_does(model, folders):
    sizes = [read_adapter(f, model.config, model.dtype, 4096).pages * 4096 for f in folders]
    for most_bytes, left in ((sum(sizes), 3), (sum(sizes) - 1, 2), (sizes[2], 1), (1, 0)):
        library = AdapterLibrary(model, 4096, 9, most_bytes)
        residency = Residency(PagePool(1000, 4096), host_cap=9, host_cap_bytes=most_bytes)
        keys = [library.add(f).key for f in folders]
        for key in keys:
            residency.register(key, library.peek(key).pages, in_host=True)
        assert library.kept == tuple(keys[3 - left :])
        assert [k for k in keys if residency.place(k) is Place.HOST] == keys[3 - left :]


def test_a_look_does_not_keep_and_the_same_content_twice_is_one_adapter(model, folders):
    library = AdapterLibrary(model, PAGE_BYTES, 1)
    x, y = (library.add(f).key for f in folders[:2])
    assert library.peek(x).key == x
    assert library.kept == (y,)
    twin = folders[0].with_name("twin")
    shutil.copytree(folders[0], twin)
    assert library.add(twin).key == x
    assert library.kept == (y,)


def test_a_folder_that_has_changed_is_refused_when_it_is_read_again(model, folders):
    library = AdapterLibrary(model, PAGE_BYTES, 1)
    key = library.add(folders[0]).key
    library.drop(key)
    for file in folders[1].iterdir():
        shutil.copy(file, folders[0] / file.name)
    with pytest.raises(AdapterError, match="has changed since"):
        library.fetch(key)
    assert library.kept == ()
