"""Reads the head of a request that says nothing unusual, at a tenth of what h11 takes for it. Pure.

What it takes, h11 takes as well and reads the same; whatever else there is (a body in chunks,
`Expect`, an upgrade, `Connection: close`, HTTP/1.0, a line that is folded, a byte out of place)
it leaves alone, and h11 says what it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 16 << 10  # bytes of a head
_DIGITS = 10  # of a length; more is for h11 to refuse
# Every class ends where the next begins, so nothing is looked at twice.
_HEAD = re.compile(
    rb"(GET|POST) (/[!-~]*+) HTTP/1\.1\r\n((?:[-!#$%&'*+.^_`|~0-9A-Za-z]++:[\t -~]*+\r\n)++)\r\n"
)
_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade"})


@dataclass(frozen=True, slots=True)
class PlainHead:
    """`headers` in their order, names in lower case; the body's length, and where it begins in the
    bytes that were read."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body_bytes: int
    ends: int


def read_plain_head(data: bytes) -> PlainHead | None:
    """The head that `data` begins with, if it is there as a whole and says nothing unusual."""
    found = _HEAD.match(data, 0, LONGEST)
    if found is None:
        return None
    method, target, lines = found.groups()
    headers = []
    hosts, length = 0, None
    for line in lines.split(b"\r\n"):
        raw, _, value = line.partition(b":")
        if not raw:  # behind the last one
            continue
        name, value = raw.lower(), value.strip(b"\t ")
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            if length is not None or not value.isdigit() or len(value) > _DIGITS:
                return None
            length = int(value)
        elif name in _UNUSUAL or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        headers.append((name, value))
    if hosts != 1:
        return None
    return PlainHead(method, target, headers, length or 0, found.end())
