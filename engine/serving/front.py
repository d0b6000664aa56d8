"""The front process: HTTP, keys, quotas, tokenizer. Owns the listening socket's server and routes.

Loads no torch and no DuckDB. Logs say what broke and where, never what was in a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.clock import Clock, SystemClock
from engine.config import Settings
from engine.errors import EngineError
from engine.scheduling.quota import QuotaDoor, QuotaView
from engine.serving.api import openai
from engine.serving.api.answer import refusal
from engine.serving.api.auth import KeyRing
from engine.serving.api.catalogue import Catalogue
from engine.serving.api.completions import Completions, Tokenizer
from engine.serving.api.connections import HEAD_BYTES, PatientProtocol, allow_many_files
from engine.serving.api.openai import ApiError
from engine.serving.api.ready import STALLED_S, Progress
from engine.serving.api.usage import Ask, OwnUsage
from engine.serving.front_book import FrontBook
from engine.serving.launch import READY, Launch, say
from engine.serving.link import WorkerLink
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.records import Batch

if TYPE_CHECKING:
    from engine.admin.room import AdminRoom

_log = logging.getLogger(__name__)
_TICK_S = 0.25
_GRACE_S = 2  # for open answers, at the end
_LAST_WORD_S = 0.5
_LINK_S = 30.0

# All there is on the tenants' port.
ROUTES = (
    "POST /v1/completions, POST /v1/chat/completions, GET /v1/models, GET /v1/models/NAME, "
    "GET /v1/usage, GET /health and GET /ready"
)

Handler = Callable[[Request], Awaitable[Response]]


class Sender(Protocol):
    """The way to the store."""

    def submit(self, batch: Batch) -> None: ...
    def close(self, timeout_s: float) -> object: ...


class Front:
    """Everything behind the routes. `app` is the ASGI application."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        run_id: str,
        *,
        worker_address: str,
        tokenizer: Tokenizer,
        exporter: Sender,
        admin: AdminRoom | None = None,
        ask_store: Ask | None = None,
        stalled_s: float = STALLED_S,
    ) -> None:
        """`ask_store` answers named queries (it may block; it is called on a thread); None = no
        store. `stalled_s`: with work waiting and no word from the worker for so long, not ready."""
        self._clock = clock
        self._admin = admin
        self._exporter = exporter
        self._door = QuotaDoor(settings, clock.now())
        self.book = FrontBook(settings, clock, run_id, exporter, self._levels)
        self.link = WorkerLink(worker_address, on_up=self._worker_up, on_down=self._worker_down)
        self._usage = OwnUsage(ask_store, self._door.view)
        self._progress = Progress(stalled_s)
        self._catalogue = Catalogue(settings)
        self._keys = KeyRing(settings.tenants)
        self._started_unix = int(clock.base.unix(clock.now()))
        self._completions = Completions(
            settings,
            clock,
            keys=self._keys,
            catalogue=self._catalogue,
            tokenizer=tokenizer,
            door=self._door,
            book=self.book,
            link=self.link,
        )
        routes = Starlette(
            routes=[
                Route("/v1/completions", _answering(self._complete), methods=["POST"]),
                Route("/v1/chat/completions", _answering(self._chat), methods=["POST"]),
                Route("/v1/models", _answering(self._models), methods=["GET"]),
                Route("/v1/models/{name:path}", _answering(self._model), methods=["GET"]),
                Route("/v1/usage", _answering(self._own_usage), methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/ready", self._ready, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _no_such_route, Exception: _broken},
            lifespan=self._life,
        )
        # A redirect would send the key to wherever the caller's Host header points.
        routes.router.redirect_slashes = False
        self.app: ASGIApp = _Quiet(routes)

    @contextlib.asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        self.link.start()
        if self._admin is not None:
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(self._admin.open, self, loop)
        ticking = asyncio.create_task(self._tick(), name="front-book")
        try:
            yield
        finally:
            ticking.cancel()
            if self._admin is not None:
                await asyncio.to_thread(self._admin.close)
            await self.link.close()
            self.book.flush(self._clock.now(), closing=True)
            await asyncio.to_thread(self._exporter.close, 2.0)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._observe()
            try:
                self.book.tick(self._clock.now())
            except Exception as e:
                # Its book must not end with one tick, nor serving with its book.
                _log.error("the front's book: %s", _place(e))

    # -- what an operator may change, on this loop

    def check(self, settings: Settings) -> None:
        """Raises ConfigError for settings that could not be served with."""
        Catalogue(settings)
        KeyRing(settings.tenants)

    def apply(self, settings: Settings) -> None:
        """Keys, limits and who may name what are as here, for whoever comes from now on."""
        now_s = self._clock.now()
        for tenant in settings.tenants:
            self._door.put(tenant, now_s)
        self._keys.take(KeyRing(settings.tenants))

    def views(self, tenants: Iterable[str]) -> dict[str, QuotaView]:
        """What is left of each tenant's limits."""
        now_s = self._clock.now()
        return {t: self._door.view(t, now_s) for t in tenants}

    def _levels(self, tenant: str, now_s: float) -> tuple[float | None, float | None, int]:
        levels = self._door.levels(tenant, now_s)
        return levels.rpm, levels.tpm, levels.concurrency

    def _worker_up(self, status: pb.StatusReply) -> None:
        self.book.worker_up(status.run_id, self._clock.now())
        if self._admin is not None:
            self._admin.worker_up()

    def _worker_down(self, open_requests: int) -> None:
        _log.warning("the worker went away; %d open requests failed", open_requests)
        self.book.worker_down(open_requests, self._clock.now())

    async def _complete(self, request: Request) -> Response:
        return await self._completions.answer(request)

    async def _chat(self, request: Request) -> Response:
        return await self._completions.answer(request, chat=True)

    async def _model(self, request: Request) -> Response:
        tenant = self._completions.caller(request).tenant
        name = request.path_params["name"]
        parent = self._catalogue.parent(name, tenant)
        return JSONResponse(openai.model(name, parent, self._started_unix))

    async def _own_usage(self, request: Request) -> Response:
        tenant = self._completions.caller(request).tenant
        now_s = self._clock.now()
        unix_s = self._clock.base.unix(now_s)
        return JSONResponse(await self._usage.of(tenant.name, request.query_params, now_s, unix_s))

    async def _models(self, request: Request) -> Response:
        tenant = self._completions.caller(request).tenant
        return JSONResponse(openai.model_list(self._catalogue.models(tenant), self._started_unix))

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def _observe(self) -> None:
        self._progress.observe(self.link.heard, self.link.open_requests, self._clock.now())

    async def _ready(self, request: Request) -> Response:
        self._observe()
        stalled_s = self._progress.stalled(self._clock.now())
        if not self.link.is_up:
            reason = "the pool's worker does not answer"
        elif stalled_s is not None:
            reason = f"work waits, and no token has come for {stalled_s:.0f} s"
        else:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "waiting", "reason": reason}, status_code=503)


