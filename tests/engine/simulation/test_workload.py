"""Workload files: what they may say, and how they are refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from engine.errors import WorkloadError
from engine.simulation.hardware import PRESETS
from engine.simulation.workload import Fault, read_workload
from sample_incidents import incident_path

HEAD = 'name = "w"\nseed = 3\n'
TENANT = '[[tenant]]\nname = "x"\n'
STREAM = (
    '[[traffic]]\ntenant = "x"\nend_s = 100\nrate_per_s = 10\n'
    "prompt_tokens = [10, 20]\noutput_tokens = 5\n"
)
WHOLE = """
name = "noisy"
title = "One of many"
seed = 5
policy = "fcfs"
hardware = "a10g-llama2-7b"

[limits]
slots = 40

[policies]
quantum_tokens = 256

[[pool]]
name = "main"
replicas = 2
[[pool]]
name = "big"
limits = { slots = 4 }

[tenants]
count = 1000
prefix = "t"
zipf = 1.2
rpm = 600
slo = { ttft_s = 2.0 }

[[tenant]]
name = "acme"
pool = "big"
tier = 1
adapters = ["acme-contracts"]

[adapters]
count = 30
ranks = [8, 16]
zipf = 1.0
prefix = "a"
targets = "attention"

[[adapter]]
name = "acme-contracts"
rank = 64

[[traffic]]
tenants = "t"
adapters = "a"
adapters_by = "tenant"
end_s = 600
rate_per_s = 50
spacing = "gamma"
cv = 2
prompt_tokens = { median = 100, p95 = 900, most = 4000 }
output_tokens = { mean = 64, cv = 0.5 }

[[traffic]]
name = "drill"
tenant = "acme"
end_s = 600
rate_per_s = 1
spacing = "uniform"
on_off_s = [60, 60]
prompt_tokens = 256
output_tokens = { recorded = [10, 20] }

[[traffic]]
tenant = "acme"
end_s = 600
rate_per_s = 0.2
ramp_to_per_s = 2
prompt_tokens = 256
output_tokens = 256

[[incident]]
kind = "fan-out"
tenant = "acme"
adapters = ["acme-contracts"]
at_s = 300
duration_s = 60
rate_per_s = 4
prompt_tokens = [2000, 3000]
output_tokens = [16, 32]

