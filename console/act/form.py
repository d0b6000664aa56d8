"""The form of one act: what is typed, how far it has got, what a key does to it. Pure.

It goes from typing over a trial (the engine says what it would change) to the act itself. A key
gives a new form and what is to be sent, if anything; the clock and the engines are elsewhere.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from console.act.values import NO_LIMIT, TIERS, Answer, Change, EngineState, Looked, No, Order

USUAL_SPAN = "15m"
PERMANENT = "permanent"
LONGEST_TEXT = 200
_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhd])", re.ASCII)
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
SPAN, REASON = "for", "reason"  # keys of the fields that are no value of the change


class Stage(enum.Enum):
    TYPING = "typing"
    TRYING = "trying"  # asked what it would do
    TRIED = "tried"  # said what it would do
    DOING = "doing"
    DONE = "done"
    MOVED = "moved"  # somebody else was faster: offered again


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the form: what holds now, what is typed. `choices`: one of these instead."""

    key: str
    now: str = ""
    typed: str = ""
    hint: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aim:
    """One engine as the look showed it that the form speaks of: its version, and the changes that
    were there, with their states."""

    address: str
    engine: str
    version: int
    seen: frozenset[tuple[int, str]] = frozenset()

    @classmethod
    def of(cls, state: EngineState) -> Aim:
        return cls(state.address, state.engine, state.version, state.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """`aims` are the engines it is about. `once`: it leaves nothing that could revert."""

    method: str
    title: str
    tenant: str = ""
    fields: tuple[Field, ...] = ()
    at: int = 0
    stage: Stage = Stage.TYPING
    aims: tuple[Aim, ...] = ()
    once: bool = False
    expected: str = ""
    trouble: str = ""
    answers: tuple[Answer, ...] = ()
    meanwhile: tuple[Change, ...] = ()
    what_if: str = ""

    def value(self, key: str) -> str:
        return next((f.typed.strip() for f in self.fields if f.key == key), "")

    def read(self, key: str) -> str:
        """As `value`; empty where it cannot be read: half a number is no value yet."""
        return next((f.typed.strip() for f in self.fields if f.key == key and not wrong(f)), "")

    @property
    def changed(self) -> tuple[tuple[str, str], ...]:
        """The values that were typed."""
        return tuple(
            (f.key, f.typed.strip())
            for f in self.fields
            if f.key not in (SPAN, REASON) and f.typed.strip()
        )


class Send(enum.Enum):
    """What a key wants done beside changing the form."""

    NOTHING = 0
    TRY = 1
    DO = 2
    CLOSE = 3


def press(form: Form, key: str, character: str | None) -> tuple[Form, Send]:
    """A key, by Textual's name, and what it prints, if anything."""
    if form.stage is Stage.TYPING:
        return _typing(form, key, character)
    if key == "escape":
        back = form.stage in (Stage.TRIED, Stage.MOVED) and bool(form.fields)
        if back:
            return replace(form, stage=Stage.TYPING, answers=(), meanwhile=()), Send.NOTHING
        return form, Send.CLOSE
    if key == "enter":
        if form.stage is Stage.TRIED:
            return replace(form, stage=Stage.DOING), Send.DO
        if form.stage is Stage.MOVED:
            return replace(form, stage=Stage.TRYING, meanwhile=()), Send.TRY
        if form.stage is Stage.DONE:
            return form, Send.CLOSE
    return form, Send.NOTHING


def _typing(form: Form, key: str, character: str | None) -> tuple[Form, Send]:
    if key == "escape":
        return form, Send.CLOSE
    if key == "enter":
        if trouble := problem(form):
            return replace(form, trouble=trouble), Send.NOTHING
        return replace(form, stage=Stage.TRYING, trouble="", answers=()), Send.TRY
    if key in ("down", "tab"):
        return _to(form, form.at + 1), Send.NOTHING
    if key in ("up", "shift+tab"):
        return _to(form, form.at - 1), Send.NOTHING
    if not form.fields:
        return form, Send.NOTHING
    field = form.fields[form.at]
    if field.choices:
        by = {"left": -1, "right": 1, "space": 1}.get(key, 0)
        return (_chosen(form, field, by) if by else form), Send.NOTHING
    if key == "backspace":
        return typed(form, field.typed[:-1]), Send.NOTHING
    if key == "ctrl+u":
        return typed(form, ""), Send.NOTHING
    if character is not None and character.isprintable():
        return typed(form, field.typed + character), Send.NOTHING
    return form, Send.NOTHING


def pasted(form: Form, text: str) -> Form:
    """Text from the clipboard: of one line, what can be printed."""
    if form.stage is not Stage.TYPING or not form.fields or form.fields[form.at].choices:
        return form
    line = "".join(c for c in text.split("\n")[0] if c.isprintable())
    return typed(form, form.fields[form.at].typed + line)


def typed(form: Form, text: str) -> Form:
    """The field under the cursor says `text` now; what was wrong may be right."""
    fields = list(form.fields)
    fields[form.at] = replace(fields[form.at], typed=text[:LONGEST_TEXT])
    return replace(form, fields=tuple(fields), trouble="")


def _to(form: Form, at: int) -> Form:
    return replace(form, at=at % len(form.fields)) if form.fields else form


def _chosen(form: Form, field: Field, by: int) -> Form:
    at = field.choices.index(field.typed) if field.typed in field.choices else 0
    return typed(form, field.choices[(at + by) % len(field.choices)])


# -- what is typed, read


def span_s(text: str) -> float | None:
    """`90s`, `15m`, `4h`, `2d` as seconds; None for what is none."""
    found = _SPAN.fullmatch(text.strip())
    seconds = float(found[1]) * _UNIT_S[found[2]] if found else 0.0
    return seconds or None


def problem(form: Form) -> str:
    """What keeps the form from being sent, with what to write instead; empty: nothing."""
    for f in form.fields:
        if trouble := wrong(f):
            return trouble
    values = [f for f in form.fields if f.key not in (SPAN, REASON)]
    if values and not form.changed:
        return f"nothing to change yet: write a new {' or '.join(f.key for f in values)}"
    if form.value(SPAN).lower() == PERMANENT and not form.value(REASON):
        return "a permanent change needs a reason"
    return ""


def wrong(field: Field) -> str:
    """What is wrong with what one field says; empty: nothing."""
    text = field.typed.strip()
    if field.key == SPAN:
        if text.lower() == PERMANENT or span_s(text) is not None:
            return ""
        return f"for {text!r}: write 90s, 15m, 4h or 2d, or {PERMANENT}"
    if not text or field.choices:
        return ""
    if field.key in ("rpm", "tpm", "concurrency"):
        whole = text.isascii() and text.isdigit()
        right = whole or text == NO_LIMIT
        return "" if right else f"{field.key} {text!r}: write a whole number, or {NO_LIMIT}"
    if field.key == "weight":
        right = _number(text) is not None and float(text) > 0.0
        return "" if right else f"weight {text!r}: write a number above 0"
    if field.key == "tier":
        right = text in TIERS.values() or (text.isascii() and text.isdigit())
        return "" if right else f"tier {text!r}: write {', '.join(TIERS.values())} or a number"
    return ""


def _number(text: str) -> float | None:
    plain = text.isascii() and text.replace(".", "", 1).isdigit()
    return float(text) if plain else None


def orders_of(form: Form, who: str, *, dry_run: bool) -> tuple[Order, ...]:
    """What is to be sent, one an engine. Only a form without a `problem`."""
    span = form.value(SPAN)
    permanent = span.lower() == PERMANENT
    adapter = form.value("adapter")
    return tuple(
        Order(
            address=aim.address,
            engine=aim.engine,
            method=form.method,
            tenant=form.tenant,
            adapter=adapter,
            values=tuple((k, v) for k, v in form.changed if k != "adapter"),
            who=who,
            why=form.value(REASON),
            if_version=aim.version,
            ttl_s=0.0 if form.once or permanent else span_s(span) or 0.0,
            permanent=permanent and not form.once,
            dry_run=dry_run,
        )
        for aim in form.aims
    )


# -- what is answered


def answered(form: Form, answers: Sequence[Answer], looked: Looked) -> Form:
    """The form after the engines' answers; `looked` is a look made since. A version that moved
    shows what was changed meanwhile, and the form speaks of the new version from then on."""
    trial = form.stage is Stage.TRYING
    moved = any(a.no is No.MOVED for a in answers)
    if moved and (trial or not any(a.ok for a in answers)):
        return speaking_of(
            replace(form, stage=Stage.MOVED, answers=tuple(answers),
                    meanwhile=since(form, looked.states)),
            looked.states,
        )  # fmt: skip
    if not trial:
        return replace(form, stage=Stage.DONE, answers=tuple(answers))
    bad = [a for a in answers if not a.ok]
    if bad:
        trouble = "; ".join(_refusal(a) for a in bad)
        stage = Stage.TYPING if form.fields else Stage.DONE
        return replace(form, stage=stage, trouble=trouble, answers=())
    return replace(form, stage=Stage.TRIED, answers=tuple(answers))


def _refusal(answer: Answer) -> str:
    if answer.why_not:
        return answer.why_not
    return "; ".join(f"{p.where}: {p.detail}" for p in answer.parts if not p.ok)


def since(form: Form, states: Sequence[EngineState]) -> tuple[Change, ...]:
    """Changes made, or ended, after the look that the form speaks of."""
    seen = {aim.address: aim.seen for aim in form.aims}
    return tuple(
        c
        for s in states
        if s.address in seen
        for c in s.changes
        if (c.number, c.state) not in seen[s.address]
    )


def speaking_of(form: Form, states: Sequence[EngineState]) -> Form:
    """The same form, of the versions in force now."""
    known = {s.address: Aim.of(s) for s in states}
    return replace(form, aims=tuple(known.get(aim.address, aim) for aim in form.aims))
