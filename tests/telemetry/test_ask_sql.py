"""A person's SELECT: what is answered, what is refused, and where it is cut off."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

from console.cli import FAILED, INTERRUPTED, OK, USAGE, invoke
from telemetry.ask import ask_sql, one_select
from telemetry.errors import QueryError, StoreBusy, StoreError
from telemetry.service.process import StoreServer
from telemetry.source import (
    FileSource,
    LiveSource,
    MemorySource,
    Source,
    StoreSource,
    open_source,
)
from telemetry.store.store import Store
from telemetry.tables import TABLES
from tests.telemetry.delivered import (
    DAY_S,
    ODD_NAMES,
    T0,
    batch,
    deliver,
    engine_minute,
    minute,
    request,
    until,
)


def rows() -> list[Any]:
    return [
        *(minute(name, output_tokens=i, ttft=tuple(range(21))) for i, name in enumerate(ODD_NAMES)),
        minute("a", T0 + DAY_S, output_tokens=100),
        engine_minute(steps=1),
        *(request(n, T0 + n) for n in range(30)),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two days, the first one closed."""
    path = tmp_path_factory.mktemp("sql") / "store"
    with Store.open(path) as store:
        deliver(store, batch(*rows()))
        store.close_day("2027-01-15")
    return path


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    path = tmp_path_factory.mktemp("live")
    store = Store.open(path / "store")
    deliver(store, batch(*rows()))
    server = StoreServer(store, f"unix:{path}/s")
    server.start()
    yield server
    server.stop(0.2)


@pytest.fixture(params=["files", "live"])
def source(request: pytest.FixtureRequest, folder: Path, live: StoreServer) -> Iterator[Source]:
    made = FileSource(folder) if request.param == "files" else LiveSource(live.address)
    yield made
    made.close()


def select(source: Source, text: str, most_rows: int = 1000, timeout_s: float = 20.0) -> Any:
    return source.query("sql", text=text, most_rows=most_rows, timeout_s=timeout_s)


def test_a_select_sees_every_day_open_and_closed(source: Source) -> None:
    found = select(source, "SELECT count(*), sum(output_tokens) FROM tenant_minute")
    assert found.rows == ((len(ODD_NAMES) + 1, 115),)


def test_odd_names_come_back_as_they_are(source: Source) -> None:
    found = select(source, "SELECT tenant FROM tenant_minute WHERE tenant <> 'a'")
    assert {name for (name,) in found.rows} == set(ODD_NAMES)


def test_every_table_of_the_vocabulary_can_be_named(source: Source) -> None:
    for name, table in TABLES.items():
        found = select(source, f"SELECT * FROM {name.upper()}")
        assert set(table.column_names) <= set(found.columns)


ANSWERED = [
    ("WITH t AS (SELECT 1 AS a UNION ALL SELECT 2) SELECT sum(a) FROM t", 3),
    ("WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r WHERE a < 5) "
     "SELECT max(a) FROM r", 5),
    ("SELECT count(*) FROM range(7)", 7),
    ("SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY tenant) AS n FROM tenant_minute)", 7),
    ("SELECT count(*) FROM request a JOIN request b USING (request_id)", 30),
    ("FROM (VALUES (4)) SELECT col0; -- a comment", 4),
    ("SELECT list_sum(list_transform([1, 2], lambda x: x + 1))", 5),
    ("SELECT count(*) FROM request WHERE EXISTS (SELECT 1 FROM engine_minute)", 30),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), ANSWERED)
def test_the_usual_forms_of_a_select_are_answered(source: Source, text: str, answer: int) -> None:
    assert select(source, text).rows == ((answer,),)


