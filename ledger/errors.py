"""Errors of the ledger and its metrics, and who is at fault."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Generic, Literal, TypeVar
from uuid import UUID

Subject = TypeVar("Subject")
Why = TypeVar("Why", bound=str)


class LedgerError(Exception):
    """Base of all errors of this package."""

    text: ClassVar[str] = ""
    """The message, formatted with the arguments; empty for the plain argument."""

    def __str__(self) -> str:
        return self.text.format(*self.args) if self.text else super().__str__()


class _AboutError(LedgerError, Generic[Subject]):
    """An error about one thing, which it names."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)


class JobNotFoundError(_AboutError[UUID], LookupError):
    """No job with this id belongs to the caller's tenant (the caller's fault)."""

    text = "no job {}"


class MessageRefusedError(JobNotFoundError):
    """The message with this task id named no tenant of ours, so there is no row of it (the sender's fault)."""

    text = "no job {}: its message was refused: {}"

    def __init__(self, job_id: UUID, rules: str) -> None:
        super().__init__(job_id)
        self.args = (job_id, rules)


class SiteNotFoundError(_AboutError[str], LookupError):
    """No site of this name belongs to the tenant (the caller's fault)."""

    text = "no site {!r}"


class ProjectNotFoundError(_AboutError[str], LookupError):
    """No project of this name belongs to the tenant (the caller's fault)."""

    text = "no project {!r}"


class GateNotFoundError(_AboutError[UUID], LookupError):
    """No gate with this id belongs to the caller's tenant (the caller's fault)."""

    text = "no gate {}"


class ClusterNotFoundError(LedgerError, LookupError):
    """The tenant has no dead letters of this signature (the caller's fault), or none any more."""

    text = "no dead letters have this signature"


class NoticeNotFoundError(LedgerError, LookupError):
    """The tenant has no notice of this id (the caller's fault)."""

    text = "no notice of this id belongs to the tenant"


class ReleaseNotFoundError(LedgerError, LookupError):
    """The site has no published release of this id, or none at all (the caller's fault)."""

    text = "the site has no such published release"


class NothingMadeError(ReleaseNotFoundError):
    """The job has made no release, so far or ever (the caller's fault)."""

    text = "the job has made no release"


class ReleaseSweptError(ReleaseNotFoundError):
    """Retention has removed the release's files (the caller's fault)."""

    text = "the files of release {} are gone: it was older than retention keeps them"

    def __init__(self, release_id: UUID) -> None:
        super().__init__(release_id)


class IdempotencyConflictError(LedgerError, ValueError):
    """An idempotency key was reused with another body (the caller's fault)."""

    text = "the idempotency key belongs to job {}, which was submitted with another body"

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id)
        self.job_id = job_id


class WrongStateError(LedgerError, ValueError):
    """The job's state does not allow this (the caller's fault)."""

    text = "job {} is {}; this needs {}"

    def __init__(self, job_id: UUID, state: str, wanted: str) -> None:
        super().__init__(job_id, state, wanted)


class FencedError(LedgerError):
    """An attempt that no longer holds its job tried to take effect (nobody's fault)."""

    text = "attempt with fence {1} of job {0} no longer holds the job"

    def __init__(self, job_id: UUID, fence: int) -> None:
        super().__init__(job_id, fence)


class PublishConflictError(_AboutError[str]):
    """The active release is no longer the candidate's base (nobody's fault); nothing changed."""

    text = "site {} has another active release than the one this was made from"


class _RefusedError(LedgerError, ValueError, Generic[Why]):
    """A refusal for one of a few reasons; nothing changed."""

    reasons: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, subject: UUID, reason: Why, fact: str | int = "") -> None:
        super().__init__(subject, reason, fact)
        self.reason = reason

    def __str__(self) -> str:
        subject, reason, fact = self.args
        return self.text.format(subject, self.reasons.get(reason, "{}").format(fact))


ApprovalRefusal = Literal["expired", "other_release", "other_report", "site_moved_on", "own_request"]
GateRefusal = Literal["decided", "expired", "own_request", "no_reason", "changed"]
RoundRefusal = Literal[
    "continued",
    "too_many_rounds",
    "site_moved_on",
    "release_swept",
    "nothing_kept",
    "unbound",
    "state",
    "spent",
    "project",
]
UndoRefusal = Literal["state", "over"]
ReplayRefusal = Literal["not_ended", "no_callback", "too_often"]


class ApprovalRefusedError(_RefusedError[ApprovalRefusal]):
    """A preview cannot be approved, or not by this actor (the caller's fault)."""

    text = "job {} is not approved: {}"
    reasons = MappingProxyType(
        {
            "expired": "its time for approval is over, which counts as a rejection",
            "other_release": "it now offers another release than the one that was looked at; look at the preview again",
            "other_report": "its scan report is another one than the one that was looked at; look at it again",
            "site_moved_on": (
                "the site shows another release than the one it was made from; reject it and submit it again"
            ),
            "own_request": "whoever asked for an edit may not approve it here; a second person has to",
        }
    )


class NotUndoableError(_RefusedError[UndoRefusal]):
    """An approval cannot be undone any more (the caller's fault, or nobody's)."""

    text = "the approval of job {} is not undone: {}"
    reasons = MappingProxyType(
        {
            "state": "the job is {}; only what is about to be published can be taken back",
            "over": "its publish is not held back any more; once it is live, roll the site back",
        }
    )


class NoOpenGateError(_AboutError[UUID], LookupError):
    """A run waits for nobody (the caller's fault)."""

    text = "run {} has no open gate with work to look at"


