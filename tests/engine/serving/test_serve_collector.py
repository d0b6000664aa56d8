"""`serve --collector`: telemetry goes to a store process elsewhere, and none is started here."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli import serve
from engine.config import Settings
from engine.serving.api.auth import digest_of
from engine.serving.processes import ServeError, ServeProcesses

COLLECTOR = "https://collector.example:4317"
TELLS = """
    import os, signal, sys
    from pathlib import Path
    from engine.serving.launch import Launch
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    launch = Launch.read(Path(sys.argv[1]))
    told = f"{launch.store_address} {os.environ.get('TENANTSCOPE_TOKEN')}"
    Path(__file__).with_suffix(".told").write_text(told)
    print("ready", flush=True)
    signal.pause()
"""


def test_no_store_is_started_and_the_others_send_to_the_collector_with_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("TENANTSCOPE_TOKEN", "ts_x")
    for name in ("told_worker", "told_front"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(TELLS))
    heard: list[str] = []
    with ServeProcesses(
        Settings(),
        tmp_path / "store",
        collector=COLLECTOR,
        progress=heard.append,
        modules={"store": "nowhere", "worker": "told_worker", "front": "told_front"},
    ) as processes:
        assert processes.store_address == COLLECTOR
        assert processes.failure() is None
    assert heard == ["starting the worker", "starting the front"]
    for name in ("told_worker", "told_front"):
        assert (tmp_path / f"{name}.told").read_text() == f"{COLLECTOR} ts_x"
    assert not (tmp_path / "store").exists()


def test_metrics_and_a_third_party_are_the_collectors_affair(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="the metrics are the collector's"):
        ServeProcesses(Settings(), tmp_path, collector=COLLECTOR, metrics_port=9464)
    with pytest.raises(ServeError, match="it is the collector that sends"):
        ServeProcesses(Settings(), tmp_path, collector=COLLECTOR, otlp_to="http://h:4317")


@pytest.mark.parametrize(
    ("collector", "environment", "why"),
    [
        ("collector", {}, "is no address"),
        ("10.0.0.1:4317", {"TENANTSCOPE_TOKEN": "ts_x"}, "is not encrypted"),
        (COLLECTOR, {"TENANTSCOPE_CA": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
        (COLLECTOR, {"TENANTSCOPE_TOKEN_FILE": "/nowhere/token"}, "/nowhere/token cannot be read"),
    ],
)
def test_what_can_never_work_is_told_before_a_model_is_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    collector: str,
    environment: dict[str, str],
    why: str,
) -> None:
    for name in ("TOKEN", "TOKEN_FILE", "CA"):
        monkeypatch.delenv(f"TENANTSCOPE_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    page = tmp_path / "settings.toml"
    page.write_text(f'[[tenant]]\nname = "a"\nkey_sha256 = ["{digest_of("ts-x")}"]\n')
    result = CliRunner().invoke(serve, ["--config", str(page), "--collector", collector])
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())
