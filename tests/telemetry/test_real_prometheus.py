"""Debian's Prometheus and its promtool, for real: rules, configuration, and a scrape of a store."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from telemetry.conventions import Emitter
from telemetry.otlp import encode
from telemetry.prometheus import exposed, grafana
from telemetry.prometheus.port import listen
from telemetry.records import Batch, EngineMinute, EngineRun, InterferenceMinute, TenantMinute
from telemetry.service.client import StoreClient
from tests.telemetry.delivered import RUN

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
WITHIN_S = 30.0
# What a name may be; Prometheus is to have them all as they are.
NAMES = ("acme", 'quo"te', "back\\slash", "new\nline", "other", "Ü € 🙂", "{a='b'}", "x" * 120)
# Of the store process itself; the other families are about what nobody has set up here.
OWN = (
    exposed.HEARD, exposed.BUCKET_END, exposed.STARTED, exposed.LAST_INGEST, exposed.BATCHES,
    exposed.ROWS, exposed.REFUSED, exposed.LATE, exposed.NAMED, exposed.UNNAMED,
)  # fmt: skip

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not on PATH (Debian's package prometheus)"
)
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="prometheus is not on PATH (Debian's package prometheus)",
)


def promtool(*arguments: str | Path, given: str | None = None) -> str:
    """What it says. Fails the test when it objects."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_promtool
def test_configuration_and_rules_are_valid():
    promtool("check", "config", DEPLOY / "prometheus.yml")
    assert "rules found" in promtool("check", "rules", DEPLOY / "rules.yml")


@needs_promtool
@pytest.mark.parametrize("path", sorted((DEPLOY / "tests").glob("*.yml")), ids=lambda p: p.stem)
def test_every_alert_fires_when_it_should_and_not_when_not(path: Path):
    assert "SUCCESS" in promtool("test", "rules", path)


