"""A column that is an array as packed protobuf: numbers go in as they lie. Pure; packs, no more.

Whoever reads it knows nothing of arrays: it comes back as the same values do that
`telemetry.service.packed` has put in one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from telemetry.ask.arrays import Array
from telemetry.otlp.protobuf_bytes import field
from telemetry.proto import tenantscope_pb2 as pb

Put = Callable[[Any, pb.Value], None]
_VALUES = 1  # the field of a list's values
_NUMBERS = pb.PackedColumn.DESCRIPTOR.fields_by_name["numbers"].number


def pack_numbers(column: Sequence[Any], put: Put) -> pb.PackedColumn | None:
    """A column of at least one row; None of what is no array of numbers."""
    if not isinstance(column, Array) or column.values.dtype.kind not in "fi":
        return None
    values, absent = column.values, column.absent
    made = pb.PackedColumn()
    if absent is not None:
        if absent.all():
            put(None, made.same)
            return made
        values = np.where(absent, values.dtype.type(0), values)
        made.absent = absent.tobytes()
    elif _is_one(values):
        put(values[:1].tolist()[0], made.same)
        return made
    if values.dtype.kind == "f":
        made.MergeFromString(field(_NUMBERS, field(_VALUES, values.astype("<f8").tobytes())))
    else:
        made.integers.values.extend(values.tolist())
    return made


def _is_one(values: Any) -> bool:
    """Whether all are the very same: of doubles bit by bit, for 0.0 and -0.0 are equal."""
    bits = values.astype(np.float64).view(np.int64) if values.dtype.kind == "f" else values
    return bool((bits == bits[0]).all())