REFUSED = [
    ("SELECT 1; SELECT 2", "2 statements"),
    ("COMMIT; DROP TABLE tenant_minute", "nothing of this was run"),
    ("DROP TABLE tenant_minute", "DROP is refused"),
    ("COPY request TO '/tmp/out'", "COPY is refused"),
    ("ATTACH '/tmp/other.duckdb' AS other", "ATTACH is refused"),
    ("PRAGMA version", "PRAGMA is refused"),
    ("SET memory_limit = '64GB'", "SET is refused"),
    ("INSTALL httpfs", "INSTALL or LOAD is refused"),
    ("INSERT INTO request (tenant) VALUES ('x')", "INSERT is refused"),
    ("WITH x AS (DELETE FROM request RETURNING *) SELECT * FROM x", "DELETE inside a SELECT"),
    ("WITH x AS (INSERT INTO request (tenant) VALUES ('x') RETURNING *) FROM x", "INSERT inside"),
    ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN is refused"),
    ("PIVOT request ON tenant USING count(*)", "PIVOT is refused"),
    ("DESCRIBE request", "--schema"),
    ("SHOW TABLES", "--schema"),
    ("SELECT * FROM '/etc/passwd'", "no table /etc/passwd"),
    ("SELECT * FROM read_csv('/etc/passwd')", r"read_csv\(\) after FROM"),
    ("SELECT (SELECT content FROM read_text('/etc/passwd'))", r"read_text\(\) after FROM"),
    ("SELECT 1 ORDER BY (SELECT max(file) FROM glob('/*'))", r"glob\(\) after FROM"),
    ("SELECT * FROM query('SELECT 1')", r"query\(\) after FROM"),
    ("SELECT * FROM unnest([(SELECT 1 FROM read_text('/etc/passwd'))])", "read_text"),
    ("SELECT * FROM duckdb_settings()", "duckdb_settings"),
    ("SELECT * FROM information_schema.tables", "name the table alone"),
    ("SELECT * FROM \"2027-01-15\".request", "name the table alone"),
    # A name that WITH gives is known where it was given, and a file's name is a table elsewhere.
    ("SELECT * FROM '/etc/passwd' AS a, (WITH \"/etc/passwd\" AS (SELECT 1) FROM \"/etc/passwd\")",
     "no table /etc/passwd"),
    ("WITH \"/etc/passwd\" AS (FROM \"/etc/passwd\") FROM \"/etc/passwd\"", "no table /etc/passwd"),
    ("SELECT current_setting('memory_limit')", "current_setting"),
    ("SELECT getvariable('x')", "getvariable"),
    ("SELECT repeat('x', 1000000000)", "repeat"),
    ("SELECT len(range(1000000000))", "use it after FROM"),
    ("SELECT sleep_ms(10)", "sleep_ms"),
    ("SELECT pg_sleep(10)", "pg_sleep"),
    ("SELECT $x", "parameter"),
    ("SELECT ?", "parameter"),
    ("", "no SQL"),
    ("-- nothing", "no SQL"),
    ("SELECT (", "not SQL"),
    ("SELECT 'abc", "not SQL"),
    ("SELECT " + "[" * 400 + "]" * 400, "nested too deep"),
    ("SELECT " + "+".join(["1"] * 5000), "Max expression depth"),
    ("SELECT nobody FROM request", "nobody"),
    ("SELECT * FROM nobody", "no table nobody: there are tenant_minute"),
    ("SELECT CAST('a' AS INTEGER)", "Could not convert"),
    ("SELECT 1 -- \0", "NUL"),
    ("SELECT 1" + " " * one_select.MOST_CHARACTERS, "characters"),
]  # fmt: skip


@pytest.mark.parametrize("depth", [100, 250])
def test_a_deep_select_is_answered_or_refused_and_harms_nothing(source: Source, depth: int) -> None:
    for text in (
        "SELECT * FROM " + "(SELECT * FROM " * depth + "(SELECT 1)" + ")" * depth,
        "SELECT " + "(SELECT " * depth + "1" + ")" * depth,
        "SELECT " + "CASE WHEN true THEN " * depth + "1" + " END" * depth,
    ):
        try:
            said = str(select(source, text).rows)
        except QueryError as e:
            said = str(e)
        assert said == "((1,),)" or "too deep" in said or "depth" in said


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_anything_else_is_refused_in_a_sentence_and_changes_nothing(
    source: Source, text: str, says: str
) -> None:
    with pytest.raises(QueryError, match=says) as refused:
        select(source, text)
    assert "\n" not in str(refused.value)
    assert select(source, "SELECT count(*) FROM request").rows == ((30,),)


def test_no_function_of_duckdb_that_reads_files_or_settings_slips_through() -> None:
    """Whatever table functions DuckDB has, and gets, only the listed ones stand after FROM."""
    con = duckdb.connect()
    names = con.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE function_type IN ('table', 'table_macro')"
    ).fetchall()
    passed = set()
    for (name,) in names:
        try:
            one_select.check(con, f'SELECT * FROM "{name}"()')
        except QueryError:
            continue
        passed.add(name)
    con.close()
    assert len(names) > 50
    assert passed <= {"range", "generate_series", "unnest", "json_each", "json_tree"}


