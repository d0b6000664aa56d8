"""Protobuf wire bytes put together by hand, where a message object a point costs too much. Pure.

Only what the OTLP encoder needs: length-delimited fields, and numbers of fixed width. What it makes
is held against the official classes by tests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_SMALL = 128  # what fits a single byte
_SHORT = [bytes([value]) for value in range(_SMALL)]


def varint(value: int) -> bytes:
    """A whole number from 0 up."""
    if value < _SMALL:
        return _SHORT[value]
    return _long(value)


@lru_cache(4096)  # lengths, mostly: the same few over and over
def _long(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@cache
def _tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def field(number: int, content: bytes) -> bytes:
    """A string, bytes, message or packed field."""
    return _tag(number, _LENGTH) + varint(len(content)) + content


def opened(number: int, length: int) -> bytes:
    """The beginning of a `field` whose content, of `length` bytes, follows."""
    return _tag(number, _LENGTH) + varint(length)


def text(number: int, value: str) -> bytes:
    """A string field. Raises UnicodeEncodeError, a ValueError, for what UTF-8 cannot carry."""
    return field(number, value.encode())


def whole(number: int, value: int) -> bytes:
    """An enum, bool or unsigned field."""
    return _tag(number, _VARINT) + varint(value)


def fixed64(number: int, value: int) -> bytes:
    return fixed64_tag(number) + struct.pack("<Q", value)


def fixed64_tag(number: int) -> bytes:
    """What stands before the eight bytes of a fixed64, sfixed64 or double field."""
    return _tag(number, _FIXED64)


def packed(form: str, values: Sequence[float]) -> bytes:
    """The values of a packed field, eight bytes each; `form` as in `struct`: d, q or Q.

    Raises ValueError for a number that does not fit.
    """
    try:
        return struct.pack(f"<{len(values)}{form}", *values)
    except struct.error as e:
        raise ValueError(f"{_odd(form, values)!r} is no 64-bit number: {e}") from None


def eights(form: str, values: Sequence[float]) -> list[bytes]:
    """The eight bytes of each value; see `packed`."""
    together = packed(form, values)
    return [together[i : i + 8] for i in range(0, len(together), 8)]


def _odd(form: str, values: Iterable[float]) -> object:
    """The first value that does not fit."""
    for value in values:
        try:
            struct.pack(f"<{form}", value)
        except struct.error:
            return value
    return None
