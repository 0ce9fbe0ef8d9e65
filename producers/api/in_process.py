"""The API without a server: what an operator's commands speak to where no server was chosen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2

from producers.api.app import create_app
from producers.api.requests import Resources
from producers.use_cases.tenants import Caller, Scope, show_tenant
from routing.jobs import Source
from sites.preview import PreviewSigner

if TYPE_CHECKING:
    from fastapi import FastAPI

    from producers.api.key_limits import Presented
    from producers.bootstrap import Installation
    from producers.use_cases.jobs import PreviewLinks

KEY = f"pmk_{'0' * 43}"
"""Has a key's form; the application asks for that before anything else."""


class _Operator(Caller):
    """Whoever may read the ledger's URL."""

    source = Source.CLI

    @property
    def actor(self) -> str:
        return "cli"


@dataclass(frozen=True, kw_only=True)
class _OperatorResources(Resources):
    """Resources whose every caller is the operator, for one tenant."""

    operator: Caller
    previews: PreviewLinks | None

    def caller(self, presented: Presented, scope: Scope, *, is_login: bool = False) -> Caller:
        return self.operator

    def seen_caller(self, presented: Presented, scope: Scope) -> None:
        return None

    @property
    def links(self) -> PreviewLinks | None:  # type: ignore[override]
        return self.previews


class InProcess(httpx2.BaseTransport):
    """Hands requests to an application in this process."""

    def __init__(self, app: FastAPI) -> None:
        self._app = httpx2.ASGITransport(app=app)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the application's whole answer; an error that it does not know is raised here."""
        return asyncio.run(self._answer(request))

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._app.handle_async_request(request)
        return httpx2.Response(answer.status_code, headers=answer.headers, content=await answer.aread())


def transport_to(installation: Installation, tenant: str) -> InProcess:
    """Return a transport to an installation's API as its operator.

    Raises:
        UnknownTenantError: the operator's fault.
    """
    with installation.ledger.begin() as session:
        show_tenant(session, tenant)
    resources = _OperatorResources(
        **vars(installation.use_cases),
        submitter=installation.submitter,
        signer=installation.signer or PreviewSigner(["unused: `previews` makes no links without a key"]),
        pages_url=installation.settings.pages.public_url,
        operator=_Operator(tenant, "operator", frozenset(Scope)),
        previews=installation.previews,
    )
    return InProcess(create_app(resources))
