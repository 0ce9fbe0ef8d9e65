"""Tables of projects, runs, their steps, the executions of steps, and gates.

A run is a job on the queue `control`; an execution of a step is a job of its own on `steps`. Claims, leases, fences,
tokens, limits, bills and cancelling are those of any job; these tables hold only what a job does not have.

To avoid deadlocks between the end of a step, an advance, a cancel and a decision at a gate, locks are taken in one
order: the run's job, its `run` row, the jobs of executions by id, `agent_executions`, `run_step`, `gate`. The end of an
execution starts in the middle of that order: it never touches its run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKeyConstraint, Index, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from ledger.tables import json_column, money_column, optional_json_column, partial_index, when_column
from routing.ids import new_id


class Project(SQLModel, table=True):
    """A code project of a tenant, which tickets are about (layer 2 of the configuration, seed 001 ADR-006)."""

    __tablename__ = "project"
    __table_args__ = (UniqueConstraint("tenant", "name"),)

    id: UUID = Field(default_factory=new_id, primary_key=True)
    tenant: str = Field(foreign_key="tenant.name")
    name: str
    config: dict[str, Any] = json_column(dict)
    """routing.policy.project.ProjectConfig; it names keys and never holds them."""
    image: dict[str, Any] | None = optional_json_column()
    """The image of its boxes that an operator built for it: `id`, `reference`, `source`; None for that of all boxes."""
    created_at: datetime = when_column(nullable=False, default_now=True)
    updated_at: datetime = when_column(nullable=False, default_now=True)


class Run(SQLModel, table=True):
    """What a run has besides its job: ticket, plans and the state of its workspace."""

    __tablename__ = "run"

    job_id: UUID = Field(foreign_key="job.id", primary_key=True)
    project_id: UUID = Field(foreign_key="project.id", index=True)
    ticket: dict[str, Any] = json_column(dict)
    """title, body, labels, url, source: as it came (producers/use_cases/tickets.py)."""
    intent: str | None = None
    """build, fix or question, once that is known."""
    plans: list[dict[str, Any]] = json_column(list)
    """Every adopted plan, validated: round, origin, plan, notes. They hold no secrets (S-084)."""
    scan: str | None = None
    """The result of scanning the changed files: `passed` or `refused`."""
    scan_detail: str = Field(default="", sa_type=Text)
    base_commit: str | None = None
    """The project's commit that the run started from; set once its first step has fetched the project."""
    head_commit: str | None = None
    """The head of the run's branch; the workspace's ref is a projection of it."""
    workspace_id: UUID | None = None
    """The run in whose repository a later round works on; None for its own."""
    pushed: dict[str, Any] | None = optional_json_column()
    """Of a later round: the branch, its `commit` as last pushed, and the `pull_request` that it adds a commit to."""
    estimate: dict[str, Any] = json_column(dict)
    """The estimated cost before it started (seed 001 ADR-012)."""
    explanation: str = Field(default="", sa_type=Text)
    """The latest decision of its schedule, in words."""

    @property
    def workspace(self) -> UUID:
        """The id that names its repository."""
        return self.workspace_id or self.job_id

    @property
    def pull_request(self) -> dict[str, Any] | None:
        """The pull request that it adds a commit to: number and url."""
        found: dict[str, Any] | None = (self.pushed or {}).get("pull_request")
        return found


class RunStep(SQLModel, table=True):
    """A step of a run: one agent, one task. `tries` counts its executions."""

    __tablename__ = "run_step"
    __table_args__ = (CheckConstraint("tries >= 0", name="ck_run_step_tries"),)

    run_id: UUID = Field(foreign_key="run.job_id", primary_key=True)
    key: str = Field(primary_key=True)
    position: int
    """Order in which steps are shown and, among those that are ready, started."""
    agent: str | None = None
    """None for the project's own build, which involves no model."""
    phase: str
    round: int = 0
    """0 for the run's own plan, k for the k-th cycle of rework."""
    cycle: int = 0
    task: str = Field(sa_type=Text)
    context: list[str] = json_column(list)
    """Keys of steps whose outputs are staged for it, and paths of the workspace."""
    writes: list[str] = json_column(list)
    """Paths it may write; nothing else is kept."""
    depends_on: list[str] = json_column(list)
    state: str = "pending"
    """`pending`, `running`, `completed`, `failed` or `skipped`."""
    tries: int = 0
    result: dict[str, Any] | None = optional_json_column()
    """The `.agent-result.json` of the completed execution."""
    changed: list[str] = json_column(list)
    """Paths that its commit changed."""
    failure: str | None = None
    """Reason code of its latest failed execution."""
    detail: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = when_column(nullable=False, default_now=True)
    ended_at: datetime | None = when_column()