def _answering(handler: Handler) -> Handler:
    """Turn the refusals a handler raises into responses."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ApiError as e:
            return refusal(e)
        except ClientDisconnect:
            return Response(status_code=499)  # for nobody: the caller left before the body ended

    return answer


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail.lower()}; there are "
    message += ROUTES
    return refusal(ApiError(error.status_code, message, code="no_such_route"), error.headers)  # type: ignore[arg-type]


async def _broken(request: Request, error: Exception) -> Response:
    return refusal(
        ApiError(500, "the front failed at this request; its log says where", kind="server_error")
    )


class _Quiet:
    """Keeps an exception's text out of the log: it may quote the request. Type and place stay."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as e:
            if scope["type"] != "http":
                raise
            _log.error("%s", _place(e))


def _place(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {place.filename}:{place.lineno}"


class _Server(uvicorn.Server):
    """Says `ready` once it accepts connections and the worker has answered."""

    def __init__(self, config: uvicorn.Config, link: WorkerLink) -> None:
        super().__init__(config)
        self._link = link

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started or self.should_exit:
            return
        if await self._link.wait_up(_LINK_S):
            say(READY)
        else:
            print(f"error: no worker answers at {self._link.address}", file=sys.stderr, flush=True)
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Open answers may still end; what is left then is told so, before it would be cut off.
        asyncio.get_running_loop().call_later(_GRACE_S - _LAST_WORD_S, self._link.let_go)
        await super().shutdown(sockets)


def serve_front(launch: Launch) -> None:
    """Serve until SIGTERM or SIGINT. Raises EngineError."""
    from engine.model.text import load_tokenizer
    from telemetry.pipeline.exporter import Exporter
    from telemetry.service.client import StoreClient

    # uvicorn replays the signal after its own clean end: leave with 0 then, not by the signal.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    if launch.listen_fd is None:
        raise EngineError("the front was started without a listening socket")
    clock = SystemClock(launch.clock)
    settings, admin = launch.settings, None
    if launch.admin is not None:
        from engine.admin.start import open_room

        admin, settings = open_room(launch, launch.admin, lambda: clock.base.unix(clock.now()))
    front = Front(
        settings,
        clock,
        launch.run_id,
        worker_address=launch.worker_address,
        tokenizer=load_tokenizer(launch.settings.model),
        exporter=Exporter(launch.store_address),
        admin=admin,
        ask_store=StoreClient(launch.store_address, timeout_s=4.0).query,
    )
    allow_many_files()
    config = uvicorn_config(front.app)
    with socket.socket(fileno=launch.listen_fd) as listening:
        _Server(config, front.link).run(sockets=[listening])


def uvicorn_config(
    app: ASGIApp, http: type[PatientProtocol] = PatientProtocol, **more: Any
) -> uvicorn.Config:
    """No access log (a query string can hold a key) and no line for bytes that are no HTTP (anyone
    could fill the log with them); bounded time for open answers at the end."""
    return uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        lifespan="on",
        ws="none",
        http=http,
        h11_max_incomplete_event_size=HEAD_BYTES,
        backlog=2048,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        **more,
    )


def _leave(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> None:
    try:
        serve_front(Launch.read(Path(sys.argv[1])))
    except EngineError as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
