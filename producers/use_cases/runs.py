"""Code projects, the tickets submitted on them (S-030), and the views of their runs for HTTP, CLI and console."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlmodel import Session

from gateway.errors import ForgeError
from gateway.forges.forge import neutralise, quoted, write_to_ticket
from ledger.attempts import effective_policy
from ledger.job_ends import AT_GATE, REFUSED, STARTED, DueNote, claim_due_notes, has_due_note, record_note_sent
from ledger.releases import successor_of
from ledger.runs.run import RunRows, find_run, load_run, projects_of, put_project
from ledger.runs.tables import AgentExecution, RunStep
from ledger.spending import CallUsage, orchestrator_share, total_by, usage_of_run
from ledger.store import Ledger
from ledger.tables import Tenant
from producers.errors import UnknownTenantError
from producers.use_cases.jobs import View, seconds_between
from routing.addresses import refusal_of
from routing.errors import FieldError, InvalidJobError, ProjectConfigError
from routing.jobs import (
    SITE_NAME_RULE,
    CallbackUrl,
    IdempotencyKey,
    Label,
    SiteName,
    State,
    check_site_name,
    parse_priority,
)
from routing.policy.agents import Account, AccountsConfig
from routing.policy.integrations import Integrations
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD, decimal_usd
from routing.policy.project import ProjectConfig, read_project


class ProjectView(View):
    """A project. It names keys and holds none."""

    id: UUID
    name: str
    config: dict[str, Any]
    image: dict[str, Any] | None = None
    """The image of its boxes that an operator built for it: `id`, `reference`, `source`; null for that of all boxes."""
    updated_at: datetime


@dataclass(frozen=True)
class Projects:
    """The code projects of an installation's tenants."""

    ledger: Ledger
    policy: Policy
    private_remotes: bool = False
    """Whether a project's remote may have an address that is not public."""

    def put(self, tenant: str, name: str, text: str, *, source: str, actor: str) -> ProjectView:
        """Add or replace a project from its YAML file.

        Its name is part of URLs, so the rule for site names applies; errors name the file `source`.

        Raises:
            InvalidJobError: the caller's fault; names each place of the file that breaks a rule, with its line.
            UnknownTenantError: the caller's fault.
            PolicyError: the operator's fault: the tenant's overrides do not fit.
        """
        try:
            check_site_name(name)
        except ValueError:
            raise InvalidJobError((FieldError("name", f"must be {SITE_NAME_RULE}"),)) from None
        with self.ledger.begin() as session:
            if session.get(Tenant, tenant) is None:
                raise UnknownTenantError(tenant)
            policy = effective_policy(session, tenant, self.policy)
            try:
                config = read_project(text, source=source, policy=policy)
            except ProjectConfigError as error:
                raise InvalidJobError(
                    tuple(FieldError(f"{source}", str(problem)) for problem in error.problems)
                ) from None
            if config.repo.scheme in ("http", "https"):
                refusal = refusal_of(config.repo.url, allow_private=self.private_remotes)
                if refusal is not None:
                    raise InvalidJobError((FieldError(source, f"repo.url: {refusal}"),))
            stored = config.model_dump(mode="json", exclude_defaults=True)
            return ProjectView.of(put_project(session, tenant, name, stored, actor=actor))

    def all(self, tenant: str) -> Sequence[ProjectView]:
        """Return a tenant's projects by name."""
        with self.ledger.begin() as session:
            return [*map(ProjectView.of, projects_of(session, tenant))]


class ExecutionView(View):
    """One attempt at a step."""

    attempt: int
    status: str
    model: str | None
    reason: str | None
    detail: str | None
    tokens: int
    cost_usd: str
    seconds: float | None
    started_at: datetime | None
    ended_at: datetime | None
    dropped: tuple[str, ...]
    """Files that it wrote without permission: discarded."""


