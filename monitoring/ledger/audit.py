"""The audit trail: who did what, with the six facts of H-117 about every edit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session

from monitoring.ledger.sql import Statement, dump_json
from monitoring.ledger.tables import Approval, Job, NewJob, Release
from routing.redaction import redact, redact_all

_COLUMNS = """
    action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan, approval, detail
"""
INSERT_AUDIT = f"""
    INSERT INTO audit ({_COLUMNS}) SELECT {_COLUMNS}
      FROM jsonb_populate_recordset(CAST(NULL AS audit), CAST(%(audit)s AS jsonb)) WITH ORDINALITY AS done
"""
"""For statements that write audit rows together with others; `audit_row` makes a row. It ends in a FROM clause."""
_APPEND = Statement(INSERT_AUDIT)
NONE = "none"
"""What stands for a fact that there is not: an edit that failed has no output, and that is on record too."""


@dataclass(frozen=True)
class Facts:
    """Four of the six facts that seed 000 wants on record about an edit; tier and prompt stand on the job."""

    input_hash: str = NONE
    output_hash: str = NONE
    scan: str = NONE
    approval: str = NONE


def facts_of(session: Session, job: Job) -> Facts:
    """Collect the facts about a job as they stand in this transaction."""
    base = session.get(Release, job.base_release_id) if job.base_release_id else None
    release = session.get(Release, job.release_id) if job.release_id else None
    approval = session.get(Approval, job.id) if release else None  # what is judged is a release
    return Facts(
        input_hash=base.digest if base else NONE,
        output_hash=release.digest if release else NONE,
        scan=NONE if release is None else "passed" if release.scan_passed else "refused",
        approval=approval.decision if approval else NONE,
    )


def append(
    session: Session, action: str, *, actor: str, job: Job | None = None, facts: Facts | None = None, **detail: Any
) -> None:
    """Append one row in the caller's transaction. The sealer chains it later (monitoring/audit_chain.py).

    Args:
        session: the caller's transaction.
        action: what was done.
        actor: by whom.
        job: what it was done to.
        facts: the four facts about the job, where the caller knows them; they are collected if left out.
        detail: more about it.
    """
    if facts is None:
        facts = facts_of(session, job) if job is not None else Facts()
    _APPEND.all(session, {"audit": dump_json([audit_row(action, actor=actor, job=job, facts=facts, detail=detail)])})


def audit_row(
    action: str, *, actor: str, job: Job | NewJob | None, facts: Facts, detail: dict[str, Any]
) -> dict[str, Any]:
    """Return a row for `INSERT_AUDIT`; the arguments are those of `append`."""
    prompt = job.prompt if job else None
    return {
        "action": action,
        "actor": actor,
        "tenant": job.tenant if job else detail.pop("tenant", None),
        "job_id": job.id if job else None,
        "tier": job.tier if job else None,
        "prompt": redact(prompt) if prompt is not None else None,
        "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest() if prompt is not None else None,
        "detail": redact_all(detail),
        **vars(facts),
    }
