"""Commands of operators: keys, queues, the audit trail, broker users and provider circuits."""

from __future__ import annotations

import hashlib
import secrets
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from producers.commands.context import (
    FAILED,
    OK,
    USAGE,
    AsJson,
    Tenant,
    err,
    fail,
    installed,
    out,
    print_json,
    print_result,
    print_rows,
    print_table,
)
from routing.jobs import SITE_NAME_RULE, check_site_name
from routing.queues import QueueName

if TYPE_CHECKING:
    from producers.bootstrap import Installation


key_app = typer.Typer(no_args_is_help=True, help="API keys.")
queue_app = typer.Typer(no_args_is_help=True, help="Queues.")
audit_app = typer.Typer(no_args_is_help=True, help="The audit trail.")


@key_app.command("create")
def create_key(
    ctx: typer.Context,
    name: Annotated[str, typer.Option(metavar="NAME", help="The key's name.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help="submit, read, approve, admin or operate (the whole fleet); repeatable; default: submit and read.",
        ),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="NAME", help="The gateway's provider account that serves the tenant.")
    ] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Create an API key, and its tenant if it is new. The secret is shown only once."""
    with installed(ctx) as installation:
        from producers.use_cases import tenants as keys

        with installation.ledger.begin() as session:
            created = keys.create_tenant(session, tenant, provider=provider)
            secret = keys.create_key(session, tenant, name=name, scopes=scope or keys.DEFAULT_SCOPES)
            if (directory := installation.directory) is not None:  # the fleet has one tenant of this name
                hashes = [keys.hash_secret(secret)]
                directory.claim(tenant, cell=installation.settings.cells.name, key_hashes=hashes)
            provider, has_provider = created.provider, created.provider is not None
    print_result({"secret": secret, "name": name, "tenant": tenant, "provider": provider}, secret)
    if not has_provider:
        err.print(f"tenant {tenant} has no provider, so jobs that need a model are refused; see --provider")


@key_app.command("list")
def list_keys(ctx: typer.Context, tenant: Tenant = "demo", as_json: AsJson = False) -> None:
    """List a tenant's valid keys; secrets are not stored and cannot be shown."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases import tenants as keys
        from producers.use_cases.people import KeyView

        views = [KeyView.of(key) for key in keys.keys_of(session, tenant)]
    rows = [
        (key.name, ",".join(key.scopes), _moment(key.created_at), key.created_by or "-", _moment(key.last_used_at))
        for key in views
    ]
    print_rows(views, ("name", "scopes", "created", "by", "last used"), rows)


def _moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else "-"


