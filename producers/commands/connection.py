"""How users' commands reach the API: the chosen server, or the installation of this machine in this process.

Both speak the API by the same client, so that a command has one way to what it prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Annotated, TypeVar
from uuid import UUID

import typer

from producers.commands.context import MOST_ALIKE, USAGE, check_ids, context_of, fail, installed, whole_id
from producers.errors import ServerChoiceError
from producers.servers import KEY, URL, Server, checked_server, chosen_server, running_up

if TYPE_CHECKING:
    from pointsman_client import Client

DEFAULT_TENANT = "demo"
TRIES = 3
LONGEST_PAUSE_SECONDS = 5.0
_MAX_COMPLETIONS = 50

_HINTS = {
    "no job ": "`pointsman jobs` lists the jobs",
    "no site ": "`pointsman site list` lists the sites",
    "the site has no such published release": "`pointsman site releases NAME` lists them",
    "no gate ": "`pointsman gate list` lists the open gates",
    "job ": "`pointsman job ID` shows its state",
}
"""What a user can do next, by how the API's answer begins."""


@contextmanager
def connected(ctx: typer.Context) -> Iterator[Client]:
    """Yield a client of the API; its errors become one clear line and the right exit code."""
    from pointsman_client import ApiError, InvalidRequestError, NotAllowedError, PointsmanError, UnreachableError

    try:
        with open_client(ctx) as client:
            yield client
    except ServerChoiceError as error:
        fail(str(error), code=USAGE)
    except InvalidRequestError as error:
        rules = [f"{item.field}: {item.rule}" for item in error.problem.errors] or [error.problem.detail]
        fail("\n  ".join(["refused", *rules]), code=USAGE, problem=error.problem)
    except NotAllowedError as error:
        hint = "; `pointsman login URL` stores another key" if error.problem.status == 401 else ""
        fail(f"{error.problem.detail}{hint}", problem=error.problem)
    except ApiError as error:
        detail = error.problem.detail or f"the server answered {error.problem.status}"
        hint = next((f"; {hint}" for start, hint in _HINTS.items() if detail.startswith(start)), "")
        fail(f"{detail}{hint}", problem=error.problem)
    except UnreachableError as error:
        fail(f"the server cannot be reached: {error}")
    except PointsmanError as error:
        fail(str(error))


@contextmanager
def open_client(ctx: typer.Context) -> Iterator[Client]:
    """Yield a client of the chosen server, or of the installation of this machine."""
    environment = context_of(ctx).given
    tenant = ctx.params.get("tenant")
    server = chosen_server(environment)
    if server is not None and tenant is not None:
        raise ServerChoiceError(
            f"--tenant is for an operator beside the ledger; here the key of {server.origin} names the tenant"
        )
    if server is None and tenant is None:
        server = _up_server(running_up(environment))
    if server is not None:
        with client_of(server) as client:
            yield client
        return
    with installed(ctx) as installation:
        from pointsman_client import Client

        from monitoring import traces
        from producers.api import in_process

        traces.start(installation.settings.tracing, program="cli")
        transport = in_process.transport_to(installation, tenant or DEFAULT_TENANT)
        with Client("http://in-process", in_process.KEY, tries=1, transport=transport) as client:
            yield client


def _up_server(settings: dict[str, str]) -> Server | None:
    if URL not in settings or KEY not in settings:
        return None
    return checked_server(settings[URL], settings[KEY], origin="`pointsman up`")


def client_of(server: Server) -> Client:
    """Return a client of a server."""
    from pointsman_client import Client

    return Client(server.url, server.key, tries=TRIES, longest_pause=LONGEST_PAUSE_SECONDS)


def job_id_of(client: Client, text: str) -> UUID:
    """Return a job's id, or a run's, which is a job, from itself or its start or end."""

    def known(part: str) -> list[UUID]:
        return [job.id for job in client.list_jobs(text=part, limit=MOST_ALIKE).jobs]

    return whole_id(text, known, kind="job", listed_by="pointsman jobs")


def gate_id_of(client: Client, text: str) -> UUID:
    """Return a gate's id from itself or, if it is open, from its start or end."""
    return whole_id(
        text, lambda _: [gate.id for gate in client.list_gates()], kind="open gate", listed_by="pointsman gate list"
    )


def release_id_of(client: Client, site: str, text: str | None) -> UUID | None:
    """Return the id of a site's published release from itself or its start or end; None for none."""
    if text is None:
        return None

    def known(_: str) -> list[UUID]:
        return [release.id for release in client.list_releases(site, limit=MOST_ALIKE)]

    return whole_id(text, known, kind="release", listed_by=f"pointsman site releases {site}")


# Shell completion. It reports no errors: what cannot be read completes to nothing.

ItemT = TypeVar("ItemT")


def complete_sites(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tenant's sites whose names start with this."""
    names = _complete(ctx, lambda client: [site.name for site in client.list_sites()])
    return [name for name in names if name.startswith(incomplete)][:_MAX_COMPLETIONS]


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the tenant's newest jobs whose ids start with this, each with its state and prompt."""
    jobs = _complete(ctx, lambda client: client.list_jobs(limit=_MAX_COMPLETIONS).jobs)
    items = ((str(job.id), f"{job.state}: {' '.join(job.prompt.split())[:60]}") for job in jobs)
    return [item for item in items if item[0].startswith(incomplete)]


def _complete(ctx: typer.Context, read: Callable[[Client], list[ItemT]]) -> list[ItemT]:
    from pointsman_client import PointsmanError

    with redirect_stderr(StringIO()):
        try:
            with open_client(ctx) as client:
                return read(client)
        except (PointsmanError, ServerChoiceError, typer.Exit):
            return []


JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id, or as much of it as is no other's.",
        autocompletion=complete_jobs,
        callback=check_ids,
    ),
]
