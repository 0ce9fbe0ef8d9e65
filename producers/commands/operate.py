"""`key`, `queue`, `audit`, `doctor`: what operators do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from producers.commands.context import FAILED, USAGE, Tenant, context_of, err, fail, installed, out
from routing.config import read_settings
from routing.tiers import QueueName

if TYPE_CHECKING:
    from producers.bootstrap import Installation

key_app = typer.Typer(no_args_is_help=True, help="API keys.")
queue_app = typer.Typer(no_args_is_help=True, help="Queues.")
audit_app = typer.Typer(no_args_is_help=True, help="The audit trail.")
app = typer.Typer()
_SHOWN_TENANTS = 10


@key_app.command("create")
def create_key(
    ctx: typer.Context,
    name: Annotated[str, typer.Option(metavar="NAME", help="What the key is called.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help="submit, read, approve, admin or operate (the whole fleet); repeatable; all but operate, if left out.",
        ),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose models the tenant pays for, as the gateway names them.")
    ] = None,
    tenant: Tenant = "demo",
) -> None:
    """Make an API key (and its tenant, if it is new). The secret is shown once."""
    with installed(ctx) as installation:
        from producers import keys

        try:
            with installation.ledger.begin() as session:
                made_for = keys.create_tenant(session, tenant, provider=provider)
                secret = keys.create_key(session, tenant, name=name, scopes=scope or keys.TENANT_SCOPES)
                has_provider = made_for.provider is not None
        except keys.InvalidKeyError as error:
            fail(str(error), code=USAGE)
    typer.echo(secret)
    if not has_provider:
        err.print(f"tenant {tenant} has no provider, so what needs a model is refused; name one with --provider",
                  markup=False)  # fmt: skip


Queue = Annotated[QueueName, typer.Argument(metavar="QUEUE", help="One of the queues of routing/platform.yaml.")]


@queue_app.command("pause")
def pause(ctx: typer.Context, queue: Queue) -> None:
    """Send no more jobs to a queue; what runs goes on. Survives restarts."""
    _set_paused(ctx, queue, is_paused=True)
    out.print(f"{queue.value} is paused")


@queue_app.command("resume")
def resume(ctx: typer.Context, queue: Queue) -> None:
    """Send jobs to a queue again."""
    _set_paused(ctx, queue, is_paused=False)
    out.print(f"{queue.value} is resumed")


def _set_paused(ctx: typer.Context, queue: QueueName, *, is_paused: bool) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from monitoring.ledger.runway import pause as pause_queue

        pause_queue(session, queue, is_paused=is_paused)


def _signing_key(installation: Installation) -> bytes:
    key = installation.settings.audit.signing_key.get_secret_value()
    if not key:
        fail("POINTSMAN_AUDIT__SIGNING_KEY: is needed to check the seals", code=USAGE)
    return key.encode()


@audit_app.command("verify")
def verify(
    ctx: typer.Context,
    head: Annotated[
        str | None, typer.Option(metavar="HEAD", help="The head that you kept: then a cut-off tail is found, too.")
    ] = None,
) -> None:
    """Check the whole chain. Exit 1 when anything was edited, deleted, inserted or reordered."""
    with installed(ctx) as installation:
        from monitoring import audit as audit_trail

        key = _signing_key(installation)
        with installation.ledger.begin() as session:
            verdict = audit_trail.verify(session, signing_key=key, expected_head=head)
    out.print(f"{verdict.rows} rows in {verdict.seals} seals, {verdict.unsealed} not yet sealed; head {verdict.head}")
    for problem in verdict.problems:
        out.print(str(problem), markup=False)
    raise typer.Exit(0 if verdict.ok else FAILED)


@audit_app.command("export")
def export(ctx: typer.Context) -> None:
    """Write the trail as JSON lines on stdout."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from monitoring import audit as audit_trail

        audit_trail.export(session, sys.stdout)


@app.command()
def doctor(ctx: typer.Context) -> None:
    """Say what of an installation is reachable, and what to do about the rest. Exit 1 if anything is amiss."""
    with installed(ctx) as installation:
        findings = [
            *_check_ledger(installation), *_check_broker(installation), *_check_secrets(installation),
        ]  # fmt: skip
        boxes = [*_check_packages(installation), *_check_boxes(context_of(ctx).environment)]
    for name, hint in findings:
        out.print(f"{'NO ' if hint else 'ok '} {name}{': ' + hint if hint else ''}", markup=False)
    for name, hint in boxes:
        out.print(f"{'-- ' if hint else 'ok '} {name}{': ' + hint if hint else ''}", markup=False)
    if any(hint for _, hint in boxes):
        out.print("Only code agents and builds need boxes; everything else works without.")
    raise typer.Exit(FAILED if any(hint for _, hint in findings) else 0)


def _check_ledger(installation: Installation) -> Iterator[tuple[str, str]]:
    from sqlalchemy.exc import DBAPIError

    from monitoring.ledger.migrate import is_current

    try:
        if not is_current(installation.ledger.engine):
            yield "ledger", "run `pointsman migrate`"
            return
        yield "ledger", ""
        yield "tenants have a model provider", _tenants_without_provider(installation)
    except DBAPIError:
        yield "ledger", "cannot be reached at POINTSMAN_LEDGER__URL; is `pointsman up` running?"


def _tenants_without_provider(installation: Installation) -> str:
    """Say which tenants no model is called for: there is no key that others' calls could fall back to (S-065)."""
    from sqlmodel import col, select

    from monitoring.ledger.tables import Tenant

    with installation.ledger.begin() as session:
        poor = session.exec(select(Tenant.name).where(col(Tenant.provider).is_(None)).limit(_SHOWN_TENANTS)).all()
    if not poor:
        return ""
    return f"{', '.join(poor)} have none; name one with `pointsman key create --tenant NAME --provider NAME`"


def _check_packages(installation: Installation) -> Iterator[tuple[str, str]]:
    from routing.config import without_settings
    from sandbox.mirror.checks import check_mirror

    return check_mirror(installation.settings.mirror.npm, without_settings(installation.environment()))


def _check_broker(installation: Installation) -> Iterator[tuple[str, str]]:
    from redis import Redis
    from redis.exceptions import RedisError

    try:
        broker: Redis = Redis.from_url(installation.settings.broker.url, socket_timeout=3, socket_connect_timeout=3)
    except ValueError:
        yield "broker", "POINTSMAN_BROKER__URL must be a URL such as redis://host:6379/0"
        return
    try:
        policy = broker.config_get("maxmemory-policy")
        is_safe = isinstance(policy, dict) and policy.get("maxmemory-policy") == "noeviction"
        yield "broker", ""
        yield "broker keeps messages", "" if is_safe else "set maxmemory-policy to noeviction"
    except RedisError:
        yield "broker", "cannot be reached at POINTSMAN_BROKER__URL"
    finally:
        broker.close()


def _check_boxes(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    from producers.commands.image import BoxSettings
    from sandbox.checks import check_boxes

    return [(found.name, found.hint) for found in check_boxes(read_settings(BoxSettings, environment).box)]


def _check_secrets(installation: Installation) -> Iterator[tuple[str, str]]:
    has_seal = bool(installation.settings.audit.signing_key.get_secret_value())
    yield "preview keys", "" if installation.signer is not None else "set POINTSMAN_PREVIEW__KEYS"
    yield "audit key", "" if has_seal else "set POINTSMAN_AUDIT__SIGNING_KEY"
