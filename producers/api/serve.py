"""Run the HTTP door as a process: it stops taking requests at SIGTERM, finishes those under way, then returns."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from producers.api.app import create_app
from producers.api.resources import Resources
from producers.bootstrap import Installation
from producers.config import ApiConfig

STOP_SECONDS = 10
"""How long requests under way may take once a stop was asked for. Event streams are closed at once."""


class _Server(uvicorn.Server):
    """A server that ends event streams before it waits for requests under way."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.stopping.set()
        await super().shutdown(sockets)


def create_server(app: FastAPI, *, config: ApiConfig) -> uvicorn.Server:
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
        ValueError: the operator's fault: there is no key to sign previews with.
    """
    if installation.signer is None:
        raise ValueError("POINTSMAN_PREVIEW__KEYS: at least one key is needed to sign previews")
    resources = Resources(
        ledger=installation.ledger,
        submitter=installation.submitter,
        den=installation.den,
        signer=installation.signer,
        policy=installation.policy,
        public_url=installation.settings.api.public_url,
        environment=installation.environment,
    )
    try:
        create_server(create_app(resources), config=installation.settings.api).run()
    finally:
        installation.ledger.close()
