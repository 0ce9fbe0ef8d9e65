"""Tables of tenants, sites, jobs and money; `record_tables` and `runs.tables` have the rest.

Their history is in `migrations/`; a test compares the two. Times are `timestamptz` by the database's clock. Money is in
nanodollars. Text from outside is stored unchanged and escaped where it is shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    DateTime,
    Index,
    Text,
    UniqueConstraint,
    and_,
    or_,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel, col

from routing.ids import new_id
from routing.jobs import JobRequest, Source, State
from routing.queues import QueueName
from routing.scheduling import WaitReason

NOW = text("now()")


def when_column(*, nullable: bool = True, default_now: bool = False) -> Any:
    """Return a `timestamptz` column."""
    return Field(
        default=None,
        sa_type=DateTime(timezone=True),
        nullable=nullable,
        sa_column_kwargs={"server_default": NOW} if default_now else {},
    )


def json_column(default: type, *, server_default: str = "") -> Any:
    """Return a JSON column that is never NULL."""
    kwargs = {"server_default": text(server_default)} if server_default else {}
    return Field(default_factory=default, sa_type=JSONB, nullable=False, sa_column_kwargs=kwargs)


def optional_json_column() -> Any:
    """Return a JSON column that is NULL by default."""
    return Field(default=None, sa_type=JSONB(none_as_null=True), nullable=True)


def money_column(*, nullable: bool = False) -> Any:
    """Return a column of nanodollars: 0 by default, or NULL where that is allowed."""
    return Field(default=None if nullable else 0, sa_type=BigInteger, nullable=nullable)


def partial_index(name: str, *columns: str, where: str, **options: Any) -> Index:
    """Return an index of the rows of which a condition is true."""
    return Index(name, *columns, postgresql_where=text(where), **options)


class Tenant(SQLModel, table=True):
    """Who pays and who may see; every site, job and key belongs to one."""

    __tablename__ = "tenant"

    name: str = Field(primary_key=True)
    provider: str | None = None
    """The gateway's provider for this tenant's calls; without one no model is called (S-065)."""
    overrides: dict[str, Any] = json_column(dict)
    """Layer 2 of the policy (routing.policy.platform.ProjectOverrides)."""
    auto_approve: bool = False
    """Opt-in of ruling A24: clean tier 1 work without high stakes is approved by policy."""
    weight: int = Field(default=1, sa_column_kwargs={"server_default": "1"})
    """Turns it gets for each turn of a tenant of weight 1 while both have work waiting on a queue."""
    max_running: int | None = None
    """The most of its jobs that run at once over all queues; None for the policy's limit."""
    paused_at: datetime | None = when_column()
    recording_days: float | None = None
    """How long its model calls are kept for a replay; None or 0 to record none."""
    notices: list[str] = json_column(list, server_default="'[]'")
    """States that jobs wait for a person in, of which it wants to hear (ledger.job_ends.ASKING)."""
    chat_url: str | None = None
    """An incoming webhook of a chat, which hears of the same; whoever knows it can write there."""
    mail_to: list[str] = json_column(list, server_default="'[]'")
    """Addresses that get the same by e-mail."""
    created_at: datetime = when_column(nullable=False, default_now=True)


class Site(SQLModel, table=True):
    """A static site. This row names its active release; the symlink in the content store is a projection of it."""

    __tablename__ = "site"
    __table_args__ = (
        UniqueConstraint("tenant", "name"),
        partial_index("ix_site_lagging", "id", where="active_release_id IS DISTINCT FROM shown_release_id"),
    )

    id: UUID = Field(default_factory=new_id, primary_key=True)
    tenant: str = Field(foreign_key="tenant.name")
    name: str
    profile: str = "default"
    active_release_id: UUID | None = None
    shown_release_id: UUID | None = None
    """What the projection shows; where it differs from the active release, the dispatcher updates it."""
    lock_job_id: UUID | None = None
    """The only job that may write, from its claim to its end (H-073, H-085). A revised job hands the lock on, so that
    no other edit gets between two rounds."""
    created_at: datetime = when_column(nullable=False, default_now=True)