@key_app.command("revoke")
def revoke_key(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")],
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Revoke a key with immediate effect. Exit 1 if there is none of this name."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases import tenants as keys

        is_revoked = keys.revoke(session, tenant, name=name)
    if not is_revoked:
        fail(f"tenant {tenant} has no valid key {name!r}")
    print_result({"name": name, "tenant": tenant, "is_revoked": True}, f"key {name} of tenant {tenant} is revoked")


Queue = Annotated[QueueName, typer.Argument(metavar="QUEUE", help="A queue.")]


@queue_app.command("pause")
def pause_queue(ctx: typer.Context, queue: Queue, as_json: AsJson = False) -> None:
    """Pause a queue: jobs that run finish, no others start. Survives restarts."""
    _set_paused(ctx, queue, is_paused=True)


@queue_app.command("resume")
def resume_queue(ctx: typer.Context, queue: Queue, as_json: AsJson = False) -> None:
    """Resume a paused queue."""
    _set_paused(ctx, queue, is_paused=False)


def _set_paused(ctx: typer.Context, queue: QueueName, *, is_paused: bool) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import pause_queue

        pause_queue(session, queue, is_paused=is_paused, actor="cli")
    print_result(
        {"queue": queue.value, "is_paused": is_paused}, f"{queue.value} is {'paused' if is_paused else 'resumed'}"
    )


def _signing_key(installation: Installation) -> bytes:
    key = installation.settings.audit.signing_key.get_secret_value()
    if not key:
        fail("POINTSMAN_AUDIT__SIGNING_KEY: must be set to check the seals", code=USAGE)
    return key.encode()


@audit_app.command("verify")
def verify(
    ctx: typer.Context,
    head: Annotated[
        str | None, typer.Option(metavar="HEAD", help="Head to check instead of the one that the dispatcher keeps.")
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="DIR", exists=True, file_okay=False, help="The archive, to check the whole chain."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the chain from the archive's end on. Exit 1 if anything was edited, deleted, inserted, moved or cut off."""
    with installed(ctx) as installation:
        from ledger import audit as audit_trail
        from ledger.operations.audit_archive import Archive, verify_with_archive

        key = _signing_key(installation)
        head = head or installation.audit_heads.newest()
        with installation.ledger.begin() as session:
            if archive is None:
                verdict = audit_trail.verify(session, signing_key=key, expected_head=head)
            else:
                verdict = verify_with_archive(session, Archive(archive), signing_key=key, expected_head=head)
    counts = {"rows": verdict.rows, "seals": verdict.seals, "unsealed": verdict.unsealed}
    problems = [*map(str, verdict.problems)]
    print_result(
        {"ok": verdict.ok, **counts, "head": verdict.head, "problems": problems},
        f"{verdict.rows} rows in {verdict.seals} seals, {verdict.unsealed} not yet sealed; head {verdict.head}",
        *problems,
    )
    raise typer.Exit(OK if verdict.ok else FAILED)


@audit_app.command("export")
def export(ctx: typer.Context) -> None:
    """Write the trail as JSON lines on stdout."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from ledger import audit as audit_trail

        audit_trail.export(session, sys.stdout)


@audit_app.command("history")
def history(
    ctx: typer.Context,
    journal: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A gateway's journal: what it served must be booked.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the whole history of jobs, money and releases against every invariant. Exit 1 if one was violated."""
    with installed(ctx) as installation:
        from gateway.journal import read_journal
        from ledger.operations.history_reader import examine

        served = read_journal(journal) if journal is not None else ()
        verdict = examine(installation.ledger.engine, installation.policy.retention, journal=served)
    print_result(
        verdict._asdict() | {"violations": [violation._asdict() for violation in verdict.violations]},
        f"{verdict.jobs} jobs, {verdict.attempts} attempts, {verdict.calls} model calls, "
        f"{verdict.releases} published releases: {len(verdict.violations) or 'no'} violations",
        *(f"{violation.subject}  {violation.rule.value}: {violation.detail}" for violation in verdict.violations),
    )
    raise typer.Exit(OK if verdict.ok else FAILED)


@queue_app.command("list")
def list_queues(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the queues: waiting, held and running jobs, age of the oldest, and whether they are paused."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.fleet import queue_states

        queues = queue_states(session, None)
    print_rows(
        queues,
        ("queue", "waiting", "held", "oldest", "running", "state"),
        (
            (
                q.queue,
                q.waiting,
                ", ".join(f"{count} for {reason}" for reason, count in q.held.items()) or "-",
                f"{q.oldest_age_seconds:.0f} s" if q.oldest_age_seconds else "-",
                q.running,
                "paused" if q.is_paused else "open",
            )
            for q in queues
        ),
    )


broker_app = typer.Typer(no_args_is_help=True, help="The broker's users.")
_SECRET_BYTES = 32


@broker_app.callback()
def _broker() -> None:
    """Keep `acl` a sub-command although it is the only one."""


@broker_app.command("acl")
def acl(
    tenant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only the user of this tenant's own queue, `intake.NAME`; repeatable."),
    ] = None,
) -> None:
    """Print lines for the ACL file of Valkey or Redis, each with a new password, which is shown only once.

    The lines go to stdout and the passwords to stderr, so that the file holds only hashes.
    """
    from routing.broker import fleet_users, tenant_user

    try:
        users = tuple(tenant_user(check_site_name(name)) for name in tenant) if tenant else fleet_users()
    except ValueError:
        fail(f"--tenant: must be {SITE_NAME_RULE}", code=USAGE)
    for user in users:
        password = secrets.token_urlsafe(_SECRET_BYTES)
        typer.echo(user.line(hashlib.sha256(password.encode()).hexdigest()))
        err.print(f"{user.name}: {password}")
    if not tenant:
        typer.echo("user default reset off")


circuit_app = typer.Typer(no_args_is_help=True, help="Provider circuits, each for one model of one provider account.")


@circuit_app.command("list")
def list_circuits(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the provider circuits that have tripped: their state, the reason, and how long they stay open."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from ledger.provider_circuits import circuits

        views = circuits(session)
    if as_json:
        print_json([view._asdict() for view in views])
        return
    if not views:
        out.print("every provider circuit is closed; none has tripped yet")
        return
    rows = ((v.provider, v.model, v.state.value, f"{v.open_seconds:.0f} s", v.failures, v.reason or "") for v in views)
    print_table(("provider", "model", "state", "retried in", "failures", "reason"), rows)


@circuit_app.command("reset")
def reset_circuit(
    ctx: typer.Context,
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The provider account, as the gateway names it.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model.")],
    as_json: AsJson = False,
) -> None:
    """Reset a model's circuit, so that the jobs waiting for it start. It trips again if the provider still fails."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from ledger import provider_circuits

        is_known = provider_circuits.reset_circuit(session, provider, model)
    if not is_known:
        fail(f"the circuit of {provider}/{model} has never tripped; `pointsman circuit list` names those that have")
    print_result(
        {"provider": provider, "model": model, "state": "closed"}, f"the circuit of {provider}/{model} is reset"
    )