class GateRefusedError(_RefusedError[GateRefusal]):
    """A gate cannot be decided, or not by this actor (the caller's fault)."""

    text = "gate {} is not decided: {}"
    reasons = MappingProxyType(
        {
            "decided": "it is not open any more",
            "expired": "its time is over, which counts as a refusal",
            "own_request": "whoever asked for its work may not pass a gate here; a second person has to",
            "no_reason": "work is sent back with a reason, which its agents are told",
            "changed": "the run's work is another one than the one that was looked at; look at it again",
        }
    )


class NotContinuableError(_RefusedError[RoundRefusal]):
    """A job cannot be continued (the caller's fault, or nobody's)."""

    text = "nothing can go on from job {}: {}"
    reasons = MappingProxyType(
        {
            "continued": "job {} goes on from it already",
            "too_many_rounds": "its session has had {} rounds; submit a job of its own",
            "site_moved_on": "the site shows another release than the one its work was made from; submit it again",
            "release_swept": "the files of its work were given up, older than retention keeps them; submit it again",
            "nothing_kept": "it kept nothing that could be revised; submit a job",
            "unbound": "it ended before it was known what it is about; submit it again",
            "state": "it is {}",
            "project": "{}",
            "spent": "its bill has spent what it was allowed; give it a budget on top (budget_usd, or --budget)",
        }
    )


class NotReplayableError(_RefusedError[ReplayRefusal]):
    """A notification cannot be sent again (the caller's fault)."""

    text = "job {} has nothing to send again: {}"
    reasons = MappingProxyType(
        {
            "not_ended": "the job has not ended, so there is no notification yet",
            "no_callback": "the job was submitted without a callback_url",
            "too_often": "it was sent again {} times, which is enough",
        }
    )


ERA_DIGITS = 2
"""Of a revision's number: those that name its era."""


class SchemaMismatchError(LedgerError):
    """This version cannot work with the ledger's schema (the operator's fault)."""

    def __init__(self, found: str | None, wanted: str) -> None:
        super().__init__(found, wanted)

    def __str__(self) -> str:
        found, wanted = self.args
        if found is None:
            return f"the ledger has no schema yet: run `pointsman migrate`, to revision {wanted}"
        state = f"the ledger is at revision {found}, and this version needs {wanted}"
        if found > wanted:
            return f"{state}: upgrade it"
        if found[:ERA_DIGITS] == wanted[:ERA_DIGITS]:
            return f"{state}: run `pointsman migrate` of this version"
        return f"{state}, of a later era: nothing leads there"


class LedgerBusyError(LedgerError):
    """A migration got no lock in time (the operator's fault, or nobody's); it can be repeated."""

    text = "the ledger was too busy to be migrated: a transaction holds a table, or another migration runs; repeat"


class DumpError(LedgerError):
    """A ledger could not be dumped or restored (the operator's fault; the message says what to do)."""


class ArchiveError(LedgerError):
    """The audit archive does not fit the ledger's chain (the operator's fault, or a lost disk): nothing was deleted."""


class ForeignMarkError(LedgerError):
    """The metrics' mark lies in this cluster's future: the ledger came from another one (the operator's fault)."""

    text = (
        "the metrics were folded up to transaction {}, but this cluster is at {}: "
        "the ledger was restored from another cluster without monitoring.event_metrics.rebase"
    )

    def __init__(self, mark: int, horizon: int) -> None:
        super().__init__(mark, horizon)


class TracingUnavailableError(LedgerError):
    """Tracing is enabled, but its exporter is not installed (the operator's fault)."""


class CapacityError(LedgerError):
    """A question about capacity without an answer (the caller's fault); it names the place and the rule."""


class CellError(LedgerError):
    """A directory of cells, or a cell, does not allow this (the operator's fault, or nobody's)."""

    RULES: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "name": "a cell's name {0!r} must be 1 to 32 of a-z, 0-9 and -, beginning with a letter",
            "unknown_cell": "no cell {0!r}: `pointsman cells status` lists them",
            "unknown_tenant": "no cell has a tenant {0!r}",
            "elsewhere": "tenant {0!r} belongs to cell {1!r}",
            "moving": "tenant {0!r} is being moved by another process, or its move is not over",
            "not_moving": "tenant {0!r} is not being moved",
            "switched": "tenant {0!r} has been moved already: `pointsman cells move` finishes that",
            "image": "project {1!r} of tenant {0!r} has an image of its own, which cannot be moved:"
            " `pointsman image remove`, and build it in the new cell",
            "account": "project {1!r} of tenant {0!r} needs account {2!r}, which cell {3!r} does not have for it; if it"
            " has by now: `pointsman cells add` there",
            "shell": "{1} has a shell at a gate of run {2!r}; tenant {0!r} can be moved once it has ended",
            "no_runs_root": "cell {0!r} has not said where its workspaces are: `pointsman cells add` there",
            "runs_root": "the workspaces below {1} are not those of cell {0!r}, as seen from here",
            "workspace": "run {1!r} has no workspace with its work below {2}, as seen from here",
            "content_store": "the content store of cell {0!r} is not that of its ledger, as seen from here",
            "unequal": "table {1} of tenant {0!r} is not the same in both cells; nothing was changed",
            "still_at_work": "jobs of tenant {0!r} are still at work; its move goes on when it is asked for again",
            "versions": "both cells must run one version of Pointsman to move tenant {0!r}",
        }
    )

    def __init__(self, reason: str, *facts: str) -> None:
        super().__init__(reason, *facts)
        self.reason = reason

    def __str__(self) -> str:
        return self.RULES.get(self.reason, self.reason).format(*self.args[1:])