class AgentExecution(SQLModel, table=True):
    """One execution of a step, including retried and failed ones (P-055). It shares the id of its job."""

    __tablename__ = "agent_executions"
    __table_args__ = (
        UniqueConstraint("run_id", "step_key", "attempt"),
        ForeignKeyConstraint(["run_id", "step_key"], ["run_step.run_id", "run_step.key"]),
        partial_index("ix_execution_unabsorbed", "run_id", where="settled_at IS NOT NULL AND absorbed_at IS NULL"),
    )

    job_id: UUID = Field(foreign_key="job.id", primary_key=True)
    run_id: UUID
    step_key: str
    attempt: int
    agent: str | None = None
    model: str | None = None
    """As configured for it; its calls record the model that answered."""
    provider: str | None = None
    """The gateway's provider that pays, when the project names one; otherwise the tenant's."""
    cap_nanousd: int | None = money_column(nullable=True)
    """The step's own cap; None limits it by the run's budget alone."""
    status: str = "queued"
    """`queued`, `running`, `completed`, `failed` or `cancelled`."""
    base_commit: str | None = None
    """The run's head when it was started: its workspace is a copy of that."""
    commit: str | None = None
    """Its own commit on top of `base_commit`, not yet part of the run's branch."""
    changed: list[str] = json_column(list)
    dropped: list[str] = json_column(list)
    """What it wrote outside its paths: dropped and reported (S-008)."""
    result: dict[str, Any] | None = optional_json_column()
    reason: str | None = None
    detail: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = when_column(nullable=False, default_now=True)
    started_at: datetime | None = when_column()
    settled_at: datetime | None = when_column()
    """When it ended: from then on its run can be advanced."""
    absorbed_at: datetime | None = when_column()
    """When it was merged into its run."""


class Gate(SQLModel, table=True):
    """A point at which a run waits for a person (seed 001 ADR-010)."""

    __tablename__ = "gate"
    __table_args__ = (
        UniqueConstraint("run_id", "key"),
        partial_index("ix_gate_expiring", "expires_at", where="state = 'open'"),
    )

    id: UUID = Field(default_factory=new_id, primary_key=True)
    run_id: UUID = Field(foreign_key="run.job_id")
    key: str
    kind: str
    """`rule` or `plan`: who wants it."""
    after: list[str] = json_column(list)
    """Keys of the steps that it follows; none = before the run is published."""
    reason: str = Field(sa_type=Text)
    state: str = "planned"
    """`planned`, `open`, `passed`, `failed`, `expired`, `skipped` (an optional one, by the project's autonomy) or
    `closed` (its run ended first)."""
    facts: dict[str, Any] = json_column(dict)
    """What a person needs to decide."""
    position: int = 0
    opened_at: datetime | None = when_column()
    expires_at: datetime | None = when_column()
    decided_at: datetime | None = when_column()
    actor: str | None = None
    note: str = ""


class ReviewComment(SQLModel, table=True):
    """What a forge reported about a run's pull request, until the session's next round takes it."""

    __tablename__ = "review_comment"
    __table_args__ = (
        UniqueConstraint("root_id", "source"),
        partial_index("ix_review_comment_open", "root_id", where="settled_at IS NULL"),
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, primary_key=True, autoincrement=True))
    root_id: UUID = Field(foreign_key="job.id")
    """The session's first run."""
    source: str
    """Its event and id at the forge, or `check:NAME@COMMIT`."""
    author: str
    body: str = Field(sa_type=Text)
    path: str | None = None
    line: int | None = None
    is_order: bool
    """Whether it starts a round."""
    received_at: datetime = when_column(nullable=False, default_now=True)
    settled_at: datetime | None = when_column()
    run_id: UUID | None = Field(default=None, foreign_key="job.id", index=True)
    """The round that takes it."""
    refused: str = Field(default="", sa_type=Text)
    """Why none does."""


class KeptDelivery(SQLModel, table=True):
    """A tracker's verified delivery that could not be taken in when it came: trackers send none again by themselves."""

    __tablename__ = "kept_delivery"
    __table_args__ = (Index("ix_kept_delivery_received", "received_at"), Index("ix_kept_delivery_tenant", "tenant"))

    digest: str = Field(primary_key=True)
    """Of all that it says and where it was sent to: one that comes again is the same one."""
    tenant: str
    project: str
    tracker: str
    event: str
    """As its header names it; empty for Linear."""
    body: str = Field(sa_type=Text)
    """As JSON."""
    next_at: datetime = when_column(nullable=False, default_now=True)
    """When it is tried again."""
    received_at: datetime = when_column(nullable=False, default_now=True)


class TicketNote(SQLModel, table=True):
    """A note that a run owes its ticket: written in the transaction that it reports, and sent afterwards (S-030)."""

    __tablename__ = "ticket_note"
    __table_args__ = (partial_index("ix_ticket_note_due", "next_at", where="delivered_at IS NULL"),)

    run_id: UUID = Field(foreign_key="run.job_id", primary_key=True)
    kind: str = Field(primary_key=True)
    """`started`, `gate:KEY`, `refused:COMMENT` or `ended`."""
    attempts: int = 0
    next_at: datetime | None = when_column()
    delivered_at: datetime | None = when_column()
    error: str | None = None
    created_at: datetime = when_column(nullable=False, default_now=True)
