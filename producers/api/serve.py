"""Run the HTTP door as a process with two listeners: the API, and the pages, which need an origin of their own.

It stops taking requests at SIGTERM, finishes those under way, then returns.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
import uvloop
from fastapi import FastAPI

from producers.api.app import create_app
from producers.api.resources import Resources
from producers.bootstrap import Installation
from producers.config import ApiConfig, PagesConfig
from producers.console.sessions import Sessions
from producers.console.web import Console
from producers.pages.app import create_pages_app, is_same_origin
from producers.pages.resources import PageResources
from routing.config import secrets_of
from routing.errors import PolicyError

STOP_SECONDS = 10
"""How long requests under way may take once a stop was asked for. Event streams are closed at once."""


class _Server(uvicorn.Server):
    """A server that ends event streams before it waits for requests under way, and leaves signals to its process."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if (stopping := getattr(self._app.state, "stopping", None)) is not None:
            stopping.set()
        await super().shutdown(sockets)


def create_server(app: FastAPI, *, config: ApiConfig | PagesConfig) -> uvicorn.Server:
    """Return a server that has not started. Its caller has configured logging."""
    return _Server(
        app,
        uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,  # the observer logs each request, by route and without tokens
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        ),
    )


def serve(installation: Installation) -> None:
    """Serve until SIGTERM or SIGINT, then close what was opened.

    Raises:
        PolicyError: the operator's fault: there is no key to sign previews with, or API and pages share an origin.
    """
    settings = installation.settings
    if installation.signer is None:
        raise PolicyError("POINTSMAN_PREVIEW__KEYS: at least one key is needed to sign previews")
    if is_same_origin(settings.api.public_url, settings.pages.public_url):
        raise PolicyError("POINTSMAN_PAGES__PUBLIC_URL: must be another origin than POINTSMAN_API__PUBLIC_URL")
    resources = Resources(
        ledger=installation.ledger,
        submitter=installation.submitter,
        den=installation.den,
        signer=installation.signer,
        policy=installation.policy,
        pages_url=settings.pages.public_url,
        environment=installation.environment,
        vocabularies=installation.vocabularies,
        accounts=settings.accounts,
        known_keys=secrets_of(settings),
    )
    pages = PageResources(
        ledger=installation.ledger,
        den=installation.den,
        signer=installation.signer,
        preview_seconds=installation.policy.approval.preview_hours * 3600,
        console_url=settings.api.public_url.rstrip("/"),
    )
    console = Console(
        sessions=Sessions([key.get_secret_value() for key in settings.preview.keys]),
        is_secure=settings.api.public_url.startswith("https://"),
        audit_key=settings.audit.signing_key.get_secret_value().encode(),
    )
    api_app = create_app(resources, console=console)
    pages_app = create_pages_app(pages, metrics=api_app.state.metrics)
    servers = (create_server(api_app, config=settings.api), create_server(pages_app, config=settings.pages))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(servers))
    finally:
        installation.ledger.close()


async def _run(servers: Sequence[uvicorn.Server]) -> None:
    """Serve until a signal comes or one of the servers ends; a second signal does not wait for requests under way."""

    def stop() -> None:
        for server in servers:
            server.force_exit = server.should_exit
            server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    tasks = [asyncio.create_task(server.serve()) for server in servers]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)
