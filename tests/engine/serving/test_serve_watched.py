"""A whole serve whose store process stops answering: the tenants are still seen."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

from engine.serving.processes import ServeProcesses
from telemetry.source import open_source
from telemetry.store import owner
from telemetry.watch.client import WatchClient
from telemetry.watch.frame import Asked
from tests.engine.serving.test_serve_whole import SETTINGS, ask
from tests.telemetry.delivered import until


def test_a_frozen_store_blanks_neither_watch_nor_questions(tmp_path: Path) -> None:
    settings = replace(SETTINGS, bucket_s=1.0)
    with ServeProcesses(settings, tmp_path / "store") as running:
        tokens = ask(running).json()["usage"]["completion_tokens"]
        store = owner.find_live(tmp_path / "store")
        assert store is not None
        client = WatchClient(running.store_address)
        asked = Asked(window_s=300.0)

        def all_is_known() -> bool:
            rows = client.watch_once(asked).rows
            said = [(r["output_tokens"], r["offered_requests"]) for r in rows]
            return said == [(tokens, 1.0)]

        until(all_is_known)
        [seen] = client.watch_once(asked).rows

        both = open_source(running.runtime_dir)
        assert both.query("token_totals", start=0.0, end=1e11).partial == ()
        os.kill(store.pid, signal.SIGSTOP)
        try:
            answer = both.query("token_totals", start=0.0, end=1e11)
            assert [r["tenant"] for r in answer.dicts()] == [seen.tenant]
            assert "not answering" in answer.partial[0]
            worker = WatchClient(running.worker_address)
            [now] = worker.watch_once(asked).rows
            assert (now.tenant, now["output_tokens"]) == (seen.tenant, tokens)
            assert now["offered_requests"] is None  # the front's to know
            worker.close()
        finally:
            os.kill(store.pid, signal.SIGCONT)
        both.close()
        client.close()
