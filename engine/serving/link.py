"""The front's one stream to one worker. Owns which requests are open there; decides nothing.

Asks, aborts and other replicas' charges go out, one message a step comes in. When the worker goes
away every open request that nobody takes over ends as `lost`, and the link keeps knocking until a
worker answers again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

import grpc

from engine.errors import EngineError
from engine.serving import charges
from engine.serving.flight import End, Flight
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc

__all__ = ["CHANNEL_OPTIONS", "MESSAGE_BYTES", "End", "Flight", "WorkerDown", "WorkerLink"]

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
_MOST_AT_ONCE, _MOST_TOKENS = 32, 1 << 20  # messages and prompts' tokens in one write
_log = logging.getLogger(__name__)
_ANSWER_S = 5.0
ASK_S = 5.0  # between two questions whether the worker is there


class _Owed:
    """Stands in the queue for what has been charged elsewhere by the time it is written."""


_OWED = _Owed()
_Outbox = asyncio.Queue[pb.FrontMessage | _Owed | None]


class WorkerDown(EngineError):
    """There is no worker to hand a request to."""


class WorkerLink:
    """Keeps one Drive stream open. All methods belong to the front's event loop.

    `on_up` hears the worker's status at every (re)connection; `on_down` how many requests were
    lost when the worker went away and how many began again elsewhere; `take_over` is asked for
    each whether it goes on elsewhere; `on_charges` hears what the worker charged to whom, `on_late`
    (tenant, tokens) that it has ended a request that went on elsewhere while it was silent.
    """

    def __init__(
        self,
        address: str,
        *,
        on_up: Callable[[pb.StatusReply], None] | None = None,
        on_down: Callable[[int, int], None] | None = None,
        take_over: Callable[[Flight], bool] = lambda flight: False,
        on_charges: Callable[[pb.Charges], None] = lambda told: None,
        on_late: Callable[[str, int], None] = lambda tenant, tokens: None,
    ) -> None:
        self.address = address
        self.status: pb.StatusReply | None = None
        self.heard = 0  # messages that brought a token or an end
        self.silent = False  # its stream is open, and a plain question ran out of time
        self.tokens = 0  # prompt + max_tokens of what is open here
        self._on_up = on_up
        self._on_down = on_down
        self._take_over = take_over
        self._on_charges = on_charges
        self._on_late = on_late
        self._owed: dict[str, float] = {}  # service charged elsewhere, not yet said here
        self._flights: dict[str, Flight] = {}
        self._elsewhere: dict[str, tuple[str, int]] = {}  # they left while the worker was silent
        self._outbox: _Outbox | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closing = False

    @property
    def is_up(self) -> bool:
        return self._outbox is not None and not self._closing

    @property
    def open_requests(self) -> int:
        return len(self._flights)

    def carries(self, request_id: str) -> bool:
        """Whether this request is open here."""
        return request_id in self._flights

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
        flight = Flight(ask, on_end)
        self.carry(flight)
        return flight

    def carry(self, flight: Flight) -> None:
        """Hand over a request that may have been with another worker. Raises WorkerDown."""
        if self._outbox is None or self._closing:
            raise WorkerDown(f"no worker answers at {self.address}")
        self._flights[flight.ask.request_id] = flight
        self.tokens += flight.tokens
        flight.via = self
        self._outbox.put_nowait(pb.FrontMessage(ask=flight.ask))

    def charge(self, tenants: Mapping[str, float]) -> None:
        """Tell the worker what other replicas have charged: service by tenant. A worker that is
        away is told nothing, as it will have forgotten all of it. What is told faster than it goes
        out is added up: one number a tenant is the most that ever waits."""
        if self._outbox is None or not tenants:
            return
        if not self._owed:
            self._outbox.put_nowait(_OWED)
        for tenant, service in tenants.items():
            self._owed[tenant] = self._owed.get(tenant, 0.0) + service

    def abort(self, request_id: str, *, complete: bool = False) -> None:
        """Give a request up; its end still comes, with the tokens it really cost. `complete`: it
        finishes, for its answer is whole."""
        if request_id in self._flights and self._outbox is not None:
            abort = pb.Abort(request_id=request_id, complete=complete)
            self._outbox.put_nowait(pb.FrontMessage(abort=abort))

    def hand_over(self) -> tuple[int, int]:
        """The worker is silent: nobody waits for it but who has a part of an answer and wants the
        rest. The others begin again elsewhere, or end now; should it wake up, it hears that they
        are not wanted. Returns how many that somebody waited for were lost, and how many began
        again."""
        leaving = [f for f in self._flights.values() if not f.is_half_said]
        for flight in leaving:
            self.abort(flight.ask.request_id)
            self._forget(flight.ask.request_id)
        wanted = sum(f.is_wanted for f in leaving)
        self._part_with(leaving, "the pool's worker gives no sign of life")
        moved = [f for f in leaving if f.via is not self]
        for flight in moved:
            ask = flight.ask
            # Choices of one answer: their prompt was asked for with the first of them.
            tokens = ask.max_tokens if ask.counted_with else flight.tokens
            self._elsewhere[ask.request_id] = ask.tenant, tokens
        return wanted - len(moved), len(moved)

    def let_go(self) -> None:
        """Give every open request up, and tell its reader now: this front is stopping. No new
        request is taken."""
        self._closing = True
        for request_id, flight in list(self._flights.items()):
            self.abort(request_id)
            self._forget(request_id)
            flight.finish(self._cut_short(flight, STOPPING))

    def _part_with(self, flights: Iterable[Flight], why: str) -> int:
        """They are open here no more: whoever is not taken over ends. Returns how many."""
        lost = 0
        for flight in flights:
            if self._closing or not flight.may_begin_again or not self._take_over(flight):
                lost += 1
                flight.finish(self._cut_short(flight, why))
        return lost

    def _cut_short(self, flight: Flight, why: str) -> End:
        tokens, prompt = flight.received, len(flight.ask.prompt)
        if self._closing:
            return End("aborted", STOPPING, prompt, tokens, None)
        return End("failed", why, prompt, tokens, None, lost=True)

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
        outbox: _Outbox = asyncio.Queue()
        beside = [
            asyncio.create_task(self._write(call, outbox)),
            asyncio.create_task(self._ask(stub)),
        ]
        try:
            self._go_up(status, outbox)
            while (message := await call.read()) is not grpc.aio.EOF:
                self._dispatch(message)
        finally:
            for task in beside:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                    await task

    async def _ask(self, stub: pb_grpc.WorkerStub) -> None:
        """Whether the worker is there, now and then: a process that is stopped keeps its streams,
        and without work nobody would miss it. What becomes of it is not ours."""
        while True:
            await asyncio.sleep(ASK_S)
            try:
                await stub.Status(pb.StatusRequest(), timeout=_ANSWER_S)
                self.silent = False
            except grpc.aio.AioRpcError as e:  # gone altogether: the stream ends as well
                self.silent = e.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    def _dispatch(self, message: pb.WorkerMessage) -> None:
        if message.tokens or message.ended:
            self.heard += 1
        for out in message.tokens:
            flight = self._flights.get(out.request_id)
            if flight is not None:
                flight.token(out)
        for ended in message.ended:
            flight = self._forget(ended.request_id)
            if flight is not None:
                flight.finish(_end_of(ended))
            elif ended.request_id in self._elsewhere:
                self._on_late(*self._elsewhere.pop(ended.request_id))
        if message.HasField("charges"):
            self._on_charges(message.charges)

    def _forget(self, request_id: str) -> Flight | None:
        flight = self._flights.pop(request_id, None)
        if flight is not None:
            self.tokens -= flight.tokens
        return flight

    def _go_up(self, status: pb.StatusReply, outbox: _Outbox) -> None:
        self.status = status
        self._outbox = outbox
        self._changed.set()
        if self._on_up is not None:
            self._on_up(status)

    def _go_down(self) -> None:
        if self._outbox is None:
            return
        self._outbox = None
        self.silent = False
        self._owed.clear()
        self._elsewhere.clear()
        self._changed.set()
        left, self._flights, self.tokens = self._flights, {}, 0
        lost = self._part_with(left.values(), "the pool's worker went away")
        if self._on_down is not None and not self._closing:
            self._on_down(lost, len(left) - lost)

    async def _write(self, call: grpc.aio.StreamStreamCall, outbox: _Outbox) -> None:
        """Send what is queued, in order; None closes the sending side."""
        closing = False
        while not closing:
            queued = [await outbox.get()]
            tokens = _tokens(queued[0])
            while len(queued) < _MOST_AT_ONCE and tokens < _MOST_TOKENS and not outbox.empty():
                queued.append(outbox.get_nowait())
                tokens += _tokens(queued[-1])
            closing = None in queued
            messages = [self._said(m) for m in queued[: queued.index(None) if closing else None]]
            # A write costs far more than what is written.
            if messages:
                one = messages[0] if len(messages) == 1 else pb.FrontMessage(several=messages)
                await call.write(one)
        await call.done_writing()

    def _said(self, queued: pb.FrontMessage | _Owed | None) -> pb.FrontMessage:
        if isinstance(queued, pb.FrontMessage):
            return queued
        message = pb.FrontMessage(charges=charges.to_proto(self._owed))
        self._owed = {}
        return message


def _tokens(queued: pb.FrontMessage | _Owed | None) -> int:
    return len(queued.ask.prompt) if isinstance(queued, pb.FrontMessage) else 0


def _end_of(ended: pb.Ended) -> End:
    return End(
        ended.outcome,
        ended.reason,
        ended.prompt_tokens,
        ended.output_tokens,
        ended.ttft_s or None,
        computed_tokens=ended.computed_tokens,
    )
