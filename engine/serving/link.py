"""The front's one stream to the pool's worker. Owns open requests' token queues; decides nothing.

Asks and aborts go out, one message a step comes in. When the worker goes away every open request
ends as `lost`, and the link keeps knocking until a worker answers again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from engine.errors import EngineError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc

MESSAGE_BYTES = 64 << 20
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A worker restarted on the same path must not meet a channel of its predecessor's.
    ("grpc.use_local_subchannel_pool", 1),
)
STOPPING = "the front is stopping"
_PAUSE_S = 0.1
_log = logging.getLogger(__name__)
_ANSWER_S = 5.0


class WorkerDown(EngineError):
    """There is no worker to hand a request to."""


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


class Flight:
    """One open request: its tokens as they come, then its end. For one reader."""

    __slots__ = (
        "_end",
        "_gone",
        "_logprobs",
        "_on_end",
        "_tokens",
        "_wake",
        "ask",
        "received",
        "waits",
    )

    def __init__(self, ask: pb.Ask, on_end: Callable[[Flight, End], None]) -> None:
        self.ask = ask
        self.received = 0
        self._on_end = on_end
        self.waits: pb.FirstWaits | None = None  # from the first token on, if it was asked for
        self._tokens: list[int] = []
        self._logprobs: list[pb.Logprob] = []
        self._end: End | None = None
        self._wake = asyncio.Event()
        self._gone = False

    @property
    def end(self) -> End | None:
        return self._end

    def reader_gone(self) -> None:
        """The caller hung up: whoever waits in `next` hears so at once."""
        self._gone = True
        self._wake.set()

    async def next(self) -> tuple[list[int], End | None] | None:
        """Wait for news: the tokens since the last call and, when it is over, the end. None when
        the caller has hung up."""
        await self._wake.wait()
        if self._gone:
            return None
        self._wake.clear()
        tokens, self._tokens = self._tokens, []
        if self._end is not None:
            self._wake.set()  # an end stays readable
        return tokens, self._end

    def take_logprobs(self) -> list[pb.Logprob]:
        """Of the tokens that `next` has handed out since the last call; none if not asked for."""
        count = len(self._logprobs) - len(self._tokens)
        taken, self._logprobs = self._logprobs[:count], self._logprobs[max(0, count) :]
        return taken

    def _token(self, out: pb.TokenOut) -> None:
        self._tokens.append(out.token)
        self.received += 1
        if self.ask.HasField("logprobs"):
            self._logprobs.append(out.logprob)
        if out.HasField("waits"):
            self.waits = out.waits
        self._wake.set()

    def _finish(self, end: End) -> None:
        self._end = end
        self._wake.set()
        self._on_end(self, end)


class WorkerLink:
    """Keeps one Drive stream open. All methods belong to the front's event loop.

    `on_up` hears the worker's status at every (re)connection, `on_down` the number of requests
    that were open when the worker went away.
    """

    def __init__(
        self,
        address: str,
        *,
        on_up: Callable[[pb.StatusReply], None] | None = None,
        on_down: Callable[[int], None] | None = None,
    ) -> None:
        self.address = address
        self.status: pb.StatusReply | None = None
        self.heard = 0  # messages: each brought a token or an end
        self._on_up = on_up
        self._on_down = on_down
        self._flights: dict[str, Flight] = {}
        self._outbox: asyncio.Queue[pb.FrontMessage | None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closing = False

    @property
    def is_up(self) -> bool:
        return self._outbox is not None and not self._closing

    @property
    def open_requests(self) -> int:
        return len(self._flights)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="worker-link")

    async def wait_up(self, timeout_s: float) -> bool:
        return await self._wait(True, timeout_s)

    async def wait_down(self, timeout_s: float) -> bool:
        return await self._wait(False, timeout_s)

    async def close(self) -> None:
        """Half-close the stream (the worker aborts what is open) and stop."""
        if self._task is None:
            return
        self._closing = True
        if self._outbox is not None:
            self._outbox.put_nowait(None)
            await asyncio.wait({self._task}, timeout=0.5)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def send(self, ask: pb.Ask, on_end: Callable[[Flight, End], None]) -> Flight:
        """Hand a request to the worker. `on_end` is called exactly once. Raises WorkerDown."""
        if self._outbox is None or self._closing:
            raise WorkerDown(f"no worker answers at {self.address}")
        flight = Flight(ask, on_end)
        self._flights[ask.request_id] = flight
        self._outbox.put_nowait(pb.FrontMessage(ask=ask))
        return flight

    def abort(self, request_id: str, *, complete: bool = False) -> None:
        """Give a request up; its end still comes, with the tokens it really cost. `complete`: it
        finishes, for its answer is whole."""
        if request_id in self._flights and self._outbox is not None:
            abort = pb.Abort(request_id=request_id, complete=complete)
            self._outbox.put_nowait(pb.FrontMessage(abort=abort))

    def let_go(self) -> None:
        """Give every open request up, and tell its reader now: this front is stopping. No new
        request is taken."""
        self._closing = True
        for request_id, flight in list(self._flights.items()):
            self.abort(request_id)
            del self._flights[request_id]
            flight._finish(self._cut_short(flight))

    def _cut_short(self, flight: Flight) -> End:
        tokens, prompt = flight.received, len(flight.ask.prompt)
        if self._closing:
            return End("aborted", STOPPING, prompt, tokens, None)
        return End("failed", "the pool's worker went away", prompt, tokens, None, lost=True)

    async def _wait(self, up: bool, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.is_up is not up:
                    self._changed.clear()
                    await self._changed.wait()
        return self.is_up is up

    async def _keep(self) -> None:
        while not self._closing:
            try:
                async with grpc.aio.insecure_channel(
                    self.address, options=CHANNEL_OPTIONS
                ) as channel:
                    await self._drive(pb_grpc.WorkerStub(channel))  # type: ignore[no-untyped-call]
            except grpc.aio.AioRpcError as e:
                # No worker there, or it went away: both are ordinary; knock again.
                _log.debug("worker at %s: %s", self.address, e.code().name)
            except Exception:
                # A fault of one message must not leave the front without a link for ever.
                _log.exception("the link to the worker at %s failed; reconnecting", self.address)
            finally:
                self._go_down()
            await asyncio.sleep(_PAUSE_S)

    async def _drive(self, stub: pb_grpc.WorkerStub) -> None:
        """One connection's life."""
        status = await stub.Status(pb.StatusRequest(), wait_for_ready=True, timeout=_ANSWER_S)
        call = stub.Drive()
        outbox: asyncio.Queue[pb.FrontMessage | None] = asyncio.Queue()
        writer = asyncio.create_task(_write(call, outbox))
        try:
            self._go_up(status, outbox)
            while (message := await call.read()) is not grpc.aio.EOF:
                self._dispatch(message)
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await writer

    def _dispatch(self, message: pb.WorkerMessage) -> None:
        self.heard += 1
        for out in message.tokens:
            flight = self._flights.get(out.request_id)
            if flight is not None:
                flight._token(out)
        for ended in message.ended:
            flight = self._flights.pop(ended.request_id, None)
            if flight is not None:
                flight._finish(
                    End(
                        ended.outcome,
                        ended.reason,
                        ended.prompt_tokens,
                        ended.output_tokens,
                        ended.ttft_s or None,
                        computed_tokens=ended.computed_tokens,
                    )
                )

    def _go_up(self, status: pb.StatusReply, outbox: asyncio.Queue[pb.FrontMessage | None]) -> None:
        self.status = status
        self._outbox = outbox
        self._changed.set()
        if self._on_up is not None:
            self._on_up(status)

    def _go_down(self) -> None:
        if self._outbox is None:
            return
        self._outbox = None
        self._changed.set()
        left, self._flights = self._flights, {}
        for flight in left.values():
            flight._finish(self._cut_short(flight))
        if self._on_down is not None and not self._closing:
            self._on_down(len(left))


async def _write(
    call: grpc.aio.StreamStreamCall, outbox: asyncio.Queue[pb.FrontMessage | None]
) -> None:
    """Send what is queued, in order; None closes the sending side."""
    while (message := await outbox.get()) is not None:
        await call.write(message)
    await call.done_writing()
