"""`pytest -m full` runs everything, the fast suite included."""

from __future__ import annotations

import os

# Tests run in two processes: one compute thread each, set before torch is imported anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr == "full":
        config.option.markexpr = ""
