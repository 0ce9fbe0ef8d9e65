"""`broker`: who may do what at the broker."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

import typer

from producers.commands.context import USAGE, err, fail
from routing.jobs import SITE_NAME_RULE, check_site_name

app = typer.Typer(no_args_is_help=True, help="The broker's users.")
_SECRET_BYTES = 32


@app.callback()
def _broker() -> None:
    """Keep `acl` a command of its own, also while it is the only one."""


@app.command("acl")
def acl(
    tenant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only the user of this tenant's own door, `intake.NAME`; repeatable."),
    ] = None,
) -> None:
    """Print lines for the ACL file of Valkey or Redis, each with a new password. The passwords are shown once.

    The lines go to stdout and the passwords to stderr, so that only hashes get into the file.
    """
    from routing.broker_users import fleet_users, tenant_user

    try:
        users = tuple(tenant_user(check_site_name(name)) for name in tenant) if tenant else fleet_users()
    except ValueError:
        fail(f"--tenant: must be {SITE_NAME_RULE}", code=USAGE)
    for user in users:
        password = secrets.token_urlsafe(_SECRET_BYTES)
        typer.echo(user.line(hashlib.sha256(password.encode()).hexdigest()))
        err.print(f"{user.name}: {password}", markup=False)
    if not tenant:
        typer.echo("user default reset off")
