"""One choice of an answer while it runs: tokens to text, stop strings, logprobs. No bytes, no HTTP.

tokens -> decoder -> stop strings -> whole characters -> pieces. The same pieces make the whole
answer and the stream, so they join to the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.model.clusters import Clusters
from engine.serving.api.shapes import Part, Told
from engine.serving.api.stops import StopScan
from engine.serving.flight import End, Flight
from telemetry.proto import tenantscope_pb2 as pb


class Decoder(Protocol):
    """Turns tokens into text piece by piece, never half a character."""

    def push(self, token: int) -> str: ...
    def finish(self) -> str: ...


class CallerGone(Exception):
    """The caller hung up."""


class Choice:
    """Runs one flight to its end. `decoder` makes one anew: a flight whose worker is lost before
    anything was said may begin again. The worker is told once at most that nothing more is wanted,
    and never when the flight has ended."""

    def __init__(
        self,
        index: int,
        flight: Flight,
        decoder: Callable[[], Decoder],
        *,
        stop: tuple[str, ...],
        stop_tokens: frozenset[int],
    ) -> None:
        self.index = index
        self.flight = flight
        self.end: End | None = None  # once all of it has been read
        self._new_decoder = decoder
        self._stop = stop
        self._stop_tokens = stop_tokens
        self._was_let_go = False
        self._begin()

    def in_bulk(self) -> None:
        """Nobody reads it piece by piece. A stop string is still looked for in every token."""
        if not self._stop:
            self.flight.in_bulk()

    def _begin(self) -> None:
        self._life = self.flight.life
        self._decoder = self._new_decoder()
        self._scan = StopScan(self._stop)
        self._clusters = Clusters()
        self._decoded = 0  # characters
        self._shown = 0
        self._told: list[Told] | None = [] if self.flight.ask.HasField("logprobs") else None

    @property
    def stopped(self) -> bool:
        """A stop string was met: the answer is whole, whatever becomes of the flight."""
        return self._scan.hit

    def leave(self) -> None:
        """The caller has gone, or the answer has failed."""
        self._release(False)

    async def next(self) -> Part:
        """The next piece: its text may be empty. The last one has a reason. Raises CallerGone."""
        news = await self.flight.next()
        if news is None:
            raise CallerGone
        tokens, end = news
        if self.flight.life != self._life:
            self._begin()
        logprobs = None if self._told is None else self.flight.take_logprobs()
        pieces = []
        for i, token in enumerate(tokens):
            if self.stopped:
                break
            pieces.append(self._take(token, logprobs[i] if logprobs else None))
        if end is not None:
            self.end = end
            pieces.append(self._last())
        text = "".join(pieces)
        self._shown += len(text)
        reason = None
        if end is not None:
            reason = "stop" if self.stopped else end.reason
        return Part(self.index, text, self._take_told(end is not None), reason, self._life)

    def _take(self, token: int, logprob: pb.Logprob | None) -> str:
        if token in self._stop_tokens:
            return ""
        if self._told is not None and logprob is not None:
            top = tuple(zip(logprob.tokens, logprob.values, strict=True))
            self._told.append(Told(token, self._decoded, logprob.own, top))
        text = self._decoder.push(token)
        self._decoded += len(text)
        return self._show(text)

    def _show(self, text: str) -> str:
        text = self._clusters.push(self._scan.push(text))
        if self.stopped:
            text += self._clusters.finish()
            self._release(True)
        return text

    def _last(self) -> str:
        """What was held back; after a stop string nothing is."""
        if self.stopped:
            return ""
        text = self._show(self._decoder.finish())
        if not self.stopped:
            text += self._clusters.push(self._scan.finish()) + self._clusters.finish()
        return text

    def _take_told(self, last: bool) -> tuple[Told, ...] | None:
        """Logprobs of the tokens whose text begins in what has been shown."""
        if self._told is None:
            return None
        # Tokens of no visible text at the very end belong to the answer, unless it was cut.
        everything = last and not self.stopped
        ready = [t for t in self._told if everything or t.offset < self._shown]
        self._told = self._told[len(ready) :]
        return tuple(ready)

    def _release(self, complete: bool) -> None:
        if not self._was_let_go and self.flight.end is None:
            self._was_let_go = True
            self.flight.give_up(complete=complete)
