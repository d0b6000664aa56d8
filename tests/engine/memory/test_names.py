"""Names are labels; identity is the content."""

from __future__ import annotations

from engine.memory.names import AdapterNames, Registered


def test_the_same_name_with_the_same_bytes_changes_nothing():
    names = AdapterNames()
    first = names.register("legal", "k1")
    assert first == Registered("legal", "k1", 1)
    assert names.register("legal", "k1") == first


def test_the_same_name_with_other_bytes_is_a_new_identity_and_the_old_one_is_to_go():
    names = AdapterNames()
    names.register("legal", "k1")
    assert names.register("legal", "k2") == Registered("legal", "k2", 2, replaced="k1")
    assert names.key("legal") == "k2"
    assert names.names("k1") == ()
    assert names.register("legal", "k2").replaced is None, "told once"


def test_a_key_that_another_name_means_stays():
    names = AdapterNames()
    names.register("legal", "k1")
    names.register("law", "k1")
    assert names.register("legal", "k2").replaced is None
    assert names.names("k1") == ("law",)
    assert names.remove("law") == "k1"
    assert names.remove("law") is None


def test_a_name_that_comes_back_goes_on_counting():
    names = AdapterNames()
    names.register("legal", "k1")
    assert names.remove("legal") == "k1"
    assert (names.key("legal"), names.version("legal")) == (None, 0)
    assert names.register("legal", "k1").version == 2