def test_a_sealed_connection_reads_no_other_file_even_unchecked(folder: Path) -> None:
    con = duckdb.connect()
    ask_sql.seal(con, folder)
    with pytest.raises(duckdb.PermissionException, match="disabled"):
        con.execute("SELECT * FROM read_text('/etc/passwd')")
    with pytest.raises(duckdb.InvalidInputException, match="locked"):
        con.execute("SET enable_external_access = true")
    con.close()


def test_a_question_that_never_ends_is_cut_off_by_time(source: Source) -> None:
    endless = "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) SELECT max(a) FROM r"
    with pytest.raises(StoreError, match=r"cut off after 0\.2 s.*narrow it") as cut:
        select(source, endless, timeout_s=0.2)
    assert not isinstance(cut.value, QueryError)
    assert select(source, "SELECT 1").rows == ((1,),)


def test_a_question_that_wants_all_memory_is_cut_off(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask_sql, "MEMORY_BYTES", 16 << 20)
    greedy = (
        "SELECT max(len(l)) FROM (SELECT list(a.range) AS l FROM range(4000) a, range(30000) b "
        "GROUP BY b.range % 7)"
    )
    with pytest.raises(StoreError, match=r"more than 16 MiB of memory"):
        select(source, greedy)
    assert select(source, "SELECT 1").rows == ((1,),)


def test_values_of_every_type_come_as_plain_ones(source: Source) -> None:
    found = select(
        source,
        "SELECT TIMESTAMP '2027-01-15 08:00:00.5', DATE '2027-01-15', 1.5::DECIMAL(9, 2), "
        "9223372036854775807::HUGEINT * 2, [1, 2], [1.5, NULL], {'a': 'b'}, NULL, true, "
        "'\\xAB'::BLOB, 1 AS x, 2 AS x, INTERVAL 90 SECOND",
    )
    assert found.rows == ((
        "2027-01-15T08:00:00.500000Z", "2027-01-15", 1.5, 2.0**64, (1, 2), "[1.5, null]",
        '{"a": "b"}', None, True, "ab", 1, 2, "0:01:30",
    ),)  # fmt: skip
    assert found.columns[10:12] == ("x", "x_2")


def test_memory_answers_like_a_store() -> None:
    source = MemorySource()
    assert select(source, "SELECT count(*) FROM request").rows == ((0,),)
    with pytest.raises(QueryError, match="DROP is refused"):
        select(source, "DROP TABLE request")
    source.close()


def test_parameters_of_another_client_are_checked(source: Source) -> None:
    for wrong in ({}, {"text": 1}, {"most_rows": 0}, {"most_rows": True}, {"timeout_s": 1e9}):
        given = {"text": "SELECT 1", "most_rows": 1, "timeout_s": 1.0} | wrong
        if not wrong:
            del given["text"]
        with pytest.raises(QueryError):
            source.query("sql", **given)


# --- the command ---------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = invoke(["sql", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_prints_a_table_json_or_csv(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "SELECT tenant, bucket_start, output_tokens AS first FROM tenant_minute ORDER BY first"
    code, out, err = run(capsys, "--store", str(folder), text)
    assert (code, err) == (OK, "")
    assert "2027-01-15T08:00:00Z" in out
    assert "\\t" in out  # a name's tab is escaped
    assert "\t" not in out
    code, out, _ = run(capsys, "--store", str(folder), "--format", "json", text)
    found = json.loads(out)
    assert [r["first"] for r in found] == [0, 1, 2, 3, 4, 5, 100]
    assert {r["tenant"] for r in found} == {*ODD_NAMES, "a"}
    code, out, _ = run(capsys, "--store", str(folder), "--format", "csv", text)
    assert out.splitlines()[0] == "tenant,bucket_start,first"


def test_what_the_limit_cuts_off_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "SELECT request_id FROM request"
    code, out, err = run(capsys, "--store", str(folder), "--limit", "29", "--json", text)
    assert (code, len(json.loads(out))) == (OK, 29)
    assert "cut off after 29 rows" in err
    code, out, err = run(capsys, "--store", str(folder), "--limit", "30", "--json", text)
    assert (code, len(json.loads(out)), err) == (OK, 30, "")


def test_json_has_no_nan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--store", str(folder), "--json", "SELECT 'nan'::DOUBLE AS x")
    assert (code, json.loads(out)) == (OK, [{"x": "nan"}])


