"""What a store's settings say of third parties: `[[export]]` and `[traces]`. Reads; sends nothing.

Header values are secrets: no message, `repr` or log line holds one. Those written `env:NAME` are
looked up when sending begins, so that whoever else reads the file needs no such variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from telemetry.outbound.tail import DEFAULT_RATES, Rates
from telemetry.settings import Reader, SettingsError

CUMULATIVE, DELTA = "cumulative", "delta"
METRICS, TRACES = "metrics", "traces"
MOST_EXPORTS = 8  # each has threads of its own, and series in Prometheus
GRPC_PORT = 4317
_PATHS = {"/v1/metrics": METRICS, "/v1/traces": TRACES}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ENV = "env:"
_HEADER = re.compile(r"[a-z0-9_.-]+", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send: gRPC at host and port, or HTTP where the URL names a signal's path."""

    url: str
    host: str
    port: int
    tls: bool
    signal: str | None = None  # of an HTTP URL: the one it is for

    @property
    def target(self) -> str:
        """`host:port`, as gRPC takes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return self.host in _LOOPBACK


@dataclass(frozen=True, slots=True)
class Export:
    """One third party. `queue` bounds what waits, in requests' traces and in interval deliveries;
    `ca` is a PEM file of who signs its certificate."""

    endpoint: Endpoint
    metrics: bool = True
    traces: bool = True
    temporality: str = CUMULATIVE
    every_s: float = 15.0
    timeout_s: float = 10.0
    queue: int = 2048
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: Path | None = None

    @property
    def signals(self) -> tuple[str, ...]:
        return (*((METRICS,) if self.metrics else ()), *((TRACES,) if self.traces else ()))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """All of it. The defaults send nothing."""

    exports: tuple[Export, ...] = ()
    rates: Rates = DEFAULT_RATES

    def with_endpoint(self, url: str | None) -> Outgoing:
        """These, and one more with the defaults unless the file already has it. Raises
        SettingsError."""
        if url is None or any(e.endpoint.url == url for e in self.exports):
            return self
        endpoint = endpoint_of(url)
        _refuse_in_the_clear(endpoint, "set insecure = true for it in an [[export]] table")
        return Outgoing((*self.exports, _plain(endpoint)), self.rates)


NOTHING = Outgoing()


def read_section(reader: Reader) -> Outgoing:
    """`[[export]]` and `[traces]` of a store's settings. Raises SettingsError."""
    exports = tuple(_export(r) for r in reader.tables("export"))
    if len(exports) > MOST_EXPORTS:
        raise SettingsError(f"{reader.where}: {len(exports)} [[export]], at most {MOST_EXPORTS}")
    urls = [e.endpoint.url for e in exports]
    for url in urls:
        if urls.count(url) > 1:
            raise SettingsError(f"{reader.where}: endpoint = {url!r} stands in two [[export]]")
    traces = reader.table("traces")
    default = DEFAULT_RATES
    rates = Rates(
        traces.number("ratio", default.ratio, at_least=0.0, at_most=1.0),
        traces.number("most_per_s", default.most_per_s, at_least=0.0, at_most=1e4),
        traces.number("always_most_per_s", default.always_most_per_s, at_least=0.0, at_most=1e4),
    )
    traces.done()
    return Outgoing(exports, rates)


def endpoint_of(url: str) -> Endpoint:
    """Where a URL points. Raises SettingsError saying what is allowed."""
    allowed = (
        "expected http(s)://host:port for gRPC, or http(s)://host:port/v1/metrics or /v1/traces "
        "for HTTP"
    )
    try:
        split = urlsplit(url)
        host, port = split.hostname, split.port
    except ValueError:
        raise SettingsError(f"endpoint: {allowed}") from None
    if split.username is not None or split.password is not None:
        # Not quoted: what stands there is a secret.
        raise SettingsError("endpoint: a name or password in it; put them into headers")
    path = split.path.rstrip("/")
    good = split.scheme in ("http", "https") and host and not split.query and not split.fragment
    if not good or path not in ("", *_PATHS) or not url.isprintable():
        raise SettingsError(f"endpoint = {url[:80]!r}: {allowed}")
    assert host is not None
    tls = split.scheme == "https"
    if port is None:
        port = GRPC_PORT if not path else (443 if tls else 80)
    return Endpoint(url, host, port, tls, _PATHS.get(path))


def resolved(export: Export, environment: Mapping[str, str]) -> dict[str, str]:
    """The headers as they are sent. Raises SettingsError naming header and variable, never a
    value."""
    found = {}
    for name, value in export.headers.items():
        if value.startswith(_ENV):
            variable = value.removeprefix(_ENV)
            if variable not in environment:
                raise SettingsError(
                    f"{export.endpoint.url}: header {name} is {value!r}, and no such variable is "
                    "in the store process's environment: set it, or take the header out"
                )
            value = environment[variable]
        if not _VALUE.fullmatch(value):
            raise SettingsError(
                f"{export.endpoint.url}: the value of header {name} is empty or has characters "
                "beyond printable ASCII"
            )
        found[name] = value
    return found


def _export(reader: Reader) -> Export:
    url, insecure = reader.text("endpoint"), reader.flag("insecure", False)
    try:
        endpoint = endpoint_of(url)
        if not insecure:
            _refuse_in_the_clear(endpoint, "set insecure = true where that is meant")
    except SettingsError as e:
        raise SettingsError(f"{reader.where}: {e}") from None
    plain = _plain(endpoint)
    ca = reader.text("ca", None)
    headers = reader.secrets("headers")
    for name in headers:
        if not _HEADER.fullmatch(name) or name.startswith("grpc-") or name.endswith("-bin"):
            raise SettingsError(
                f"{reader.where}: headers: {name[:80]!r}: expected a header's name in lower case, "
                "without spaces, not grpc-... nor ...-bin"
            )
    export = Export(
        endpoint,
        metrics=reader.flag("metrics", plain.metrics),
        traces=reader.flag("traces", plain.traces),
        temporality=reader.text("temporality", CUMULATIVE, choices=(CUMULATIVE, DELTA)),
        every_s=reader.number("every_s", plain.every_s, at_least=1.0, at_most=3600.0),
        timeout_s=reader.number("timeout_s", plain.timeout_s, at_least=0.1, at_most=60.0),
        queue=reader.integer("queue", plain.queue, at_least=1, at_most=100_000),
        headers=headers,
        ca=None if ca is None else Path(ca),
    )
    reader.done()
    if not export.signals:
        raise SettingsError(f"{reader.where}: metrics and traces are both false: nothing to send")
    if endpoint.signal is not None and export.signals != (endpoint.signal,):
        raise SettingsError(
            f"{reader.where}: {endpoint.url} takes {endpoint.signal} only: give the other signal "
            "an [[export]] of its own"
        )
    if export.ca is not None and not endpoint.tls:
        raise SettingsError(f"{reader.where}: ca is for https://, and the endpoint is http://")
    return export


def _plain(endpoint: Endpoint) -> Export:
    return Export(
        endpoint,
        metrics=endpoint.signal in (None, METRICS),
        traces=endpoint.signal in (None, TRACES),
    )


def _refuse_in_the_clear(endpoint: Endpoint, cure: str) -> None:
    if not endpoint.tls and not endpoint.is_loopback:
        raise SettingsError(
            f"endpoint = {endpoint.url!r}: tenants' names would leave this machine in the clear: "
            f"use https://, or {cure}"
        )
