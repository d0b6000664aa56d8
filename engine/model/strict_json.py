"""Reads JSON that somebody else wrote: no key twice, no depth that ends the process. No files."""

from __future__ import annotations

import json
from typing import Any

from engine.model.adapter_folder import shown


def read_object(raw: bytes) -> dict[str, Any]:
    """The object that `raw` holds. Raises ValueError with what is wrong, as the end of a sentence
    that begins with the file's name."""
    try:
        found = json.loads(raw, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except _Twice as e:
        raise ValueError(
            f"says {shown(e.args[0])} twice, and which is meant is not known"
        ) from None
    except ValueError as e:  # UnicodeDecodeError and JSONDecodeError are ones
        raise ValueError(f"is not JSON ({e})") from None
    if not isinstance(found, dict):
        raise ValueError(f"is not a JSON object but {type(found).__name__}")
    return found


class _Twice(Exception):
    """A key that an object has twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Twice(key)
            seen.add(key)
    return found
