"""`project`, `run`, `gate`: code projects, and the runs of agents that work on their tickets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from producers.commands.context import FAILED, OK, AsJson, Tenant, fail, installed, out, print_json, print_table
from routing.jobs import Door, State

if TYPE_CHECKING:
    from producers.runs import RunView

app = typer.Typer(no_args_is_help=True, help="Runs: tickets that a team of agents works on.")
project_app = typer.Typer(no_args_is_help=True, help="Code projects.")
gate_app = typer.Typer(no_args_is_help=True, help="Gates: where a run waits for a person.")

GOOD_ENDS = frozenset({State.ANSWERED, State.PUBLISHED})
MAX_FILE_BYTES = 128 * 1024

RunId = Annotated[UUID, typer.Argument(metavar="ID", help="The run's id.")]
GateId = Annotated[UUID, typer.Argument(metavar="ID", help="The gate's id; `pointsman gate list` shows it.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for whoever reads the record.")]


@project_app.command("add")
def add_project(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The project's YAML file.")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="By default the file's name.")] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Add a code project, or change the one of this name. Exit 2 if its file breaks a rule."""
    text = _read(file)
    with installed(ctx) as installation:
        from producers.projects import Projects

        projects = Projects(installation.ledger, installation.policy)
        view = projects.put(tenant, name or file.stem, text, source=file.name, actor="cli")
    print_json(view) if as_json else out.print(f"project {view.name}: {view.config['repo']['url']}", markup=False)


@project_app.command("list")
def list_projects(ctx: typer.Context, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """List code projects."""
    with installed(ctx) as installation:
        from producers.projects import Projects

        found = Projects(installation.ledger, installation.policy).all(tenant)
    if as_json:
        print_json([view.model_dump(mode="json") for view in found])
        return
    print_table(("project", "repository"), ((view.name, str(view.config["repo"]["url"])) for view in found))


@app.command()
def submit(
    ctx: typer.Context,
    project: Annotated[str, typer.Option(metavar="NAME", help="The code project.")],
    ticket: Annotated[Path, typer.Option(metavar="FILE", help="The ticket: YAML, or Markdown with front matter.")],
    budget: Annotated[float | None, typer.Option(metavar="USD", help="A cap of your own, in USD.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until it ends or waits at a gate.")] = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Submit a ticket. Exit 0 if it was taken (with --wait: if it ended well or waits at a gate), 2 if refused."""
    text = _read(ticket)
    with installed(ctx) as installation:
        from producers.commands.follow import follow
        from producers.runs import describe_run
        from producers.tickets.files import read_ticket
        from producers.tickets.requests import job_body

        asked = read_ticket(text, project=project)
        body = job_body(asked if budget is None else asked.model_copy(update={"budget_usd": budget}))
        run_id = installation.submitter.submit(body, tenant=tenant, door=Door.CLI, actor="cli").job.id
        if wait:
            follow(installation, run_id, tenant, quiet=as_json)
        with installation.ledger.begin() as session:
            view = describe_run(session, run_id, tenant=tenant)
    _show(view, as_json=as_json)
    raise typer.Exit(FAILED if wait and view.is_final and view.state not in GOOD_ENDS else OK)


@app.command()
def show(ctx: typer.Context, run_id: RunId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Show a run: its steps as a tree with state, tries, cost and seconds; gates; estimate and actual cost."""
    with installed(ctx) as installation:
        from producers.runs import describe_run

        with installation.ledger.begin() as session:
            view = describe_run(session, run_id, tenant=tenant)
    _show(view, as_json=as_json)


@gate_app.command("list")
def list_gates(ctx: typer.Context, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """List the gates that wait for a person."""
    with installed(ctx) as installation:
        from monitoring.ledger.gates import open_gates
        from producers.runs import gate_view

        with installation.ledger.begin() as session:
            found = [gate_view(gate) for gate in open_gates(session, tenant)]
    if as_json:
        print_json([view.model_dump(mode="json") for view in found])
        return
    print_table(("gate", "run", "why"), ((str(view.id), str(view.run_id), view.reason) for view in found))


@gate_app.command("pass")
def pass_gate(
    ctx: typer.Context, gate_id: GateId, reason: Reason = "", as_json: AsJson = False, tenant: Tenant = "demo"
) -> None:
    """Let a run go on behind a gate."""
    _decide(ctx, gate_id, "passed", reason=reason, as_json=as_json, tenant=tenant)


@gate_app.command("fail")
def fail_gate(
    ctx: typer.Context, gate_id: GateId, reason: Reason = "", as_json: AsJson = False, tenant: Tenant = "demo"
) -> None:
    """Stop a run at a gate; what was done is kept."""
    _decide(ctx, gate_id, "failed", reason=reason, as_json=as_json, tenant=tenant)


def _decide(ctx: typer.Context, gate_id: UUID, verdict: str, *, reason: str, as_json: bool, tenant: str) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from monitoring.ledger.gates import decide_gate

        decide_gate(
            session, gate_id, "passed" if verdict == "passed" else "failed", actor="cli", policy=installation.policy,
            note=reason, tenant=tenant,
        )  # fmt: skip
    print_json({"id": gate_id, "state": verdict, "reason": reason}) if as_json else out.print(verdict)


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()[: MAX_FILE_BYTES + 1]
        if len(data) > MAX_FILE_BYTES:
            fail(f"{path}: is larger than {MAX_FILE_BYTES} bytes", code=2)
        return data.decode("utf-8")
    except OSError as error:
        fail(f"{path}: cannot be read: {error.strerror}", code=2)
    except UnicodeDecodeError:
        fail(f"{path}: is not UTF-8", code=2)


def _show(view: RunView, *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    from producers.commands.runs_shown import show_run

    show_run(view)
