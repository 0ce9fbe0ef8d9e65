"""What HTTP asks of every route, stated once: HEAD beside GET, a whole `Allow`, and no parameter that nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producers.api.problems import problem
from producers.errors import InvalidInputError

_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


class HeadAsGet:
    """ASGI middleware that answers HEAD as GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_over = False

        async def send_head(message: Message) -> None:
            nonlocal is_over
            if message["type"] == "http.response.start":
                await send(message)
            elif not is_over:
                is_over = True
                await send({"type": "http.response.body", "body": b""})

        async def receive_until_over() -> Message:
            return {"type": "http.disconnect"} if is_over else await receive()

        await self._app({**scope, "method": "GET"}, receive_until_over, send_head)


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """Return the methods that a request's path takes; what the document names (`/jobs/batch`) is no job's id."""
    stated = app.openapi()["paths"].get(scope["path"])
    taken = [
        method
        for method in _METHODS
        if (method.lower() in stated if stated else _is_matched(app.routes, {**scope, "method": method}))
    ]
    return sorted([*taken, "HEAD"]) if "GET" in taken else taken


def _is_matched(routes: Iterable[BaseRoute], scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in routes)


def name_allowed_methods(app: FastAPI) -> None:
    """Let 405 name every method of the path; Starlette names those of one route."""

    async def refuse(request: Request, _: Exception) -> JSONResponse:
        allow = ", ".join(allowed_methods(app, request.scope))
        return problem(405, "method_not_allowed", f"this path takes {allow}", headers={"Allow": allow})

    app.add_exception_handler(405, refuse)


async def refuse_unknown_query(request: Request) -> None:
    """Refuse a query parameter that the route does not have: a misspelt filter would show everything.

    Raises:
        InvalidInputError: the caller's fault.
    """
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            raise InvalidInputError("query", f"must not have {_listed(known)}")


def create_router(prefix: str, *, tags: Sequence[str] = (), is_strict: bool = True) -> APIRouter:
    """Return a router whose operations have their functions' names; a strict one refuses unknown query parameters."""
    return APIRouter(
        prefix=prefix,
        tags=[*tags],
        dependencies=[Depends(refuse_unknown_query)] if is_strict else [],
        generate_unique_id_function=lambda route: route.name,
    )


def _listed(known: Iterable[str]) -> str:
    names = ", ".join(sorted(known))
    return f"other parameters than {names}" if names else "any parameters"
