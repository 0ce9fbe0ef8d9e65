"""Commands on runs, which work on the tickets of code projects, and on gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from pointsman_client.models import ChangedFile, GateView, RunView, State, StepTreeView

from producers.commands.connection import JobId, connected, gate_id_of, job_id_of
from producers.commands.context import (
    FAILED,
    GOOD_ENDS,
    OK,
    USAGE,
    AsJson,
    OperatorTenant,
    Tenant,
    become,
    check_ids,
    clear_errors,
    fail,
    out,
    print_json,
    print_result,
    print_rows,
    read_text_file,
)
from producers.harmless import harmless

run_app = typer.Typer(no_args_is_help=True, help="Runs: teams of agents that work on tickets.")
gate_app = typer.Typer(no_args_is_help=True, help="Gates, where a run waits for a person.")

GateId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The gate's id; of an open one as much of it as is no other's. `pointsman gate list` shows it.",
        callback=check_ids,
    ),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it goes on record.")]


@run_app.command()
def submit(
    ctx: typer.Context,
    project: Annotated[str, typer.Option(metavar="NAME", help="The code project.")],
    ticket: Annotated[Path, typer.Option(metavar="FILE", help="The ticket: YAML, or Markdown with front matter.")],
    budget: Annotated[float | None, typer.Option(metavar="USD", help="Budget of this run.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run until it ends or waits at a gate.")] = False,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Submit a ticket. Exit 0 if it was accepted (with --wait: if it succeeded or waits at a gate), 2 if refused."""
    text = read_text_file(ticket)
    from producers.commands.progress import follow
    from producers.use_cases.tickets import read_ticket

    with clear_errors():
        request = read_ticket(text, project=project)
    order = request.model_dump(exclude_none=True) | ({} if budget is None else {"budget_usd": budget})
    with connected(ctx) as client:
        run_id = client.submit_run(**order).id
        if wait:
            follow(client, run_id)
        view = client.get_run(run_id)
    print_json(view) if as_json else show_run(view)
    raise typer.Exit(FAILED if wait and view.is_final and view.state not in GOOD_ENDS else OK)


