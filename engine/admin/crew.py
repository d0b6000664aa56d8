"""The workers, as an operator's act meets them: who must hear of it, what each said, who is owed.

Owns which workers are yet to be told what is in force. Knows no overlay, no disk and no front: what
was and what is to be are passed in. One act at a time; the desk sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from engine.admin.act import Act, Said
from engine.admin.errors import ChangeRefused, WorkerSilent
from engine.admin.in_force import InForce
from engine.admin.member import Member, Order
from engine.admin.overlay import BY_ITSELF
from engine.admin.part import Need, Parts, Turn, need, part
from engine.worker_names import WorkerNames
from telemetry.proto import tenantscope_pb2 as pb

_GONE_ON = "; it is told when it is back"


class Crew:
    """`members` in the order in which they are told. `started_with`: what a worker has that was
    started just now."""

    def __init__(self, members: Sequence[Member], started_with: InForce) -> None:
        self._members = tuple(members)
        self._names = WorkerNames((m.pool, m.replica) for m in members)
        self._started_with: InForce | None = started_with

    @property
    def owes(self) -> bool:
        """Whether somebody is yet to be told what is in force."""
        return any(m.owed for m in self._members)

    def look(self) -> list[tuple[Member, pb.OperateReply | str]]:
        """What each has: running, waiting, resident; or why it does not say."""
        found: list[tuple[Member, pb.OperateReply | str]] = []
        for member in self._members:
            try:
                found.append((member, member.hands.operate(pb.OperateRequest(look="all"))))
            except WorkerSilent as e:
                found.append((member, str(e)))
        return found

    def holding(self, tenant: str) -> frozenset[str]:
        """The pools, of several, where it has requests under way, as far as their workers say.
        Changes nothing, and may be asked beside any act."""
        if len({m.pool for m in self._members}) == 1:
            return frozenset()
        return frozenset(
            member.pool
            for member, said in self.look()
            if not isinstance(said, str) and any(t.tenant == tenant for t in said.tenants)
        )

    # -- to be as the settings say

    def concerned(self, turn: Turn) -> frozenset[str]:
        """The pools for whose workers something is different."""
        return frozenset(m.pool for m in self._members if turn.was[m.pool] != turn.to_be[m.pool])

    def need(self, turn: Turn) -> Need:
        """The most that any worker has to do with it."""
        pools = {m.pool for m in self._members}
        return max(need(turn.was[pool], turn.mid[pool]) for pool in pools)

    def take(self, order: Order, turn: Turn) -> tuple[Said, ...]:
        """Everybody has what is to come, and nobody has let go of a tenant that is served
        elsewhere from now on (`release`). One that refuses ends it: those told before are told
        what was, nothing is changed, and the last one said is not ok.

        Whoever is silent is told when it is back, as long as its pool can do without: raises
        WorkerSilent when nobody of a pool answers that is to serve something new, or nobody at
        all of those who have to do something. In a dry run nobody is owed anything."""
        was, mid = turn.was, turn.mid
        concerned = [m for m in self._members if was[m.pool] != mid[m.pool]]
        told: list[Member] = []
        said: list[Said] = []
        silent: list[Member] = []
        try:
            for member in concerned:
                try:
                    is_told = any(m.pool == member.pool for m in told)
                    reply = self._be(member, order, mid, is_told=is_told)
                except WorkerSilent as e:
                    silent.append(member)
                    said.append(member.silent(e, owed=not order.act.dry_run))
                    continue
                said.append(member.said(reply))
                if not reply.ok:
                    self._put_back(told, silent, order, was)
                    return tuple(said)
                told.append(member)
            missing = _missing(concerned, told, lambda m: need(was[m.pool], mid[m.pool]))
            if missing is not None:
                raise _hopeless(next(s.detail for s in said if s.pool == missing and s.silent))
        except BaseException:
            self._put_back(told, silent, order, was)
            raise
        if not order.act.dry_run:
            for member in silent:
                member.owed = True
        return tuple(said)

    def release(self, order: Order, turn: Turn) -> tuple[Said, ...]:
        """Who served a tenant that is another pool's by now lets it go; what it has under way ends
        there. Whoever is silent, or cannot, is told later: nothing waits for it."""
        if turn.mid is turn.to_be:
            return ()
        members = [m for m in self._members if turn.mid[m.pool] != turn.to_be[m.pool]]
        return self._bring_all(members, order, turn.to_be)

    def force(self, order: Order, turn: Turn) -> tuple[Said, ...]:
        """As `take`, of what no worker can refuse: a change whose time is over, or that the front
        alone acts on. Whoever is silent is told later."""
        members = [m for m in self._members if turn.was[m.pool] != turn.mid[m.pool]]
        return self._bring_all(members, order, turn.mid)

    def owe(self, pools: Iterable[str]) -> None:
        """Workers of these pools may not be as they should."""
        for member in self._members:
            member.owed = member.owed or member.pool in pools

    def forget_start(self) -> None:
        """What workers are started with from now on is not known here."""
        self._started_with = None

    def arrived(self, now: InForce, came: Callable[[Member], bool]) -> None:
        """Who began to answer just now is owed what is in force, unless it was started with it."""
        turn = None if self._started_with is None else Turn(self._started_with, now)
        for member in self._members:
            if came(member) and (turn is None or turn.was[member.pool] != turn.to_be[member.pool]):
                member.owed = True

    def sync(self, now: InForce) -> tuple[str, ...]:
        """Whoever is owed is told what is in force. Returns the adapters that had to be left out.
        Raises the first trouble, when all others have been told."""
        act = Act(BY_ITSELF, "changes in force before this start")
        order = Order(act, "changes by operators are taken up")
        to_be = Parts(lambda pool: part(now, pool))
        left_out: dict[str, None] = {}
        trouble: WorkerSilent | ChangeRefused | None = None
        for member in self._members:
            if not member.owed:
                continue
            try:
                reply = self._be(member, order, to_be, lenient=True)
            except WorkerSilent as e:
                trouble = trouble or e
                continue
            member.owed = False
            left_out.update(dict.fromkeys(reply.left_out))
            if not reply.ok:
                trouble = trouble or ChangeRefused(
                    f"{self.name(member)} does not take what is in force: {reply.detail}"
                )
        if trouble is None:
            return tuple(left_out)
        if left_out:
            raise type(trouble)(f"{trouble}; adapters left out: {', '.join(map(repr, left_out))}")
        raise trouble

    # -- once

    def count(self, pools: Iterable[str]) -> int:
        """How many workers these pools have."""
        wanted = frozenset(pools)
        return sum(m.pool in wanted for m in self._members)

    def once(
        self,
        request: pb.OperateRequest,
        pools: Iterable[str],
        enough: Callable[[pb.OperateReply], bool] | None = None,
    ) -> tuple[Said, ...]:
        """Ask the workers of these pools, one after the other, until a reply is enough. Raises
        WorkerSilent when nobody answers."""
        wanted = frozenset(pools)
        said: list[Said] = []
        answered, trouble = False, WorkerSilent("no worker answers")
        for member in (m for m in self._members if m.pool in wanted):
            try:
                reply = member.hands.operate(request)
            except WorkerSilent as e:
                trouble = e
                said.append(member.silent(e, owed=False))
                continue
            answered = True
            said.append(member.said(reply))
            if enough is not None and enough(reply):
                break
        if not answered:
            raise _hopeless(str(trouble))
        return tuple(said)

    def note(self, request: pb.OperateRequest, pool: str) -> bool:
        """Have a note written down by a worker of this pool, or of another one. False: nobody
        answers."""
        for member in sorted(self._members, key=lambda m: m.pool != pool):
            try:
                if member.hands.operate(request).ok:
                    return True
            except WorkerSilent:
                continue
        return False

    # -- words

    def name(self, member: Member | Said) -> str:
        """As a person calls it."""
        return f"the {self._names.name(member.pool, member.replica)}"

    def summary(self, said: Sequence[Said]) -> str:
        """What they said, in a sentence: one word when they agree."""
        words = dict.fromkeys(_words(s) for s in said)
        if len(words) <= 1 or len(self._members) == 1:
            return "; ".join(words)
        return "; ".join(f"{self._names.label(s.pool, s.replica)}: {_words(s)}" for s in said)

    # -- parts

    def _be(
        self,
        member: Member,
        order: Order,
        wanted: Parts,
        *,
        lenient: bool = False,
        is_told: bool = False,
    ) -> pb.OperateReply:
        """`is_told`: another replica has written the event."""
        request = order.request()
        request.is_told = is_told
        request.desired.CopyFrom(wanted.desired(member.pool, lenient=lenient))
        return member.hands.operate(request)

    def _bring_all(
        self, members: Sequence[Member], order: Order, wanted: Parts
    ) -> tuple[Said, ...]:
        said: list[Said] = []
        for member in members:
            is_told = any(s.ok and s.pool == member.pool for s in said)
            said.append(self._bring(member, order, wanted, is_told))
        return tuple(said)

    def _bring(self, member: Member, order: Order, wanted: Parts, is_told: bool) -> Said:
        """Told now, or owed."""
        real = not order.act.dry_run
        member.owed = member.owed or real
        try:
            reply = self._be(member, order, wanted, lenient=True, is_told=is_told)
        except WorkerSilent as e:
            return member.silent(e, owed=real)
        if real:
            member.owed = not reply.ok
        return replace(member.said(reply), owed=real and not reply.ok)

    def _put_back(
        self, told: Sequence[Member], silent: Sequence[Member], order: Order, was: Parts
    ) -> None:
        if order.act.dry_run:
            return
        for member in silent:
            member.owed = True  # it may have heard, and do it yet
        back = Order(
            Act(BY_ITSELF, "not every worker takes it"), f"taken back: {order.what}",
            order.tenant, order.adapter,
        )  # fmt: skip
        self._bring_all(told, back, was)


def _hopeless(why: str) -> WorkerSilent:
    return WorkerSilent(
        f"{why}: `admin workers` says whether it runs, `admin changes` what is in force; look "
        "before you try again"
    )


def _words(said: Said) -> str:
    return said.detail + (_GONE_ON if said.owed else "")


def _missing(
    concerned: Sequence[Member], told: Sequence[Member], need_of: Callable[[Member], Need]
) -> str | None:
    """The pool whose silence keeps a change from being made; None when it can be."""
    needs = {m.pool: need_of(m) for m in concerned}
    answered = {m.pool for m in told}
    for pool, what in needs.items():
        if what is Need.GAIN and pool not in answered:
            return pool
    acts = [pool for pool, what in needs.items() if what is not Need.RECORD]
    if acts and not answered:
        return acts[0]
    return None
