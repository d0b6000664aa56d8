"""The one form in which rows travel: OTLP protobuf, there and back. Owns the two halves' names."""

from __future__ import annotations

from telemetry.otlp.decode import Decoded, decode_logs, decode_metrics
from telemetry.otlp.encode import encode
from telemetry.otlp.read import Refused

__all__ = ["Decoded", "Refused", "decode_logs", "decode_metrics", "encode"]
