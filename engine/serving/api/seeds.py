"""The seeds of several choices of one answer. Pure.

The first has the seed that was asked for, so that `n` = 1 and the first of more are alike.
"""

from __future__ import annotations

import hashlib


def seed_of(seed: int | None, index: int) -> int | None:
    """The seed of choice `index`; None where none was asked for."""
    if seed is None or index == 0:
        return seed
    digest = hashlib.sha256(b"%d choice %d" % (seed, index)).digest()
    return int.from_bytes(digest[:8], "big") >> 1
