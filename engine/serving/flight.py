"""One open request as the front holds it: its tokens as they come, then its end. Owns its queue.

Knows no stream and no pool. A worker that dies before anything was said to the caller may cost a
flight its first life; it begins again on another worker, and its reader is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.serving.error_place import error_place
from telemetry.proto import tenantscope_pb2 as pb

_log = logging.getLogger(__name__)
MOST_LIVES = 2
_BULK_TOKENS = 64


@dataclass(frozen=True, slots=True)
class End:
    """How a request ended. `lost`: the worker went away, the counts are what reached the front."""

    outcome: str
    reason: str
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None
    lost: bool = False
    computed_tokens: int = 0  # of the prompt; what was never computed is charged to nobody


class Carrier(Protocol):
    """The link that a flight's words go over."""

    def abort(self, request_id: str, *, complete: bool = False) -> None: ...


class Flight:
    """For one reader. `life` counts from 1: in another one all tokens come anew."""

    __slots__ = (
        "_end",
        "_given_up",
        "_gone",
        "_held",
        "_logprobs",
        "_news",
        "_on_end",
        "_tokens",
        "_waiter",
        "_wake_every",
        "ask",
        "life",
        "received",
        "via",
        "waits",
    )

    def __init__(self, ask: pb.Ask, on_end: Callable[[Flight, End], None]) -> None:
        self.ask = ask
        self.received = 0  # tokens, in this life
        self.life = 1
        self.via: Carrier | None = None
        self._on_end = on_end
        self.waits: pb.FirstWaits | None = None  # from the first token on, if it was asked for
        self._tokens: list[int] = []
        self._logprobs: list[pb.Logprob] = []
        self._end: End | None = None
        self._news = False
        self._waiter: asyncio.Future[None] | None = None  # of who waits for news: one reader
        self._gone = False
        self._held = False
        self._given_up = False
        self._wake_every = 1

    @property
    def end(self) -> End | None:
        return self._end

    @property
    def tokens(self) -> int:
        """The most it may come to: prompt + max_tokens."""
        return len(self.ask.prompt) + self.ask.max_tokens

    @property
    def may_begin_again(self) -> bool:
        return self.life < MOST_LIVES and not self._held and self._end is None

    @property
    def is_half_said(self) -> bool:
        """A part of it is said, and somebody waits for the rest: no other worker could give it."""
        return self._held and not self._given_up

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for more of it."""
        return not self._given_up

    def hold(self) -> None:
        """Something of it is being said to the caller, or nothing more is wanted: whatever becomes
        of its worker, it does not begin again."""
        self._held = True

    def give_up(self, *, complete: bool = False) -> None:
        """Nothing more is wanted; its end still comes. `complete`: its answer is whole."""
        self._held = self._given_up = True
        if self.via is not None:
            self.via.abort(self.ask.request_id, complete=complete)

    def reader_gone(self) -> None:
        """The caller hung up: whoever waits in `next` hears so at once."""
        self._gone = self._held = self._given_up = True
        self._wake()

    def in_bulk(self) -> None:
        """Its reader needs nothing token by token: it is woken for many, or at the end."""
        self._wake_every = _BULK_TOKENS

    async def next(self) -> tuple[list[int], End | None] | None:
        """Wait for news: the tokens since the last call and, when it is over, the end. None when
        the caller has hung up."""
        if not self._news:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._gone:
            return None
        self._news = self._end is not None  # an end stays readable
        tokens, self._tokens = self._tokens, []
        return tokens, self._end

    def _wake(self) -> None:
        self._news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take_logprobs(self) -> list[pb.Logprob]:
        """Of the tokens that `next` has handed out since the last call; none if not asked for."""
        count = len(self._logprobs) - len(self._tokens)
        taken, self._logprobs = self._logprobs[:count], self._logprobs[max(0, count) :]
        return taken

    # -- for its link

    def token(self, out: pb.TokenOut) -> None:
        self._tokens.append(out.token)
        self.received += 1
        if self.ask.HasField("logprobs"):
            self._logprobs.append(out.logprob)
        if out.HasField("waits"):
            self.waits = out.waits
        if self.received % self._wake_every == 0:
            self._wake()

    def begin_again(self) -> None:
        """What came so far counts for nothing. Its reader hears of it with the first news."""
        self.life += 1
        self.received = 0
        self.waits = None
        self._tokens, self._logprobs = [], []
        self._news = False

    def finish(self, end: End) -> None:
        self._end = end
        self._wake()
        try:
            self._on_end(self, end)
        except Exception as e:
            # Whoever counts endings may fail; this link's other flights must still hear of theirs.
            _log.error("the end of a request could not be booked: %s", error_place(e))
