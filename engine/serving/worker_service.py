"""The worker's gRPC face: Drive, Status, SetPolicy, Operate, Recent, Watch. Decides nothing.

The core thread only puts a step's result on each stream's queue: messages are built and encoded
by the stream's own thread, one a step, never one a token.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

import grpc

from engine.admin.adapters import AdapterNames, Placed
from engine.clock import Clock
from engine.errors import EngineError
from engine.scheduling.request import Ask
from engine.serving import charges, shaped
from engine.serving.link import MESSAGE_BYTES
from telemetry.outbound import trace_context
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc
from telemetry.watch.stream import WatchService
from telemetry.watch.worker import History, WorkerWatch

if TYPE_CHECKING:
    from engine.admin.worker import Operator
    from engine.core import EngineCore
    from engine.core_values import StepResult

_log = logging.getLogger(__name__)
_FRONTS = 4  # Drive streams at once: one a front, and room for one that is on its way out
_THREADS = _FRONTS + 6
_WATCHERS = 8
_MOST_TOKENS = 1 << 12  # in a message to a front that is of several steps
_PIECE_BYTES = 4 << 20  # of the last hour, in one reply


class Recent(History, Protocol):
    """Whoever keeps the last hour (the exporter)."""

    def newer(self, after: int, most_bytes: int) -> tuple[list[bytes], list[bytes], int, bool]: ...


class Outbox:
    """What goes out on one Drive stream. Filled by the core thread, emptied by the stream's own."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[StepResult | pb.WorkerMessage | None] = SimpleQueue()
        self._mine: set[str] = set()
        self.closed = False
        self._lock = threading.Lock()

    def took(self, request_id: str) -> None:
        with self._lock:
            self._mine.add(request_id)

    def forget(self, request_id: str) -> None:
        with self._lock:
            self._mine.discard(request_id)

    def owns(self, request_id: str) -> bool:
        return request_id in self._mine

    def put(self, item: StepResult | pb.WorkerMessage | None) -> None:
        self._queue.put(item)

    def close(self) -> list[str]:
        """The stream is over; returns the requests it leaves behind."""
        with self._lock:
            self.closed = True
            return list(self._mine)

    def messages(self) -> Iterator[pb.WorkerMessage]:
        """One a step; one for several where the stream is behind, for a write costs far more than
        what is written. Ends with what was put before None."""
        over = False
        while not over:
            item = self._queue.get()
            message = pb.WorkerMessage() if item is None else self._message(item)
            while item is not None and len(message.tokens) < _MOST_TOKENS:
                if self._queue.empty():  # only this thread takes from it
                    break
                item = self._queue.get()
                if item is not None:
                    message.MergeFrom(self._message(item))
            over = item is None
            if message.tokens or message.ended or message.HasField("charges"):
                yield message

    def _message(self, item: StepResult | pb.WorkerMessage) -> pb.WorkerMessage:
        return item if isinstance(item, pb.WorkerMessage) else self._of_step(item)

    def _of_step(self, result: StepResult) -> pb.WorkerMessage:
        mine = self._mine
        message = pb.WorkerMessage(
            tokens=[pb.TokenOut(request_id=r, token=t) for r, t in result.tokens if r in mine]
        )
        if result.logprobs or result.waits:
            _annotate(message, result)
        for ending in result.ended:
            if ending.request_id not in mine:
                continue
            message.ended.add(
                request_id=ending.request_id,
                outcome=ending.outcome.value,
                reason=ending.reason,
                prompt_tokens=ending.prompt_tokens,
                computed_tokens=ending.computed_tokens,
                output_tokens=ending.output_tokens,
                ttft_s=ending.ttft_s or 0.0,
            )
            self.forget(ending.request_id)
        return message


def _annotate(message: pb.WorkerMessage, result: StepResult) -> None:
    """What some requests want to know beside their tokens."""
    logprobs, waits = result.logprobs or {}, result.waits or {}
    for out in message.tokens:
        told = logprobs.get(out.request_id)
        if told is not None:
            out.logprob.own = told.own
            out.logprob.tokens.extend(token for token, _ in told.top)
            out.logprob.values.extend(value for _, value in told.top)
        waited = waits.get(out.request_id)
        if waited is not None:
            out.waits.CopyFrom(pb.FirstWaits(**waited._asdict()))


