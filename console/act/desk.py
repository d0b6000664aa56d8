"""The operator's side of the console: what is known of the engines, what may be done, what was.

Owns the last look, the acts whose effect is still looked at, and the hand that speaks with the
engines. Draws no screen: the app shows its forms and its lines.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

from console.act.acts import BY_NAME, Act, form_of, renewed
from console.act.after import Done, after_line, in_force_line, remembered
from console.act.effect import expected
from console.act.form import Form, Stage, answered, orders_of
from console.act.hand import Acted, Again, Door, Hand, Heard
from console.act.values import Looked
from console.handover.copied import command
from console.handover.hand import login
from console.lines import Glyphs, Line
from console.panels import Snapshot

_POLICIES = {"cap": "cap", "weight": "weight", "move": "dedicated-pool"}


def whoever() -> str:
    """The user at this machine: it is written down beside every change."""
    return f"{login()}@{socket.gethostname()}"


class Desk:
    """`doors` none: nothing can be changed, and `closed_why` says why. `again`: as `Hand`'s.
    `store`: what a what-if would be asked of. One thread (the screen's) but for `tell`, which
    `start` is given."""

    def __init__(
        self,
        doors: Sequence[Door] = (),
        *,
        closed_why: str = "read-only: no operator's address is known; name one with --admin",
        store: str | None = None,
        who: str | None = None,
        again: Again | None = None,
    ) -> None:
        self._doors = tuple(doors)
        self._closed_why = closed_why
        self._store = store
        self._who = whoever() if who is None else who
        self._again = again
        self._hand: Hand | None = None
        self._done: Done | None = None
        self.looked = Looked()
        self.asked = False  # whether any look has come back

    def start(self, tell: Callable[[Heard], object]) -> None:
        """Begin to look; `tell` is called on other threads."""
        if self._doors or self._again is not None:
            self._hand = Hand(self._doors, tell, again=self._again)
            self._hand.start()

    def stop(self) -> None:
        if self._hand is not None:
            self._hand.stop()
            return
        for door in self._doors:
            door.close()

    def join(self) -> None:
        if self._hand is not None:
            self._hand.join()

    @property
    def open(self) -> bool:
        """Whether an engine lets itself be changed now."""
        return bool(self.looked.states)

    @property
    def why_not(self) -> str:
        """Why nothing can be changed; empty where something can."""
        if self.open:
            return ""
        if not self._doors and not self.looked.closed:
            return self._closed_why
        if not self.asked:
            return "read-only: the engine has not answered yet"
        return "read-only: " + "; ".join(why for _, why in self.looked.closed)

    def heard(self, heard: Heard, picture: Snapshot | None) -> str:
        """Take up a look or an answer; a sentence where an act has been done or has failed."""
        self.asked = True
        self.looked = heard.looked if isinstance(heard, Acted) else heard
        if not isinstance(heard, Acted) or all(o.dry_run for o in heard.orders):
            return ""
        done = [a for a in heard.answers if a.ok]
        if done and picture is not None and heard.orders[0].tenant:
            self._done = remembered(picture, self._what(heard), heard.orders[0].tenant)
        bad = [a.why_not or "; ".join(p.detail for p in a.parts if not p.ok)
               for a in heard.answers if not a.ok]  # fmt: skip
        return "; ".join([*(a.effect for a in done[:1]), *(f"not done: {b}" for b in bad)])

    @staticmethod
    def _what(acted: Acted) -> str:
        first = acted.orders[0]
        if not first.values:
            return first.method.removesuffix("Tenant").removesuffix("Adapter").lower()
        return ", ".join(f"{k} {v}" for k, v in first.values)

    # Forms.

    def form(self, act: Act, tenant: str | None, picture: Snapshot | None) -> Form | str:
        """The form of an act; a sentence where there is none."""
        if not self.open:
            return self.why_not
        if self._hand is not None:
            self._hand.look()  # what it shows may be some seconds old
        made = form_of(act, tenant, self.looked)
        if isinstance(made, str):
            return made
        policy = _POLICIES.get(act.name)
        if policy is not None and self._store is not None:
            several = picture is not None and len(picture.pools) > 1
            pool = picture.pool if picture is not None and several else None
            made = replace(made, what_if=what_if(self._store, made.tenant, policy, pool))
        return self.told(made, picture)

    def told(self, form: Form, picture: Snapshot | None) -> Form:
        """The form with what is to be expected of it now, and what holds now; once it is being
        done it stays as it was."""
        if form.stage in (Stage.DOING, Stage.DONE):
            return form
        form = renewed(form, self.looked)
        return replace(form, expected=expected(form, self.looked.states, picture))

    def send(self, form: Form, *, dry_run: bool) -> bool:
        """Try or do what the form says; False while the act before is still under way."""
        if self._hand is None:
            return False
        return self._hand.send(orders_of(form, self._who, dry_run=dry_run))

    def answered(self, form: Form, acted: Acted) -> Form:
        """The form after the answers to what it sent."""
        after = answered(form, acted.answers, acted.looked)
        if after.method != "Undo" or after.stage is not Stage.MOVED:
            return after
        last = form_of(BY_NAME["undo"], None, acted.looked)  # another change may be the last now
        if isinstance(last, str):
            return replace(after, stage=Stage.DONE, trouble=last, answers=())
        return replace(last, stage=Stage.MOVED, meanwhile=after.meanwhile)

    # Lines.

    def notes(
        self, picture: Snapshot | None, now: float, cells: int, glyphs: Glyphs
    ) -> tuple[Line, ...]:
        """What became of the last act, and what still holds: at most two lines. `now` counts the
        time left (unix seconds)."""
        lines = []
        if self._done is not None and picture is not None:
            after = after_line(self._done, picture, cells, glyphs)
            if after is None and picture.now > self._done.at:
                self._done = None
            lines.append(after)
        lines.append(in_force_line(self.looked.states, now, cells, glyphs))
        return tuple(line for line in lines if line is not None)


def what_if(store: str, tenant: str, policy: str, pool: str | None = None) -> str:
    """The command that plays the last quarter of an hour again under such a change. `pool`: which,
    where the store has several."""
    words = ["tenantscope", "postmortem", "whatif", "--store", store, "--from", "15m ago",
             "--tenant", tenant, "--policy", policy]  # fmt: skip
    return command([*words, "--pool", pool] if pool else words)
