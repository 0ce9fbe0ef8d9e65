"""`pointsman login` and `logout`: the servers that users' commands speak to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from producers.commands.connection import client_of
from producers.commands.context import USAGE, AsJson, context_of, fail, print_result, read_plain_file
from producers.errors import ServerChoiceError
from producers.servers import DEFAULT_PROFILE, PROFILE, checked_server, profile_path, write_profile

app = typer.Typer(no_args_is_help=True)

_MAX_KEY_BYTES = 1_000


@app.command()
def login(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="The API's, such as https://pointsman.example.com.")],
    key_file: Annotated[
        Path | None, typer.Option("--key-file", metavar="FILE", help="Holds the API key; without it stdin does.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check an API key with a server, and use both from now on. `--profile NAME` keeps several servers apart."""
    from pointsman_client import NotAllowedError, PointsmanError

    environment = context_of(ctx).given
    name = environment.get(PROFILE) or DEFAULT_PROFILE
    try:
        path = profile_path(environment, name)
        server = checked_server(url, _read_key(key_file), origin="login")
        with client_of(server) as client:
            client.list_jobs(limit=1)
        write_profile(path, server)
    except ServerChoiceError as error:
        fail(str(error), code=USAGE)
    except NotAllowedError as error:
        fail(f"{url} refuses the key: {error.problem.detail}", problem=error.problem)
    except PointsmanError as error:
        fail(f"{url}: no API answers there: {error}")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    print_result({"profile": name, "url": server.url}, f"profile {name}: {server.url}")


def _read_key(path: Path | None) -> str:
    if path is not None:
        data = read_plain_file(path, command="login", limit=_MAX_KEY_BYTES)
        return data.decode(errors="replace").strip()
    if sys.stdin.isatty():
        return str(typer.prompt("API key", hide_input=True, err=True)).strip()
    return sys.stdin.readline(_MAX_KEY_BYTES).strip()


@app.command()
def logout(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Forget a server and its key. The key stays valid: `pointsman key revoke` ends it."""
    environment = context_of(ctx).given
    name = environment.get(PROFILE) or DEFAULT_PROFILE
    try:
        path = profile_path(environment, name)
        path.unlink()
    except ServerChoiceError as error:
        fail(str(error), code=USAGE)
    except FileNotFoundError:
        fail(f"there is no profile {name!r}")
    print_result({"profile": name}, f"profile {name} is removed")