@needs_promtool
def test_an_alert_that_never_fired_would_be_seen(tmp_path: Path):
    rules = yaml.safe_load((DEPLOY / "rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["expr"] = f"({rule['expr']}) and on () vector(0) > 1"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    (tmp_path / "tests").mkdir()
    for path in (DEPLOY / "tests").glob("*.yml"):
        shutil.copy(path, tmp_path / "tests")
        done = subprocess.run(
            ["promtool", "test", "rules", str(tmp_path / "tests" / path.name)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        tries = [
            t
            for group in yaml.safe_load(path.read_text())["tests"]
            for t in group["alert_rule_test"]
            if t["exp_alerts"]
        ]
        assert done.returncode != 0
        said = done.stdout + done.stderr
        assert all(f"alertname: {t['alertname']}" in said for t in tries)


# --- a store, and a Prometheus that scrapes it ---------------------------------------------------


def pool_minute(start: float) -> tuple[Any, ...]:
    """A minute of a pool in which every column that Prometheus shows has a value."""
    keys = {"bucket_start": start, "bucket_s": 60.0, **RUN}

    def values(table: str, i: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for family in exposed.families_of(table):
            assert family.column is not None
            name = family.column.name
            if family.type == "histogram":
                made[name] = (i + 1, *[2] * 20)
            else:
                made[name] = i + 1 if family.column.sql == "BIGINT" else 0.5 * (i + 1)
        return made

    tenants = [
        TenantMinute(**keys, tenant=name, **values("tenant_minute", i))
        for i, name in enumerate(NAMES)
    ]
    charge = InterferenceMinute(
        **keys, victim="acme", reason="kv", holder_kind="tenant", holder=NAMES[1], charged_s=3.0
    )
    return (EngineMinute(**keys, **values("engine_minute", 1)), *tenants, charge)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[StoreClient, str]]:
    """(client, address of its metrics) of a store process that has one minute."""
    with listen("127.0.0.1:0") as metrics:
        address = f"unix:{tmp_path}/s"
        process = subprocess.Popen(
            [sys.executable, "-m", "telemetry.service", "--store", str(tmp_path / "store"),
             "--listen", address, "--metrics-fd", str(metrics.fileno())],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            pass_fds=[metrics.fileno()],
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            client = StoreClient(address)
            start = float(int(time.time()) // 60 * 60)
            config = json.dumps(
                {"tenants": [{"name": n, "slo": {"ttft_s": 1.0}} for n in NAMES if n != "other"]}
            )
            run = EngineRun(started=start, model="m", config=config, **RUN)
            first = Batch(**RUN, emitter=Emitter.WORKER, sealed=False, seq=1, logs=(run,))
            client.export(*encode(first))
            rows = pool_minute(start)
            one = Batch(**RUN, emitter=Emitter.WORKER, sealed=False, seq=2, minutes=rows)
            client.export(*encode(one))
            yield client, f"127.0.0.1:{metrics.getsockname()[1]}"
            client.close()
        finally:
            process.terminate()
            process.communicate(timeout=10)


@needs_promtool
def test_the_exposition_passes_promtools_check(store: tuple[StoreClient, str]):
    with urllib.request.urlopen(f"http://{store[1]}/metrics", timeout=10) as answer:
        said = promtool("check", "metrics", given=answer.read().decode())
    assert not said.strip()


@pytest.fixture
def prometheus(store: tuple[StoreClient, str], tmp_path: Path) -> Iterator[str]:
    """Address of a Prometheus that scrapes the store with the deployed configuration and rules."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "rules.yml")]
    [job] = config["scrape_configs"]
    job["static_configs"] = [{"targets": [store[1]]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        ["prometheus", f"--config.file={tmp_path}/prometheus.yml",
         f"--storage.tsdb.path={tmp_path}/tsdb", f"--web.listen-address={address}",
         "--enable-feature=exemplar-storage", "--log.level=error"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path,
    )  # fmt: skip
    yield address
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def ask(address: str, path: str, **parameters: str) -> Any:
    """What the API answers; None while it does not yet."""
    url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def found(address: str, query: str) -> list[tuple[dict[str, str], float]]:
    data = ask(address, "query", query=query)
    return [(r["metric"], float(r["value"][1])) for r in data["result"]] if data else []


def wait_for(question: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not question():
        assert time.monotonic() < deadline, "not within 30 s"
        time.sleep(0.1)


@needs_prometheus
def test_a_real_prometheus_has_the_stores_own_totals_and_answers_every_panel(
    store: tuple[StoreClient, str], prometheus: str
):
    wait_for(lambda: [v for _, v in found(prometheus, 'up{job="tenantscope"}')] == [1.0])
    wait_for(lambda: bool(found(prometheus, "tenantscope_tenant_output_tokens_total")))
    shown = {
        labels["tenant"]: value
        for labels, value in found(prometheus, "tenantscope_tenant_output_tokens_total")
    }
    kept = store[0].query("tenants_now", start=0.0, end=time.time() + 60).dicts()
    of_store = {r["tenant"]: float(r["output_tokens"]) for r in kept}
    assert set(of_store) == set(NAMES)
    assert shown == of_store
    assert sum(shown.values()) == sum(range(1, len(NAMES) + 1))

    # Every family with a value has come through, and its type with it.
    told = ask(prometheus, "metadata", limit="100000")
    for family in exposed.families():
        name = family.name if family.type != "counter" else f"{family.name}_total"
        assert name in told or family.name in told, family.name
    names = set(ask(prometheus, "label/__name__/values"))
    for family in exposed.families():
        if family.column is not None or family in OWN:
            assert family.sample in names, family.name

    for query in grafana.queries():
        for variable in ("engine", "pool", "tenant"):
            query = query.replace(f"${variable}", ".*").replace(f"${{{variable}}}", ".*")
        query = query.replace("$__rate_interval", "1m").replace("$__range", "1m")
        assert "$" not in query
        assert ask(prometheus, "query", query=query) is not None, query

    groups = ask(prometheus, "rules")["groups"]
    broken = [r["name"] for g in groups for r in g["rules"] if r["health"] == "err"]
    assert groups
    assert not broken
    wait_for(lambda: bool(found(prometheus, 'ALERTS{alertname="TenantscopeDeadMan"}')))
    assert not found(prometheus, 'ALERTS{alertname="TenantscopeStoreDown",alertstate="firing"}')
