"""`[[export]]` and `[traces]`: what they may say, what is refused, and what no message quotes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli import serve
from telemetry.outbound.settings import NOTHING, Endpoint, Export, Outgoing, endpoint_of, resolved
from telemetry.outbound.tail import Rates
from telemetry.settings import SettingsError
from telemetry.store import settings as store_settings

SECRET = "canary-4711"


def read(tmp_path: Path, text: str) -> Outgoing:
    (tmp_path / "settings.toml").write_text(text)
    return store_settings.read(tmp_path).outgoing


def test_without_settings_nothing_is_sent(tmp_path: Path):
    assert store_settings.read(tmp_path).outgoing == NOTHING
    assert read(tmp_path, "[retention]\nrequest = 7\n") == NOTHING


def test_an_endpoint_is_enough(tmp_path: Path):
    found = read(tmp_path, '[[export]]\nendpoint = "http://127.0.0.1:4317"\n')
    [export] = found.exports
    assert export == Export(Endpoint("http://127.0.0.1:4317", "127.0.0.1", 4317, False))
    assert export.signals == ("metrics", "traces")
    assert (export.temporality, export.every_s) == ("cumulative", 15.0)
    assert found.rates == Rates()


def test_all_of_it_is_read(tmp_path: Path):
    found = read(
        tmp_path,
        """
        [traces]
        ratio = 0.5
        most_per_s = 3
        always_most_per_s = 30

        [[export]]
        endpoint = "https://otel.example.com"
        traces = false
        temporality = "delta"
        every_s = 60
        timeout_s = 2.5
        queue = 10
        ca = "/etc/ca.pem"
        headers = { authorization = "env:TOKEN", x-team = "sre" }

        [[export]]
        endpoint = "http://gateway:4318/v1/metrics"
        insecure = true
        """,
    )
    first, second = found.exports
    assert found.rates == Rates(0.5, 3.0, 30.0)
    assert first.endpoint.target == "otel.example.com:4317"
    assert first.endpoint.tls
    assert first.signals == ("metrics",)
    assert (first.temporality, first.every_s, first.timeout_s, first.queue) == (
        "delta",
        60,
        2.5,
        10,
    )
    assert first.ca == Path("/etc/ca.pem")
    assert resolved(first, {"TOKEN": SECRET}) == {"authorization": SECRET, "x-team": "sre"}
    assert second.signals == ("metrics",)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "endpoint is missing"),
        ('endpoint = "127.0.0.1:4317"', "expected http"),
        ('endpoint = "ftp://127.0.0.1"', "expected http"),
        ('endpoint = "http://127.0.0.1:99999"', "expected http"),
        ('endpoint = "http://127.0.0.1/v1/logs"', "expected http"),
        ('endpoint = "http://127.0.0.1:4317/?x=1"', "expected http"),
        ('endpoint = "http://collector:4317"', "in the clear.*insecure = true"),
        ('endpoint = "http://127.0.0.1:1/v1/metrics"\ntraces = true', "takes metrics only"),
        ('endpoint = "http://127.0.0.1:1"\nmetrics = false\ntraces = false', "nothing to send"),
        ('endpoint = "http://127.0.0.1:1"\nca = "x"', "ca is for https"),
        ('endpoint = "http://127.0.0.1:1"\ntemporality = "deltas"', "did you mean delta"),
        ('endpoint = "http://127.0.0.1:1"\nevery_s = 0', "every_s = 0: expected a number >= 1"),
        ('endpoint = "http://127.0.0.1:1"\nqueue = 0', "queue = 0"),
        ('endpoint = "http://127.0.0.1:1"\nheader = {}', "did you mean headers"),
        ('endpoint = "http://127.0.0.1:1"\nheaders = { Auth = "x" }', "'Auth': .*lower case"),
        ('endpoint = "http://127.0.0.1:1"\nheaders = { grpc-x = "x" }', "not grpc-"),
        ('endpoint = "http://127.0.0.1:1"\n[[export]]\nendpoint = "http://127.0.0.1:1"', "two"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, lines: str, said: str):
    with pytest.raises(SettingsError, match=said) as refused:
        read(tmp_path, f"[[export]]\n{lines}\n")
    assert str(tmp_path / "settings.toml") in str(refused.value)


def test_no_message_quotes_a_secret(tmp_path: Path):
    for line in (
        f'headers = "{SECRET}"',
        f'headers = {{ authorization = ["{SECRET}"] }}',
        f'headers = {{ Authorization = "{SECRET}" }}',
        f'endpoint2 = "x"\nheaders = {{ authorization = "{SECRET}" }}',
    ):
        with pytest.raises(SettingsError) as refused:
            read(tmp_path, f'[[export]]\nendpoint = "http://127.0.0.1:1"\n{line}\n')
        assert SECRET not in str(refused.value)
    with pytest.raises(SettingsError, match="put them into headers") as refused:
        endpoint_of(f"https://me:{SECRET}@example.com")
    assert SECRET not in str(refused.value)
    export = Export(endpoint_of("http://127.0.0.1:1"), headers={"a": "env:X"})
    with pytest.raises(SettingsError, match="value of header a") as refused:
        resolved(export, {"X": f"{SECRET}\n"})
    assert SECRET not in str(refused.value)


def test_too_many_third_parties_are_refused(tmp_path: Path):
    tables = "".join(f'[[export]]\nendpoint = "http://127.0.0.1:{n + 1}"\n' for n in range(9))
    with pytest.raises(SettingsError, match=r"9 .*at most 8"):
        read(tmp_path, tables)


def test_an_endpoint_of_the_command_line_joins_the_files_own_unless_it_is_there(tmp_path: Path):
    found = read(tmp_path, '[[export]]\nendpoint = "http://127.0.0.1:1"\ntraces = false\n')
    assert found.with_endpoint(None) is found
    assert found.with_endpoint("http://127.0.0.1:1") is found
    assert [e.signals for e in found.with_endpoint("http://[::1]:4317").exports] == [
        ("metrics",), ("metrics", "traces")
    ]  # fmt: skip
    assert endpoint_of("http://[::1]:4317").target == "[::1]:4317"


@pytest.mark.parametrize("url", ["collector:4317", "http://collector:4317"])
def test_serve_refuses_an_endpoint_before_anything_starts(tmp_path: Path, url: str):
    path = tmp_path / "pool.toml"
    path.write_text('[[tenant]]\nname = "a"\n')
    result = CliRunner().invoke(serve, ["--config", str(path), "--otlp-to", url])
    assert result.exit_code == 2
    assert "--otlp-to: endpoint = " in result.stderr