class StepTreeView(View):
    """A step of a run and its attempts."""

    key: str
    agent: str | None
    """None for the project's own build."""
    phase: str
    round: int
    """0 for the original plan, k for the k-th cycle of rework."""
    cycle: int
    state: str
    tries: int
    depends_on: tuple[str, ...]
    task: str
    status: str | None
    """Its agent's report: complete, needs_rework or blocked."""
    summary: str
    blocking: int
    """Number of blocking issues found."""
    changed: tuple[str, ...]
    failure: str | None
    detail: str | None
    tokens: int
    cost_usd: str
    seconds: float
    executions: tuple[ExecutionView, ...]


class GateView(View):
    """A decision that a person has to make."""

    id: UUID
    run_id: UUID
    key: str
    kind: str
    after: tuple[str, ...]
    reason: str
    state: str
    actor: str | None
    note: str
    facts: dict[str, Any]
    """What the decision is based on."""
    opened_at: datetime | None
    expires_at: datetime | None
    decided_at: datetime | None


class TotalView(View):
    """A sum over model calls."""

    calls: int
    tokens: int
    cost_usd: str


class CostView(View):
    """A run's estimated cost, actual cost and budget."""

    spent_usd: str
    cap_usd: str
    spent_nanousd: int
    cap_nanousd: int
    calls: int
    tokens: int
    estimate: dict[str, Any]
    """Made at submission; `planned` is the same for the agents of its plan."""
    against_estimate: str | None
    """`below`, `within` or `above` the estimated range; None while it has not ended, or without an estimate."""
    by_agent: dict[str, TotalView]
    by_model: dict[str, TotalView]
    orchestrator_share: float | None
    """Share of the tokens used by the orchestrator and its subtasks (about a fifth is expected)."""


class RunView(View):
    """A run."""

    id: UUID
    state: State
    is_final: bool
    reason: str | None
    detail: str | None
    project: str
    ticket: dict[str, Any]
    priority: str
    intent: str | None
    now: str
    """Its current activity in words."""
    plans: tuple[dict[str, Any], ...]
    scan: str | None
    scan_detail: str
    base_commit: str | None
    head_commit: str | None
    rework_cycles: int
    """Planned cycles of rework."""
    rework_demands: int
    """Results that asked for rework."""
    steps: tuple[StepTreeView, ...]
    gates: tuple[GateView, ...]
    gates_by_state: dict[str, int]
    cost: CostView
    result: dict[str, Any]
    is_cancel_requested: bool
    seconds: float
    created_at: datetime
    ended_at: datetime | None
    parent_id: UUID | None
    """The run that this one revises."""
    continued_as: UUID | None
    """The run that revises this one."""


def describe_run(session: Session, run_id: UUID, *, tenant: str | None = None) -> RunView:
    """Return the whole view of a run.

    Raises:
        JobNotFoundError: the caller's fault: there is no such run of this tenant.
    """
    job, run = find_run(session, run_id, tenant=tenant)
    rows = load_run(session, job)
    calls = usage_of_run(session, run_id)
    steps = tuple(_step_view(step, rows, calls) for step in rows.steps)
    of_run = ("ticket", "intent", "plans", "scan", "scan_detail", "base_commit", "head_commit")
    return RunView.of(
        job,
        **{name: getattr(run, name) for name in of_run},
        is_final=job.ended_at is not None,
        project=rows.project.name,
        now=run.explanation,
        rework_cycles=max((step.round for step in rows.steps), default=0),
        rework_demands=sum(step.status == "needs_rework" for step in steps),
        steps=steps,
        gates=tuple(map(GateView.of, rows.gates)),
        gates_by_state=dict(sorted(Counter(gate.state for gate in rows.gates).items())),
        cost=_cost_view(rows, calls),
        is_cancel_requested=job.cancel_requested_at is not None,
        seconds=seconds_between(job.created_at, job.ended_at),
        continued_as=successor_of(session, run_id),
    )


def against_estimate(estimate: dict[str, Any], spent_nanousd: int) -> str | None:
    """Compare a run's cost with its estimated range (seed 001 ADR-012)."""
    low, high = estimate.get("low_usd"), estimate.get("high_usd")
    if low is None or high is None:
        return None
    spent = spent_nanousd / NANOUSD_PER_USD
    return "below" if spent < low else "above" if spent > high else "within"


