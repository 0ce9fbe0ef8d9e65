"""Tickets submitted on code projects (S-030), and the notes that a run leaves on its ticket."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import NAMESPACE_URL, uuid5

import yaml
from pydantic import BaseModel, Field

from gateway.errors import ForgeError
from gateway.forges.forge import neutralise, quoted, write_to_ticket
from gateway.forges.gitlab import GitLabForge
from ledger.job_ends import AT_GATE, REFUSED, STARTED, DueNote, claim_due_notes, has_due_note, record_note_sent
from ledger.store import Ledger
from producers.errors import ForgeAwayError
from routing.errors import FieldError, InvalidJobError
from routing.jobs import CallbackUrl, IdempotencyKey, Label, SiteName, State, parse_as, parse_priority
from routing.policy.agents import Account, AccountsConfig
from routing.policy.integrations import Integrations
from routing.policy.project import ProjectConfig

logger = logging.getLogger(__name__)

MAX_BODY_CHARACTERS = 32 * 1024


class TicketBody(BaseModel, extra="forbid", str_strip_whitespace=True):
    """A submitted ticket: the body of `POST /v1/runs`."""

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
    of_job = {"project", "budget_usd", "callback_url", "idempotency_key"}
    return {
        **ticket.model_dump(include=of_job, exclude_none=True),
        "prompt": prompt,
        "priority": ticket.priority or parse_priority(ticket.labels),
        "ticket": ticket.model_dump(mode="json", include={"title", "labels", "source", "url"}, exclude_none=True),
    }


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
    return parse_as(TicketBody, {**fields, "project": project})


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


def may_write(account: Account, repository: str, user_id: int) -> bool:
    """Whether a user of GitLab may push to a repository.

    Raises:
        ForgeAwayError: nobody's fault, or the account's.
    """
    try:
        return GitLabForge(account).may_write(repository=repository, user_id=user_id)
    except ForgeError as error:
        raise ForgeAwayError(str(error)) from error


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
        except Exception as failure:  # a forge's client on an odd answer, or a project of another version
            error = f"our own error: {type(failure).__name__}"
            logger.exception("ticket_note_failed", extra={"run_id": str(run_id), "kind": kind, "is_final": False})
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