@run_app.command()
def show(
    ctx: typer.Context,
    run_id: JobId,
    wait: Annotated[bool, typer.Option("--wait", help="First show what its agents say and do.")] = False,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Show a run: its steps with state, attempts, cost and duration, its gates, and estimated and actual cost."""
    from producers.commands.progress import follow

    with connected(ctx) as client:
        found = job_id_of(client, run_id)
        if wait:
            follow(client, found)
        view = client.get_run(found)
    print_json(view) if as_json else show_run(view)


@run_app.command("diff")
def show_diff(
    ctx: typer.Context,
    run_id: JobId,
    step: Annotated[str | None, typer.Option(metavar="KEY", help="Only what this step's last try changed.")] = None,
    since_last: Annotated[
        bool, typer.Option("--since-last", help="Only what is new since the last decided gate.")
    ] = False,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Show what a run has changed, also one that ended badly. Files with secrets are named and not shown."""
    with connected(ctx) as client:
        files = client.get_run_diff(job_id_of(client, run_id), step=step, since_last=since_last)
    print_json(files) if as_json else _print_files(files)


@run_app.command()
def fetch(
    ctx: typer.Context,
    run_id: JobId,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the bundle is written.")],
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Write the work of any run as a git bundle, for `git fetch BUNDLE BRANCH` in a clone of its project."""
    with connected(ctx) as client:
        found = job_id_of(client, run_id)
        bundle = client.get_run_bundle(found)
    path = directory / f"{found}.bundle"
    try:
        path.write_bytes(bundle)
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror}", code=USAGE)
    _print_branch(bundle, path=path)


@run_app.command()
def branch(
    ctx: typer.Context,
    run_id: JobId,
    repository: Annotated[Path, typer.Option("--repo", metavar="DIR", help="A clone of the project.")] = Path(),
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Create a branch with the work of any run in a local clone of its project; nothing is checked out."""
    with connected(ctx) as client:
        bundle = client.get_run_bundle(job_id_of(client, run_id))
    with clear_errors():
        from sites.repository.handover import write_branch

        write_branch(repository, bundle)
    _print_branch(bundle)


@run_app.command()
def shell(
    ctx: typer.Context,
    run_id: JobId,
    actor: Annotated[
        str,
        typer.Option("--as", metavar="NAME", help="You, as in the audit trail: with four eyes, you do not pass this."),
    ],
    author: Annotated[
        str, typer.Option(metavar="'NAME <E-MAIL>'", help="Author of the commit; by default from --as.")
    ] = "",
    minutes: Annotated[int, typer.Option(min=1, max=110, metavar="N", help="Time limit.")] = 30,
    tenant: Tenant = "demo",
    as_json: AsJson = False,
) -> None:
    """Take over by hand at a run's open gate: a shell in a box with its files. What you change becomes a commit.

    Only beside the ledger and the boxes' engine. Files outside of the project's write paths are dropped, as an agent's
    are; the gate stays open. Exit 0 if your work is kept, 1 if not, 2 if there is no shell.
    """
    with connected(ctx) as client:
        found = job_id_of(client, run_id)
    author = author or f"{actor} <{actor}@localhost>"
    options = {"tenant": tenant, "as": actor, "author": author, "minutes": minutes, "json": as_json}
    become(ctx, "workers.runs.shell", str(found), options=options)


def _print_branch(bundle: bytes, *, path: Path | None = None) -> None:
    from sites.repository.handover import branch_in

    name, commit = branch_in(bundle)
    result = {"bundle": str(path)} if path is not None else {}
    lines = [*result.values(), f"branch {name}", f"commit {commit}"]
    print_result({**result, "branch": name, "commit": commit}, "\n".join(lines))


@gate_app.command("show")
def show_gate(ctx: typer.Context, gate_id: GateId, as_json: AsJson = False, tenant: OperatorTenant = None) -> None:
    """Show what a gate's decision is about: findings, bill by agent, and the diff of its run."""
    with connected(ctx) as client:
        gate = client.get_gate(gate_id_of(client, gate_id))
        run = client.get_run(gate.run_id)
        files = client.get_run_diff(gate.run_id)
    if as_json:
        print_json({"gate": gate, "cost": run.cost, "files": files})
        return
    out.print(f"gate {gate.key} {gate.state}: {gate.reason}")
    for issue in gate.facts.get("issues", ()):
        place = ":".join(str(issue[name]) for name in ("file", "line") if issue.get(name))
        text = " ".join(filter(None, (issue.get("severity"), place, issue.get("title"), issue.get("detail"))))
        out.print(f"  {text}")
    out.print(f"cost ${run.cost.spent_usd} of ${run.cost.cap_usd}")
    for name, total in run.cost.by_agent.items():
        out.print(f"  {name}: ${total.cost_usd} in {total.calls} calls")
    for one in gate.facts.get("shells", ()):
        what = f"changed {', '.join(one['changed'])}" if one["is_changed"] else "changed nothing that is kept"
        out.print(f"by hand: {one['by']}, {one['seconds']:.0f} s, {what}; shown there:")
        out.print("\n".join(harmless(f"  {line}") for line in one["said"].split("\n")))
    _print_files(files)


def _print_files(files: Sequence[ChangedFile]) -> None:
    """Print changed files; control and direction characters are masked."""
    for file in files:
        text = file.diff.rstrip("\n") if file.diff else f"{file.path}: {file.why_hidden}"
        out.print("\n".join(harmless(line) for line in text.split("\n")))


@gate_app.command("list")
def list_gates(ctx: typer.Context, as_json: AsJson = False, tenant: OperatorTenant = None) -> None:
    """List the open gates."""
    with connected(ctx) as client:
        views = client.list_gates()
    print_rows(views, ("gate", "run", "why"), ((view.id, view.run_id, view.reason) for view in views))


@gate_app.command("pass")
def pass_gate(
    ctx: typer.Context, gate_id: GateId, reason: Reason = "", as_json: AsJson = False, tenant: OperatorTenant = None
) -> None:
    """Pass a gate, so that its run continues."""
    with connected(ctx) as client:
        view = client.pass_gate(gate_id_of(client, gate_id), reason=reason)
    print_result(view, view.state)


@gate_app.command("rework")
def rework_gate(
    ctx: typer.Context,
    gate_id: GateId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What to change; the agents that rework are told.")],
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Send the work at a gate back to its agents; once it is reworked, a person is asked again."""
    with connected(ctx) as client:
        view = client.rework_gate(gate_id_of(client, gate_id), reason)
    print_result(view, view.state)


@gate_app.command("fail")
def fail_gate(
    ctx: typer.Context, gate_id: GateId, reason: Reason = "", as_json: AsJson = False, tenant: OperatorTenant = None
) -> None:
    """Fail a gate, which ends its run; the work done so far is kept."""
    with connected(ctx) as client:
        view = client.fail_gate(gate_id_of(client, gate_id), reason=reason)
    print_result(view, view.state)


_MARKS = {"completed": "✓", "failed": "✗", "running": "▶", "pending": "·", "skipped": "-"}
_MAX_DETAIL_CHARS = 200
_INDENT = "  "


def show_run(view: RunView) -> None:
    """Print a run as a tree of its steps. Lines are never truncated: ids are copied from here."""
    for depth, line in _lines(view):
        out.print(f"{_INDENT * depth}{line}")


def _lines(view: RunView) -> Iterator[tuple[int, str]]:
    yield 0, f"run {view.id}  {view.state.value}  {view.ticket.get('title', '')}"
    yield from ((1, f"{name}: {value}") for name, value in _facts(view))
    for round in sorted({step.round for step in view.steps}):
        yield 1, "steps" if round == 0 else f"rework {round}"
        for step in view.steps:
            if step.round == round:
                yield from _step_lines(step)
    yield from ((1, _gate_line(gate)) for gate in view.gates)


def _facts(view: RunView) -> Iterator[tuple[str, str]]:
    cost = view.cost
    yield "project", f"{view.project}, {view.priority}{f', {view.intent}' if view.intent else ''}"
    if view.now and not view.is_final:
        yield "now", view.now
    if view.is_final and (view.detail or view.reason):
        yield "why", view.detail or view.reason or ""
    yield "cost", f"${cost.spent_usd} of ${cost.cap_usd}, {cost.tokens} tokens in {cost.calls} calls"
    if cost.estimate.get("high_usd"):
        comparison = f", {cost.against_estimate} it" if cost.against_estimate else ""
        from routing.policy.prices import format_usd, nanousd_of

        low, high = (format_usd(nanousd_of(cost.estimate[end]), digits=2) for end in ("low_usd", "high_usd"))
        yield "estimate", f"{low} to {high}{comparison}"
    if cost.orchestrator_share is not None:
        yield "orchestrator", f"{cost.orchestrator_share:.0%} of the tokens"
    if branch := view.result.get("branch"):
        yield "branch", str(branch)
    if view.state is State.ANSWERED and view.result.get("answer"):
        yield "answer", str(view.result["answer"])


def _step_lines(step: StepTreeView) -> Iterator[tuple[int, str]]:
    tries = f", try {step.tries}" if step.tries > 1 else ""
    findings = f", {step.blocking} blocking" if step.blocking else ""
    what = f"{_MARKS.get(step.state, '?')} {step.key} ({step.agent or 'build'}) {step.state}{tries}{findings}"
    yield 2, f"{what}  ${step.cost_usd}  {step.seconds:.1f} s"
    if step.failure:
        yield 3, f"{step.failure}: {(step.detail or '')[:_MAX_DETAIL_CHARS]}"
    for execution in step.executions:
        if execution.status == "failed" and step.tries > 1:
            yield 3, f"try {execution.attempt}: {execution.reason}  ${execution.cost_usd}"
        yield from ((3, f"not taken: {path}") for path in execution.dropped)


def _gate_line(gate: GateView) -> str:
    by = f" by {gate.actor}" if gate.actor else ""
    hint = f"  pointsman gate pass {gate.id} (or fail)" if gate.state == "open" else ""
    return f"gate {gate.key}: {gate.state}{by}: {gate.reason}{hint}"


agent_app = typer.Typer(no_args_is_help=True, help="Agents that work on tickets.")


@agent_app.callback()
def _group() -> None:
    """Keep `run` a sub-command although it is the only one."""


@agent_app.command()
def run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="An agent of the policy, such as frontend-dev.")],
    task: Annotated[str, typer.Option(help="The task.")],
    directory: Annotated[Path, typer.Option("--dir", help="The project's directory, which the agent changes.")],
    url: Annotated[str | None, typer.Option(help="A Messages API; by default the fake provider.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token for --url.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing in the directory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run one agent on a directory, without a run, a ledger or a queue."""
    options = {"task": task, "dir": directory, "url": url or None, "token-file": token_file}
    become(ctx, "workers.runs.alone", name, options={**options, "dry-run": dry_run, "json": as_json})