class WorkerService(pb_grpc.WorkerServicer):
    """Serves one core.

    `adapters` are the pool's, by name; `stop_tokens` end a request that does not ignore them;
    `operator` does what the front hands on of an operator's acts.
    """

    def __init__(
        self,
        core: EngineCore,
        clock: Clock,
        *,
        engine: str,
        run_id: str,
        pool: str,
        adapters: Mapping[str, Placed],
        stop_tokens: frozenset[int],
        history: Recent,
        operator: Operator | None = None,
    ) -> None:
        self._core = core
        self._operator = operator
        self._clock = clock
        self._names = {"engine": engine, "run_id": run_id, "pool": pool}
        self._adapters = adapters
        # No name may change between being resolved and the request being handed over.
        self._names_lock: AbstractContextManager[object] = (
            adapters.lock if isinstance(adapters, AdapterNames) else nullcontext()
        )
        self._stop_tokens = stop_tokens
        self._history = history
        self._watch = WatchService(WorkerWatch(history).look, most=_WATCHERS)
        # Ranked on threads of its own: a watcher takes none from the front.
        self.Watch = self._watch.behaviour  # type: ignore[method-assign]
        self._outboxes: tuple[Outbox, ...] = ()
        self._lock = threading.Lock()
        self._stopping = False

    def publish(self, result: StepResult) -> None:
        """Core thread, after a step: hand the result to every stream. What was charged goes to one,
        the newest: two fronts would each tell the other replicas, and it would count twice."""
        outboxes = self._outboxes
        if result.tokens or result.ended:
            for outbox in outboxes:
                outbox.put(result)
        if result.charges and outboxes:
            outboxes[-1].put(pb.WorkerMessage(charges=charges.to_proto(result.charges)))

    def stop_admitting(self) -> None:
        """From now on no ask is taken; streams end after what is queued, and their fronts know then
        that what was not answered is to be asked elsewhere, or later."""
        with self._lock:
            self._stopping = True
            outboxes = self._outboxes
        for outbox in outboxes:
            outbox.put(None)
        self._watch.close()

    def Drive(
        self, request_iterator: Iterator[pb.FrontMessage], context: grpc.ServicerContext
    ) -> Iterator[pb.WorkerMessage]:
        outbox = Outbox()
        with self._lock:
            if self._stopping or len(self._outboxes) >= _FRONTS:
                reason = "is stopping" if self._stopping else f"has {_FRONTS} fronts already"
                context.abort(grpc.StatusCode.UNAVAILABLE, f"this worker {reason}")
            self._outboxes = (*self._outboxes, outbox)
        # However the stream ends, the thread that writes must wake up and leave.
        context.add_callback(lambda: outbox.put(None))
        threading.Thread(
            target=self._listen, args=(request_iterator, outbox), name="drive-in", daemon=True
        ).start()
        try:
            yield from outbox.messages()
        finally:
            with self._lock:
                self._outboxes = tuple(o for o in self._outboxes if o is not outbox)
            for request_id in outbox.close():
                self._core.abort(request_id)

    def Status(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> pb.StatusReply:
        now = self._core.status()
        return pb.StatusReply(
            **self._names,
            policy=now.policy,
            policy_version=now.policy_version,
            running=now.running,
            waiting=now.waiting,
            last_token_age_s=now.last_token_age_s,
            steps=now.steps,
            output_tokens=now.output_tokens,
            now_s=self._clock.now(),
            pages=now.pages,
            free_pages=now.free_pages,
            frozen=now.frozen,
            adapter_pages={name: placed.pages for name, placed in self._adapters.items()},
        )

    def SetPolicy(
        self, request: pb.SetPolicyRequest, context: grpc.ServicerContext
    ) -> pb.SetPolicyReply:
        try:
            change = self._core.set_policy(
                request.policy,
                who=request.who,
                why=request.why,
                if_version=request.if_version,
            )
        except EngineError as e:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(e))
        return pb.SetPolicyReply(version=change.version, previous=change.previous)

    def Operate(self, request: pb.OperateRequest, context: grpc.ServicerContext) -> pb.OperateReply:
        try:
            if self._operator is None:
                raise EngineError("this worker takes no operator's acts")
            return self._operator.operate(request)
        except EngineError as e:
            context.abort(grpc.StatusCode.ABORTED, str(e))
            raise

    def Recent(self, request: pb.RecentRequest, context: grpc.ServicerContext) -> pb.RecentReply:
        run_id = self._names["run_id"]
        if not request.HasField("after"):
            metrics, logs = self._history.recent(request.from_unix_s, request.to_unix_s)
            return pb.RecentReply(metrics=metrics, logs=logs, run_id=run_id)
        metrics, logs, cursor, more = self._history.newer(request.after, _PIECE_BYTES)
        return pb.RecentReply(metrics=metrics, logs=logs, cursor=cursor, more=more, run_id=run_id)

    def _listen(self, requests: Iterator[pb.FrontMessage], outbox: Outbox) -> None:
        """The stream's incoming side, on a thread of its own until the front closes it."""
        try:
            for message in (m for said in requests for m in said.several or (said,)):
                if message.HasField("ask"):
                    with self._names_lock:
                        self._take(message.ask, outbox)
                elif message.HasField("charges"):
                    self._core.charged_elsewhere(charges.of_proto(message.charges))
                elif outbox.owns(message.abort.request_id):
                    end = self._core.complete if message.abort.complete else self._core.abort
                    end(message.abort.request_id)
        except grpc.RpcError:
            _log.debug("a front went away")
        finally:
            outbox.put(None)

    def _take(self, ask: pb.Ask, outbox: Outbox) -> None:
        if self._stopping:
            return  # the stream's end is on its way, and says more to the front than a failure
        placed = self._adapters.get(ask.adapter) if ask.adapter else None
        refusal = None
        if ask.adapter and placed is None:
            refusal = f"adapter {ask.adapter!r} could not be loaded by the pool"
        else:
            outbox.took(ask.request_id)
            try:
                self._core.submit(
                    Ask(
                        request_id=ask.request_id,
                        tenant=ask.tenant,
                        prompt=tuple(ask.prompt),
                        max_tokens=ask.max_tokens,
                        arrived_s=ask.arrived_s,
                        admitted_s=ask.admitted_s,
                        adapter=placed.key if placed else None,
                        adapter_name=ask.adapter or None,
                        temperature=ask.temperature,
                        seed=ask.seed if ask.HasField("seed") else None,
                        stop_tokens=frozenset() if ask.ignore_eos else self._stop_tokens,
                        is_retry=ask.is_retry,
                        key_id=ask.key_id or None,
                        queue_timeout_s=ask.queue_timeout_s or None,
                        deadline_s=ask.deadline_s or None,
                        trace=trace_context.parse(ask.traceparent),
                        top_p=ask.top_p or 1.0,
                        logprobs=ask.logprobs if ask.HasField("logprobs") else None,
                        tell_waits=ask.tell_waits,
                        counted_with=ask.counted_with or None,
                        shaping=shaped.of_proto(ask),
                    )
                )
                if outbox.closed:
                    # The stream ended meanwhile, and its aborts came before this request did.
                    self._core.abort(ask.request_id)
            except EngineError as e:
                refusal = str(e)
        if refusal is not None:
            outbox.forget(ask.request_id)
            ended = pb.Ended(
                request_id=ask.request_id,
                outcome="failed",
                reason=refusal,
                prompt_tokens=len(ask.prompt),
            )
            outbox.put(pb.WorkerMessage(ended=[ended]))


def start_server(service: WorkerService, address: str) -> grpc.Server:
    """Listen on a unix socket. Raises EngineError when the address cannot be had."""
    server = grpc.server(
        futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="worker-grpc"),
        options=(
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
        ),
    )
    pb_grpc.add_WorkerServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    try:
        server.add_insecure_port(address)
    except RuntimeError:
        raise EngineError(
            f"the worker cannot listen at {address}: another process does, or the folder is missing"
        ) from None
    server.start()
    return server
