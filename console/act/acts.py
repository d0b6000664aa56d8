"""What an operator may do from the console, as data, and the form each begins with. Pure.

Opens nothing and sends nothing: a form, or the sentence why there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from console.act.form import REASON, SPAN, USUAL_SPAN, Aim, Field, Form, Stage
from console.act.values import (
    EngineState,
    Looked,
    TenantState,
    last_change,
    limit_word,
    tier_word,
)
from telemetry.plain import name as short


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that can be done. `method` is the service's; `values` are the form's fields."""

    key: str
    name: str
    method: str
    meaning: str
    values: tuple[str, ...] = ()
    once: bool = False


ACTS: tuple[Act, ...] = (
    Act("c", "cap", "SetTenant", "other limits for a tenant: requests and tokens a minute, at once",
        ("rpm", "tpm", "concurrency")),
    Act("w", "weight", "SetTenant", "another share, or another tier, for a tenant",
        ("weight", "tier")),
    Act("d", "drain", "DrainTenant", "let nothing new of a tenant in; where it drains: let it in "
        "again"),
    Act("u", "undo", "Undo", "take back the last change that is in force", (), True),
    Act("k", "preempt", "PreemptTenant", "what a tenant runs above its fair share waits again, "
        "once", (), True),
    Act("U", "unload", "UnloadAdapter", "let nobody name an adapter of a tenant any more",
        ("adapter",)),
    Act("M", "move", "MoveTenant", "a tenant into another pool, from its next request on",
        ("pool",)),
)  # fmt: skip
BY_NAME = {act.name: act for act in ACTS}


def form_of(act: Act, tenant: str | None, looked: Looked) -> Form | str:
    """The form to begin with; a sentence where there is nothing to do it on."""
    if act.name == "undo":
        return _undo(act, looked.states)
    if tenant is None:
        return f"{act.name}: choose a tenant first: up and down, or a click"
    states = looked.serving(tenant)
    if not states:
        return f"{act.name}: no engine that answers serves {short(tenant, 40)}"
    fields = tuple(_field(key, states, tenant) for key in act.values)
    if isinstance(lacking := _lacking(act, tenant, fields), str):
        return lacking
    first = states[0].tenant(tenant)
    resumes = act.name == "drain" and first is not None and first.draining
    method, title = ("ResumeTenant", "resume") if resumes else (act.method, act.name)
    once = act.once or resumes
    span = () if once else (Field(SPAN, typed=USUAL_SPAN, hint="90s, 15m, 4h, 2d, or permanent"),)
    return Form(
        method=method,
        title=title,
        tenant=tenant,
        fields=(*fields, *span, Field(REASON, hint="written down with the change")),
        aims=tuple(Aim.of(s) for s in states),
        once=once,
    )


def renewed(form: Form, looked: Looked) -> Form:
    """The same form with what holds now, where that has changed meanwhile."""
    states = looked.serving(form.tenant)
    if not states:
        return form
    fields = tuple(
        replace(f, now=_now(f.key, states, form.tenant)) if f.key not in (SPAN, REASON) else f
        for f in form.fields
    )
    return replace(form, fields=fields)


def _undo(act: Act, states: Sequence[EngineState]) -> Form | str:
    found = last_change(states)
    if found is None:
        return "undo: no change is in force"
    state, change = found
    return Form(
        method=act.method,
        title=act.name,
        aims=(Aim.of(state),),
        once=True,
        stage=Stage.TRYING,  # nothing to type: it is tried at once, and named before it is done
        expected=f"takes back, on {state.engine}/{state.pool}: {change.what} (by {change.who})",
    )


def _lacking(act: Act, tenant: str, fields: Sequence[Field]) -> str | None:
    """Where there is nothing to choose from."""
    empty = [f for f in fields if f.key in ("adapter", "pool") and not f.choices]
    if not empty:
        return None
    if act.name == "unload":
        return f"unload: {short(tenant, 40)} has no adapter on the engines that answer"
    return "move: the engines that answer serve one pool, there is no other to move to"


def _field(key: str, states: Sequence[EngineState], tenant: str) -> Field:
    choices = _choices(key, states, tenant)
    return Field(key, now=_now(key, states, tenant), hint=_HINTS.get(key, ""), choices=choices,
                 typed=choices[0] if choices else "")  # fmt: skip


_HINTS = {
    "rpm": "requests a minute; none, 0 = blocked",
    "tpm": "tokens a minute; none, 0 = blocked",
    "concurrency": "under way at once; none, 0 = blocked",
    "weight": "its share against the others'",
    "tier": "normal, low, lowest or a number; lower first",
    "adapter": "left and right choose",
    "pool": "left and right choose",
}


def _choices(key: str, states: Sequence[EngineState], tenant: str) -> tuple[str, ...]:
    if key == "adapter":
        rows = [s.tenant(tenant) for s in states]
        return tuple(dict.fromkeys(a for t in rows if t is not None for a in t.adapters))
    if key == "pool":
        own = {t.pool for s in states if (t := s.tenant(tenant)) is not None}
        return tuple(dict.fromkeys(p for s in states for p in s.pools if p not in own))
    return ()


def _now(key: str, states: Sequence[EngineState], tenant: str) -> str:
    """What holds, on every engine that serves it: one word where all agree."""
    words = []
    for s in states:
        t = s.tenant(tenant)
        if t is not None:
            words.append(_word(key, s, t))
    return " | ".join(dict.fromkeys(words))


def _word(key: str, state: EngineState, t: TenantState) -> str:
    if key in ("rpm", "tpm", "concurrency"):
        return limit_word(getattr(t, key))
    if key == "weight":
        return f"{t.weight:g}"
    if key == "tier":
        return tier_word(t.tier)
    if key == "pool":
        return t.pool
    return f"{len(t.adapters)} adapter{'' if len(t.adapters) == 1 else 's'}"
