"""`key`, `queue`, `audit`: what operators do."""

from __future__ import annotations

import hashlib
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from producers.commands.context import FAILED, USAGE, AsJson, Tenant, err, fail, installed, out, print_json, print_table
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
        from producers.errors import InvalidInputError
        from producers.use_cases import tenants as keys

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
        err.print(
            f"tenant {tenant} has no provider, so what needs a model is refused; name one with --provider", markup=False
        )


@key_app.command("list")
def list_keys(ctx: typer.Context, tenant: Tenant = "demo", as_json: AsJson = False) -> None:
    """List a tenant's keys that are in force; secrets are not stored, and cannot be shown."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases import tenants as keys

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
        from producers.use_cases import tenants as keys

        is_revoked = keys.revoke(session, tenant, name=name)
    if not is_revoked:
        fail(f"tenant {tenant} has no key {name!r} in force")
    if as_json:
        print_json({"name": name, "tenant": tenant, "is_revoked": True})
    else:
        out.print(f"key {name} of tenant {tenant} is revoked", markup=False)


Queue = Annotated[QueueName, typer.Argument(metavar="QUEUE", help="One of the queues of routing/policy/platform.yaml.")]


@queue_app.command("pause")
def pause_queue(ctx: typer.Context, queue: Queue, as_json: AsJson = False) -> None:
    """Send no more jobs to a queue; what runs goes on. Survives restarts."""
    _set_paused(ctx, queue, is_paused=True, as_json=as_json)


@queue_app.command("resume")
def resume_queue(ctx: typer.Context, queue: Queue, as_json: AsJson = False) -> None:
    """Send jobs to a queue again."""
    _set_paused(ctx, queue, is_paused=False, as_json=as_json)


def _set_paused(ctx: typer.Context, queue: QueueName, *, is_paused: bool, as_json: bool) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import pause_queue

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
        from ledger import audit as audit_trail
        from ledger.operations.audit_archive import Archive, verify_with_archive

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
        from ledger import audit as audit_trail

        audit_trail.export(session, sys.stdout)


@audit_app.command("history")
def history(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Hold the whole history of jobs, money and releases against every promise. Exit 1 when one was broken."""
    with installed(ctx) as installation:
        from ledger.operations.history_reader import examine

        verdict = examine(installation.ledger.engine, installation.policy.retention)
    if as_json:
        print_json(verdict._asdict() | {"violations": [found._asdict() for found in verdict.violations]})
    else:
        judged = f"{len(verdict.violations) or 'no'} broken promises"
        out.print(
            f"{verdict.jobs} jobs, {verdict.attempts} attempts, {verdict.calls} model calls, "
            f"{verdict.releases} published releases: {judged}"
        )
        for found in verdict.violations:
            out.print(f"{found.subject}  {found.rule.value}: {found.detail}", markup=False)
    raise typer.Exit(0 if verdict.ok else FAILED)


# `tenant ...` and `queue list`: the switches of an installation, and how it stands.

tenant_app = typer.Typer(
    no_args_is_help=True, help="Tenants: who waits, how much they may do at once, and who is paused."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]
_ACTOR = "operator"
_LARGEST_WEIGHT = 1_000


