"""A worker without a model: the real gRPC service over a core that answers as told."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.clock import SystemClock
from engine.errors import EngineError
from engine.scheduling.plan import TokenLogprobs
from engine.scheduling.request import Ask, Outcome
from engine.scheduling.waits import FirstWaits
from engine.serving.worker_service import Placed, WorkerService, start_server
from telemetry.records import Batch

EOS = 0
WAITS = FirstWaits(slot=1.5, budget=0.25, kv=0.0, adapter=2.0, prefill=0.125)
ADAPTERS = {"ada": Placed("hash-of-ada", 20), "bob-law": Placed("hash-of-law", 20)}


def step(
    tokens: list[tuple[str, int]] | None = None,
    ended: list[SimpleNamespace] | None = None,
    logprobs: dict[str, TokenLogprobs] | None = None,
    waits: dict[str, FirstWaits] | None = None,
) -> Any:
    return SimpleNamespace(
        tokens=tuple(tokens or ()),
        ended=tuple(ended or ()),
        logprobs=logprobs,
        waits=waits,
        charges=None,
    )


def ending(
    request_id: str,
    outcome: Outcome = Outcome.FINISHED,
    reason: str = "length",
    prompt_tokens: int = 3,
    output_tokens: int = 0,
    ttft_s: float | None = None,
) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=request_id,
        outcome=outcome,
        reason=reason,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        computed_tokens=0,
        ttft_s=ttft_s,
    )


class FakeCore:
    """Answers every ask with `reply`'s tokens at once, or keeps it until the test speaks.

    Stands for the core's side of the contract: `submit`, `abort`, `set_policy`, `status`.
    """

    def __init__(self, reply: Callable[[Ask], list[int]] | None = None) -> None:
        self.reply = reply
        self.asks: list[Ask] = []
        self.aborted: list[str] = []
        self.completed: list[str] = []
        self.made: dict[str, int] = {}
        self.publish: Callable[[Any], None] = lambda result: None
        self.changed = threading.Condition()
        self.policy, self.version = "fcfs", 1
        self.pages = 1000

    def submit(self, ask: Ask) -> None:
        with self.changed:
            self.asks.append(ask)
            self.changed.notify_all()
        if self.reply is None:
            return
        tokens = self.reply(ask)[: ask.max_tokens]
        stopped = bool(tokens) and tokens[-1] in ask.stop_tokens
        for i, token in enumerate(tokens):
            told = None
            if ask.logprobs is not None:
                top = tuple((token + k, -0.5 - k) for k in range(ask.logprobs))
                told = {ask.request_id: TokenLogprobs(-0.5, top)}
            waits = {ask.request_id: WAITS} if ask.tell_waits and i == 0 else None
            self.publish(step([(ask.request_id, token)], logprobs=told, waits=waits))
        self.end(ask, "stop" if stopped else "length", len(tokens))

    def make(self, ask: Ask, tokens: list[int]) -> None:
        """Tokens of a request that goes on."""
        self.made[ask.request_id] = self.made.get(ask.request_id, 0) + len(tokens)
        self.publish(step([(ask.request_id, t) for t in tokens]))

    def end(
        self, ask: Ask, reason: str, output_tokens: int, outcome: Outcome = Outcome.FINISHED
    ) -> None:
        self.publish(
            step(
                ended=[
                    ending(ask.request_id, outcome, reason, len(ask.prompt), output_tokens, 0.01)
                ]
            )
        )

    def abort(self, request_id: str) -> None:
        with self.changed:
            self.aborted.append(request_id)
            self.changed.notify_all()
        ask = next((a for a in self.asks if a.request_id == request_id), None)
        if ask is not None:
            made = self.made.get(request_id, 0)
            self.end(ask, "the client left", made, Outcome.ABORTED)

    def complete(self, request_id: str) -> None:
        with self.changed:
            self.completed.append(request_id)
            self.changed.notify_all()
        ask = next((a for a in self.asks if a.request_id == request_id), None)
        if ask is not None:
            self.end(ask, "stop", self.made.get(request_id, 0))

    def set_policy(self, policy: str, *, who: str, why: str, if_version: int = 0) -> Any:
        if policy not in ("fcfs", "vtc"):
            raise EngineError(f"policy {policy!r}: expected one of vtc, fcfs")
        if if_version and if_version != self.version:
            raise EngineError(f"version {if_version} is not in force, {self.version} is")
        previous, self.policy = self.policy, policy
        self.version += 1
        return SimpleNamespace(version=self.version, previous=previous)

    def status(self) -> Any:
        return SimpleNamespace(
            policy=self.policy,
            policy_version=self.version,
            running=len(self.asks),
            waiting=0,
            last_token_age_s=0.0,
            steps=7,
            output_tokens=11,
            pages=self.pages,
            free_pages=self.pages,
            frozen=False,
        )

    def wait_for(self, claim: Callable[[], bool], timeout_s: float = 10.0) -> bool:
        with self.changed:
            return self.changed.wait_for(claim, timeout_s)


class FakeExporter:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.closed = False

    def submit(self, batch: Batch) -> None:
        self.batches.append(batch)

    def recent(self, start: float, end: float) -> tuple[list[bytes], list[bytes]]:
        return [b"metrics"], [b"logs"]

    def close(self, timeout_s: float = 0.0) -> None:
        self.closed = True

    def rows(self, kind: type) -> list[Any]:
        return [
            row
            for batch in self.batches
            for row in (*batch.minutes, *batch.logs)
            if isinstance(row, kind)
        ]


class FakeTokenizer:
    """One token a character; 0 ends a text. Loads nothing."""

    eos_ids = (EOS,)
    vocab_size = 0x110000
    longest_bytes = 4

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        return self.encode("".join(f"{m['role']}:{m['content']}\n" for m in messages))

    def piece(self, token: int) -> bytes:
        return chr(token).encode("utf-8", "replace") if token != EOS else b""

    def stream(self) -> FakeDecoder:
        return FakeDecoder()


class FakeDecoder:
    """Holds every character back by one token, as a decoder does with half a character."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, token: int) -> str:
        shown, self._held = self._held, chr(token)
        return shown

    def finish(self) -> str:
        shown, self._held = self._held, ""
        return shown


class FakeWorker:
    """A worker process's gRPC side, in this process. May be killed and started again."""

    def __init__(
        self,
        core: FakeCore,
        folder: Path,
        run_id: str = "run-1",
        *,
        pool: str = "main",
        socket: str = "worker.sock",
    ) -> None:
        self.core = core
        self.pool = pool
        self.address = f"unix:{folder / socket}"
        self.start(run_id)

    def start(self, run_id: str) -> None:
        service = WorkerService(
            self.core,  # type: ignore[arg-type]
            SystemClock(),
            engine="e",
            run_id=run_id,
            pool=self.pool,
            adapters=ADAPTERS,
            stop_tokens=frozenset({EOS}),
            history=FakeExporter(),
        )
        self.service = service
        self.core.publish = service.publish
        self._server = start_server(service, self.address)

    def die(self) -> None:
        """As a crash looks from outside: streams break, the socket answers no more."""
        self._server.stop(0).wait(10)

    def stop(self) -> None:
        self.service.stop_admitting()
        self._server.stop(0.2).wait(10)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for unix sockets."""
    folder = Path(tempfile.mkdtemp(prefix="ts-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
