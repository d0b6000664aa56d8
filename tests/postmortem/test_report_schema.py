"""The JSON form is what its published schema says, whatever is in the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postmortem.report import json as as_json
from postmortem.report.parts import Prevented, Replayed
from postmortem.report.schema import schema
from tests.postmortem.test_report import NASTY, incident, report_of
from tests.telemetry.synthetic_rows import Pool

PUBLISHED = Path(__file__).parents[2] / "docs" / "report.schema.json"
TYPES = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict,
    "array": list, "null": type(None),
}  # fmt: skip


def errors(value: Any, rule: dict[str, Any], root: dict[str, Any], at: str = "$") -> list[str]:
    """Where a value breaks the rules that the schema uses; others are an error themselves."""
    known = {"$ref", "anyOf", "type", "const", "enum", "properties", "required", "items",
             "additionalProperties", "prefixItems", "minItems", "maxItems", "description",
             "format", "$schema", "title", "$defs"}  # fmt: skip
    assert set(rule) <= known, set(rule) - known
    if "$ref" in rule:
        return errors(value, root["$defs"][rule["$ref"].rsplit("/", 1)[1]], root, at)
    if "anyOf" in rule:
        tried = [errors(value, r, root, at) for r in rule["anyOf"]]
        return [] if any(not t for t in tried) else min(tried, key=len)
    if "const" in rule and value != rule["const"]:
        return [f"{at} is not {rule['const']!r}"]
    if "enum" in rule and value not in rule["enum"]:
        return [f"{at} is none of {rule['enum']}"]
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(
        isinstance(value, TYPES[k]) and not (k != "boolean" and isinstance(value, bool))
        for k in kinds
    ):
        return [f"{at} is a {type(value).__name__}, expected {kinds}"]
    out: list[str] = []
    if isinstance(value, dict):
        out += [f"{at}.{k} is missing" for k in rule.get("required", ()) if k not in value]
        for k, v in value.items():
            own = rule.get("properties", {}).get(k, rule.get("additionalProperties", {}))
            out += [f"{at}.{k} is unknown"] if own is False else errors(v, own, root, f"{at}.{k}")
    if isinstance(value, list):
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
            out.append(f"{at} has {len(value)} items")
        rules = rule.get("prefixItems", ())
        for i, v in enumerate(value):
            out += errors(v, rules[i] if i < len(rules) else rule.get("items", {}), root,
                          f"{at}[{i}]")  # fmt: skip
    return out


def body(report: Any) -> Any:
    def none(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    return json.loads(as_json.render(report), parse_constant=none)


def scenes() -> list[tuple[str, Any]]:
    silent = Pool().calm(0, 10).flood(10, 12).flood(14, 16)
    row = Replayed("cap", "limit", 0, 9, 0.1, None, 1.0, 3, 9.0, True, None)
    replayed = Prevented("remedy", "s", True, "t", (row,), "cap", "[x]", None, "c", ("n",))
    whole = report_of(incident(), 8, 18)
    return [
        ("incident", whole),
        ("quiet", report_of(Pool().calm(0, 20), 10, 20)),
        ("gap", report_of(silent, 8, 16)),
        ("no baseline", report_of(Pool().calm(0, 2).flood(2, 8), 2, 8)),
        ("odd names", report_of(incident(NASTY[-1], (NASTY[0], NASTY[4], "w")), 8, 18)),
        ("replayed", replace(whole, prevented=replayed)),
    ]


@pytest.mark.parametrize(("name", "report"), scenes(), ids=lambda x: x if type(x) is str else "")
def test_every_report_is_what_the_schema_says(name: str, report: Any):
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert errors(body(report), published, published) == []


def test_the_published_schema_is_the_codes_own():
    """If not: python docs/make_report_schema.py"""
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == schema()


def test_the_check_itself_finds_what_is_wrong():
    rules = schema()
    good = body(report_of(incident(), 8, 18))
    for change in ({"pool": 3}, {"start": "now"}, {"extra": 1}, {"impact": [{}]}, {"format": 1}):
        assert errors(good | change, rules, rules)
    assert errors({k: v for k, v in good.items() if k != "verdict"}, rules, rules)