def _step_view(step: RunStep, rows: RunRows, calls: Sequence[CallUsage]) -> StepTreeView:
    own = [call for call in calls if call.step == step.key]
    executions = tuple(
        _execution_view(row, [call for call in own if call.attempt == row.attempt])
        for row in sorted(rows.executions, key=lambda row: row.attempt)
        if row.step_key == step.key
    )
    result = step.result or {}
    return StepTreeView.of(
        step,
        status=result.get("status"),
        summary=str(result.get("summary", "")),
        blocking=sum(issue.get("severity") == "blocking" for issue in result.get("issues", [])),
        tokens=_tokens(own),
        cost_usd=_usd(own),
        seconds=round(sum(one.seconds or 0.0 for one in executions), 3),
        executions=executions,
    )


def _execution_view(row: AgentExecution, calls: Sequence[CallUsage]) -> ExecutionView:
    seconds = seconds_between(row.started_at, row.settled_at) if row.started_at is not None else None
    return ExecutionView.of(row, ended_at=row.settled_at, seconds=seconds, tokens=_tokens(calls), cost_usd=_usd(calls))


def _cost_view(rows: RunRows, calls: Sequence[CallUsage]) -> CostView:
    spent = sum(call.cost_nanousd for call in calls)
    estimate = rows.run.estimate
    return CostView(
        spent_usd=decimal_usd(spent),
        cap_usd=decimal_usd(rows.cap_nanousd),
        spent_nanousd=spent,
        cap_nanousd=rows.cap_nanousd,
        calls=len(calls),
        tokens=_tokens(calls),
        estimate=estimate,
        against_estimate=against_estimate(estimate, spent) if rows.job.ended_at is not None else None,
        by_agent=_totals(calls, lambda call: call.agent),
        by_model=_totals(calls, lambda call: call.model),
        orchestrator_share=orchestrator_share(calls),
    )


def _totals(calls: Sequence[CallUsage], key: Callable[[CallUsage], str]) -> dict[str, TotalView]:
    return {
        name: TotalView(calls=total.calls, tokens=total.tokens, cost_usd=decimal_usd(total.cost_nanousd))
        for name, total in total_by(calls, key).items()
    }


def _tokens(calls: Iterable[CallUsage]) -> int:
    return sum(call.tokens for call in calls)


def _usd(calls: Iterable[CallUsage]) -> str:
    return decimal_usd(sum(call.cost_nanousd for call in calls))


logger = logging.getLogger(__name__)

MAX_BODY_CHARACTERS = 32 * 1024


