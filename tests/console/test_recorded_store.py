"""A store written by the real store, closed to Parquet, plays like the rows it was written from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

from console.judge import LiveJudge
from console.replay import ReplayFeed, open_recording
from telemetry.conventions import Emitter
from telemetry.otlp import encode
from telemetry.records import Batch
from telemetry.store.store import Store
from tests.console import rows as made


def record(folder) -> None:
    rows = made.incident()
    batch = Batch(
        engine="e1",
        run_id="r1",
        pool="main",
        emitter=Emitter.WORKER,
        sealed=True,
        seq=1,
        minutes=(*rows.tenants, *rows.engines, *rows.interference),
        logs=(*rows.requests, *rows.events, *rows.policies, *rows.runs),
    )
    metrics, logs = encode(batch)
    folder.mkdir()
    with Store.open(folder) as store:
        store.ingest_metrics(metrics)
        store.ingest_logs(logs)
        for day in list(store.days()):
            store.close_day(day)


def test_a_recorded_store_plays_like_the_rows_it_was_written_from(tmp_path):
    record(tmp_path / "store")
    at = [0.0]
    judge = LiveJudge(tz=UTC)
    stored = ReplayFeed(
        open_recording(tmp_path / "store"), 10.0, lambda: at[0], judge=judge, tz=UTC
    )
    direct = ReplayFeed(made.FakeSource(made.incident()), 10.0, lambda: at[0], judge=judge, tz=UTC)
    for moment in (0.0, 5.0, 12.0, 17.0, 30.0):
        at[0] = moment
        got, wanted = stored.snapshot(), direct.snapshot()
        assert rounded(got) == rounded(wanted)
    assert got.verdict.named == "acme"
    assert stored.finished


def rounded(snapshot):
    """Instants without what microseconds cannot hold."""
    return replace(
        snapshot,
        now=round(snapshot.now, 3),
        data_at=round(snapshot.data_at, 3),
        ticker=tuple(replace(t, at=round(t.at, 3)) for t in snapshot.ticker),
    )
