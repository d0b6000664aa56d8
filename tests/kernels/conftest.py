"""A child process that runs kernels under Triton's interpreter. Sets nothing in this process."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

Run = Callable[..., None]


def _interpret() -> None:
    # Triton reads this when it is imported, which in the child is later than this.
    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def triton_here() -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed: its wheels are for Linux on x86-64")


@pytest.fixture(scope="session")
def interpreter(triton_here: None) -> Iterator[Run]:
    """Call a check in the child; its failure is raised here with its traceback."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_interpret) as pool:

        def run(check: Callable[..., None], *arguments: Any) -> None:
            pool.submit(check, *arguments).result(timeout=300)

        yield run