class Job(SQLModel, table=True):
    """One submitted piece of work. With `waiting_since` set it waits for a worker on `queue`: this is the queue."""

    __tablename__ = "job"
    __table_args__ = (
        partial_index("uq_job_key", "tenant", "idempotency_key", unique=True, where="idempotency_key IS NOT NULL"),
        partial_index(
            "ix_job_waiting", "queue", "waiting_since", postgresql_include=["tenant"], where="waiting_since IS NOT NULL"
        ),
        partial_index(
            "ix_job_ready",
            "queue",
            "tenant",
            "priority",
            "created_at",
            where="waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL",
        ),
        partial_index("ix_job_held_until", "held_until", where="held_until IS NOT NULL"),
        partial_index("ix_job_held_for_site", "site_id", "queue", "priority", "created_at", where="held_for = 'site'"),
        partial_index(
            "ix_job_at_site", "site_id", "queue", "held_for", where="site_id IS NOT NULL AND ended_at IS NULL"
        ),
        partial_index(
            "ix_job_supersede", "tenant", "supersede_key", where="supersede_key IS NOT NULL AND ended_at IS NULL"
        ),
        partial_index(
            "ix_job_dead",
            "tenant",
            "failure_signature",
            "ended_at",
            where="failure_signature IS NOT NULL AND dismissed_at IS NULL",
        ),
        partial_index("ix_job_ended", "ended_at", where="ended_at IS NOT NULL"),
        partial_index("ix_job_runway", "queue", "tenant", where="waiting_since IS NOT NULL AND pushed_at IS NOT NULL"),
        Index("ix_job_tenant_created", "tenant", "created_at"),
        partial_index("ix_job_tenant_open", "tenant", "created_at", where="ended_at IS NULL"),
        partial_index("ix_job_tenant_ended", "tenant", "state", "created_at", where="ended_at IS NOT NULL"),
        partial_index("ix_job_created_site", "site_id", "created_at", where="site_id IS NOT NULL"),
        partial_index("ix_job_expiring", "expires_at", where="expires_at IS NOT NULL"),
        partial_index("uq_job_next", "parent_id", unique=True, where="parent_id IS NOT NULL AND queue <> 'steps'"),
        partial_index("ix_job_bill", "root_id", where="root_id <> id"),
    )

    id: UUID = Field(primary_key=True)
    tenant: str
    """Read by what writes the row, as its site is; neither is ever deleted, so there is no foreign key to check."""
    source: str
    requested_by: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The actor who asked, as in the audit trail; where policy wants four eyes, somebody else has to approve."""
    state: str
    prompt: str = Field(sa_type=Text)
    request: dict[str, Any] = json_column(dict)
    """The request without its prompt."""
    request_digest: str
    idempotency_key: str | None = None
    priority: str = "P2"
    site_id: UUID | None = None
    parent_id: UUID | None = None
    """The job that this one continues. At most one job continues another: a session is a chain."""
    root_id: UUID
    """The job whose bill this one adds to: itself, or the first of its session."""
    route: dict[str, Any] = json_column(dict)
    """The decision, made before any model or container call (H-006, H-007, H-009)."""
    mode: str | None = None
    tier: int | None = None
    """The tier it runs on now; escalation raises it."""
    queue: str
    fence: int = 0
    """Raised by every claim and every loss of one: only the attempt with this number may take effect."""
    waiting_since: datetime | None = when_column()
    pushed_at: datetime | None = when_column()
    """When its message went to the broker; empty while it waits for room in the dispatch window."""
    held_for: str | None = None
    """Why a waiting job must not go to the broker yet, a `WaitReason`; empty when it may in its turn."""
    held_until: datetime | None = when_column()
    """When the dispatcher releases it; empty for a job that is held for its site."""
    supersede_key: str | None = None
    """A newer job of the same tenant and target with the same key replaces it until it is published."""
    superseded_by: UUID | None = None
    failure_signature: str | None = None
    """Of a dead letter: groups it with others that ended alike."""
    dismissed_at: datetime | None = when_column()
    """When a dead letter was dismissed or continued."""
    lost_attempts: int = 0
    cap_nanousd: int = money_column()
    cancel_requested_at: datetime | None = when_column()
    base_release_id: UUID | None = None
    """The active release that the work is compared with; it must still be active on publish."""
    start_release_id: UUID | None = None
    """Work kept by an earlier job of its session, which this one starts from; empty: it starts from the base."""
    release_id: UUID | None = None
    """Its result: a candidate, or what was kept when it ended early."""
    clarification: dict[str, Any] | None = optional_json_column()
    """The question its owner has to answer first (routing.clarify.questions.Clarification)."""
    expires_at: datetime | None = when_column()
    result: dict[str, Any] = json_column(dict)
    reason: str | None = None
    detail: str | None = Field(default=None, sa_type=Text)
    trace: str | None = None
    """The `traceparent` of its submission; empty when that was not traced."""
    created_at: datetime = when_column(nullable=False, default_now=True)
    started_at: datetime | None = when_column()
    ended_at: datetime | None = when_column()


def on_bill(root_id: UUID) -> ColumnElement[bool]:
    """Return the condition for the jobs of a bill; each half has its own, partial index."""
    return or_(col(Job.id) == root_id, and_(col(Job.root_id) == root_id, col(Job.root_id) != col(Job.id)))


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job to be accepted: validated and routed. Fields named like columns are their values."""

    id: UUID
    tenant: str
    source: Source
    request: JobRequest
    state: State
    queue: QueueName
    mode: str | None = None
    tier: int | None = None
    route: Mapping[str, Any] = dataclass_field(default_factory=dict)
    site_id: UUID | None = None
    cap_nanousd: int = 0
    requested_by: str = ""
    parent_id: UUID | None = None
    root_id: UUID | None = None
    start_release_id: UUID | None = None
    clarification: Mapping[str, Any] | None = None
    """The open question of a job that is accepted `clarifying`."""
    result: Mapping[str, Any] = dataclass_field(default_factory=dict)
    """Facts inherited from the job it continues."""
    held_for: WaitReason | None = None
    """Why it must not go to the broker yet."""
    held_until: datetime | None = None
    """When it may, if a time decides; a time in the past has no effect."""
    trace: str | None = None
    """The `traceparent` of its trace."""
    keeps_route: bool = False
    """Whether its decision is its parent's, which is counted already."""
    digest: str | None = None
    """Hash of what was asked, where that is more than the request: of a job that continues another one."""
    clarify_hours: float = 0.0
    """How long the question stays open."""
    is_pushed: bool = False
    """Whether the caller pushes its message right after the commit; limits to find it a place within override this."""

    FROM_REQUEST: ClassVar = ("prompt", "idempotency_key", "priority", "supersede_key")
    """Columns that are fields of the request; `request` holds the others."""
    COLUMNS: ClassVar[tuple[str, ...]]
    """Columns that `row` has."""

    @property
    def prompt(self) -> str:
        """The request in words."""
        return self.request.prompt

    @cached_property
    def body(self) -> dict[str, Any]:
        """What was asked, as JSON."""
        return self.request.model_dump(mode="json", exclude_defaults=True)

    @cached_property
    def request_digest(self) -> str:
        """Hash of what was asked."""
        return self.digest or digest_body(self.body)

    @property
    def waits(self) -> bool:
        """Whether it waits for a worker."""
        return self.state in (State.RECEIVED, State.DEBATING, State.QUEUED, State.PUBLISHING)

    def row(self) -> dict[str, Any]:
        """Return the columns that are not null, and the facts that `submission` computes its times from."""
        own = vars(self)
        row = {name: value for name in self.COLUMNS if (value := own[name]) is not None}
        row |= {name: value for name in self.FROM_REQUEST if (value := getattr(self.request, name)) is not None}
        row["request"] = {name: value for name, value in self.body.items() if name != "prompt"}
        row["request_digest"] = self.request_digest
        row["root_id"] = self.root_id or self.id
        if self.clarification is not None:
            row["open_seconds"] = self.clarify_hours * 3600
        row["waits"], row["is_pushed"] = self.waits, self.is_pushed
        return row


