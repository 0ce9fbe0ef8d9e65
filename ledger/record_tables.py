"""Tables of what happened, of the fleet and of people: events, audit trail, messages, decisions, workers, sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Column, DateTime, Index, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from ledger.tables import json_column, money_column, partial_index, when_column
from routing.ids import new_id


class Event(SQLModel, table=True):
    """What happened, in order: the job's stream for its owner, and the source of the metrics."""

    __tablename__ = "event"
    __table_args__ = (
        Index("ix_event_job", "job_id", "id"),
        Index("ix_event_xid", "xid"),
        {"postgresql_partition_by": "RANGE (id)"},  # operations.partitions
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, primary_key=True, autoincrement=True))
    xid: int = Field(
        default=None,
        sa_type=BigInteger,
        nullable=False,
        sa_column_kwargs={"server_default": text("pg_current_xact_id()::text::bigint")},
    )
    """The writing transaction: metrics are summed only up to where no running transaction can still add events."""
    at: datetime = when_column(nullable=False, default_now=True)
    job_id: UUID | None = None
    tenant: str | None = None
    kind: str
    data: dict[str, Any] = json_column(dict)


class RecordedCall(SQLModel, table=True):
    """A model call as its tenant wants it kept, redacted: to be replayed, not to be billed."""

    __tablename__ = "recorded_call"
    __table_args__ = (Index("ix_recorded_call_expires_at", "expires_at"),)

    id: UUID = Field(primary_key=True)
    """Of the call."""
    job_id: UUID = Field(foreign_key="job.id", index=True)
    at: datetime = when_column(nullable=False, default_now=True)
    expires_at: datetime = when_column(nullable=False)
    request: str = Field(sa_type=Text)
    """As JSON."""
    reply: str = Field(sa_type=Text)
    """The whole message with its usage, as JSON."""


class Epoch(SQLModel, table=True):
    """A restoration of this ledger: what gateways knew to be booked may be lost since then."""

    __tablename__ = "epoch"

    id: UUID = Field(default_factory=new_id, primary_key=True)
    since: datetime = when_column(nullable=False, default_now=True)


class Rollup(SQLModel, table=True):
    """A metric series summed from the events; it outlives them."""

    __tablename__ = "rollup"

    name: str = Field(primary_key=True)
    labels: str = Field(primary_key=True)
    """Canonical JSON of the labels."""
    value: float = 0


class RollupMark(SQLModel, table=True):
    """The transaction up to which events are in the metrics."""

    __tablename__ = "rollup_mark"

    id: int = Field(default=1, primary_key=True)
    xid: int = Field(default=0, sa_type=BigInteger)


class AuditRow(SQLModel, table=True):
    """One entry of the audit trail; in the last one of a seal `sealed_in` names the seal."""

    __tablename__ = "audit"

    seq: int | None = Field(default=None, sa_column=Column(BigInteger, primary_key=True, autoincrement=True))
    at: datetime = when_column(nullable=False, default_now=True)
    action: str
    actor: str
    tenant: str | None = None
    job_id: UUID | None = Field(default=None, index=True)
    tier: int | None = None
    prompt: str | None = Field(default=None, sa_type=Text)
    """The prompt with secrets redacted (A31); its hash is of the original."""
    prompt_sha256: str | None = None
    input_hash: str | None = None
    output_hash: str | None = None
    scan: str | None = None
    approval: str | None = None
    detail: dict[str, Any] = json_column(dict)
    sealed_in: int | None = Field(default=None, sa_type=BigInteger)


class AuditSeal(SQLModel, table=True):
    """A signed link of the audit chain over a batch of rows."""

    __tablename__ = "audit_seal"

    number: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    first_seq: int = Field(sa_type=BigInteger)
    last_seq: int = Field(sa_type=BigInteger)
    rows: int
    rows_hash: str
    previous_hash: str
    hash: str
    signature: str
    at: datetime = when_column(nullable=False, default_now=True)
    archived: str | None = None
    """Of the newest archived seal: the signature that its rows, and all before them, are in the archive."""


class Notification(SQLModel, table=True):
    """The one message that the end of a job owes its owner."""

    __tablename__ = "notification"
    __table_args__ = (
        partial_index("ix_notification_due", "next_at", where="delivered_at IS NULL"),
        partial_index("ix_notification_turn", "tenant", "next_at", where="next_at IS NOT NULL"),
    )

    job_id: UUID = Field(primary_key=True)
    """Written under its job's lock, and deleted before it, so there is no foreign key to check."""
    callback_url: str | None = None
    payload: dict[str, Any] = json_column(dict)
    attempts: int = 0
    """Since the last replay."""
    next_at: datetime | None = when_column()
    delivered_at: datetime | None = when_column()
    created_at: datetime = when_column(nullable=False, default_now=True)
    replays: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    tenant: str = Field(default="", sa_column_kwargs={"server_default": text("''")})
    """Whose turn a delivery takes."""


