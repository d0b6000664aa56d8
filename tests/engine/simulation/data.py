"""Where the real traces lie, if they do: beside the checkout, not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the public traces are not beside the checkout (../shared/data)"
)
