"""What tests of many senders share: tokens, papers as files, a run's minute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import trustme

from telemetry.records import Batch
from telemetry.service.roles import Grant, Role
from tests.telemetry.delivered import batch, engine_minute, minute
from tests.telemetry.test_doors import issue, write_tokens

GRANTS = {
    "sender-one": Grant(Role.INGEST, "e1"),
    "sender-any": Grant(Role.INGEST),
    "looks": Grant(Role.VIEWER),
    "keeps": Grant(Role.OPERATOR),
}


def papers_in(tmp_path: Path) -> dict[str, Path]:
    """Certificate, key, CA and tokens, as files."""
    authority = trustme.CA()
    files = issue(authority, tmp_path)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return {
        "cert": files.cert,
        "key": files.key,
        "ca": tmp_path / "ca.pem",
        "tokens": write_tokens(tmp_path / "tokens.toml", GRANTS),
    }


def of_run(run: str, at: float, tokens: int, seq: int) -> Batch:
    """A sealed minute of the engine e1 in one of its runs."""
    made = batch(minute("a", at, output_tokens=tokens), engine_minute(at, steps=1), seq=seq)
    rows = tuple(replace(m, run_id=run) for m in made.minutes)
    return replace(made, run_id=run, minutes=rows)
