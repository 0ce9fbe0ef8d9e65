"""Write to tickets what became of them: each note once, however often it has to be tried (S-030)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from monitoring.ledger.step_ends import AT_GATE, STARTED, DueNote, book_note, claim_due_notes
from monitoring.ledger.store import Ledger
from routing.accounts import Account, AccountsConfig
from routing.jobs import State
from routing.project import ProjectConfig
from sandbox.forge import ForgeError, write_to_ticket
from sandbox.words import inert

logger = logging.getLogger(__name__)

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
"""By the state that a run ended in; any other is a failure."""


def text_of(
    kind: str, *, run_id: str, state: str, detail: str | None, result: Mapping[str, Any], gate_reason: str | None
) -> str:  # fmt: skip
    """Return the words of a note, in which what agents and errors say makes no tracker do anything."""
    if kind == STARTED:
        return f"Pointsman works on this ticket (run `{run_id}`)."
    if kind.startswith(AT_GATE):
        why = inert(gate_reason or "a decision is needed")
        return f"Pointsman waits for a person: {why}. `pointsman run show {run_id}` has the facts."
    parts = [_ENDS.get(state, "Pointsman could not finish this ticket.")]
    pull = result.get("pull_request")
    if isinstance(pull, Mapping):
        parts.append(f"Pull request: {pull.get('url')}")
    elif state == State.PUBLISHED and result.get("branch"):
        parts.append(f"Branch: `{result['branch']}`")
    elif state == State.PUBLISHED:
        parts.append("Nothing had to be changed.")
    if state == State.ANSWERED:
        parts.append(inert(str(result.get("answer", "")))[:8000])
    elif state != State.PUBLISHED and detail:
        parts.append(inert(detail[:_MAX_DETAIL]))
    return "\n\n".join([*parts, f"Run `{run_id}`."])


class TicketWriter:
    """Sends what is due, for one installation."""

    def __init__(self, ledger: Ledger, accounts: AccountsConfig) -> None:
        self._ledger = ledger
        self._accounts = accounts

    def deliver_due(self, *, limit: int = 20) -> int:
        """Send the notes that are due; returns how many were tried."""
        with self._ledger.begin() as session:
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
        with self._ledger.begin() as session:
            book_note(session, run_id, kind, attempts=due.note.attempts, error=error, is_final=is_final)

    def _write(self, due: DueNote) -> None:
        account = self._account(due)
        text = text_of(
            due.note.kind, run_id=str(due.run.job_id), state=due.job.state, detail=due.job.detail,
            result=due.job.result, gate_reason=due.gate.reason if due.gate is not None else None,
        )  # fmt: skip
        mark = uuid5(NAMESPACE_URL, f"pointsman:{due.run.job_id}:{due.note.kind}")
        write_to_ticket(account, reference=str(due.run.ticket["reference"]), text=text, mark=mark)

    def _account(self, due: DueNote) -> Account:
        source = due.run.ticket.get("source")
        integrations = ProjectConfig.model_validate(due.project.config).integrations
        settings = {"github": integrations.github, "linear": integrations.linear}.get(str(source))
        account = self._accounts.find(settings.token, tenant=due.job.tenant) if settings is not None else None
        if account is None or account.kind != source:
            raise ForgeError(f"the project has no account here that could write to {source}", is_passing=False)
        return account
