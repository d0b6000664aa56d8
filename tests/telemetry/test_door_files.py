"""What the doors are told by files: listeners, tokens, certificates."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from telemetry.errors import StoreError
from telemetry.service import roles, tls
from telemetry.service.listen import Listen
from telemetry.service.roles import Grant, Role
from telemetry.settings import SettingsError
from tests.telemetry.test_doors import TOKENS, issue


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def settings(tmp_path: Path, text: str) -> tuple[Listen, ...]:
    from telemetry.store import settings as store_settings

    file = tmp_path / "settings.toml"
    file.write_text(text)
    return store_settings.read(tmp_path).listen


def test_listeners_stand_in_the_stores_settings_with_paths_beside_it(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        '[[listen]]\naddress = "0.0.0.0:4317"\ntls_cert = "c.pem"\ntls_key = "k.pem"\n'
        'tokens = "/etc/tokens.toml"\n[[listen]]\naddress = "unix:/run/s"\n',
    )
    files = tls.TlsFiles(tmp_path / "c.pem", tmp_path / "k.pem")
    assert found == (
        Listen("0.0.0.0:4317", files, Path("/etc/tokens.toml")),
        Listen("unix:/run/s"),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('address = "0.0.0.0:1"', "TLS and tokens are required"),
        ('address = "x"', "is no address"),
        ('address = "127.0.0.1:1"\ntls_cert = "c"', "key .*is missing"),
        ('address = "127.0.0.1:1"\ntoken = "c"', "did you mean tokens"),
    ],
)
def test_a_listener_that_cannot_be_is_refused_by_file_and_key(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(SettingsError, match=f"settings.toml.*{why}"):
        settings(tmp_path, f"[[listen]]\n{text}\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no .*token"),
        ('[[token]]\nsha256 = "ts_secret"\nrole = "viewer"', "sha256 is no digest"),
        (f'[[token]]\nsha256 = "{"0" * 64}"\nrole = "boss"', "expected one of viewer"),
        (f'[[token]]\nsha256 = "{"0" * 64}"\nrole = "open"', "expected one of viewer"),
        (f'[[token]]\nsha256 = "{"0" * 64}"\nrole = "viewer"\nengine = "e"', "binds a sender"),
        (2 * f'[[token]]\nsha256 = "{"0" * 64}"\nrole = "viewer"\n', "stands in the file twice"),
    ],
)
def test_a_tokens_file_is_refused_by_table_and_key_without_the_token(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=why) as e:
        roles.read_tokens(file)
    assert "ts_secret" not in str(e.value)


@given(st.dictionaries(st.text(), st.sampled_from(list(TOKENS.values())), max_size=8), st.text())
def test_a_token_finds_its_own_grant_and_no_other(grants: dict[str, Grant], other: str) -> None:
    grants = {k: g for k, g in grants.items() if k.isascii()}
    known = roles.Tokens({roles.digest(t): g for t, g in grants.items()})
    for token, grant in grants.items():
        assert known.find(token) is grant
    if other.isascii() and other not in grants:
        assert known.find(other) is None


@given(st.sampled_from(list(Role)), st.sampled_from(roles.GIVEN))
def test_operator_includes_viewer_and_nothing_else_includes_anything(
    needed: Role, given_role: Role
) -> None:
    expected = needed in (Role.OPEN, given_role) or (
        given_role is Role.OPERATOR and needed is Role.VIEWER
    )
    assert Grant(given_role).may(needed) is expected


def test_the_end_of_a_certificate_is_read_from_it(authority: trustme.CA) -> None:
    import datetime

    for year in (2031, 2055):  # two-digit years end in 2049
        ends = datetime.datetime(year, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
        made = authority.issue_cert("h.example", not_after=ends)
        assert tls.not_after(made.cert_chain_pems[0].bytes()) == ends.timestamp()
    assert tls.not_after(authority.cert_pem.bytes()) > time.time()
    with pytest.raises(ValueError):
        tls.not_after(b"no certificate")


def test_a_certificate_without_its_key_is_refused_by_name(
    tmp_path: Path, authority: trustme.CA
) -> None:
    files = issue(authority, tmp_path)
    (tmp_path / "other").mkdir()
    other = issue(authority, tmp_path / "other")
    with pytest.raises(StoreError, match="no certificate with its key"):
        tls.check(replace(files, key=other.key))
    with pytest.raises(StoreError, match=r"gone.pem cannot be read: No such file"):
        tls.check(replace(files, cert=tmp_path / "gone.pem"))
    with pytest.raises(StoreError, match="holds no CA certificate"):
        tls.check(replace(files, client_ca=files.key))
