"""Where an error arose, without its words: they may quote a request."""

from __future__ import annotations

import traceback


def error_place(error: BaseException) -> str:
    """Type, file and line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    return f"{type(error).__name__} at {where}"
