"""Why a stored file cannot be read, in words of our own. Pure: reads DuckDB's complaint, no file.

DuckDB's words speak of its insides, and repeat the statement; whoever meets them at night wants to
know which file it is and what to do about it.
"""

from __future__ import annotations

import re
from pathlib import Path

# What DuckDB says of a file whose contents are wrong, and what that means.
_TORN = "its end is missing"
_FOREIGN = "it is of another kind than its name says"
_WRONG = "what is in it does not add up"
SIGNS = {
    "not a valid DuckDB": _FOREIGN,
    "not read enough bytes": _TORN,
    # ... and of Parquet
    "No magic bytes": _TORN,
    "too small to be a Parquet": _TORN,
    "Footer length": _TORN,
    "TProtocolException": _WRONG,
    "don't know what type": _WRONG,
    "ecompress": _WRONG,
    # ... and of either
    "orrupt": _WRONG,
}
# What follows is the system's own word: no permission, no such file, too many open ones, ...
_REFUSED = re.compile(r"(?:Cannot|Could not) open file .*[\"']: (.+)")
_PREFIX = re.compile(r"^(?:\w+ )*Error: ")
REMEDY = "bring it back from a backup, or move it out of the way to go on without it"


def damage(error: Exception) -> str:
    """What is wrong with a file that DuckDB calls unreadable."""
    text = str(error).partition("\n")[0]
    return next((means for sign, means in SIGNS.items() if sign in text), _WRONG)


def refused(error: Exception) -> str | None:
    """What the system said where it did not even let the file be opened; None when it did."""
    found = _REFUSED.search(str(error).partition("\n")[0])
    return found[1] if found is not None else None


def sentence(file: Path, error: Exception) -> str:
    """One file that cannot be read, why, and what to do."""
    why = refused(error)
    if why is not None:
        return (
            f"{file} cannot be opened ({why}): it is as it was; see that it can be, and come again"
        )
    if not any(sign in str(error) for sign in SIGNS):
        return f"{file} cannot be read now ({in_short(error)}): it is as it was; come again"
    return f"{file} cannot be read ({damage(error)}): {REMEDY}"


def in_short(error: Exception) -> str:
    """A complaint of another kind, without the name of its class and the statement."""
    return _PREFIX.sub("", (str(error).splitlines() or [type(error).__name__])[0])
