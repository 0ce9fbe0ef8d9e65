"""What the record can refuse."""

from __future__ import annotations

from uuid import UUID


class MonitoringError(Exception):
    """Base of all errors of this package."""


class JobNotFoundError(MonitoringError, LookupError):
    """No job with this id belongs to the caller's tenant (the caller's fault)."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id)

    def __str__(self) -> str:
        return f"no job {self.args[0]}"


class IdempotencyConflictError(MonitoringError, ValueError):
    """An idempotency key was used again with another body (the caller's fault)."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"the idempotency key belongs to job {self.job_id}, which was submitted with another body"


class FencedError(MonitoringError):
    """An attempt tried to take effect although the job has moved on: its effect is refused (nobody's fault)."""

    def __init__(self, job_id: UUID, fence: int) -> None:
        super().__init__(job_id, fence)

    def __str__(self) -> str:
        return f"attempt with fence {self.args[1]} of job {self.args[0]} no longer holds the job"


class WrongStateError(MonitoringError, ValueError):
    """The job is not in a state in which this can be done (the caller's fault)."""

    def __init__(self, job_id: UUID, state: str, wanted: str) -> None:
        super().__init__(job_id, state, wanted)

    def __str__(self) -> str:
        return f"job {self.args[0]} is {self.args[1]}; this needs {self.args[2]}"


class SiteNotFoundError(MonitoringError, LookupError):
    """No site of this name belongs to the tenant (the caller's fault)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def __str__(self) -> str:
        return f"no site {self.args[0]!r}"


class PublishConflictError(MonitoringError):
    """The active release is no longer the one the candidate was made from (nobody's fault): nothing changed."""

    def __init__(self, site: str) -> None:
        super().__init__(site)

    def __str__(self) -> str:
        return f"site {self.args[0]} has another active release than the one this was made from"


class ForeignMarkError(MonitoringError):
    """The fold's mark lies in this cluster's future: the ledger came from another one (the operator's fault)."""

    def __init__(self, mark: int, horizon: int) -> None:
        super().__init__(mark, horizon)

    def __str__(self) -> str:
        return (
            f"the metrics were folded up to transaction {self.args[0]}, but this cluster is at {self.args[1]}: "
            "the ledger was restored from another cluster without monitoring.event_metrics.rebase"
        )


class SchemaMismatchError(MonitoringError):
    """The ledger's schema is none that this version works with (the operator's fault)."""

    def __init__(self, found: str | None, wanted: str) -> None:
        super().__init__(found, wanted)

    def __str__(self) -> str:
        found, wanted = self.args
        if found is None or found < wanted:
            state = f"is at revision {found}" if found else "has no schema yet"
            return f"the ledger {state}, and this version needs {wanted}: run `pointsman migrate` of this version"
        return f"the ledger is at revision {found}, which this version (made for {wanted}) cannot work with: upgrade it"


class LedgerBusyError(MonitoringError):
    """A migration got no lock in time (the operator's fault, or nobody's): it can be asked for again."""

    def __str__(self) -> str:
        return "the ledger was too busy to be migrated: a transaction holds a table, or another migration runs; repeat"


class TracingUnavailableError(MonitoringError):
    """Traces are wanted, and what sends them is not installed (the operator's fault)."""


class CapacityError(MonitoringError):
    """A question about capacity that has no answer (the caller's fault): it names the place and the rule."""
