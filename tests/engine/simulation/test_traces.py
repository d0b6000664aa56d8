"""Trace readers: every row is kept or accounted for, and what is made up is said."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from engine.errors import WorkloadError
from engine.simulation.popularity import Zipf
from engine.simulation.traces.reader import read_trace
from engine.simulation.traces.trace import TraceOptions
from tests.engine.simulation.data import DATA, needs_data

AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 18:17:03.9799600,4808,10\r\n"
    b"2023-11-16 18:17:04.0319601,3180,8\r\n"
    b"2023-11-16 18:17:05,110,27"
)
MOON = [
    {"timestamp": 2000, "input_length": 1200, "output_length": 5, "hash_ids": [0, 7, 8]},
    {"timestamp": 2000, "input_length": 1400, "output_length": 6, "hash_ids": [0, 7, 9]},
    {"timestamp": 3500, "input_length": 100, "output_length": 7, "hash_ids": [0]},
]
CLIENT = "0,0.5,1,Gamma,0.9,2.2\n600,2,3,Weibull,0.4,0.1\n1200,0,0,,0,0\n"
LENGTHS = {
    "0": {"input_tokens": "{}", "output_tokens": "{}"},
    "600": {"input_tokens": "{40: 0.25, 900: 0.75}", "output_tokens": "{7: 1.0}"},
}


def azure(tmp_path, text=AZURE):
    path = tmp_path / "azure.csv"
    path.write_bytes(text)
    return path


def moon(tmp_path, rows=MOON):
    path = tmp_path / "moon.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return path


def clients(tmp_path):
    folder = tmp_path / "clients"
    folder.mkdir()
    (folder / "chunk-3-trace.csv").write_text(CLIENT)
    (folder / "chunk-5-trace.csv").write_text(CLIENT)
    (folder / "chunk-3-dataset.json").write_text(json.dumps(LENGTHS))
    return folder


def closes(report):
    return report.read == report.kept + report.outside + sum(n for _, n in report.dropped)


def test_azure_stamps_keep_their_seventh_digit_and_the_last_line_needs_no_end(tmp_path):
    trace = read_trace(azure(tmp_path), "azure")
    drawn = list(trace)
    assert [(a.prompt_tokens, a.max_tokens) for a in drawn] == [(4808, 10), (3180, 8), (110, 27)]
    assert drawn[1].at_s == pytest.approx(0.0520001, abs=1e-9)
    assert drawn[2].at_s == pytest.approx(1.02004, abs=1e-9)
    assert trace.report.kept == 3


def test_tenants_that_the_trace_does_not_name_are_made_up_and_said(tmp_path):
    rows = b"".join(b"2023-11-16 18:17:04,10,1\r\n" for _ in range(5000))
    head = AZURE.split(b"\r\n")[0] + b"\r\n"
    trace = read_trace(azure(tmp_path, head + rows), "azure", TraceOptions(tenants=4, zipf=1.0))
    seen = Counter(a.tenant for a in trace)
    assert trace.tenants == ("t0", "t1", "t2", "t3")
    for name, share in zip(trace.tenants, Zipf(4, 1.0).shares, strict=True):
        assert seen[name] / 5000 == pytest.approx(share, abs=0.03)
    assert "made up" in "\n".join(trace.report.lines())


def test_reading_again_gives_the_same_and_another_seed_does_not(tmp_path):
    trace = read_trace(azure(tmp_path), "azure")
    assert list(trace) == list(trace)
    other = read_trace(azure(tmp_path), "azure", TraceOptions(seed=1))
    assert [a.seed for a in other] != [a.seed for a in trace]


@pytest.mark.parametrize(
    ("line", "reason", "words"),
    [
        (b"yesterday,1,1", "unreadable", ["TIMESTAMP = 'yesterday'", "2023-11-16"]),
        (b"2023-13-16 18:17:05,1,1", "unreadable", ["TIMESTAMP"]),
        (b"2023-11-16 18:17:05,many,1", "unreadable", ["ContextTokens = 'many'"]),
        (b"2023-11-16 18:17:05,0,1", "no tokens", ["ContextTokens = 0", "at least 1"]),
        (b"2023-11-16 18:17:05,1", "unreadable", ["2 columns", "expected 3"]),
        (b"2023-11-16 18:00:00,1,1", "out of order", ["comes after"]),
    ],
)
def test_a_bad_row_is_counted_and_named_by_its_line(tmp_path, line, reason, words):
    path = azure(tmp_path, AZURE + b"\r\n" + line + b"\r\n2023-11-16 18:17:06,1,1\r\n")
    trace = read_trace(path, "azure")
    assert len(list(trace)) == 4
    report = trace.report
    assert report.dropped == ((reason, 1),)
    assert closes(report)
    for word in [f"{path}: line 5", *words]:
        assert word in report.examples[0]
    with pytest.raises(WorkloadError, match="line 5"):
        list(read_trace(path, "azure", TraceOptions(strict=True)))


def test_rows_that_are_too_long_are_dropped_or_cut_and_counted(tmp_path):
    path = azure(tmp_path)
    dropping = read_trace(path, "azure", TraceOptions(max_prompt_tokens=1000, max_output_tokens=20))
    assert list(dropping) == []
    assert dropping.report.dropped == (("output too long", 1), ("prompt too long", 2))
    cutting = read_trace(
        path, "azure", TraceOptions(max_prompt_tokens=1000, max_output_tokens=20, over="cap")
    )
    assert [(a.prompt_tokens, a.max_tokens) for a in cutting] == [(1000, 10), (1000, 8), (110, 20)]
    assert (cutting.report.capped_prompts, cutting.report.capped_outputs) == (2, 1)
    assert closes(dropping.report)
    assert closes(cutting.report)


def test_a_window_of_a_trace_starts_at_zero_and_may_run_faster(tmp_path):
    trace = read_trace(azure(tmp_path), "azure", TraceOptions(start_s=0.5, end_s=2.0, speed=2.0))
    drawn = list(trace)
    assert len(drawn) == 1
    assert drawn[0].at_s == pytest.approx((1.02004 - 0.5) / 2, abs=1e-9)
    assert trace.report.outside == 2


def test_a_trace_is_read_as_it_is_asked_for(tmp_path):
    path = azure(tmp_path, AZURE + b"\r\n2023-11-16 18:17:06,bad,1\r\n")
    trace = read_trace(path, "azure", TraceOptions(strict=True))
    first = iter(trace)
    assert next(first).prompt_tokens == 4808
    assert trace.report.kept == 1, "the bad line at the end has not been met"


def test_mooncake_conversations_keep_their_prefix_and_their_tenant(tmp_path):
    trace = read_trace(moon(tmp_path), "mooncake", TraceOptions(tenants=1000, zipf=0.0))
    one, two, three = trace
    assert (one.at_s, two.at_s, three.at_s) == (0.0, 0.0, 1.5)
    assert one.prefix == (0, 7, 8)
    assert one.tenant == two.tenant, "their second block is the same"
    assert three.tenant != one.tenant
    assert any("conversation" in n for n in trace.report.notes)


def test_a_prompt_that_is_cut_keeps_only_the_blocks_it_still_has(tmp_path):
    trace = read_trace(moon(tmp_path), "mooncake", TraceOptions(max_prompt_tokens=600, over="cap"))
    assert [a.prefix for a in trace] == [(0, 7), (0, 7), (0,)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", ["no JSON"]),
        ("[1]", ["JSON object"]),
        ({**MOON[2], "timestamp": "now"}, ["timestamp = 'now'"]),
        ({**MOON[2], "input_length": 1.5}, ["input_length = 1.5"]),
        ({**MOON[2], "output_length": None}, ["output_length = None"]),
        ({**MOON[2], "hash_ids": ["a"]}, ["hash_ids"]),
    ],
)
def test_a_bad_json_row_is_counted_and_named_by_its_line(tmp_path, row, words):
    trace = read_trace(moon(tmp_path, [*MOON, row]), "mooncake")
    assert len(list(trace)) == 3
    for word in ["line 4", *words]:
        assert word in trace.report.examples[0]


def test_vtc_clients_are_their_adapters_and_rejected_requests_were_offered(tmp_path):
    path = tmp_path / "run.jsonl"
    row = {"prompt_len": 256, "output_len": 250, "first_token_latency": 1.0}
    responses = [
        {**row, "adapter_dir": "b", "req_time": 3.0},
        {**row, "adapter_dir": "a", "req_time": 1.0, "first_token_latency": -1},
        {**row, "adapter_dir": "a", "req_time": None},
    ]
    path.write_text(json.dumps({"result": {"responses": responses}}))
    trace = read_trace(path, "vtc")
    assert [(a.at_s, a.tenant) for a in trace] == [(1.0, "a"), (3.0, "b")]
    assert trace.tenants == ("a", "b")
    assert any(n.startswith("1 were rejected") for n in trace.report.notes)
    assert "response 3: req_time = None" in trace.report.examples[0]


def test_servegen_windows_have_the_count_of_the_trace_and_its_lengths(tmp_path):
    trace = read_trace(clients(tmp_path), "servegen")
    drawn = list(trace)
    for client in ("client-3", "client-5"):
        own = [a for a in drawn if a.tenant == client]
        assert sum(a.at_s < 600 for a in own) == 300
        assert sum(600 <= a.at_s < 1200 for a in own) == 1200
        assert {a.prompt_tokens for a in own} == {40, 900}
        assert sum(a.prompt_tokens == 900 for a in own) / len(own) == pytest.approx(0.75, abs=0.05)
        assert {a.max_tokens for a in own} == {7}
    assert [a.at_s for a in drawn] == sorted(a.at_s for a in drawn)
    notes = "\n".join(trace.report.notes)
    assert "seed 0" in notes
    assert "5 from 3" in notes


def test_a_servegen_client_draws_the_same_alone_and_in_company(tmp_path):
    folder = clients(tmp_path)
    whole = [a for a in read_trace(folder, "servegen") if a.tenant == "client-5"]
    alone = list(read_trace(folder, "servegen", TraceOptions(clients=(5,))))
    late = list(read_trace(folder, "servegen", TraceOptions(clients=(5,), start_s=600.0)))
    shape = [(a.at_s, a.prompt_tokens) for a in whole]
    assert [(a.at_s, a.prompt_tokens) for a in alone] == shape
    assert [a.prompt_tokens for a in late] == [p for at, p in shape if at >= 600]


@pytest.mark.parametrize("text", ["__import__('os').getcwd()", "{1: 2}", "[]", "{'a': 1.0}", "{"])
def test_what_a_dataset_says_is_data_and_is_never_run(tmp_path, text):
    folder = clients(tmp_path)
    bad = {"0": {"input_tokens": text, "output_tokens": "{7: 1.0}"}}
    (folder / "chunk-5-dataset.json").write_text(json.dumps(bad))
    with pytest.raises(WorkloadError, match="chunk-5-dataset"):
        read_trace(folder, "servegen")


def test_a_bad_servegen_window_is_counted_and_named_by_its_line(tmp_path):
    folder = clients(tmp_path)
    (folder / "chunk-5-trace.csv").write_text("0,1,1,Cauchy,1,1\n600,1,1,Gamma\nx,1,1,Gamma,1,1\n")
    trace = read_trace(folder, "servegen", TraceOptions(clients=(5,)))
    assert list(trace) == []
    assert trace.report.dropped == (("unreadable window", 3),)
    assert "line 1: family 'Cauchy'" in trace.report.examples[0]


@pytest.mark.parametrize(
    ("form", "options", "words"),
    [
        ("csv", {}, ["'csv'", "azure, mooncake, servegen, vtc"]),
        ("servegen", {}, ["a folder"]),
        ("mooncake", {"over": "bend"}, ["over = 'bend'", "drop, cap"]),
        ("mooncake", {"speed": 0.0}, ["speed = 0.0", "> 0"]),
        ("mooncake", {"start_s": 5.0, "end_s": 5.0}, ["end_s = 5.0", "more than start_s = 5"]),
        ("mooncake", {"tenants": 0}, ["tenants = 0"]),
        ("mooncake", {"max_prompt_tokens": 0}, ["max_prompt_tokens = 0"]),
        ("vtc", {}, ["line 1", "result.responses"]),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_allowed(tmp_path, form, options, words):
    with pytest.raises(WorkloadError) as e:
        read_trace(moon(tmp_path), form, TraceOptions(**options))
    for word in words:
        assert word in str(e.value)


def test_a_file_of_another_format_is_refused_at_its_first_line(tmp_path):
    with pytest.raises(WorkloadError, match="line 1: expected the columns TIMESTAMP"):
        list(read_trace(moon(tmp_path), "azure"))
    with pytest.raises(WorkloadError, match="no such file"):
        read_trace(tmp_path / "none.csv", "azure")


def test_a_client_that_is_not_there_is_refused_with_those_who_are(tmp_path):
    with pytest.raises(WorkloadError, match=r"chunk-9-trace.csv; clients with a trace: 3, 5"):
        read_trace(clients(tmp_path), "servegen", TraceOptions(clients=(9,)))


@needs_data
@pytest.mark.parametrize(
    ("form", "path", "rows"),
    [
        ("azure", "azure_llm_2023/AzureLLMInferenceTrace_code.csv", 8819),
        ("azure", "azure_llm_2023/AzureLLMInferenceTrace_conv.csv", 19366),
        ("mooncake", "mooncake/conversation_trace.jsonl", 12031),
        ("vtc", "vtc_synthetic/VTC_overload.jsonl", 1620),
        ("vtc", "vtc_synthetic/FCFS_overload.jsonl", 2700),
    ],
)
def test_the_published_traces_are_read_whole(form, path, rows):
    trace = read_trace(DATA / path, form)
    drawn = list(trace)
    assert len(drawn) == rows == trace.report.kept == trace.report.read
    assert trace.report.dropped == ()
    assert {a.tenant for a in drawn} <= set(trace.tenants)


@needs_data
def test_mooncake_has_prompts_beyond_most_contexts():
    path = DATA / "mooncake" / "conversation_trace.jsonl"
    trace = read_trace(path, "mooncake", TraceOptions(max_prompt_tokens=100_000))
    drawn = list(trace)
    assert dict(trace.report.dropped)["prompt too long"] == 12031 - len(drawn) > 0
    assert all(a.prefix is not None and len(a.prefix) == -(-a.prompt_tokens // 512) for a in drawn)


@needs_data
@pytest.mark.parametrize(
    ("client", "start_s", "before", "after"),
    [(116, 597000.0, 482, 40291), (73, 417600.0, 7301, 114812)],
)
def test_servegens_noisy_neighbours_start_when_the_trace_says(client, start_s, before, after):
    trace = read_trace(
        DATA / "servegen" / "m-large",
        "servegen",
        TraceOptions(start_s=start_s - 600, end_s=start_s + 600, clients=(client,)),
    )
    at = [a.at_s for a in trace]
    assert sum(t < 600 for t in at) == before
    assert sum(t >= 600 for t in at) == after
