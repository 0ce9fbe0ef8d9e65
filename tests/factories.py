"""Make tenants, sites, jobs and attempts on a real ledger, and move the ledger's clock for one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text
from sqlmodel import SQLModel

from ledger.attempts import hash_token, lock_owned_job, renew_all
from ledger.dispatch_window import release_due
from ledger.job_control import approve, approved_release, await_approval, reject, request_cancel
from ledger.jobs import close_attempt, end, lock_job, move
from ledger.money import Bearer, CallStart, bearer_of, read_bearer
from ledger.record_tables import Epoch
from ledger.releases import NewRelease, activate, add_release, ensure_site
from ledger.start_attempt import Claim, claim
from ledger.store import Ledger
from ledger.submission import accept
from ledger.tables import ClaimedAttempt, ClaimedJob, Job, NewJob, Release, Site, Tenant
from routing.ids import new_id
from routing.jobs import JobMessage, JobRequest, Reason, Source, State
from routing.policy.platform import Policy, platform_policy
from routing.queues import QUEUE_OF_TIER, QueueName, Tier
from sites.content_store import ContentStore
from workers.attempt import Attempt as WorkerAttempt
from workers.attempt import HandlerResources
from workers.outcomes import Ended, Outcome


def make_new_job(**overrides: Any) -> NewJob:
    """A tier 1 job of tenant `acme`, about to be accepted. `prompt` and the request's other fields may be given too."""
    asked = {name: overrides.pop(name) for name in set(JobRequest.model_fields) - {"tier"} if name in overrides}
    tier = overrides.pop("tier", Tier.SPEC)
    fields: dict[str, Any] = {
        "id": new_id(),
        "tenant": "acme",
        "source": Source.PYTHON,
        "request": JobRequest.model_validate({"prompt": "Make the header blue"} | asked),
        "state": State.QUEUED,
        "queue": QUEUE_OF_TIER[tier] if tier else QueueName.ANSWER,
        "mode": "ACTION" if tier else "ANSWER",
        "tier": tier.value if tier else None,
        "cap_nanousd": 650_000_000,
    }
    return NewJob(**(fields | overrides))


def make_call(**overrides: Any) -> CallStart:
    """A call whose worst case is a nanodollar, about to be reserved."""
    fields: dict[str, Any] = {
        "id": uuid4(),
        "provider": "own",
        "model": "m",
        "key_hash": "k",
        "gateway": "g",
        "prices_as_of": "p",
        "input_nanousd": 0,
        "token_nanousd": 1,
        "max_tokens": 1,
        "least_tokens": 1,
        "call_limit_nanousd": 10**12,
    }
    return CallStart(**(fields | overrides))


def rows_of(seal: int) -> str:
    """The numbers of a seal's audit rows, in SQL."""
    return f"(SELECT generate_series(first_seq, last_seq) FROM audit_seal WHERE number = {seal})"


def make_release(site_id: UUID, **overrides: Any) -> NewRelease:
    """A candidate that passed its scan."""
    fields: dict[str, Any] = {
        "site_id": site_id,
        "digest": uuid4().hex * 2,
        "manifest": {"v": 1, "files": {}},
        "total_bytes": 1,
        "signals": {"files": 1, "has_js": False, "has_build": False},
        "scan": {"findings": []},
        "scan_passed": True,
        "scan_digest": uuid4().hex * 2,
    }
    return NewRelease(**(fields | overrides))


