"""The way of a request to its handler, and what becomes of one that fails. Owns no route.

What most requests ask for goes straight to its handler; a framework's way there, and back with
every piece of a stream, costs more than the handler.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from engine.serving.api.answer import refusal
from engine.serving.api.openai import ApiError
from engine.serving.error_place import error_place

_log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class Routed:
    """The ASGI app over `routes`, which everything goes to that has no path of its own of one
    method. Keeps an exception's text out of the log: it may quote the request. Type and place
    stay."""

    def __init__(self, routes: Starlette) -> None:
        self._app = routes
        self._straight: dict[tuple[str, str], Handler] = {
            (method, route.path): route.endpoint
            for route in routes.routes
            if isinstance(route, Route) and not route.param_convertors
            for method in (route.methods or ())
            if route.methods == {method}
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = None
        if scope["type"] == "http":
            handler = self._straight.get((scope["method"], scope["path"]))
        try:
            if handler is None:
                await self._app(scope, receive, send)
            else:
                await _answer(handler, scope, receive, send)
        except Exception as e:
            if scope["type"] != "http":
                raise
            _log.error("%s", error_place(e))


async def _answer(handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
    """Raises what the handler or its answer does, when the caller has been told."""
    started = False

    async def told(message: Message) -> None:
        nonlocal started
        started = True
        await send(message)

    request = Request(scope, receive, told)
    try:
        response = await handler(request)
        await response(scope, receive, told)
    except Exception as e:
        if not started:
            await (await broken(request, e))(scope, receive, send)
        raise


async def broken(request: Request, error: Exception) -> Response:
    """What a caller hears of a fault of ours: nothing of it."""
    return refusal(
        ApiError(500, "the front failed at this request; its log says where", kind="server_error")
    )