class TicketBody(BaseModel):
    """A submitted ticket: the body of `POST /v1/runs`."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    project: SiteName
    title: str = Field(min_length=1, max_length=300)
    body: str = Field(default="", max_length=MAX_BODY_CHARACTERS)
    labels: Annotated[tuple[Label, ...], Field(max_length=50)] = ()
    priority: Literal["P0", "P1", "P2", "P3"] | None = None
    """By default that of its labels (`P0`, `priority: p1`), else P2."""
    source: str | None = Field(default=None, min_length=1, max_length=100)
    url: str | None = Field(default=None, max_length=2048, pattern=r"^https?://[^\s]+$")
    budget_usd: float | None = Field(default=None, gt=0, le=25, allow_inf_nan=False)
    callback_url: CallbackUrl | None = None
    idempotency_key: IdempotencyKey | None = None


def job_body(ticket: TicketBody) -> dict[str, Any]:
    """Return the job request for a ticket: its text is the prompt."""
    prompt = f"{ticket.title}\n\n{ticket.body}" if ticket.body else ticket.title
    metadata = {"title": ticket.title, "labels": list(ticket.labels), "source": ticket.source, "url": ticket.url}
    body: dict[str, Any] = {
        "prompt": prompt,
        "project": ticket.project,
        "priority": ticket.priority or parse_priority(ticket.labels),
        "budget_usd": ticket.budget_usd,
        "callback_url": ticket.callback_url,
        "idempotency_key": ticket.idempotency_key,
        "ticket": {name: value for name, value in metadata.items() if value is not None},
    }
    return {name: value for name, value in body.items() if value is not None}


MAX_FILE_BYTES = 128 * 1024
_FRONT = re.compile(r"\A---[ \t]*\r?\n(?P<head>.*?)^---[ \t]*\r?\n?(?P<body>.*)\Z", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r"\A\s*#[ \t]+(?P<title>[^\r\n]+)\r?\n?(?P<body>.*)\Z", re.DOTALL)


def read_ticket(text: str, *, project: str) -> TicketBody:
    """Read a ticket file.

    It is YAML with title, body, labels, priority, source and url, or Markdown with such front matter, whose first
    heading is the title if the front matter has none. It cannot choose another project.

    Raises:
        InvalidJobError: the caller's fault; names each field and the rule it breaks.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_FILE_BYTES:
        raise InvalidJobError((FieldError("ticket", f"must not be longer than {MAX_FILE_BYTES} bytes"),))
    fields = {"source": "file", **_fields(text)}
    if fields.get("project", project) != project:
        raise InvalidJobError((FieldError("project", "the file names another project than the one given"),))
    try:
        return TicketBody.model_validate({**fields, "project": project})
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)[:50]
        raise InvalidJobError(
            tuple(FieldError(".".join(map(str, item["loc"]))[:200] or "ticket", _rule(item)) for item in problems)
        ) from None


def _fields(text: str) -> dict[str, Any]:
    front = _FRONT.match(text)
    if front is not None:
        return _markdown(front["body"], _mapping(front["head"]))
    if _TITLE.match(text):
        return _markdown(text, {})
    return _mapping(text)


def _markdown(body: str, fields: dict[str, Any]) -> dict[str, Any]:
    titled = _TITLE.match(body)
    if "title" not in fields and titled is not None:
        return {**fields, "title": titled["title"].strip(), "body": titled["body"].strip()}
    return {**fields, "body": body.strip()}


def _mapping(text: str) -> dict[str, Any]:
    try:
        mapping = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InvalidJobError((FieldError("ticket", f"is no YAML: line {line}"),)) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InvalidJobError((FieldError("ticket", "is no YAML"),)) from None
    if not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping):
        raise InvalidJobError((FieldError("ticket", "must be a mapping with a title, or Markdown"),))
    return mapping


def _rule(item: Any) -> str:
    rule = "is not a field of a ticket" if item["type"] == "extra_forbidden" else str(item["msg"])
    return rule.removeprefix("Value error, ")


_MAX_DETAIL = 600
_ENDS: Mapping[str, str] = {
    State.PUBLISHED: "Pointsman is done with this ticket.",
    State.ANSWERED: "Pointsman has an answer.",
    State.ESCALATED: "Pointsman hands this ticket to a person: it could not be finished within its loops.",
    State.BUDGET_EXCEEDED: "Pointsman stopped: the run's budget is spent.",
    State.REJECTED: "Pointsman stopped: a person did not let it pass.",
    State.EXPIRED: "Pointsman stopped: nobody decided in time.",
    State.CANCELLED: "Pointsman stopped: the run was cancelled.",
}
"""By the run's final state; any other is a failure."""


