"""`key`, `queue`, `audit`, `doctor`: what operators do."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from monitoring import audit as audit_trail
from monitoring.ledger.migrate import is_current
from monitoring.ledger.runway import pause as pause_queue
from producers import keys
from producers.commands.context import FAILED, USAGE, Tenant, clear_errors, context_of, fail, out
from routing.tiers import QueueName

key_app = typer.Typer(no_args_is_help=True, help="API keys.")
queue_app = typer.Typer(no_args_is_help=True, help="Queues.")
audit_app = typer.Typer(no_args_is_help=True, help="The audit trail.")
app = typer.Typer()


@key_app.command("create")
def create_key(
    ctx: typer.Context,
    name: Annotated[str, typer.Option(help="What the key is called.")] = "default",
    scope: Annotated[list[keys.Scope] | None, typer.Option(help="What it allows; repeatable.")] = None,
    provider: Annotated[str | None, typer.Option(help="For a new tenant: whose models it pays for.")] = None,
    tenant: Tenant = "demo",
) -> None:
    """Make an API key (and its tenant, if it is new). The secret is shown once."""
    with clear_errors(), context_of(ctx).installation().ledger.begin() as session:
        keys.create_tenant(session, tenant, provider=provider)
        secret = keys.create_key(session, tenant, name=name, scopes=scope or tuple(keys.Scope))
    typer.echo(secret)


@queue_app.command("pause")
def pause(ctx: typer.Context, queue: QueueName) -> None:
    """Send no more jobs to a queue; what runs goes on. Survives restarts."""
    with clear_errors(), context_of(ctx).installation().ledger.begin() as session:
        pause_queue(session, queue, is_paused=True)
    out.print(f"{queue.value} is paused")


@queue_app.command("resume")
def resume(ctx: typer.Context, queue: QueueName) -> None:
    """Send jobs to a queue again."""
    with clear_errors(), context_of(ctx).installation().ledger.begin() as session:
        pause_queue(session, queue, is_paused=False)
    out.print(f"{queue.value} is resumed")


def _signing_key(ctx: typer.Context) -> bytes:
    key = context_of(ctx).installation().settings.audit.signing_key.get_secret_value()
    if not key:
        fail("POINTSMAN_AUDIT__SIGNING_KEY is needed to check the seals", code=USAGE)
    return key.encode()


@audit_app.command("verify")
def verify(
    ctx: typer.Context,
    head: Annotated[str | None, typer.Option(help="The head that you kept: then a cut-off tail is found, too.")] = None,
) -> None:
    """Check the whole chain. Exit 1 when anything was edited, deleted, inserted or reordered."""
    with clear_errors(), context_of(ctx).installation().ledger.begin() as session:
        verdict = audit_trail.verify(session, signing_key=_signing_key(ctx), expected_head=head)
    out.print(f"{verdict.rows} rows in {verdict.seals} seals, {verdict.unsealed} not yet sealed; head {verdict.head}")
    for problem in verdict.problems:
        out.print(str(problem), markup=False)
    raise typer.Exit(0 if verdict.ok else FAILED)


@audit_app.command("export")
def export(ctx: typer.Context) -> None:
    """Write the trail as JSON lines on stdout."""
    with clear_errors(), context_of(ctx).installation().ledger.begin() as session:
        audit_trail.export(session, sys.stdout)


@app.command()
def doctor(ctx: typer.Context) -> None:
    """Say what of an installation is reachable, and what to do about the rest."""
    from redis import Redis
    from redis.exceptions import RedisError
    from sqlalchemy.exc import DBAPIError

    installation = context_of(ctx).installation()
    problems = 0

    def say(name: str, is_fine: bool, hint: str) -> None:
        nonlocal problems
        problems += 0 if is_fine else 1
        out.print(f"{'ok ' if is_fine else 'NO '} {name}{'' if is_fine else ': ' + hint}", markup=False)

    try:
        say("ledger", is_current(installation.ledger.engine), "its schema is not current: run `pointsman migrate`")
    except DBAPIError:
        say("ledger", False, "cannot be reached at POINTSMAN_LEDGER__URL")
    try:
        broker: Redis = Redis.from_url(installation.settings.broker.url, socket_timeout=3, socket_connect_timeout=3)
        policy = broker.config_get("maxmemory-policy")
        say("broker", True, "")
        is_safe = isinstance(policy, dict) and policy.get("maxmemory-policy") == "noeviction"
        say("broker keeps messages", is_safe, "set maxmemory-policy to noeviction")
        broker.close()
    except RedisError:
        say("broker", False, "cannot be reached at POINTSMAN_BROKER__URL")
    say("preview keys", installation.signer is not None, "set POINTSMAN_PREVIEW__KEYS")
    say(
        "audit key",
        bool(installation.settings.audit.signing_key.get_secret_value()),
        "set POINTSMAN_AUDIT__SIGNING_KEY",
    )
    raise typer.Exit(FAILED if problems else 0)