@dataclass
class Shop:
    """A ledger with what tests need to do on it, each in a transaction of its own."""

    ledger: Ledger
    url: str
    policy: Policy = field(default_factory=platform_policy)

    def tenant(self, name: str = "acme", **fields: Any) -> str:
        with self.ledger.begin() as session:
            tenant = session.get(Tenant, name) or Tenant(name=name)
            tenant.sqlmodel_update(fields)
            session.add(tenant)
        return name

    def site(self, name: str = "shop", *, tenant: str = "acme") -> UUID:
        if self.find(Tenant, tenant) is None:
            self.tenant(tenant)
        with self.ledger.begin() as session:
            return ensure_site(session, tenant, name).id

    def find(self, table: type[SQLModel], key: Any) -> Any:
        with self.ledger.begin() as session:
            return session.get(table, key)

    def accept(self, **overrides: Any) -> UUID:
        new = make_new_job(**overrides)
        if self.find(Tenant, new.tenant) is None:
            self.tenant(new.tenant)
        if new.tier is not None and new.site_id is None:
            new = NewJob(**{**vars(new), "site_id": self.site(tenant=new.tenant)})
        with self.ledger.begin() as session:
            return accept(session, new).job.id

    def job(self, job_id: UUID) -> Job:
        found: Job = self.find(Job, job_id)
        return found

    def message(self, job_id: UUID) -> JobMessage:
        return JobMessage(job_id=job_id, fence=self.job(job_id).fence)

    def try_claim(self, message: JobMessage, *, queue: QueueName | None = None, worker: str = "w1") -> Claim | None:
        where = queue or QueueName(self.job(message.job_id).queue)
        return claim(self.ledger, message, queue=where, worker=worker, policy=self.policy)

    def claim(self, job_id: UUID, *, worker: str = "w1") -> Claim:
        claimed = self.try_claim(self.message(job_id), worker=worker)
        assert claimed is not None
        return claimed

    def renews(self, claimed: Claim) -> bool:
        with self.ledger.begin() as session:
            return renew_all(session, [claimed.attempt.id], lease_seconds=20)[claimed.attempt.id]

    def running(self, **overrides: Any) -> Claim:
        return self.claim(self.accept(**overrides))

    def bearer(self, token: str) -> Bearer:
        """Whom an attempt's token stands for, as the gateway reads it."""
        with self.ledger.begin() as session:
            return read_bearer(bearer_of(hash_token(token)).all(session)[0])

    def end(self, claimed: Claim, state: State = State.FAILED, reason: Reason = Reason.INTERNAL_ERROR) -> None:
        with self.ledger.begin() as session:
            end(session, lock_owned_job(session, claimed.attempt), state, reason=reason)

    def offer(self, claimed: Claim, **overrides: Any) -> Release:
        """Let a running job wait for approval of a candidate."""
        with self.ledger.begin() as session:
            job = lock_owned_job(session, claimed.attempt)
            assert job.site_id is not None
            site = session.get_one(Site, job.site_id)
            job.base_release_id = site.active_release_id
            move(session, job, State.SCANNING)
            base = {"base_release_id": site.active_release_id, "job_id": job.id}
            release = add_release(session, make_release(site.id, **(base | overrides)))
            await_approval(session, job, release, hours=24)
            close_attempt(session, job, outcome=State.AWAITING_APPROVAL.value, reason=Reason.DONE)
            return release

    def approve(self, job_id: UUID, *, actor: str = "reviewer", undo_seconds: float = 0) -> None:
        with self.ledger.begin() as session:
            approve(session, job_id, actor=actor, policy=self.policy, undo_seconds=undo_seconds)

    def cancel(self, job_id: UUID) -> None:
        with self.ledger.begin() as session:
            request_cancel(session, lock_job(session, job_id), actor="owner")

    def reject(self, job_id: UUID, *, actor: str = "reviewer", reason: str = "no") -> None:
        with self.ledger.begin() as session:
            reject(session, job_id, actor=actor, reason=reason)

    def publish(self, claimed: Claim) -> None:
        """Let a worker publish what was approved."""
        with self.ledger.begin() as session:
            job = lock_owned_job(session, claimed.attempt)
            release = approved_release(session, job)
            activate(session, release.site_id, release, base_release_id=release.base_release_id)
            end(session, job, State.PUBLISHED, reason=Reason.DONE)

    def show(self, site_id: UUID) -> Release:
        """Give a site an active release, as an import does."""
        with self.ledger.begin() as session:
            base = session.get_one(Site, site_id).active_release_id
            release = add_release(session, make_release(site_id, base_release_id=base))
            activate(session, site_id, release, base_release_id=base)
            return release

    def active(self, site_id: UUID) -> UUID | None:
        site: Site = self.find(Site, site_id)
        return site.active_release_id

    def lapse(self, claimed: Claim, *, seconds: float = 1.0, past_deadline: bool = False) -> None:
        """Move an attempt's times so far back that its lease ran out `seconds` ago."""
        self.execute(
            "UPDATE attempt SET lease_until = now() - make_interval(secs => :seconds),"
            " deadline = now() + make_interval(secs => :deadline) WHERE id = :id",
            seconds=seconds,
            deadline=-3600 if past_deadline else 3600,
            id=claimed.attempt.id,
        )

    def let_time_pass(self) -> None:
        """Let the pause of every job that is held for a time be over."""
        self.execute("UPDATE job SET held_until = clock_timestamp() WHERE held_for = 'time'")
        with self.ledger.begin() as session:
            release_due(session)

    def clear(self) -> None:
        """Empty every table but the ledger's name: much cheaper than a database for each test."""
        tables = [table.name for table in SQLModel.metadata.sorted_tables if table.name != Epoch.__tablename__]
        statements = ["SET LOCAL session_replication_role = replica", *(f"DELETE FROM {name}" for name in tables)]
        self.execute("; ".join(statements))

    def execute(self, sql: str, **values: Any) -> None:
        with self.ledger.begin() as session:
            session.execute(text(sql), values)

    def rows(self, sql: str, **values: Any) -> list[Any]:
        with self.ledger.begin() as session:
            return list(session.execute(text(sql), values).all())

    def scalar(self, sql: str, **values: Any) -> Any:
        with self.ledger.begin() as session:
            return session.scalar(text(sql), values)


def make_attempt(
    *,
    prompt: str = "Make the header blue",
    queue: QueueName = QueueName.TOOLS,
    policy: Policy | None = None,
    files: dict[str, bytes] | None = None,
    started_at: datetime | None = None,
    **fields: Any,
) -> WorkerAttempt:
    """What a handler sees, without any ledger: its reports go nowhere and nothing cancels it."""
    place = {"tenant": "acme", "state": "running", "queue": queue.value}
    job = ClaimedJob(id=uuid4(), root_id=uuid4(), prompt=prompt, **(place | fields))
    attempt = ClaimedAttempt(uuid4(), job.id, 1, queue.value, job.tier, 1, "w", started_at or datetime.now(UTC))
    made = WorkerAttempt(
        claim=Claim(job, attempt, "token", policy or platform_policy(), base=Release() if files else None),
        content_store=ContentStore(Path("/none")),
        resources=HandlerResources(gateway_url="http://127.0.0.1:1"),
        check=lambda: None,
        report=lambda kind, data: None,
        budget_exceeded=lambda: None,
        bind_egress=lambda address, token: None,
    )
    made.__dict__["base_files"] = files or {}
    return made


def not_available(what: str) -> Callable[[WorkerAttempt], Outcome]:
    """A handler that ends every job, saying that something is not there."""

    def handle(attempt: WorkerAttempt) -> Outcome:
        return Ended(State.FAILED, Reason.NOT_AVAILABLE, f"{what} is not available in this installation")

    return handle
