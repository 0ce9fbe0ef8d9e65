"""`key`, `queue`, `audit`: what operators do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from producers.commands.context import (
    FAILED,
    USAGE,
    AsJson,
    Tenant,
    err,
    fail,
    installed,
    out,
    print_json,
    print_table,
)
from routing.queues import QueueName

if TYPE_CHECKING:
    from producers.bootstrap import Installation

key_app = typer.Typer(no_args_is_help=True, help="API keys.")
queue_app = typer.Typer(no_args_is_help=True, help="Queues.")
audit_app = typer.Typer(no_args_is_help=True, help="The audit trail.")


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
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Make an API key (and its tenant, if it is new). The secret is shown once."""
    with installed(ctx) as installation:
        from producers import keys
        from producers.errors import InvalidInputError

        try:
            with installation.ledger.begin() as session:
                made_for = keys.create_tenant(session, tenant, provider=provider)
                secret = keys.create_key(session, tenant, name=name, scopes=scope or keys.TENANT_SCOPES)
                provider, has_provider = made_for.provider, made_for.provider is not None
        except InvalidInputError as error:
            fail(str(error), code=USAGE)
    if as_json:
        print_json({"secret": secret, "name": name, "tenant": tenant, "provider": provider})
    else:
        typer.echo(secret)
    if not has_provider:
        err.print(f"tenant {tenant} has no provider, so what needs a model is refused; name one with --provider",
                  markup=False)  # fmt: skip


@key_app.command("list")
def list_keys(ctx: typer.Context, tenant: Tenant = "demo", as_json: AsJson = False) -> None:
    """List a tenant's keys that are in force; secrets are not stored, and cannot be shown."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers import keys

        found = [(key.name, list(key.scopes), key.created_at.isoformat()) for key in keys.keys_of(session, tenant)]
    if as_json:
        print_json([{"name": name, "scopes": scopes, "created_at": at} for name, scopes, at in found])
    else:
        print_table(("NAME", "SCOPES", "MADE"), [(name, ",".join(scopes), at) for name, scopes, at in found])


@key_app.command("revoke")
def revoke_key(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is called.")],
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Take a key out of force, from its next request on. Exit 1 when there is none of this name."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers import keys

        is_revoked = keys.revoke(session, tenant, name=name)
    if not is_revoked:
        fail(f"tenant {tenant} has no key {name!r} in force")
    if as_json:
        print_json({"name": name, "tenant": tenant, "is_revoked": True})
    else:
        out.print(f"key {name} of tenant {tenant} is revoked", markup=False)


Queue = Annotated[QueueName, typer.Argument(metavar="QUEUE", help="One of the queues of routing/platform.yaml.")]


@queue_app.command("pause")
def pause(ctx: typer.Context, queue: Queue, as_json: AsJson = False) -> None:
    """Send no more jobs to a queue; what runs goes on. Survives restarts."""
    _set_paused(ctx, queue, is_paused=True, as_json=as_json)


@queue_app.command("resume")
def resume(ctx: typer.Context, queue: Queue, as_json: AsJson = False) -> None:
    """Send jobs to a queue again."""
    _set_paused(ctx, queue, is_paused=False, as_json=as_json)


def _set_paused(ctx: typer.Context, queue: QueueName, *, is_paused: bool, as_json: bool) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.tenants import pause_queue

        pause_queue(session, queue, is_paused=is_paused, actor="cli")
    if as_json:
        print_json({"queue": queue.value, "is_paused": is_paused})
    else:
        out.print(f"{queue.value} is {'paused' if is_paused else 'resumed'}")


def _signing_key(installation: Installation) -> bytes:
    key = installation.settings.audit.signing_key.get_secret_value()
    if not key:
        fail("POINTSMAN_AUDIT__SIGNING_KEY: is needed to check the seals", code=USAGE)
    return key.encode()


@audit_app.command("verify")
def verify(
    ctx: typer.Context,
    head: Annotated[
        str | None,
        typer.Option(metavar="HEAD", help="A head to check in place of the one that the dispatcher kept."),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="DIR", exists=True, file_okay=False, help="The archive: then the chain is checked whole."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the chain from the archive's end on. Exit 1 when anything was edited, deleted, inserted, moved or cut."""
    with installed(ctx) as installation:
        from monitoring import audit_chain as audit_trail
        from monitoring.audit_archive import Archive, verify_with_archive

        key = _signing_key(installation)
        head = head or installation.audit_heads.newest()
        with installation.ledger.begin() as session:
            if archive is None:
                verdict = audit_trail.verify(session, signing_key=key, expected_head=head)
            else:
                verdict = verify_with_archive(session, Archive(archive), signing_key=key, expected_head=head)
    if as_json:
        counts = {"rows": verdict.rows, "seals": verdict.seals, "unsealed": verdict.unsealed}
        print_json({"ok": verdict.ok, **counts, "head": verdict.head, "problems": [*map(str, verdict.problems)]})
    else:
        out.print(
            f"{verdict.rows} rows in {verdict.seals} seals, {verdict.unsealed} not yet sealed; head {verdict.head}"
        )
        for problem in verdict.problems:
            out.print(str(problem), markup=False)
    raise typer.Exit(0 if verdict.ok else FAILED)


@audit_app.command("export")
def export(ctx: typer.Context) -> None:
    """Write the trail as JSON lines on stdout."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from monitoring import audit_chain as audit_trail

        audit_trail.export(session, sys.stdout)


@audit_app.command("history")
def history(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Hold the whole history of jobs, money and releases against every promise. Exit 1 when one was broken."""
    with installed(ctx) as installation:
        from monitoring.ledger.history_reader import examine

        verdict = examine(installation.ledger.engine, installation.policy.retention)
    if as_json:
        print_json(verdict._asdict() | {"violations": [found._asdict() for found in verdict.violations]})
    else:
        judged = f"{len(verdict.violations) or 'no'} broken promises"
        out.print(f"{verdict.jobs} jobs, {verdict.attempts} attempts, {verdict.calls} model calls, "
                  f"{verdict.releases} published releases: {judged}")  # fmt: skip
        for found in verdict.violations:
            out.print(f"{found.subject}  {found.rule.value}: {found.detail}", markup=False)
    raise typer.Exit(0 if verdict.ok else FAILED)
