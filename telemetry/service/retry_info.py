"""When to come again, as gRPC's rich status carries it: written and read. Pure.

google.rpc.Status { code = 1, message = 2, details = 3 } with google.rpc.RetryInfo
{ retry_delay = 1 } inside an Any, in the trailer `grpc-status-details-bin`: what OTLP senders look
for beside UNAVAILABLE (OTLP specification, "OTLP/gRPC throttling"). Written and read field by
field, because the generated code for it is no dependency.
"""

from __future__ import annotations

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

TRAILER = "grpc-status-details-bin"
_TYPE = "google.rpc.RetryInfo"
_RETRY_INFO = f"type.googleapis.com/{_TYPE}"
_DETAILS = 3  # of google.rpc.Status: repeated google.protobuf.Any
_RETRY_DELAY = 1  # of google.rpc.RetryInfo: google.protobuf.Duration


def retry_details(code: grpc.StatusCode, message: str, after_s: float) -> tuple[tuple[str, bytes]]:
    """The trailing metadata that asks a caller to come again in `after_s` seconds."""
    whole = int(after_s)
    delay = Duration(seconds=whole, nanos=int((after_s - whole) * 1e9)).SerializeToString()
    info = AnyMessage(type_url=_RETRY_INFO, value=_field(1, delay)).SerializeToString()
    number: int = code.value[0]
    status = bytes((1 << 3, number)) + _field(2, message.encode()) + _field(3, info)
    return ((TRAILER, status),)


def retry_after_s(status: bytes | str | None) -> float | None:
    """Seconds to wait by the value of `grpc-status-details-bin`; None when it does not say so."""
    if not isinstance(status, bytes):
        return None
    try:
        for detail in _messages(status, _DETAILS):
            packed = AnyMessage.FromString(detail)
            if packed.type_url.rpartition("/")[2] != _TYPE:
                continue
            for delay in _messages(packed.value, _RETRY_DELAY):
                return max(0.0, float(Duration.FromString(delay).ToTimedelta().total_seconds()))
    except (DecodeError, OverflowError):
        return None
    return None


def _messages(data: bytes, number: int) -> list[bytes]:
    """The fields of that number that hold bytes."""
    fields = UnknownFieldSet(Empty.FromString(data))
    return [f.data for f in fields if f.field_number == number and isinstance(f.data, bytes)]


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited field."""
    return bytes((number << 3 | 2,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