def test_refusals_and_limits_have_their_exit_codes(
    folder: Path, live: StoreServer, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = "SELECT count(*) FROM range(10000000) a, range(10000000) b"
    for where in (("--store", str(folder)), ("--connect", live.address)):
        assert run(capsys, *where, "DROP TABLE request")[0] == USAGE
        code, out, err = run(capsys, *where, "--timeout-s", "0.2", endless)
        assert (code, out) == (FAILED, "")
        assert "cut off after 0.2 s" in err
    assert run(capsys, "SELECT 1")[0] == USAGE
    assert run(capsys, "--store", str(folder))[0] == USAGE


def test_ctrl_c_while_a_question_is_computed_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def heard(*_: object) -> None:  # what DuckDB makes of it
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(ask_sql, "_fetch", heard)
    code, out, err = run(capsys, "--store", str(folder), "SELECT 1")
    assert (code, out, err.strip()) == (INTERRUPTED, "", "interrupted")


def test_the_schema_lists_every_column_without_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--schema", "--format", "json")
    listed = [(r["table"], r["column"]) for r in json.loads(out)]
    assert listed == [(t.name, c.name) for t in TABLES.values() for c in t.columns]
    _, out, _ = run(capsys, "--schema")
    for table in TABLES.values():
        for column in table.columns:
            assert column.meaning in out


def test_a_day_file_and_a_parquet_file_are_asked_like_a_store(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day, closed = folder / "2027-01-16.duckdb", folder / "2027-01-15"
    copy = tmp_path / "any name.parquet"
    copy.write_bytes((closed / "request.parquet").read_bytes())
    for path, table, rows in (
        (day, "tenant_minute", 1), (day, "request", 0),
        (closed, "request", 30), (copy, "request", 30),
    ):  # fmt: skip
        source = open_source(path)
        assert select(source, f"SELECT count(*) FROM {table}").rows == ((rows,),)
        assert len(source.read(table, T0 - DAY_S, T0 + 2 * DAY_S)) == rows
        source.close()


def test_a_file_that_holds_something_else_says_so(tmp_path: Path) -> None:
    con = duckdb.connect(str(tmp_path / "x.duckdb"))
    con.execute("CREATE TABLE t AS SELECT 1 AS a")
    con.execute(f"COPY t TO '{tmp_path}/x.parquet'")
    con.close()
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    for name, says in (
        ("x.duckdb", "none of the tables"), ("x.parquet", "columns of no table"),
        ("torn.parquet", "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(StoreError, match=says):
            select(open_source(tmp_path / name), "SELECT 1")


# --- beside everything else ----------------------------------------------------------------------

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b"


def test_while_one_asks_for_long_others_are_answered_and_days_turn(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store, ThreadPoolExecutor(1) as pool:
        deliver(store, batch(*rows()))
        asked = {"text": ENDLESS, "most_rows": 1, "timeout_s": 600.0}
        answer = pool.submit(store.run, "sql", asked)
        until(lambda: bool(store._asking))
        assert len(store.run("read.request", {"start": T0, "end": T0 + 60}).rows) == 30
        deliver(store, batch(minute("b", T0 + 5 * DAY_S, output_tokens=1)))  # a new day's file
        store.close_day("2027-01-15")
        with pytest.raises(StoreBusy, match=r"closes or turns its day: ask again"):
            answer.result(timeout=30)
        assert select(StoreSource(store), "SELECT count(*) FROM request").rows == ((30,),)


def test_closing_a_store_cuts_a_long_question_off(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        store = Store.open(tmp_path / "store")
        answer = pool.submit(
            store.run, "sql", {"text": ENDLESS, "most_rows": 1, "timeout_s": 600.0}
        )
        until(lambda: bool(store._asking))
        store.close()
        with pytest.raises(StoreBusy, match="ask again"):
            answer.result(timeout=30)


def test_of_too_many_at_once_one_is_told_to_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask_sql, "_TURN_S", 0.01)
    with Store.open(tmp_path / "store") as store, ThreadPoolExecutor(ask_sql.AT_ONCE) as pool:
        asked = {"text": ENDLESS, "most_rows": 1, "timeout_s": 600.0}
        under_way = [pool.submit(store.run, "sql", asked) for _ in range(ask_sql.AT_ONCE)]
        until(lambda: len(store._asking) == ask_sql.AT_ONCE and not ask_sql._turns._value)
        with pytest.raises(StoreBusy, match="2 questions in SQL are being answered"):
            store.run("sql", asked)
        store.close()
        assert all(isinstance(a.exception(timeout=30), StoreBusy) for a in under_way)


def test_the_sql_can_come_from_stdin(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, code in ((b"SELECT 41 + 1 AS x", OK), (b"SELECT '\xff'", USAGE)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert run(capsys, "--store", str(folder), "--json", "-")[0] == code
