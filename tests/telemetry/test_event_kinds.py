"""Events are of declared kinds and every kind is written somewhere: read from the code."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from telemetry.conventions import EVENT_KINDS
from telemetry.records import EventRecord
from telemetry.tables import TABLES

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "telemetry", "console", "postmortem")
# Methods that write an event of the kind given first.
WRITERS = ("event", "tell")
IDENTITY = {"engine", "run_id", "pool", "event_id", "at", "kind"}


def calls() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef | None, ast.Call]]:
    """(file, function around it, call) of every call in the code."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.stem.endswith(("_pb2", "_pb2_grpc")):
                continue
            stack: list = [(None, ast.parse(path.read_text()))]
            while stack:
                around, node = stack.pop()
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    around = node
                if isinstance(node, ast.Call):
                    yield path, around, node
                stack += [(around, child) for child in ast.iter_child_nodes(node)]


def kind_given(call: ast.Call) -> ast.expr | None:
    """What a call gives as an event's kind; None when it writes none."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    keyword = next((k.value for k in call.keywords if k.arg == "kind"), None)
    if name == EventRecord.__name__:
        return keyword
    if not isinstance(call.func, ast.Attribute) or name not in WRITERS:
        return None
    if isinstance(call.func.value, ast.Name) and call.func.value.id == "openai":
        return None  # an event of an answer's stream
    return call.args[0] if call.args else keyword


def written() -> tuple[dict[str, set[str]], list[str]]:
    """Kind -> files that write it, and the places that do not say which kind they write."""
    kinds: dict[str, set[str]] = defaultdict(set)
    unknown = []
    for path, around, call in calls():
        given = kind_given(call)
        if given is None:
            continue
        file = str(path.relative_to(ROOT))
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            kinds[given.value].add(file)
        elif isinstance(given, ast.Name) and around is not None and passes_on(around, given.id):
            pass  # its callers are read
        elif isinstance(given, ast.Name) and (named := constant(path, given.id)) is not None:
            kinds[named].add(file)
        else:
            unknown.append(f"{file}:{call.lineno}")
    return kinds, unknown


def passes_on(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    parameters = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
    return function.name in WRITERS and name in parameters


def constant(path: Path, name: str) -> str | None:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    value = getattr(module, name, None)
    return value if isinstance(value, str) else None


def test_the_code_writes_events_of_declared_kinds_only_and_all_of_them():
    kinds, unknown = written()
    assert not unknown, f"which kind of event is written there? {unknown}"
    assert set(kinds) == set(EVENT_KINDS), dict(kinds)


def test_a_kind_nobody_declared_would_be_seen():
    call = ast.parse("self._chronicle.event('surprise', 'text')", mode="eval").body
    assert isinstance(call, ast.Call)
    given = kind_given(call)
    assert isinstance(given, ast.Constant)
    assert given.value == "surprise" not in EVENT_KINDS


def test_a_kind_fills_columns_of_the_event_table_and_says_what_it_means():
    columns = set(TABLES["event"].column_names) - IDENTITY
    for name, kind in EVENT_KINDS.items():
        assert kind.name == name
        assert kind.meaning
        assert kind.fills
        assert set(kind.fills) <= columns
        assert len(set(kind.fills)) == len(kind.fills)
