"""The decode cohort: the sequences that get one token in every step, kept as events.

Owns their rows by tenant (dense arrays), their adapters, and the calendars of who finishes and who
needs a page at which decode step. A step costs the same however many rows there are: a row's
numbers stand still while it is in the cohort and are brought up to date when it leaves. Knows no
queues, no pages' contents and no ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from engine.scheduling.request import Request
from telemetry.ledger.vectors import Vector


class Cohort:
    """`steps` counts decode steps; the step under way has that number until `stepped`."""

    def __init__(self, page_tokens: int, width: int = 64) -> None:
        self._page_tokens = page_tokens
        self.steps = 0
        self.rows: dict[int, Request] = {}  # by sequence number of the request
        self.context = 0  # keys the rows attend in the next step
        self.rows_of: Vector = np.zeros(width)
        self.context_of: Vector = np.zeros(width)
        self.adapters: dict[str, int] = {}  # rows of each
        # Row by row: whose it is and with which adapter, so that an adapter's cost is split over
        # its rows in one operation, however many tenants share it. Adapter 0 is none.
        self._row_tenant = np.zeros(width, np.intp)
        self._row_adapter = np.zeros(width, np.intp)
        self._row_of: dict[int, int] = {}
        self._rows_free = list(range(width - 1, -1, -1))
        self._adapter_ids: dict[str, int] = {}
        self._ids_free = list(range(width - 1, 0, -1))
        self._users: Vector = np.full(width, np.inf)  # rows by adapter id; 1/inf costs nothing
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
        if request.ask.adapter is not None:
            self._use(request, request.ask.adapter)
        self._call(self._finish, steps + request.ask.max_tokens - request.produced, request)
        self.wants_page(request, length, len(request.pages))

    def wants_page(self, request: Request, length: int, pages: int) -> None:
        """Put down the step before which a row of this length, now, needs one page more."""
        self._call(self._grow, self.steps + max(0, pages * self._page_tokens - length + 1), request)

    def leave(self, request: Request) -> None:
        """Take the row out, booking on it what the steps since it joined have done to it."""
        since, index = request.decoding_since, request.index
        self.sync(request)
        ends_at = self.steps + request.ask.max_tokens - request.produced
        ending = self._finish.get(ends_at)
        if ending is not None and request in ending:  # it leaves early
            ending.remove(request)
            if not ending:
                del self._finish[ends_at]
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
        if request.ask.adapter is not None:
            self._use_no_more(request, request.ask.adapter)

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
        if self.adapters and adapter_s:
            users = self._users
            shared = [(self._adapter_ids[a], n) for a, n in beside.items() if a in self.adapters]
            if shared:
                users = users.copy()
                for number, segments in shared:
                    users[number] += segments
            parts = adapter_s / users[self._row_adapter]
            cost += np.bincount(self._row_tenant, parts, len(cost))
        return cost

    # -- inside

    def _call(self, calendar: dict[int, list[Request]], step: int, request: Request) -> None:
        there = calendar.get(step)
        if there is None:
            calendar[step] = [request]
        else:
            there.append(request)

    def _use(self, request: Request, adapter: str) -> None:
        rows = self.adapters.get(adapter, 0) + 1
        self.adapters[adapter] = rows
        number = self._adapter_ids.get(adapter)
        if number is None:
            if not self._ids_free:
                self._ids_free = list(range(2 * len(self._users) - 1, len(self._users) - 1, -1))
                self._users = np.concatenate([self._users, np.full(len(self._users), np.inf)])
            number = self._adapter_ids[adapter] = self._ids_free.pop()
        self._users[number] = rows
        if not self._rows_free:
            width = len(self._row_tenant)
            self._rows_free = list(range(2 * width - 1, width - 1, -1))
            self._row_tenant = np.concatenate([self._row_tenant, np.zeros(width, np.intp)])
            self._row_adapter = np.concatenate([self._row_adapter, np.zeros(width, np.intp)])
        row = self._row_of[request.sequence] = self._rows_free.pop()
        self._row_tenant[row] = request.index
        self._row_adapter[row] = number

    def _use_no_more(self, request: Request, adapter: str) -> None:
        row = self._row_of.pop(request.sequence)
        self._row_adapter[row] = 0
        self._rows_free.append(row)
        rows = self.adapters[adapter] - 1
        number = self._adapter_ids[adapter]
        if rows:
            self.adapters[adapter] = rows
            self._users[number] = rows
        else:
            del self.adapters[adapter], self._adapter_ids[adapter]
            self._users[number] = np.inf
            self._ids_free.append(number)

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
        for name in ("rows_of", "context_of"):
            wide = np.zeros(width)
            old = getattr(self, name)
            wide[: len(old)] = old
            setattr(self, name, wide)
