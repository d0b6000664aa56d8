"""What telemetry refuses or fails at. Owns the exception tree; raises nothing itself.

Every message says what was wrong, with which value, and what to do.
"""

from __future__ import annotations


class TelemetryError(Exception):
    """Anything the way into the store, or out of it, refuses or fails at."""


class MalformedBatch(TelemetryError):
    """Bytes that are not the OTLP request they were sent as. Sending them again cannot help."""


class StoreError(TelemetryError):
    """The store cannot do what was asked."""


class StoreBusy(StoreError):
    """Another live process owns the store; names it and says what to do. Trying later can help."""


class StoreTooNew(StoreError):
    """A part of the store was written by a newer version of this program."""


class NotAllowed(StoreError):
    """The store does not know the token, or it is not for this. A person has to mend it."""


class StoreUnreachable(StoreError):
    """Nothing answers at the store's address."""


class QueryError(StoreError):
    """An unknown query, or parameters it does not take."""


class QueryLimit(StoreError):
    """A question that was cut off: it used up its time or its memory. A narrower one can pass."""