class Delivery(SQLModel, table=True):
    """One try to deliver a notification, and its outcome."""

    __tablename__ = "delivery"
    __table_args__ = (Index("ix_delivery_job", "job_id", "id"),)

    id: int | None = Field(default=None, sa_column=Column(BigInteger, primary_key=True, autoincrement=True))
    job_id: UUID = Field(foreign_key="notification.job_id")
    at: datetime = when_column(nullable=False, default_now=True)
    number: int
    """The number of this try since the last replay, from 1."""
    outcome: str
    status: int | None = None
    """HTTP status of the receiver's answer, if any."""
    detail: str = ""
    seconds: float = 0.0


class Notice(SQLModel, table=True):
    """A message that a job waits for a person: one for each time it begins to, and for each place that hears of it."""

    __tablename__ = "notice"
    __table_args__ = (
        partial_index("ix_notice_turn", "tenant", "next_at", where="next_at IS NOT NULL"),
        Index("ix_notice_created", "tenant", "created_at"),
    )

    id: UUID = Field(default_factory=new_id, primary_key=True)
    """Of the message."""
    job_id: UUID = Field(foreign_key="job.id", index=True)
    tenant: str
    channel: str
    """`callback`: the job's `callback_url`; `chat`: the tenant's `chat_url`, `mail`: its `mail_to`, both as they are at
    each try."""
    callback_url: str | None = None
    payload: dict[str, Any] = json_column(dict)
    attempts: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Since the last replay."""
    next_at: datetime | None = when_column()
    delivered_at: datetime | None = when_column()
    created_at: datetime = when_column(nullable=False, default_now=True)
    replays: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})


class NoticeDelivery(SQLModel, table=True):
    """One try to deliver a notice, and its outcome, as of a notification."""

    __tablename__ = "notice_delivery"
    __table_args__ = (Index("ix_notice_delivery_notice", "notice_id", "id"),)

    id: int | None = Field(default=None, sa_column=Column(BigInteger, primary_key=True, autoincrement=True))
    notice_id: UUID = Field(foreign_key="notice.id")
    job_id: UUID = Field(index=True)
    at: datetime = when_column(nullable=False, default_now=True)
    number: int
    outcome: str
    status: int | None = None
    detail: str = ""
    seconds: float = 0.0


class QueueControl(SQLModel, table=True):
    """A queue that operators paused."""

    __tablename__ = "queue_control"

    queue: str = Field(primary_key=True)
    paused_at: datetime | None = when_column()


class Worker(SQLModel, table=True):
    """A worker, by its own heartbeats; one that stops cleanly removes its row."""

    __tablename__ = "worker"

    id: str = Field(primary_key=True)
    """The name under which it claims jobs: `attempt.worker`."""
    host: str
    pid: int
    queues: list[str] = json_column(list)
    slots: int
    """Jobs that it works on at once, over all its queues."""
    is_draining: bool = False
    """Whether it is stopping: it finishes its jobs and claims no new ones."""
    started_at: datetime = when_column(nullable=False, default_now=True)
    seen_at: datetime = when_column(nullable=False, default_now=True)


class Leader(SQLModel, table=True):
    """The process that leads a role; each role has one leader at a time."""

    __tablename__ = "leader"

    role: str = Field(primary_key=True)
    holder: str
    until: datetime = when_column(nullable=False)


class ProviderCircuit(SQLModel, table=True):
    """The circuit of one model of one provider account, shared by the whole fleet: closed, throttled or open."""

    __tablename__ = "provider_circuit"

    provider: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    open_until: datetime | None = when_column()
    """No call is made before then."""
    reason: str | None = None
    """Why it is open: `rate_limited`, `overloaded` or `failing`."""
    failures: int = 0
    """Calls in a row that the provider failed; at the policy's threshold the circuit opens."""
    probing_until: datetime | None = when_column()
    """While the circuit is half open: the deadline of the one call that tests it."""
    requests: float = 0.0
    """Requests left in the bucket of the minute, as of `filled_at`."""
    tokens: float = 0.0
    """Tokens left in the bucket of the minute, as of `filled_at`."""
    filled_at: datetime | None = when_column()
    changed_at: datetime = when_column(nullable=False, default_now=True)


class Backlog(SQLModel, table=True):
    """The backlog as the dispatcher last counted it; admission reads two rows instead of counting."""

    __tablename__ = "backlog"

    queue: str = Field(primary_key=True)
    tenant: str = Field(primary_key=True)
    """Empty for all tenants together."""
    waiting: int = 0
    drained_per_second: float = 0.0
    """The recent rate of work, from which a refusal's Retry-After is computed."""
    turn: float = Field(default=0.0, sa_column_kwargs={"server_default": "0"})
    """The tenant's position in the order of turns on this queue; in the row for all, the queue's."""
    counted_at: datetime = when_column(nullable=False, default_now=True)


