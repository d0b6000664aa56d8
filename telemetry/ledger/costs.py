"""What a step costs each tenant, kept as it was told until somebody needs it added up.

Owns a step's vector and the sums owed to the bucket; knows no rule about who is charged. While a
step passes only references are kept: a first look at a vector after a model's step meets cold
caches, and costs twenty times what it does among others of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from telemetry.ledger.books import EngineBook
from telemetry.ledger.tenants import COLUMN, N_COLUMNS, Tenants
from telemetry.ledger.vectors import Vector

_PREFILL_S = COLUMN["prefill_cost_s"]
_MOST_STEPS = 256
_MOST_BYTES = 1 << 20


class Costs:
    """Seconds by index: of decode rows as a vector, of the few prefills beside. Never changes;
    any thread may add it up."""

    __slots__ = ("_total", "_whole", "decode", "prefill")

    def __init__(self, decode: Vector | None, prefill: Mapping[int, float]) -> None:
        self.decode = decode
        self.prefill = prefill
        self._whole: Vector | None = None
        self._total: float | None = None

    @property
    def size_bytes(self) -> int:
        return 64 if self.decode is None else self.decode.nbytes

    def whole(self) -> Vector:
        """By index; tenants beyond its end have none."""
        whole = self._whole
        if whole is None:
            decode, prefill = self.decode, self.prefill
            if not prefill and decode is not None:
                whole = decode
            else:
                length = max(prefill, default=-1) + 1
                whole = np.zeros(max(length, 0 if decode is None else len(decode)))
                if decode is not None:
                    whole[: len(decode)] = decode
                for index, seconds in prefill.items():
                    whole[index] += seconds
            self._whole = whole
        return whole

    def total(self) -> float:
        """Seconds of all tenants."""
        total = self._total
        if total is None:
            total = self._total = float(self.whole().sum())
        return total


NOTHING = Costs(None, {})


class Owed:
    """Settled steps whose costs and tokens are still to be added to the bucket."""

    __slots__ = ("_bytes", "_steps")

    def __init__(self) -> None:
        self._steps: list[tuple[float | None, Costs, bytes]] = []
        self._bytes = 0

    def owe(self, predicted_s: float | None, costs: Costs, output: bytes) -> bool:
        """A step is settled: what it was expected to last, whose that is, and a copy of the output
        tokens by index. True = it is time to `pay`."""
        steps = self._steps
        steps.append((predicted_s, costs, output))
        self._bytes += 2 * len(output) or costs.size_bytes
        return len(steps) >= _MOST_STEPS or self._bytes > _MOST_BYTES

    def pay(self, tenants: Tenants, engine: EngineBook) -> None:
        """Everything owed is in the books. What a step lasts beyond its tenants' costs is the
        engine's."""
        engine_s, output, count = tenants.engine_s, tenants.output, tenants.count
        for predicted_s, costs, tokens in self._steps:
            accumulate(engine_s, costs.whole())
            for index, seconds in costs.prefill.items():
                count[index * N_COLUMNS + _PREFILL_S] += seconds
            if tokens:
                accumulate(output, np.frombuffer(tokens))
            if predicted_s is not None:
                engine.base_cost_s += max(0.0, predicted_s - costs.total())
        self._steps.clear()
        self._bytes = 0


def accumulate(total: Vector, more: Vector) -> None:
    """Add a vector that may be shorter or longer than the one there; places beyond are empty."""
    n = min(len(more), len(total))
    total[:n] += more[:n]
