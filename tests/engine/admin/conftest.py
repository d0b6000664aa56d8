"""What tests of an operator start with; one real engine for all that need one: its start costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.admin.listen import AdminListen
from engine.admin.overlay_file import OverlayFile
from tests.engine.admin.crews import World
from tests.engine.admin.desks import Desk
from tests.engine.admin.doors import SEVERAL, opened
from tests.engine.serving.serving_fakes import short_folder

if TYPE_CHECKING:
    from tests.engine.admin.whole import Engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    from tests.engine.admin.whole import Engine  # it loads torch, and most tests need none

    made = Engine(tmp_path_factory.mktemp("admin"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


@pytest.fixture
def door(folder: Path) -> Iterator[str]:
    address = f"unix:{folder / 'admin.sock'}"
    with opened(AdminListen(address), folder):
        yield address


@pytest.fixture
def several(folder: Path) -> Iterator[str]:
    """A door before three workers in two pools."""
    address = f"unix:{folder / 'admin.sock'}"
    with opened(AdminListen(address), folder, SEVERAL):
        yield address


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(OverlayFile(tmp_path / "operator.json"))
