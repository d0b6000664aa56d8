"""Keys: who is let in, and what is kept."""

from __future__ import annotations

import hmac
import json

import pytest
from click.testing import CliRunner

from engine.cli import keys
from engine.config import Settings, Tenant
from engine.errors import ConfigError
from engine.key_digest import read_key_digest
from engine.serving.api import auth


def ring_of(*pairs: tuple[str, str]) -> auth.KeyRing:
    return auth.KeyRing(Tenant(name=n, key_sha256=(auth.digest_of(k),)) for n, k in pairs)


def test_a_new_key_opens_for_its_tenant_and_nobody_else() -> None:
    key, digest = auth.new_key()
    other, _ = auth.new_key()
    ring = auth.KeyRing([Tenant(name="alice", key_sha256=(digest,)), Tenant(name="bob")])
    found = ring.tenant_of(f"Bearer {key}")
    assert found is not None
    assert found.name == "alice"
    assert ring.tenant_of(f"Bearer {other}") is None


def test_keys_look_like_keys_and_never_repeat() -> None:
    keys = {auth.new_key()[0] for _ in range(200)}
    assert len(keys) == 200
    assert all(k.startswith("ts-") and len(k) >= 40 for k in keys)


def test_two_keys_of_one_tenant_both_open_so_that_keys_can_be_rotated() -> None:
    (old, old_digest), (new, new_digest) = auth.new_key(), auth.new_key()
    ring = auth.KeyRing([Tenant(name="alice", key_sha256=(old_digest, new_digest))])
    assert all(ring.tenant_of(f"Bearer {k}") is not None for k in (old, new))


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "ts-right",
        "Basic ts-right",
        "Bearer ts-wrong",
        "Bearer é\udcff",
    ],
)
def test_anything_but_a_known_bearer_key_is_nobody(header: str | None) -> None:
    assert ring_of(("alice", "ts-right")).tenant_of(header) is None


def test_scheme_is_case_insensitive_and_blanks_do_not_matter() -> None:
    assert ring_of(("alice", "ts-right")).tenant_of("  bearer   ts-right ") is not None


def test_a_comparison_in_constant_time_decides_also_when_nobody_is_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def counting(a: str, b: str) -> bool:
        calls.append(1)
        return compare(a, b)

    compare = hmac.compare_digest
    monkeypatch.setattr(auth.hmac, "compare_digest", counting)
    ring = ring_of(("alice", "ts-right"))
    ring.tenant_of("Bearer ts-right")
    ring.tenant_of("Bearer ts-wrong")
    assert len(calls) == 2


def test_a_settings_dump_holds_the_digest_but_never_the_key() -> None:
    key, digest = auth.new_key()
    text = Settings(tenants=(Tenant(name="alice", key_sha256=(digest,)),)).dump()
    assert digest in text
    assert key not in text


def test_a_key_that_two_tenants_share_is_refused_not_given_to_either() -> None:
    _, digest = auth.new_key()
    with pytest.raises(ConfigError, match="'alice' and 'bob' have one key_sha256"):
        auth.KeyRing([Tenant(name, key_sha256=(digest,)) for name in ("alice", "bob")])


def test_a_caller_is_told_apart_by_key_with_digits_that_open_nothing() -> None:
    (old, old_digest), (new, new_digest) = auth.new_key(), auth.new_key()
    ring = auth.KeyRing([Tenant(name="alice", key_sha256=(old_digest, new_digest))])
    callers = [ring.caller_of(f"Bearer {k}") for k in (old, new)]
    assert [c and (c.tenant.name, c.key_id) for c in callers] == [
        ("alice", old_digest[:12]),
        ("alice", new_digest[:12]),
    ]
    assert ring.caller_of(f"Bearer {old_digest}") is None


def test_a_key_may_have_an_end_and_its_successor_none() -> None:
    (old, old_digest), (new, new_digest) = auth.new_key(), auth.new_key()
    kept = (f"{old_digest} until 2026-12-31T00:00:00Z", new_digest)
    ring = auth.KeyRing([Tenant(name="alice", key_sha256=kept)])
    end = 1798675200.0
    callers = [ring.caller_of(f"Bearer {k}") for k in (old, new)]
    assert [c and c.until_unix_s for c in callers] == [end, None]
    assert [c and c.opens(end - 1) for c in callers] == [True, True]
    assert [c and c.opens(end) for c in callers] == [False, True]


@pytest.mark.parametrize("when", ["", "soon", "2026-13-01", "1798675200"])
def test_an_end_that_is_no_time_is_refused_without_the_key(when: str) -> None:
    _, digest = auth.new_key()
    with pytest.raises(ConfigError, match="is no time") as e:
        auth.KeyRing([Tenant(name="alice", key_sha256=(f"{digest} until {when}",))])
    assert digest not in str(e.value)


def test_the_command_makes_a_key_that_opens_and_an_end_that_is_read_back() -> None:
    plain = CliRunner().invoke(keys, ["new"])
    key, digest = (line.split()[1] for line in plain.stdout.splitlines())
    assert ring_of(("alice", key)).tenant_of(f"Bearer {key}") is not None
    assert auth.digest_of(key) == digest
    made = json.loads(CliRunner().invoke(keys, ["new", "--days", "2", "--json"]).stdout)
    ring = auth.KeyRing([Tenant(name="alice", key_sha256=(made["key_sha256"],))])
    caller = ring.caller_of(f"Bearer {made['key']}")
    assert caller is not None
    assert caller.until_unix_s is not None
    assert read_key_digest(made["key_sha256"]).digest == auth.digest_of(made["key"])
    assert CliRunner().invoke(keys, ["new", "--days", "0"]).exit_code == 2
