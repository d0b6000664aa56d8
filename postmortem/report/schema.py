"""The JSON Schema of a report, made from the types it is made of. Reads no report."""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from postmortem.report.json import INSTANTS, VERSION
from postmortem.report.model import Report

Schema = dict[str, Any]


def schema() -> Schema:
    """Draft 2020-12. Every key is there in every report; what is not known is null."""
    defs: dict[str, Schema] = {}
    body = _object(Report, defs)
    verdict = defs["Verdict"]
    verdict["properties"]["culprit"] = {"type": ["string", "null"]}
    verdict["required"].append("culprit")
    body["properties"] = {"format": {"const": VERSION}, **body["properties"]}
    body["required"].insert(0, "format")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **body,
        "title": "tenantscope postmortem report",
        "description": "Instants are unix seconds, with their ISO form in UTC beside them; "
        "durations are seconds; shares are of 1. Names of tenants are data: escape them.",
        "$defs": dict(sorted(defs.items())),
    }


def _object(kind: type[Any], defs: dict[str, Schema]) -> Schema:
    hints = get_type_hints(kind)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for f in fields(kind):
        properties[f.name] = _of(hints[f.name], defs)
        required.append(f.name)
        if f.name in INSTANTS and float in (hints[f.name], *get_args(hints[f.name])):
            # There beside an instant that is known.
            properties[f"{f.name}_utc"] = {"type": "string", "format": "date-time"}
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _of(hint: Any, defs: dict[str, Schema]) -> Schema:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        some = [_of(a, defs) for a in args if a is not type(None)]
        return {"anyOf": [*some, {"type": "null"}]} if type(None) in args else {"anyOf": some}
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": _of(args[0], defs)}
        return {
            "type": "array",
            "prefixItems": [_of(a, defs) for a in args],
            "minItems": len(args),
            "maxItems": len(args),
        }
    if origin is frozenset:
        return {"type": "array", "items": _of(args[0], defs)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(args[1], defs)}
    return _plain(hint, defs)


def _plain(hint: Any, defs: dict[str, Schema]) -> Schema:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [m.value for m in hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in defs:
            defs[hint.__name__] = {}  # a type may hold itself
            defs[hint.__name__].update(_object(hint, defs))
        return {"$ref": f"#/$defs/{hint.__name__}"}
    simple = {str: "string", bool: "boolean", int: "integer"}
    if hint in simple:
        return {"type": simple[hint]}
    if hint is float:
        return {"type": ["number", "null"]}  # one that is not finite is null
    raise TypeError(f"a report holds {hint!r}, which has no form in JSON")
