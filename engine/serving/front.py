"""The front process: HTTP, keys, quotas, tokenizer. Owns the listening socket's server and routes.

Loads no torch and no DuckDB. Logs say what broke and where, never what was in a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from engine.clock import Clock, SystemClock
from engine.config import Settings
from engine.errors import EngineError
from engine.scheduling.quota import QuotaDoor, QuotaView
from engine.serving.api import openai
from engine.serving.api.answer import refusal
from engine.serving.api.auth import KeyRing
from engine.serving.api.catalogue import Catalogue
from engine.serving.api.completions import Completions, Tokenizer
from engine.serving.api.connections import (
    HEAD_BYTES,
    KEEP_ALIVE_S,
    PatientProtocol,
    PatientServer,
    too_few_files,
)
from engine.serving.api.openai import ApiError
from engine.serving.api.ready import STALLED_S
from engine.serving.api.routing import Handler, Routed, broken
from engine.serving.api.usage import Ask, OwnUsage
from engine.serving.launch import READY, Launch, WorkerPlace, say
from engine.serving.loop_watch import LoopWatch, ends
from engine.serving.pools import Pools
from telemetry.records import Batch

if TYPE_CHECKING:
    from engine.admin.room import AdminRoom

_TICK_S = 0.25
_GRACE_S = 2  # for open answers, at the end
_LAST_WORD_S = 0.5
_LINK_S = 30.0

# All there is on the tenants' port.
ROUTES = (
    "POST /v1/completions, POST /v1/chat/completions, GET /v1/models, GET /v1/models/NAME, "
    "GET /v1/usage, GET /health and GET /ready"
)


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
        workers: Sequence[WorkerPlace],
        tokenizer: Tokenizer,
        exporter: Sender,
        admin: AdminRoom | None = None,
        ask_store: Ask | None = None,
        stalled_s: float = STALLED_S,
    ) -> None:
        """`workers`: of all pools, each has one at least. `ask_store` answers named queries (it may
        block; it is called on a thread); None = no store. `stalled_s`: with work waiting and no
        word from a worker for so long, it is not ready."""
        self._clock = clock
        self._admin = admin
        self._exporter = exporter
        self._door = QuotaDoor(settings, clock.now())
        self.pools = Pools(
            settings,
            clock,
            run_id,
            workers,
            exporter=exporter,
            levels=self._levels,
            on_up=self._worker_up,
            stalled_s=stalled_s,
        )
        self._usage = OwnUsage(ask_store, self._door.view)
        self._catalogue = Catalogue(settings)
        self._keys = KeyRing(settings.tenants)
        self._in_force = {t.name: t for t in settings.tenants}
        self._checked: tuple[Settings, KeyRing] | None = None
        self._started_unix = int(clock.base.unix(clock.now()))
        self._completions = Completions(
            clock,
            keys=self._keys,
            catalogue=self._catalogue,
            tokenizer=tokenizer,
            door=self._door,
            pools=self.pools,
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
            exception_handlers={HTTPException: _no_such_route, Exception: broken},
            lifespan=self._life,
        )
        # A redirect would send the key to wherever the caller's Host header points.
        routes.router.redirect_slashes = False
        self.app: ASGIApp = Routed(routes)

    @contextlib.asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        self.pools.start()
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
            await self.pools.close()
            self._completions.intake.turns.close()
            await asyncio.to_thread(self._exporter.close, 2.0)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.pools.tick()

    # -- what an operator may change, on this loop

    def check(self, settings: Settings) -> None:
        """Raises ConfigError for settings that could not be served with. On any thread: it is
        what `apply` would take long for."""
        Catalogue(settings)
        self._checked = (settings, KeyRing(settings.tenants))

    def apply(self, settings: Settings) -> None:
        """Keys, limits, who may name what and whose pool is which are as here, for whoever comes
        from now on; what is under way ends where it is. With settings that were checked just
        before it costs the loop as much as tenants have changed."""
        now_s, was = self._clock.now(), self._in_force
        for tenant in settings.tenants:
            before = was.get(tenant.name)
            if before is not tenant and before != tenant:
                self._door.put(tenant, now_s)
        checked = self._checked
        if checked is not None and checked[0].tenants == settings.tenants:
            self._keys.take(checked[1])
        else:
            self._keys.take(KeyRing(settings.tenants))
        self._in_force = {t.name: t for t in settings.tenants}
        self.pools.take(settings)

    def views(self, tenants: Iterable[str]) -> dict[str, QuotaView]:
        """What is left of each tenant's limits."""
        now_s = self._clock.now()
        return {t: self._door.view(t, now_s) for t in tenants}

    def _levels(self, tenant: str, now_s: float) -> tuple[float | None, float | None, int]:
        levels = self._door.levels(tenant, now_s)
        return levels.rpm, levels.tpm, levels.concurrency

    def _worker_up(self, place: WorkerPlace) -> None:
        if self._admin is not None:
            self._admin.worker_up(place.pool, place.replica)

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

    async def _ready(self, request: Request) -> Response:
        asked = request.query_params.get("pool")
        if asked is None:
            works, state = self.pools.ready()
        else:
            pool = self.pools.named(asked)
            if pool is None:
                return _no_such_pool(asked)
            state = pool.state(self._clock.now())
            works = state["status"] == "ready"
        return JSONResponse(state, status_code=200 if works else 503)


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


def _no_such_pool(name: str) -> Response:
    message = f"pool = {openai.show(name)}: there is no such pool; GET /ready names all"
    return refusal(ApiError(404, message, code="no_such_pool", param="pool"))


class _Server(PatientServer):
    """Says `ready` once it accepts connections and every worker has answered."""

    def __init__(self, config: uvicorn.Config, pools: Pools, hung_s: float) -> None:
        super().__init__(config)
        self._pools = pools
        self._watch = LoopWatch(hung_s, ends("a turn of the front's loop"))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started or self.should_exit:
            return
        self._watch.follow(asyncio.get_running_loop())
        self._watch.start()
        silent = await self._pools.wait_up(_LINK_S)
        if silent is None:
            say(READY)
        else:
            print(f"error: no worker answers at {silent.address}", file=sys.stderr, flush=True)
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Open answers may still end; what is left then is told so, before it would be cut off.
        asyncio.get_running_loop().call_later(_GRACE_S - _LAST_WORD_S, self._pools.let_go)
        try:
            await super().shutdown(sockets)
        finally:
            self._watch.stop()


def serve_front(launch: Launch) -> None:
    """Serve until SIGTERM or SIGINT. Raises EngineError."""
    from engine.model.text import load_tokenizer
    from engine.serving.https import follow
    from telemetry.pipeline.exporter import Exporter
    from telemetry.service.client import StoreClient
    from telemetry.service.tls import TlsFiles

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
        workers=launch.workers,
        tokenizer=load_tokenizer(launch.settings.model),
        exporter=Exporter(launch.store_address),
        admin=admin,
        ask_store=StoreClient(launch.store_address, timeout_s=4.0).query,
    )
    if few := too_few_files():
        print(few, file=sys.stderr, flush=True)
    tls: dict[str, Any] = {}
    if launch.tls_cert:
        tls = {"ssl_certfile": launch.tls_cert, "ssl_keyfile": launch.tls_key}
    config = uvicorn_config(front.app, **tls)
    config.load()
    if config.ssl is not None:
        follow(config.ssl, TlsFiles(Path(launch.tls_cert), Path(launch.tls_key)))
    with socket.socket(fileno=launch.listen_fd) as listening:
        _Server(config, front.pools, settings.hung_s).run(sockets=[listening])


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
        timeout_keep_alive=KEEP_ALIVE_S,
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
