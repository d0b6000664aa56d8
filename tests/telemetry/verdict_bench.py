"""Findings of a verdict, and a pool that the tests of the verdict share."""

from __future__ import annotations

from telemetry.findings.finding import Finding
from telemetry.verdict import Verdict
from tests.telemetry.synthetic_rows import Pool


def finding(verdict: Verdict, name: str) -> Finding:
    return next(f for f in verdict.findings if f.name == name)


def tipped(held: dict[str, float], missed: int = 5) -> Pool:
    """A heavy tenant as ever, another's flood from bucket 10 on, and who waits behind both."""
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        pool.tenant(i, "heavy", offered=50, service=9000.0, kv=600.0)
        pool.tenant(i, "x", offered=60 if hot else 5, service=3000.0 if hot else 300.0)
        waits = held if hot else {"heavy": 2.0, "x": 0.1}
        pool.tenant(i, "y", missed=missed if hot else 0, waits={"slot": waits})
    return pool


def all_grew(first: int, held: dict[str, float]) -> Pool:
    """Four tenants ask for twice as much from bucket 10 on, `a` for `first`; whose slots everyone
    then waits for is `held`, in seconds."""
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        for t in ("a", "b", "c", "d"):
            offered = (first if t == "a" else 20) if hot else 10
            waits = {h: s for h, s in held.items() if h != t} if hot else {}
            pool.tenant(i, t, offered=offered, service=100.0 * offered, missed=4 if hot else 0,
                        waits={"slot": waits})  # fmt: skip
    return pool
