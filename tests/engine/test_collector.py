"""Python's collector is slowed down for a run, and is afterwards as it was."""

from __future__ import annotations

import gc
import weakref

import pytest

from engine.collector import YOUNG, few_collections


class Ring:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def _as_it_was():
    before, enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.set_threshold(*before)
    if enabled:
        gc.enable()


@pytest.mark.usefixtures("_as_it_was")
def test_settings_come_back_even_after_an_error():
    gc.set_threshold(700, 10, 10)

    def run() -> None:
        with few_collections():
            assert gc.get_threshold() == (YOUNG, 10, 10)
            assert gc.get_freeze_count() > 0
            raise RuntimeError("in the run")

    with pytest.raises(RuntimeError, match="in the run"):
        run()
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("_as_it_was")
def test_a_collector_that_is_off_stays_off():
    gc.set_threshold(0)
    with few_collections():
        assert gc.get_threshold()[0] == 0


def test_rings_made_in_a_run_are_freed_in_it():
    with few_collections():
        ring = weakref.ref(Ring())
        kept = [[] for _ in range(2 * YOUNG)]
        assert ring() is None
    assert len(kept) == 2 * YOUNG