NewJob.COLUMNS = tuple({field.name for field in fields(NewJob)} & set(Job.model_fields) - {"request", "route"})


def digest_request(request: JobRequest) -> str:
    """Return a hash of a request, independent of the order of its fields."""
    return digest_body(request.model_dump(mode="json", exclude_defaults=True))


def digest_body(body: Mapping[str, Any]) -> str:
    """Return the same of a request's JSON."""
    asked = {name: value for name, value in body.items() if name != "idempotency_key"}
    return hashlib.sha256(_encode_sorted(asked).encode()).hexdigest()


_encode_sorted = json.JSONEncoder(sort_keys=True).encode


class Attempt(SQLModel, table=True):
    """One execution of a job on one queue: the lease, the fence and the token that goes with them."""

    __tablename__ = "attempt"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        partial_index("ix_attempt_at_work", "worker", where="ended_at IS NULL"),
        partial_index("ix_attempt_reported", "id", where="ended_at IS NULL AND lost_cause IS NOT NULL"),
        Index("ix_attempt_started", "started_at"),
        Index("ix_attempt_token", "token_hash", postgresql_using="hash"),
    )

    id: UUID = Field(default_factory=new_id, primary_key=True)
    job_id: UUID
    """Written under its job's lock, and deleted before it, so there is no foreign key to check; as of a call."""
    number: int
    queue: str
    tier: int | None = None
    fence: int
    worker: str
    token_hash: str
    egress_address: str | None = None
    """The only address the token is accepted from: the outer one of its box's egress forwarder. None without a box."""
    lease_until: datetime = when_column(nullable=False)
    """In no index: a lease is renewed in place."""
    deadline: datetime = when_column(nullable=False)
    """The hard time limit: after it the gateway refuses the token."""
    lost_cause: str | None = None
    """Why it stopped without an end: `time_limit` or `worker_lost` when the worker's parent process saw its child die,
    `worker_stopped` or `ledger_unreachable` when its worker handed the job back."""
    started_at: datetime = when_column(nullable=False, default_now=True)
    ended_at: datetime | None = when_column()
    outcome: str | None = None
    reason: str | None = None