def text_of(
    kind: str,
    *,
    run_id: str,
    state: str,
    detail: str | None,
    result: Mapping[str, Any],
    gate_reason: str | None,
    is_round: bool = False,
    refused: str = "",
) -> str:
    """Return the text of a note; what agents and errors say in it triggers nothing on the tracker."""
    if kind == STARTED:
        return f"Pointsman works on {'what was asked' if is_round else 'this ticket'} (run `{run_id}`)."
    if kind.startswith(REFUSED):
        return f"Pointsman does not go on: {neutralise(refused)}."
    if kind.startswith(AT_GATE):
        why = neutralise(gate_reason or "a decision is needed")
        return f"Pointsman waits for a person: {why}. `pointsman run show {run_id}` has the facts."
    parts = [_ENDS.get(state, "Pointsman could not finish this ticket.")]
    pull = result.get("pull_request")
    if is_round and state == State.PUBLISHED and result.get("commit"):
        parts = [f"Pointsman pushed {result['commit']}.", quoted(str(result.get("summary", "")))]
    elif isinstance(pull, Mapping):
        parts.append(f"Pull request: {pull.get('url')}")
    elif state == State.PUBLISHED and result.get("branch"):
        parts.append(f"Branch: `{result['branch']}`")
    elif state == State.PUBLISHED:
        parts.append("Nothing had to be changed.")
    if state == State.ANSWERED:
        parts.append(neutralise(str(result.get("answer", "")))[:8000])
    elif state != State.PUBLISHED and detail:
        parts.append(neutralise(detail[:_MAX_DETAIL]))
    return "\n\n".join([*parts, f"Run `{run_id}`."])


@dataclass(frozen=True)
class TicketWriter:
    """Sends due notes, each once, however often it has to be tried."""

    ledger: Ledger
    accounts: AccountsConfig

    def deliver_due(self, *, limit: int = 20) -> int:
        """Send the due notes; returns how many were tried."""
        with self.ledger.look() as connection:
            if not has_due_note(connection):
                return 0
        with self.ledger.begin() as session:
            due = claim_due_notes(session, limit=limit)
        for note in due:
            self._deliver(note)
        return len(due)

    def _deliver(self, due: DueNote) -> None:
        run_id, kind = due.run.job_id, due.note.kind
        error: str | None = None
        is_final = False
        try:
            self._write(due)
        except ForgeError as failure:
            error, is_final = str(failure), not failure.is_passing
            logger.warning("ticket_note_failed", extra={"run_id": str(run_id), "kind": kind, "is_final": is_final})
        with self.ledger.begin() as session:
            record_note_sent(session, run_id, kind, attempts=due.note.attempts, error=error, is_final=is_final)

    def _write(self, due: DueNote) -> None:
        account = self._account(due)
        text = text_of(
            due.note.kind,
            run_id=str(due.run.job_id),
            state=due.job.state,
            detail=due.job.detail,
            result=due.job.result,
            gate_reason=due.gate.reason if due.gate is not None else None,
            is_round=due.run.pushed is not None,
            refused=due.refused,
        )
        mark = uuid5(NAMESPACE_URL, f"pointsman:{due.run.job_id}:{due.note.kind}")
        linear = _integrations(due).linear
        team = linear.team if linear is not None else ""
        write_to_ticket(account, reference=self._place(due), text=text, mark=mark, team=team)

    def _place(self, due: DueNote) -> str:
        """Return the ticket, or the pull request that a later round adds to."""
        pull, forge = due.pull_request, _integrations(due).forge
        if pull is not None and forge is not None:
            return forge.reference_of(int(pull["number"]))
        reference = str(due.run.ticket["reference"])
        if forge is None or due.run.ticket.get("source") != forge.kind:
            return reference
        if re.split("[#!]", reference)[0] != forge.repository:
            raise ForgeError("the ticket is not in the project's repository", is_passing=False)
        return reference

    def _account(self, due: DueNote) -> Account:
        integrations = _integrations(due)
        forge = integrations.forge
        source = due.run.ticket.get("source") if due.pull_request is None or forge is None else forge.kind
        known = {"github": integrations.github, "gitlab": integrations.gitlab, "linear": integrations.linear}
        settings = known.get(str(source))
        account = self.accounts.find(settings.token, tenant=due.job.tenant) if settings is not None else None
        if account is None or account.kind != source:
            raise ForgeError(f"the project has no account here that could write to {source}", is_passing=False)
        return account


def _integrations(due: DueNote) -> Integrations:
    return ProjectConfig.model_validate(due.project.config).integrations
