"""Settings and workloads: errors name file, key and value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.clock import ClockBase, SystemClock
from engine.config import (
    Limits,
    PolicyKnobs,
    PoolSpec,
    Settings,
    Slo,
    Tenant,
    load_settings,
    read_settings,
)
from engine.errors import ConfigError, WorkloadError
from engine.simulation.workload import read_workload

GOOD = """
policy = "fcfs"
[limits]
slots = 4
pool_bytes = 1000
[policies]
quantum_tokens = 64
[[pool]]
name = "gold"
replicas = 2
limits = { slots = 2, queue_timeout_s = 1.5 }
[[pool]]
name = "bulk"
[[tenant]]
name = "[red]x[/]"
weight = 2
tier = 1
share_by = "key"
rpm = 0
tpm = 60_000
tpm_burst = 90_000
queue = 7
deadline_s = 30
pool = "bulk"
prefix_group = "g"
adapters = ["one"]
slo = { ttft_s = 1.5 }
[[adapter]]
name = "one"
path = "adapters/one"
"""


def test_a_good_file_reads_and_survives_the_way_to_a_child(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text(GOOD)
    s = read_settings(path)
    assert s.tenants[0] == Tenant(
        "[red]x[/]",
        2.0,
        tier=1,
        share_by="key",
        rpm=0,
        tpm=60_000,
        tpm_burst=90_000,
        queue=7,
        deadline_s=30.0,
        pool="bulk",
        prefix_group="g",
        slo=Slo(ttft_s=1.5),
        adapters=("one",),
    )
    assert s.knobs == PolicyKnobs(quantum_tokens=64)
    assert s.pools == (
        PoolSpec("gold", 2, Limits(slots=2, pool_bytes=1000, queue_timeout_s=1.5)),
        PoolSpec("bulk", 1, Limits(slots=4, pool_bytes=1000)),
    )
    assert s.pool == "gold", "the first pool serves the tenants that name none"
    assert s.adapters == (("one", str(tmp_path / "adapters/one")),)
    assert load_settings(s.dump()) == s
    assert "key_sha256" not in json.dumps(s.public())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("slots = 4", "slots = 0"), ["[limits]: slots = 0", ">= 1"]),
        (('"[red]x[/]"', '"f\\u200dm"'), ["printable", "U+200D (zero width joiner) is none"]),
        (('"[red]x[/]"', '"f\\ue000"'), ["U+E000 (it has no name) is none"]),
        (('"[red]x[/]"', '"' + "n" * 201 + '"'), ["up to 200 printable", "it has 201"]),
        (("slots = 4", 'slots = "4k"'), ["slots = '4k'", "whole number", "without a suffix"]),
        (("tpm = 60_000", 'tpm = "60k"'), ["tpm = '60k'", "whole number", "without a suffix"]),
        (("tpm = 60_000", 'tpm = "60000"'), ["tpm = '60000'", "without quotes"]),
        (("tpm = 60_000", 'tpm = "null"'), ["tpm = 'null'", "leave the key out for no limit"]),
        (("tpm = 60_000", 'tpm = ""'), ["tpm = ''", "leave the key out for no limit"]),
        (("tpm = 60_000", "tpm = null"), ["tpm = null", "line 20", "TOML has no null"]),
        (("tpm = 60_000", "tpm ="), ["'tpm ='", "line 20", "TOML has no null"]),
        (("tpm = 60_000", "tpm = inf"), ["tpm = inf", "whole number"]),
        (("tpm = 60_000", "tpm = 60000.0"), ["tpm = 60000.0", "whole number"]),
        (("tpm = 60_000", f"tpm = {10**30}"), ["tpm", str(10**30), f"<= {2**53}"]),
        (("tpm = 60_000", f"tpm = {'9' * 5000}"), ["not usable TOML", "digits"]),
        (("tpm = 60_000", "tpm = " + "[" * 5000), ["nested too deep"]),
        (("tpm = 60_000", "tpm = 1\ntpm = 2"), ["line 21", "tpm = 2"]),
        (("slots = 4", "slot = 4"), ["unknown key 'slot'", "did you mean slots"]),
        (("weight = 2", "weight = -1"), ["[[tenant]] 1 '[red]x[/]'", "weight = -1", ">= 0.001"]),
        (("weight = 2", "weight = 0"), ["weight = 0", ">= 0.001 and <= 1000000"]),
        (("weight = 2", "weight = nan"), ["weight", "nan"]),
        (("weight = 2", "weight = true"), ["weight = True", "expected a number"]),
        (("weight = 2", f"weight = {10**400}"), ["weight", "<= 1000000"]),
        (("tier = 1", "tier = -1"), ["tier = -1", ">= 0"]),
        (("rpm = 0", "rpm = true"), ["rpm", "True", "whole number"]),
        (("rpm = 0", "rpm = -5"), ["rpm", "-5", ">= 0"]),
        (("rpm = 0", "rpm = 0\nrpm_burst = 5"), ["rpm_burst = 5", "rpm = 0 blocks"]),
        (("tpm = 60_000\n", ""), ["tpm_burst = 90000", "set tpm too"]),
        (("rpm = 0", 'window = "fixed"'), ["tpm_burst = 90000", "bucket", "'fixed'"]),
        (("rpm = 0", 'window = "sliding "'), ["window", "bucket, fixed, sliding", "did you mean"]),
        (("deadline_s = 30", "deadline_s = 0"), ["deadline_s = 0", "> 0"]),
        (('share_by = "key"', 'share_by = "none "'), ["share_by", "none, adapter, key"]),
        (('pool = "bulk"', 'pool = "silver"'), ["pool = 'silver'", "'gold', 'bulk'"]),
        (('name = "bulk"', 'name = "gold"'), ["[[pool]] 2", "taken already, by [[pool]] 1"]),
        (("replicas = 2", "replicas = 0"), ["[[pool]] 1 'gold'", "replicas = 0", ">= 1"]),
        (("{ slots = 2,", "{ slots = -2,"), ["[[pool]] 1 'gold' [limits]: slots = -2"]),
        (
            ("{ slots = 2,", "{ kv_floor_bytes = 600, adapter_floor_bytes = 500,"),
            ["[[pool]] 1 'gold'", "1100 bytes", "pool_bytes = 1000"],
        ),
        (("slots = 4", "kv_floor_bytes = 1001"), ["[limits]", "1001", "pool_bytes = 1000"]),
        (("quantum_tokens", "quantum"), ["[policies]", "'quantum'", "quantum_tokens"]),
        (('name = "one"', 'name = " "'), ["name", "not blank"]),
        (('name = "one"', 'name = "a\\u0007b"'), ["name", "control characters"]),
        (('name = "one"', 'name = "two"'), ["lists adapter 'one'"]),
        (('adapters = ["one"]', 'adapters = ["one", "one"]'), ["adapters", "'one' stands in it"]),
        (('policy = "fcfs"', 'policy = "lifo"'), ["policy", "'lifo'", "fcfs, round-robin"]),
        (('policy = "fcfs"', 'policy = "VTC"'), ["policy", "'VTC'", "expected one of vtc"]),
        (("[limits]", "[[limits]]"), ["limits", "expected a table"]),
        (("[[tenant]]", "[tenant]"), ["tenant", "expected [[tenant]] tables"]),
        (('name = "[red]x[/]"', f'name = "{"n" * 300}"'), ["name", "200"]),
        (("ttft_s = 1.5", "ttft_s = 0"), ["slo", "ttft_s", "> 0"]),
        (("policy =", "policy"), ["not valid TOML", "line 2"]),
        (
            ('"fcfs"', '"fcfs"\n[[tenant]]\nname = "[red]x[/]"\n'),
            ["taken already, by [[tenant]] 1"],
        ),
        (('adapters = ["one"]', 'key_sha256 = ["ab"]'), ["key_sha256", "2 characters", "64"]),
    ],
)
def test_a_bad_value_is_named_with_its_file_and_what_is_allowed(tmp_path, change, words):
    path = tmp_path / "pool.toml"
    assert change[0] in GOOD
    path.write_text(GOOD.replace(*change))
    with pytest.raises(ConfigError) as e:
        read_settings(path)
    for word in [str(path), *words]:
        assert word in str(e.value)


def test_a_key_put_where_its_digest_belongs_is_not_repeated(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text('[[tenant]]\nname = "a"\nkey_sha256 = ["ts-secret"]\n')
    with pytest.raises(ConfigError, match="one of them is a key") as e:
        read_settings(path)
    assert "secret" not in str(e.value)


def test_one_pool_is_named_by_a_plain_key_and_a_tenant_may_say_so(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text('pool = "solo"\n[[tenant]]\nname = "a"\npool = "solo"\n')
    settings = read_settings(path)
    assert settings.all_pools() == (PoolSpec("solo"),)
    path.write_text('pool = "solo"\n[[tenant]]\nname = "a"\npool = "duo"\n')
    with pytest.raises(ConfigError, match=r"pool = 'duo'.*'solo'"):
        read_settings(path)


def test_the_only_pools_own_limits_are_the_workers(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text('[limits]\nslots = 5\n[[pool]]\nname = "p"\nlimits = { bypass = 0 }\n')
    served = read_settings(path)
    assert (served.pool, served.limits) == ("p", Limits(slots=5, bypass=0))


LADDER = """
[[pool]]
name = "shared"
tiers = [1, 2]
[[pool]]
name = "gold"
replicas = 2
device = "cpu"
cpus = [0, 1]
tiers = [5]
[[tenant]]
name = "named"
pool = "gold"
tier = 1
adapters = ["both", "golds"]
[[tenant]]
name = "by tier"
tier = 5
[[tenant]]
name = "by default"
adapters = ["both", "shareds"]
[[adapter]]
name = "both"
path = "both"
[[adapter]]
name = "golds"
path = "golds"
[[adapter]]
name = "shareds"
path = "shareds"
[[adapter]]
name = "nobodys"
path = "nobodys"
"""


def test_a_tenant_is_served_by_the_pool_it_names_else_its_tiers_else_the_first(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text(LADDER)
    s = read_settings(path)
    assert {t.name: s.pool_of(t).name for t in s.tenants} == {
        "named": "gold",
        "by tier": "gold",
        "by default": "shared",
    }


def test_a_worker_is_told_its_own_pool_its_tenants_and_what_they_may_name(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text(LADDER)
    gold = read_settings(path).of_pool("gold")
    assert (gold.pool, [p.name for p in gold.pools]) == ("gold", ["gold"])
    assert [t.name for t in gold.tenants] == ["named", "by tier"]
    assert [name for name, _ in gold.adapters] == ["both", "golds", "nobodys"]
    whole = read_settings(path)
    with pytest.raises(ConfigError, match=r"pool 'silver'.*'shared', 'gold'"):
        whole.of_pool("silver")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tiers = [5]", "tiers = [2, 5]"), ["[[pool]] 2 'gold'", "2 is served by [[pool]] 1"]),
        (("tiers = [5]", "tiers = [5, 5]"), ["5 stands in it twice"]),
        (("tiers = [5]", "tiers = [-1]"), ["whole numbers >= 0 and <= 1000"]),
        (("tiers = [5]", "tiers = [true]"), ["whole numbers"]),
        (("tiers = [5]", "tiers = 5"), ["tiers = 5", "a list of whole numbers"]),
        (('"cpu"', '"gpu"'), ["device = 'gpu'", "cpu, cuda:0", "MIG-"]),
        (("cpus = [0, 1]", "cpus = [0]"), ["1 cores", "replicas = 2", "a multiple"]),
        (("cpus = [0, 1]", "cpus = [0, 4096]"), ["<= 4095"]),
    ],
)
def test_a_pool_that_could_not_be_is_refused_with_what_is_allowed(tmp_path, change, words):
    path = tmp_path / "pool.toml"
    assert change[0] in LADDER
    path.write_text(LADDER.replace(*change))
    with pytest.raises(ConfigError) as e:
        read_settings(path)
    for word in words:
        assert word in str(e.value)


@pytest.mark.parametrize(
    "device", ["cpu", "cuda:0", "cuda:12", f"MIG-{'0a' * 4}-1b2c-77-8-{9:012}"]
)
def test_a_device_is_written_as_the_driver_writes_it(tmp_path, device):
    path = tmp_path / "pool.toml"
    path.write_text(LADDER.replace('"cpu"', f'"{device}"'))
    assert read_settings(path).pools[1].device == device


def test_a_mark_before_the_text_and_windows_line_ends_are_read_over(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert [p.name for p in read_settings(path).pools] == ["gold", "bulk"]


def test_a_device_that_never_ends_is_no_settings_file():
    with pytest.raises(ConfigError, match="/dev/zero: larger than 256 MiB"):
        read_settings(Path("/dev/zero"))


def test_a_missing_file_or_a_folder_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_settings(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        read_settings(tmp_path)
    (tmp_path / "raw.toml").write_bytes(b"policy = \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_settings(tmp_path / "raw.toml")


WORKLOAD = """
name = "w"
title = "t"
seed = 3
calm_s = 10
incident_s = 20
suspect = "x"
[[tenant]]
name = "x"
[[adapter]]
name = "a"
rank = 4
[[traffic]]
tenant = "x"
adapters = ["a"]
start_s = 0
end_s = 30
rate_per_s = 2
prompt_tokens = [10, 20]
output_tokens = [1, 5]
[[traffic]]
tenant = "x"
start_s = 10
end_s = 20
rate_per_s = 4
spacing = "even"
prompt_tokens = [10, 10]
output_tokens = [5, 5]
"""


def test_the_same_span_gives_the_same_arrivals(tmp_path):
    path = tmp_path / "workload.toml"
    path.write_text(WORKLOAD)
    w = read_workload(path)
    whole = w.arrivals(0, 30)
    assert whole == read_workload(path).arrivals(0, 30)
    assert [a for a in whole if a.at_s >= 10] == w.arrivals(10, 30)
    assert [a.at_s for a in whole] == sorted(a.at_s for a in whole)
    assert all(10 <= a.prompt_tokens <= 20 for a in whole)
    assert sum(a.adapter is None for a in whole) == 39


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('tenant = "x"\nadapters', 'tenant = "y"\nadapters'), ["tenant", "'y'"]),
        (('adapters = ["a"]', 'adapters = ["b"]'), ["'b'"]),
        (("end_s = 20", "end_s = 5"), ["end_s", "more than start_s = 10"]),
        (("prompt_tokens = [10, 20]", "prompt_tokens = [20, 10]"), ["low <= high"]),
        (("rate_per_s = 2", "rate_per_s = 0"), ["rate_per_s", "> 0"]),
    ],
)
def test_a_bad_workload_is_refused_by_name(tmp_path, change, words):
    path = tmp_path / "workload.toml"
    assert change[0] in WORKLOAD
    path.write_text(WORKLOAD.replace(change[0], change[1], 1))
    with pytest.raises(WorkloadError) as e:
        read_workload(path)
    for word in [str(path), *words]:
        assert word in str(e.value)


def test_engine_time_survives_a_wall_clock_that_is_set_back(monkeypatch):
    clock = SystemClock(ClockBase(1000.0, 0.0))
    monkeypatch.setattr("time.monotonic", lambda: 50.0)
    monkeypatch.setattr("time.time", lambda: 1050.0)
    assert clock.now() == 50.0
    assert clock.take_wall_jump_s(2.0) == 0.0
    monkeypatch.setattr("time.monotonic", lambda: 51.0)
    monkeypatch.setattr("time.time", lambda: 451.0)
    assert clock.now() == 51.0
    assert clock.take_wall_jump_s(2.0) == -600.0
    assert clock.take_wall_jump_s(2.0) == 0.0, "a jump is told once"
    assert ClockBase.load(clock.base.dump()) == clock.base


def test_defaults_are_valid():
    assert Limits().slots > 0
    assert Settings().policy == "vtc"
