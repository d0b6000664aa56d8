"""The decode cohort: the sequences that get one token in every step, kept as events.

Owns their rows by tenant (dense arrays), their adapters, and the calendars of who finishes and who
needs a page at which decode step. A step costs the same however many rows there are: a row's
numbers stand still while it is in the cohort and are brought up to date when it leaves. Knows no
queues, no pages' contents and no ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.scheduling.request import Request
from telemetry.vectors import Vector


@dataclass(slots=True)
class AdapterUsers:
    """Rows of one adapter in the cohort, by the tenants' indices."""

    rows: int = 0
    by_index: dict[int, int] = field(default_factory=dict)


class Cohort:
    """`steps` counts decode steps; the step under way has that number until `stepped`."""

    def __init__(self, page_tokens: int, width: int = 64) -> None:
        self._page_tokens = page_tokens
        self.steps = 0
        self.rows: dict[int, Request] = {}  # by sequence number of the request
        self.context = 0  # keys the rows attend in the next step
        self.rows_of: Vector = np.zeros(width)
        self.context_of: Vector = np.zeros(width)
        self.adapter_of: Vector = np.zeros(width)  # parts of adapters, by the tenants' rows
        self.adapters: dict[str, AdapterUsers] = {}
        self.last_s = 0.0  # when the last decode step ended
        self.stall_s = 0.0  # others' prefill in all decode steps so far
        self._finish: dict[int, list[Request]] = {}
        self._grow: dict[int, list[Request]] = {}
        self._fresh: dict[int, Request] = {}  # joined since the last decode step
        # Gaps between decode steps, by step number: only those no later gap exceeds, so that the
        # longest since any step is found by bisection.
        self._gap_steps: list[int] = []
        self._gaps: list[float] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, request: Request) -> bool:
        return request.decoding_since >= 0

    # -- joining and leaving

    def join(self, request: Request, width: int) -> None:
        """Its newest token is the next one to compute; `width` covers every tenant's index."""
        if width > len(self.rows_of):
            self._widen(width)
        index, length = request.index, request.prompt_tokens + request.produced
        steps = self.steps
        request.decoding_since = request.synced = steps
        request.stall_mark_s = self.stall_s
        self.rows[request.sequence] = request
        self._fresh[request.sequence] = request
        self.rows_of[index] += 1
        self.context_of[index] += length
        self.context += length
        adapter = request.ask.adapter
        if adapter is not None:
            self._use(adapter, index, +1)
        self._call(self._finish, steps + request.ask.max_tokens - request.produced, request)
        self.wants_page(request, length, len(request.pages))

    def wants_page(self, request: Request, length: int, pages: int) -> None:
        """Put down the step before which a row of this length, now, needs one page more."""
        self._call(self._grow, self.steps + max(0, pages * self._page_tokens - length + 1), request)

    def leave(self, request: Request) -> None:
        """Take the row out, booking on it what the steps since it joined have done to it."""
        since, index = request.decoding_since, request.index
        self.sync(request)
        if self.steps > since:
            request.last_token_s = self.last_s
            # Its first gap here was its own (`fresh`); the common ones count from the next step.
            place = bisect_left(self._gap_steps, since + 1)
            if place < len(self._gaps):
                gap = self._gaps[place]
                if request.max_gap_s is None or gap > request.max_gap_s:
                    request.max_gap_s = gap
        request.stall_s += self.stall_s - request.stall_mark_s
        request.decoding_since = -1
        del self.rows[request.sequence]
        self._fresh.pop(request.sequence, None)
        length = request.prompt_tokens + request.produced
        self.rows_of[index] -= 1
        self.context_of[index] -= length
        self.context -= length
        adapter = request.ask.adapter
        if adapter is not None:
            self._use(adapter, index, -1)
        if not self.rows_of[index]:
            self.adapter_of[index] = 0.0  # no rounding of parts outlives the rows

    def sync(self, request: Request) -> None:
        """Make the row's token counts true without taking it out."""
        made = self.steps - request.synced
        request.synced = self.steps
        request.produced += made
        request.computed += made
        request.high_water = max(request.high_water, request.computed)

    def length(self, request: Request) -> int:
        """Prompt and output tokens it has now."""
        length = request.prompt_tokens + request.produced
        if request.decoding_since >= 0:
            length += self.steps - request.synced
        return length

    def produced(self, request: Request) -> int:
        return self.length(request) - request.prompt_tokens

    def last_token_s(self, request: Request) -> float | None:
        if request.decoding_since >= 0 and self.steps > request.decoding_since:
            return self.last_s
        return request.last_token_s

    # -- calendars

    # A row that left and came back has entries of its earlier stay too: whoever takes one asks
    # whether it is still true.

    def growing(self) -> list[Request]:
        """Rows that need a page before the next step."""
        size = self._page_tokens
        return [
            r
            for r in self._grow.pop(self.steps, ())
            if r.decoding_since >= 0 and self.length(r) > len(r.pages) * size
        ]

    def finishing(self) -> list[Request]:
        """Rows whose last token the steps up to now have made. After `stepped`."""
        return [
            r
            for r in self._finish.pop(self.steps, ())
            if r.decoding_since >= 0 and self.produced(r) >= r.ask.max_tokens
        ]

    def steady_steps(self, most: int) -> int:
        """How many more steps there are before a row must grow or has finished."""
        steps = 0
        while steps < most:
            at = self.steps + steps
            if at in self._grow or at + 1 in self._finish:
                break
            steps += 1
        return steps

    # -- steps

    def fresh(self) -> Iterable[Request]:
        """Rows that have not had a token here yet: their gap is their own."""
        return self._fresh.values()

    def stepped(self, now: float, stall_s: float) -> float | None:
        """A decode step has ended. Returns the gap of the rows that were in the one before."""
        gap = now - self.last_s if len(self.rows) > len(self._fresh) else None
        self._fresh.clear()
        if gap is not None:
            self._note_gap(self.steps, gap)
        self.steps += 1
        self.last_s = now
        self.stall_s += stall_s
        self.context_of += self.rows_of
        self.context += len(self.rows)
        return gap

    def jumped(self, ends: Sequence[float]) -> None:
        """Decode steps without any prefill have ended at these instants."""
        last = self.last_s
        for end in ends:
            self._note_gap(self.steps, end - last)
            self.steps += 1
            last = end
        self.last_s = last
        count = len(ends)
        self.context_of += count * self.rows_of
        self.context += count * len(self.rows)

    def decode_cost_s(
        self, row_s: float, context_s: float, adapter_s: float, beside: Mapping[str, int]
    ) -> Vector:
        """Seconds of the next step by tenants' index. `beside`: prefill segments by adapter, which
        take their part of that adapter's cost."""
        cost = row_s * self.rows_of
        cost += context_s * self.context_of
        cost += adapter_s * self.adapter_of
        for adapter, segments in beside.items():
            users = self.adapters.get(adapter)
            if users is not None:
                less = adapter_s * (1 / users.rows - 1 / (users.rows + segments))
                for index, rows in users.by_index.items():
                    cost[index] -= less * rows
        return cost

    # -- inside

    def _call(self, calendar: dict[int, list[Request]], step: int, request: Request) -> None:
        there = calendar.get(step)
        if there is None:
            calendar[step] = [request]
        else:
            there.append(request)

    def _use(self, adapter: str, index: int, by: int) -> None:
        users = self.adapters.get(adapter)
        if users is None:
            users = self.adapters[adapter] = AdapterUsers()
        part_of = self.adapter_of
        if users.rows and len(users.by_index) > (index in users.by_index):
            for other, rows in users.by_index.items():
                part_of[other] -= rows / users.rows
            self._count(users, index, by)
            for other, rows in users.by_index.items():
                part_of[other] += rows / users.rows
        else:  # nobody else's: the whole adapter, or nothing of it any more
            before = bool(users.rows)
            self._count(users, index, by)
            part_of[index] += bool(users.rows) - before
        if not users.rows:
            del self.adapters[adapter]

    @staticmethod
    def _count(users: AdapterUsers, index: int, by: int) -> None:
        users.rows += by
        left = users.by_index.get(index, 0) + by
        if left:
            users.by_index[index] = left
        else:
            del users.by_index[index]

    def _note_gap(self, step: int, gap: float) -> None:
        steps, gaps = self._gap_steps, self._gaps
        while gaps and gaps[-1] <= gap:
            gaps.pop()
            steps.pop()
        gaps.append(gap)
        steps.append(step)
        if len(gaps) > 4096:
            oldest = min((r.decoding_since for r in self.rows.values()), default=step)
            keep = bisect_left(steps, oldest)
            del steps[:keep]
            del gaps[:keep]

    def _widen(self, width: int) -> None:
        for name in ("rows_of", "context_of", "adapter_of"):
            wide = np.zeros(width)
            old = getattr(self, name)
            wide[: len(old)] = old
            setattr(self, name, wide)