[[fault]]
kind = "slow"
factor = 3
at_s = 100
duration_s = 60
[[fault]]
kind = "freeze"
at_s = 200
duration_s = 5
replica = 1
[[fault]]
kind = "lost"
at_s = 400
pool = "big"
"""


def read(tmp_path: Path, text: str):
    path = tmp_path / "workload.toml"
    path.write_text(text)
    return read_workload(path)


def test_a_whole_file_says_who_sends_what_when_and_what_goes_wrong(tmp_path):
    w = read(tmp_path, WHOLE)
    assert len(w.tenants) == 1001
    bulk = w.tenants[-1]
    assert (bulk.name, bulk.rpm, bulk.slo.ttft_s) == ("t999", 600, 2.0)
    assert Counter(a.rank for a in w.adapters) == {8: 15, 16: 15, 64: 1}
    assert Counter(a.targets for a in w.adapters) == {"attention": 30, "all": 1}
    assert [(p.name, p.replicas, p.limits.slots) for p in w.pools] == [
        ("main", 2, 40),
        ("big", 1, 4),
    ]
    assert w.policy == "fcfs"
    assert w.knobs.quantum_tokens == 256
    assert (w.calm_s, w.incident_s, w.suspect, w.end_s) == (300.0, 300.0, "acme", 600.0)
    assert w.faults == (
        Fault("slow", 100.0, 60.0, 3.0),
        Fault("freeze", 200.0, 5.0, replica=1),
        Fault("lost", 400.0, float("inf"), pool="big"),
    )


def test_the_file_draws_what_it_says(tmp_path):
    drawn = list(read(tmp_path, WHOLE).stream())
    crowd = [a for a in drawn if a.tenant != "acme"]
    assert len(crowd) == pytest.approx(30_000, rel=0.06)
    assert all(int(a.tenant[1:]) % 30 == int(a.adapter[1:]) for a in crowd)
    flood = [a for a in drawn if a.prompt_tokens >= 2000 and a.tenant == "acme"]
    assert len(flood) == 239  # 4/s for 60 s, evenly, the end excluded
    assert all(300 < a.at_s < 360 and a.adapter == "acme-contracts" for a in flood)


def test_a_preset_gives_the_limits_that_the_file_leaves_out(tmp_path):
    w = read(tmp_path, WHOLE)
    assert w.limits.slots == 40
    assert w.limits.pool_bytes == PRESETS["a10g-llama2-7b"].limits.pool_bytes
    assert w.hardware == "a10g-llama2-7b"


def test_an_incident_changes_nothing_of_the_everyday_traffic(tmp_path):
    everyday = [a for a in read(tmp_path, WHOLE).stream() if a.tenant != "acme"]
    start, end = WHOLE.index("[[incident]]"), WHOLE.index("[[fault]]")
    calm = read(tmp_path, WHOLE[:start] + WHOLE[end:])
    assert [a for a in calm.stream() if a.tenant != "acme"] == everyday
    assert (calm.calm_s, calm.incident_s, calm.suspect) == (600.0, 0.0, None)


def test_recorded_instants_and_lengths_are_read_from_files_beside_the_workload(tmp_path):
    (tmp_path / "at.txt").write_text("# seconds\n0.5\n\n2\n2.0\n")
    (tmp_path / "lengths.txt").write_text("7\n8\n9\n")
    text = STREAM.replace("rate_per_s = 10", 'spacing = "recorded"\ntimes_file = "at.txt"')
    text = text.replace("[10, 20]", '{ file = "lengths.txt" }')
    drawn = list(read(tmp_path, HEAD + TENANT + text).stream())
    assert [(a.at_s, a.prompt_tokens) for a in drawn] == [(0.5, 7), (2.0, 8), (2.0, 9)]


def test_the_sample_incident_is_still_read(tmp_path):
    w = read_workload(incident_path("five-pm-fanout") / "workload.toml")
    drawn = w.arrivals(0, 80)
    flood = [a for a in drawn if a.adapter == "acme-contracts"]
    assert len(flood) == 35  # 1.8/s from 40 s to 60 s
    assert {a.prompt_tokens // 100 for a in flood} <= {9, 10, 11, 12}
    assert w.suspect == "acme"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("rate_per_s = 10", 'rate_per_s = 10\nspacing = "often"'),
            ["spacing", "'often'", "gamma"],
        ),
        (("rate_per_s = 10", 'rate_per_s = 10\nspacing = "gamma"'), ["cv is missing"]),
        (("rate_per_s = 10", 'rate_per_s = 1\nspacing = "gamma"\ncv = 0'), ["cv = 0", ">= 0.01"]),
        (("rate_per_s = 10", "rate_per_s = 10\ncv = 2"), ["cv = 2", 'goes with spacing = "gamma"']),
        (("rate_per_s = 10", "rate_per_s = 1\non_off_s = [0, 5]"), ["on_off_s", "seconds on > 0"]),
        (("rate_per_s = 10", "rate_per_s = 1\non_off_s = [5]"), ["on_off_s", "2 numbers"]),
        (("rate_per_s = 10", "rate_per_s = 0\nramp_to_per_s = 0"), ["ramp_to_per_s", "above 0"]),
        (
            ("rate_per_s = 10", "rate_per_s = 1\nramp_to_per_s = 2\non_off_s = [1, 1]"),
            ["at most one of"],
        ),
        (("rate_per_s = 10", 'spacing = "recorded"'), ["times_s", "times_file"]),
        (("rate_per_s = 10", "rate_per_s = 1e30"), ["rate_per_s = 1e+30", "<= 1000000"]),
        (("rate_per_s = 10", "rate_per_s = 1\nramp_to_per_s = 2e9"), ["ramp_to_per_s = 2", "<="]),
        (("rate_per_s = 10", 'rate_per_s = 1\nspacing = "gamma"\ncv = 1e-300'), ["cv = 1e-300"]),
        (("rate_per_s = 10", "rate_per_s = 1\ntimes_s = [1]"), ["times_s", '"recorded"']),
        (
            ("rate_per_s = 10", 'spacing = "recorded"\ntimes_s = [200]'),
            ["times_s", "200 s after the stream begins", "lasts 100 s"],
        ),
        (("end_s = 100", "end_s = 1e300"), ["end_s = 1e+300", "<= 31622400"]),
        (("seed = 3", "seed = -1"), ["seed = -1", ">= 0"]),
        (("seed = 3", "seed = 3\nbucket_s = 1e-300"), ["bucket_s = 1e-300", ">= 0.01"]),
        (("seed = 3", "seed = 3\nreference_step_s = 1e9"), ["reference_step_s", "<= 3600"]),
        (("seed = 3", "seed = 3\nseed = 4"), ["seed = 4", "twice", "keep one"]),
        (
            ("rate_per_s = 10", 'spacing = "recorded"\ntimes_s = [2, 1]'),
            ["times_s", "instant 2 = 1 comes before 2"],
        ),
        (
            ("rate_per_s = 10", 'spacing = "recorded"\ntimes_file = "none.txt"'),
            ["times_file", "'none.txt'", "no such file"],
        ),
        (("[10, 20]", "[20, 10]"), ["prompt_tokens", "low <= high"]),
        (("[10, 20]", '"many"'), ["prompt_tokens = 'many'", "{ mean, cv }"]),
        (("[10, 20]", "0"), ["prompt_tokens = 0", ">= 1"]),
        (("[10, 20]", "{ cv = 1 }"), ["[prompt_tokens]", "expected one of mean"]),
        (("[10, 20]", "{ mean = 10 }"), ["[prompt_tokens]", "cv is missing"]),
        (("[10, 20]", "{ median = 10, p95 = 5 }"), ["p95 = 5", ">= 10"]),
        (("[10, 20]", "{ recorded = [] }"), ["recorded = []", "whole numbers >= 1"]),
        (("[10, 20]", "{ mean = 9, cv = 1, p95 = 5 }"), ["unknown key 'p95'"]),
        (('tenant = "x"\nend', 'tenant = "y"\nend'), ["tenant = 'y'", "no [[tenant]]"]),
        (('tenant = "x"\nend', "end"), ["either tenant or tenants"]),
        (('tenant = "x"\nend', 'tenants = "t"\nend'), ["tenants = 't'", "no [tenants] table"]),
        (("end_s = 100", 'end_s = 100\nadapters = "a"'), ["adapters = 'a'", "no [adapters] table"]),
        (("end_s = 100", 'end_s = 100\nadapters = ["b"]'), ["'b'", "no [[adapter]]"]),
        (("end_s = 100", "end_s = 100\nstart_s = 200"), ["end_s = 100", "more than start_s = 200"]),
        (("seed = 3", 'seed = 3\nhardware = "abacus"'), ["hardware = 'abacus'", "a10g-llama2-7b"]),
        (("seed = 3", 'seed = 3\npolicy = "luck"'), ["policy = 'luck'", "vtc"]),
        (("seed = 3", 'seed = 3\nsuspect = "nobody"'), ["suspect = 'nobody'"]),
        (("seed = 3", "seed = 3\nbuckets = 3"), ["unknown key 'buckets'", "did you mean"]),
        (('name = "x"', 'name = "x"\nadapters = ["q"]'), ["tenant 'x' lists adapter 'q'"]),
        (('name = "x"', 'name = "x"\npool = "p"'), ["tenant 'x'", "pool = 'p'"]),
        (('name = "x"', 'name = "x"\n[[tenant]]\nname = "x"'), ["[[tenant]]", "'x'"]),
    ],
)
def test_a_bad_workload_is_refused_by_file_key_and_value(tmp_path, change, words):
    good = HEAD + TENANT + STREAM
    assert change[0] in good
    read(tmp_path, good)
    with pytest.raises(WorkloadError) as e:
        read(tmp_path, good.replace(change[0], change[1], 1))
    for word in [str(tmp_path / "workload.toml"), *words]:
        assert word in str(e.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[tenants]\ncount = 0", ["[tenants]", "count = 0", ">= 1"]),
        ("[tenants]\ncount = 5\nname = 'n'", ["name = 'n'", "prefix"]),
        ("[tenants]\ncount = 5\nrpm = -1", ["rpm = -1", ">= 0"]),
        ("[tenants]\ncount = 5\nprefix = 'x'\n[[tenant]]\nname = 'x1'", ["'x1'"]),
        ("[adapters]\ncount = 2\nranks = [0]", ["ranks = [0]", "whole numbers >= 1"]),
        ("[adapters]\ncount = 2\nzipf = -1", ["zipf = -1", ">= 0"]),
        ("[adapters]\ncount = 2\ntargets = 'mlp'", ["targets = 'mlp'", "attention"]),
        ("[[fault]]\nkind = 'flood'\nat_s = 1", ["kind = 'flood'", "slow, freeze, lost"]),
        ("[[fault]]\nkind = 'slow'\nat_s = 1\nduration_s = 1", ["factor is missing"]),
        ("[[fault]]\nkind = 'freeze'\nat_s = 1", ["duration_s is missing"]),
        (
            "[[fault]]\nkind = 'slow'\nat_s = 1\nduration_s = 1\nfactor = 1e12",
            ["factor = 1000000000000.0", "> 1 and <= 1000"],
        ),
        ("[[fault]]\nkind = 'lost'\nat_s = 1\nfactor = 2", ["factor = 2", "kind = 'slow' only"]),
        ("[[fault]]\nkind = 'lost'\nat_s = 1\nreplica = 1", ["replica = 1", "replicas = 1"]),
        ("[[fault]]\nkind = 'lost'\nat_s = 1\npool = 'p'", ["pool = 'p'"]),
        ("[[incident]]\nkind = 'storm'\ntenant = 'x'", ["kind = 'storm'", "fan-out"]),
        ("[[incident]]\nkind = 'fan-out'\ntenant = 'x'\nat_s = 1", ["duration_s is missing"]),
    ],
)
def test_a_bad_table_is_refused_by_file_key_and_value(tmp_path, table, words):
    with pytest.raises(WorkloadError) as e:
        read(tmp_path, HEAD + TENANT + STREAM + table)
    for word in [str(tmp_path / "workload.toml"), *words]:
        assert word in str(e.value)


def test_a_workload_without_traffic_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match="nothing would arrive"):
        read(tmp_path, HEAD + TENANT)
