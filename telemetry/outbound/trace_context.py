"""W3C trace context: the `traceparent` header, read strictly and written back. Pure.

A header that is not well formed is as good as none: the request is served, and its trace begins
here. Nothing of it travels on but three values of fixed form. Source: W3C Trace Context, level 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

HEADER = "traceparent"
_LONGEST = 512  # a later version may add fields; no sane one is longer
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED = 0x01
_TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SPAN_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)


class TraceContext(NamedTuple):
    """Whose trace a request belongs to: lower-case hex ids, and whether the client keeps it."""

    trace_id: str
    parent_span_id: str
    sampled: bool

    def header(self) -> str:
        """As version 00 writes it."""
        return f"00-{self.trace_id}-{self.parent_span_id}-{int(self.sampled):02x}"


def parse(header: str | None) -> TraceContext | None:
    """The context that a header's value says; None when it is absent or malformed. Never raises."""
    if not header or len(header) > _LONGEST:
        return None
    found = _FORM.fullmatch(header)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if not is_trace_id(trace_id) or not is_span_id(span_id):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def of_headers(values: Sequence[str]) -> TraceContext | None:
    """The context of a request that carries these `traceparent` headers; two contradict."""
    return parse(values[0]) if len(values) == 1 else None


def is_trace_id(text: str | None) -> bool:
    """Sixteen bytes in lower-case hex, not all zero."""
    return text is not None and _TRACE_ID.fullmatch(text) is not None and text.strip("0") != ""


def is_span_id(text: str | None) -> bool:
    """Eight bytes in lower-case hex, not all zero."""
    return text is not None and _SPAN_ID.fullmatch(text) is not None and text.strip("0") != ""