@tenant_app.command("list")
def list_all(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the tenants, with what waits and runs of theirs."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import list_tenants

        tenants = list_tenants(session)
    if as_json:
        print_json([tenant.model_dump(mode="json") for tenant in tenants])
        return
    print_table(
        ("tenant", "waiting", "running", "limit", "weight", "approves", "provider", "state"),
        (
            (
                one.name,
                str(one.waiting),
                str(one.running),
                _limit(one.max_running),
                str(one.weight),
                "policy" if one.auto_approve else "people",
                one.provider or "none",
                "paused" if one.is_paused else "open",
            )
            for one in tenants
        ),
    )


@tenant_app.command()
def show(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a tenant's switches and limits."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import show_tenant

        found = show_tenant(session, name)
    if as_json:
        print_json(found)
        return
    for label, value in (
        ("tenant", found.name),
        ("state", f"paused since {found.paused_at:%Y-%m-%d %H:%M:%S}" if found.paused_at else "open"),
        ("waiting", found.waiting),
        ("running", f"{found.running}, limit {_limit(found.max_running)}"),
        ("weight", found.weight),
        ("approves", "policy, where it may" if found.auto_approve else "people"),
        ("provider", found.provider or "none, so what needs a model is refused"),
        ("overrides", found.overrides or "none"),
    ):
        out.print(f"{label:<10} {value}", markup=False)


@tenant_app.command("pause")
def pause_tenant(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Start none of a tenant's jobs any more; what runs goes on. Survives restarts."""
    _pause(ctx, name, is_paused=True, as_json=as_json)


@tenant_app.command("resume")
def resume_tenant(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Start a tenant's jobs again."""
    _pause(ctx, name, is_paused=False, as_json=as_json)


@tenant_app.command()
def weight(
    ctx: typer.Context,
    name: Name,
    turns: Annotated[
        int, typer.Argument(min=1, max=_LARGEST_WEIGHT, metavar="N", help="Turns, where weight 1 takes one.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say how many turns a tenant takes while others wait, too."""
    _change(ctx, name, f"{name} has weight {turns}", as_json=as_json, weight=turns)


@tenant_app.command()
def limit(
    ctx: typer.Context,
    name: Name,
    jobs: Annotated[str, typer.Argument(metavar="N|none", help="Jobs at once; none leaves it to the policy.")],
    as_json: AsJson = False,
) -> None:
    """Say how many of a tenant's jobs may run at once, over all queues."""
    if jobs != "none" and not (jobs.isascii() and jobs.isdigit() and 0 < int(jobs) < 2**31):
        raise typer.BadParameter("must be a number above 0, or none")
    most = None if jobs == "none" else int(jobs)
    _change(ctx, name, f"{name} may run {_limit(most)} at once", as_json=as_json, max_running=most)


@tenant_app.command("auto-approve")
def auto_approve(
    ctx: typer.Context,
    name: Name,
    value: Annotated[Literal["on", "off"], typer.Argument(metavar="on|off")],
    as_json: AsJson = False,
) -> None:
    """Let policy approve a tenant's clean tier 1 work without high stakes, or leave all of it to people."""
    said = f"{name}: {'policy approves what it may' if value == 'on' else 'people approve'}"
    _change(ctx, name, said, as_json=as_json, auto_approve=value == "on")


@queue_app.command("list")
def list_queues(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the queues: what waits and runs, how old the oldest is, which are paused."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import list_queues as read_queues

        queues = read_queues(session)
    if as_json:
        print_json([queue.model_dump(mode="json") for queue in queues])
        return
    print_table(
        ("queue", "waiting", "oldest", "running", "state"),
        (
            (
                one.queue,
                str(one.waiting),
                f"{one.oldest_age_seconds:.0f} s" if one.waiting else "-",
                str(one.running),
                "paused" if one.is_paused else "open",
            )
            for one in queues
        ),
    )


def _pause(ctx: typer.Context, name: str, *, is_paused: bool, as_json: bool) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import pause_tenant, show_tenant

        pause_tenant(session, name, is_paused=is_paused, actor=_ACTOR)
        view = show_tenant(session, name)
    print_json(view) if as_json else out.print(f"{name} is {'paused' if is_paused else 'resumed'}", markup=False)


def _change(ctx: typer.Context, name: str, said: str, *, as_json: bool, **values: Any) -> None:
    """Change a tenant, and print it as it stands then, or in words."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import change_tenant, show_tenant

        change_tenant(session, name, actor=_ACTOR, **values)
        view = show_tenant(session, name)
    print_json(view) if as_json else out.print(said, markup=False)


def _limit(most: int | None) -> str:
    return "as the policy says" if most is None else str(most)


# `broker`: who may do what at the broker.

broker_app = typer.Typer(no_args_is_help=True, help="The broker's users.")
_SECRET_BYTES = 32


@broker_app.callback()
def _broker() -> None:
    """Keep `acl` a command of its own, also while it is the only one."""


@broker_app.command("acl")
def acl(
    tenant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only the user of this tenant's own door, `intake.NAME`; repeatable."),
    ] = None,
) -> None:
    """Print lines for the ACL file of Valkey or Redis, each with a new password. The passwords are shown once.

    The lines go to stdout and the passwords to stderr, so that only hashes get into the file.
    """
    from routing.broker import fleet_users, tenant_user

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


# `lanes` and `lane open`: which models are parked for the whole fleet, and how an operator opens one.

lane_app = typer.Typer(no_args_is_help=True, help="Lanes: one model of one provider's account each.")
app = typer.Typer()


@app.command()
def lanes(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the models that there was trouble with: which are parked, why, and for how long."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from ledger import provider_circuits as ledger_lanes

        views = ledger_lanes.lanes(session)
    if as_json:
        print_json([view._asdict() for view in views])
        return
    if not views:
        out.print("every model flows; there was no trouble yet")
        return
    rows = [
        (
            view.provider,
            view.model,
            view.state.value,
            f"{view.parked_seconds:.0f} s",
            str(view.failures),
            view.reason or "",
        )
        for view in views
    ]
    print_table(("PROVIDER", "MODEL", "STATE", "PARKED FOR", "FAILURES", "REASON"), rows)


@lane_app.command("open")
def open_(
    ctx: typer.Context,
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The account, as the gateway names it.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model.")],
    as_json: AsJson = False,
) -> None:
    """Let a parked lane flow at once, and the jobs that wait for it. It is parked again when its provider says so."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from ledger.provider_circuits import open_lane

        is_known = open_lane(session, provider, model)
    if not is_known:
        fail(f"there was no trouble with model {model} of provider {provider}; `pointsman lanes` lists all lanes")
    if as_json:
        print_json({"provider": provider, "model": model, "state": "open"})
    else:
        out.print(f"{provider}/{model} is open", markup=False)