class OrphanCall(SQLModel, table=True):
    """A served call of an attempt that this ledger does not know: another server or a restore lost it.

    What it cost is owed and counts against the caps of its day. Its work counts for nothing.
    """

    __tablename__ = "orphan_call"

    id: UUID = Field(primary_key=True)
    job_id: UUID
    attempt_id: UUID
    tenant: str
    caps: list[list[str]] = json_column(list)
    provider: str
    model: str
    key_hash: str
    gateway: str
    cost_nanousd: int = money_column()
    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    finish: str
    status: int
    prices_as_of: str
    served_at: datetime = when_column(nullable=False)
    booked_at: datetime = when_column(nullable=False, default_now=True)


class Approval(SQLModel, table=True):
    """A decision on a preview, bound to the release, its scan and the release it was made from (threat H3)."""

    __tablename__ = "approval"

    job_id: UUID = Field(foreign_key="job.id", primary_key=True)
    release_id: UUID
    base_release_id: UUID | None = None
    scan_digest: str
    decision: str
    actor: str
    reason: str = ""
    at: datetime = when_column(nullable=False, default_now=True)
    expires_at: datetime | None = when_column()
    """When the preview would have expired, which an undo restores."""


class Debate(SQLModel, table=True):
    """A debate and its verdict."""

    __tablename__ = "debate"
    __table_args__ = (Index("ix_debate_session", "tenant", "session"),)

    id: UUID = Field(default_factory=new_id, primary_key=True)
    job_id: UUID = Field(foreign_key="job.id", index=True)
    tenant: str
    session: str | None = None
    key: str
    decision_key: str
    """The router's key of the decision, which is not debated twice in a session."""
    kind: str
    stakes: str | None = None
    verdict: str
    record: dict[str, Any] = json_column(dict)
    at: datetime = when_column(nullable=False, default_now=True)


class TaskFailure(SQLModel, table=True):
    """The failures of a task since its last success; it has no row without any."""

    __tablename__ = "task_failure"
    __table_args__ = (Index("ix_task_failure_signature", "tenant", "error_signature"),)

    key: str = Field(primary_key=True)
    """Digest of tenant, site and canonical request."""
    tenant: str
    failures: int = 0
    """Unsuccessful ends in a row, including rejections."""
    rejections: int = 0
    is_debated: bool = False
    error_signature: str | None = None
    """Groups the newest error with others like it."""
    recent: list[dict[str, str]] = json_column(list)
    """Reason and detail of the newest failures, the newest last."""
    updated_at: datetime = when_column(nullable=False, default_now=True)


class Person(SQLModel, table=True):
    """A person who signed in by the identity provider, and what its claims said at the latest sign-in."""

    __tablename__ = "person"
    __table_args__ = (UniqueConstraint("issuer", "subject"), Index("uq_person_name", "name", unique=True))

    id: UUID = Field(default_factory=new_id, primary_key=True)
    issuer: str
    subject: str
    """Within the issuer; the two identify the person, whatever happens to the name."""
    tenant: str = Field(foreign_key="tenant.name", index=True)
    name: str
    """Given at the first sign-in and never changed, so that it stands for one person in the audit trail."""
    role: str
    created_at: datetime = when_column(nullable=False, default_now=True)
    seen_at: datetime = when_column(nullable=False, default_now=True)
    """When they last signed in."""
    disabled_at: datetime | None = when_column()


class LoginSession(SQLModel, table=True):
    """A session of the console, of a person or of the holder of a key."""

    __tablename__ = "login_session"

    id: UUID = Field(default_factory=new_id, primary_key=True)
    nonce: str = Field(unique=True)
    """As in its cookie."""
    key_id: UUID | None = Field(default=None, foreign_key="api_key.id")
    person_id: UUID | None = Field(default=None, foreign_key="person.id")
    created_at: datetime = when_column(nullable=False, default_now=True)
    seen_at: datetime = when_column(nullable=False, default_now=True)
    """To a minute."""
    expires_at: datetime = Field(sa_type=DateTime(timezone=True), nullable=False, index=True)
    revoked_at: datetime | None = when_column()


class ApiKey(SQLModel, table=True):
    """A caller's key: only its hash is stored."""

    __tablename__ = "api_key"

    id: UUID = Field(default_factory=new_id, primary_key=True)
    tenant: str = Field(foreign_key="tenant.name", index=True)
    name: str
    key_hash: str = Field(unique=True)
    scopes: list[str] = json_column(list)
    created_at: datetime = when_column(nullable=False, default_now=True)
    created_by: str | None = None
    """The actor, as in the audit trail."""
    last_used_at: datetime | None = when_column()
    """To five minutes."""
    revoked_at: datetime | None = when_column()