class ClaimedAttempt(NamedTuple):
    """An attempt as the worker that started it knows it."""

    id: UUID
    job_id: UUID
    number: int
    queue: str
    tier: int | None
    fence: int
    worker: str
    started_at: datetime


@dataclass(frozen=True, kw_only=True)
class ClaimedJob:
    """A job as it was when an attempt at it began; fields named like columns are their values."""

    id: UUID
    tenant: str
    state: str
    prompt: str
    root_id: UUID
    queue: str
    request: Mapping[str, Any] = dataclass_field(default_factory=dict)
    route: Mapping[str, Any] = dataclass_field(default_factory=dict)
    result: Mapping[str, Any] = dataclass_field(default_factory=dict)
    priority: str = "P2"
    mode: str | None = None
    tier: int | None = None
    cap_nanousd: int = 0
    site_id: UUID | None = None
    parent_id: UUID | None = None
    base_release_id: UUID | None = None
    start_release_id: UUID | None = None
    supersede_key: str | None = None
    trace: str | None = None
    clarification: Mapping[str, Any] | None = None
    first_prompt: str | None = None
    """The prompt of the first job on its bill, where that is another one."""


class Call(SQLModel, table=True):
    """One model call: reserved at its worst case before it is made, settled at what it used."""

    __tablename__ = "call"
    __table_args__ = (
        partial_index("ix_call_reserved", "id", where="state = 'reserved'"),
        CheckConstraint("reserved_nanousd >= 0 AND cost_nanousd >= 0", name="ck_call_money"),
    )

    id: UUID = Field(default_factory=new_id, primary_key=True)
    job_id: UUID = Field(index=True)
    attempt_id: UUID = Field(index=True)
    caps: list[list[str]] = json_column(list)
    """The (scope, key) pairs the reserve was taken from, in their fixed order."""
    state: str = "reserved"
    """`reserved`, `settled` (by the gateway) or `presumed` (the gateway died: charged in full)."""
    provider: str
    model: str
    key_hash: str
    gateway: str
    lease_until: datetime = when_column(nullable=False)
    max_tokens: int
    reserved_nanousd: int = money_column()
    cost_nanousd: int = money_column()
    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    finish: str | None = None
    """`completed`, `refused` (by the provider), `cut` (by us), `client_gone` or `provider_gone`."""
    status: int | None = None
    prices_as_of: str
    started_at: datetime = when_column(nullable=False, default_now=True)
    ended_at: datetime | None = when_column()


class Cap(SQLModel, table=True):
    """A limit on money: `spent + reserved` never passes `limit` by an admitted call."""

    __tablename__ = "cap"
    __table_args__ = (CheckConstraint("spent_nanousd >= 0 AND reserved_nanousd >= 0", name="ck_cap_money"),)

    scope: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    limit_nanousd: int = Field(sa_type=BigInteger)
    spent_nanousd: int = money_column()
    reserved_nanousd: int = money_column()


class Release(SQLModel, table=True):
    """A candidate or published version of a site: immutable content by hash, and the scan that judged it."""

    __tablename__ = "release"
    __table_args__ = (
        partial_index("ix_release_swept", "swept_at", where="swept_at IS NOT NULL"),
        partial_index(
            "ix_release_unpictured",
            "published_at",
            where="published_at IS NOT NULL AND swept_at IS NULL AND thumbnail_sha256 IS NULL",
        ),
    )

    id: UUID = Field(default_factory=new_id, primary_key=True)
    site_id: UUID = Field(foreign_key="site.id", index=True)
    base_release_id: UUID | None = None
    job_id: UUID | None = Field(default=None, index=True)
    digest: str
    manifest: dict[str, Any] = json_column(dict)
    spec_sha256: str | None = None
    """Blob of the site's spec, when pages of this release are rendered from one."""
    diff_sha256: str | None = None
    """Blob of the change for review, when a patch made this release."""
    reverse_sha256: str | None = None
    """Blob of the patch that undoes it."""
    thumbnail_sha256: str | None = None
    """Blob of a PNG of its first page, once it was published and where the dispatcher has a browser."""
    build_seconds: float | None = None
    """How long its build took; None for a site that is not built, and for an imported one."""
    total_bytes: int = Field(default=0, sa_type=BigInteger)
    signals: dict[str, Any] = json_column(dict)
    """files, has_js, has_build, has_spec: the router's facts about the site."""
    scan: dict[str, Any] = json_column(dict)
    scan_passed: bool = False
    scan_digest: str = ""
    preview_generation: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """A preview link opens only the generation it was made for: raising it revokes all earlier links."""
    created_at: datetime = when_column(nullable=False, default_now=True)
    published_at: datetime | None = when_column()
    swept_at: datetime | None = when_column()
    """When its files were given up: it stays on record, but cannot be shown, exported or rolled back to."""
