"""`backup` and `restore`: an installation as of one moment, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from producers.commands.context import FAILED, OK, AsJson, clear_errors, context_of, err, installed, out, print_json
from routing.config import without_settings

if TYPE_CHECKING:
    from producers.restore import Restored

app = typer.Typer()


@app.command()
def backup(
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Where the backup goes; must not be there yet.")],
    as_json: AsJson = False,
) -> None:
    """Back up ledger and site files, consistent with each other, while everything runs. Secrets are not included."""
    from producers.backup import back_up

    with installed(ctx) as installation:
        made = back_up(
            installation.ledger, installation.ledger_url, installation.den, target.absolute(),
            environment=without_settings(installation.environment()), progress=_tell,
        )  # fmt: skip
    if as_json:
        print_json(made)
    else:
        out.print(f"{target}: {made.counts['jobs']} jobs, {made.counts['sites']} sites, {made.blobs} files; "
                  f"audit head {made.audit_head}", markup=False)  # fmt: skip
        out.print(f"keep elsewhere what is not in it: {', '.join(made.keys)}", markup=False)
    for sha256 in made.damaged:
        err.print(f"pointsman: the store cannot give file {sha256} any more; it is not in the backup", markup=False)
    raise typer.Exit(FAILED if made.damaged else OK)


@app.command()
def restore(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="DIR", help="What `pointsman backup` made.")],
    force: Annotated[bool, typer.Option("--force", help="Give up what the ledger holds.")] = False,
    resend: Annotated[
        bool,
        typer.Option(help="Send notifications that were due when the backup was made; their receivers may have them."),
    ] = False,
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Restore into what `pointsman up --home DIR` runs; it must not run now."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a ledger and a store that no process uses. Exit 1 when the audit chain is not whole."""
    with clear_errors(), _target(ctx, home) as (ledger_url, den, signing_key):
        done = _restore(ctx, source.absolute(), ledger_url, den, force=force, resend=resend, signing_key=signing_key)
    if as_json:
        print_json({
            "backup": done.backup.model_dump(mode="json"), "repaired": done.repaired._asdict(), "shown": done.shown,
            "lagging": done.lagging, "audit_problems": done.audit_problems,
        })  # fmt: skip
    else:
        facts = done.repaired
        out.print(f"restored as of {done.backup.made_at:%Y-%m-%d %H:%M:%S} UTC: {done.backup.counts['jobs']} jobs, "
                  f"{done.shown} sites shown, {facts.attempts} attempts lost, {facts.calls} calls charged in full, "
                  f"{facts.withheld} notifications withheld", markup=False)  # fmt: skip
        if done.audit_problems is None:
            out.print("the audit chain was not checked: POINTSMAN_AUDIT__SIGNING_KEY is not set")
    for problem in done.audit_problems or ():
        err.print(f"pointsman: {problem}", markup=False)
    raise typer.Exit(FAILED if done.audit_problems else OK)


@contextmanager
def _target(ctx: typer.Context, home: Path | None) -> Iterator[tuple[str, Path, bytes]]:
    """Give the ledger's URL, the Den's directory and the audit trail's key of what is restored into."""
    if home is not None:
        from producers.resting import resting

        with resting(home) as found:
            yield found.ledger_url, found.den, found.signing_key
        return
    with installed(ctx) as installation:
        key = installation.settings.audit.signing_key.get_secret_value()
        yield installation.ledger_url, installation.settings.den.root, key.encode()


def _restore(
    ctx: typer.Context, source: Path, ledger_url: str, den: Path, *, force: bool, resend: bool, signing_key: bytes
) -> Restored:
    from monitoring.ledger.store import Ledger, create_ledger_engine
    from producers.restore import restore as bring_back
    from sandbox.den import Den

    ledger = Ledger(create_ledger_engine(ledger_url))
    try:
        return bring_back(
            ledger, ledger_url, Den(den), source, environment=without_settings(context_of(ctx).environment),
            is_forced=force, resend=resend, signing_key=signing_key, progress=_tell,
        )  # fmt: skip
    finally:
        ledger.close()


def _tell(what: str) -> None:
    err.print(f"{what} ...", markup=False)
