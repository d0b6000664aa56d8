"""`pytest -m full` runs everything, the fast suite included."""

from __future__ import annotations

import os

# Tests run in two processes: one compute thread each, set before torch is imported anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# What a property test does not say for itself. The fast suite looks a little every time; how long
# an example takes is no claim of any test.
settings.register_profile("fast", max_examples=40, deadline=None)
settings.register_profile("full", max_examples=300, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("fast" if "not full" in config.option.markexpr else "full")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr == "full":
        config.option.markexpr = ""
