from __future__ import annotations

import pytest

from monitoring.checks import check_history
from monitoring.ledger.approvals import reject
from monitoring.ledger.attempts import escalate, hold
from monitoring.ledger.cancelling import request_cancel
from monitoring.ledger.jobs import lock_job
from monitoring.ledger.store import Ledger
from routing.jobs import Reason, State
from routing.tiers import Tier
from tests.integration.driving import Fleet, create_fleet


@pytest.fixture
def fleet(ledger: Ledger, ledger_url: str) -> Fleet:
    """A fleet with a history: published, failed, rejected, cancelled, running and waiting jobs."""
    fleet = create_fleet(ledger, ledger_url)
    published = fleet.accept()
    claimed = fleet.claim(published)
    fleet.call(claimed)
    fleet.to_approval(claimed)
    fleet.publish(published)
    escalated = fleet.claim(fleet.accept())
    with ledger.begin() as session:
        job = hold(session, escalated.attempt)
        escalate(session, job, to=Tier.PATCH, reason=Reason.SPEC_INVALID, detail="")
    patching = fleet.claim(escalated.job.id)
    fleet.call(patching)
    fleet.end(patching, State.FAILED, Reason.NOT_AVAILABLE)
    rejected = fleet.accept()
    fleet.to_approval(fleet.claim(rejected))
    with ledger.begin() as session:
        reject(session, rejected, actor="reviewer", reason="no")
    with ledger.begin() as session:
        request_cancel(session, lock_job(session, fleet.accept()), actor="owner")
    fleet.open_call(fleet.claim(fleet.accept(tier=None)))
    fleet.accept()
    return fleet


def broken_rules(fleet: Fleet) -> set[str]:
    with fleet.ledger.begin() as session:
        return {violation.rule for violation in check_history(session)}


def test_an_honest_history_breaks_no_rule(fleet: Fleet) -> None:
    with fleet.ledger.begin() as session:
        assert check_history(session) == []


def test_a_request_refused_at_the_celery_door_owes_nothing(fleet: Fleet) -> None:
    fleet.execute("""
        INSERT INTO job (id, tenant, door, state, reason, prompt, request, request_digest, priority, root_id, route,
                         queue, fence, lost_attempts, cap_nanousd, result)
        VALUES (gen_random_uuid(), 'acme', 'celery', 'rejected', 'invalid_request', '', '{}', '', 'P2',
                gen_random_uuid(), '{}', 'intake', 0, 0, 0, '{}')
    """)
    assert broken_rules(fleet) == set()


def test_a_violation_names_its_subject_and_what_is_wrong(fleet: Fleet) -> None:
    job_id = fleet.scalar("SELECT id FROM job WHERE state = 'published'")
    fleet.execute("DELETE FROM notification WHERE job_id = :id", id=job_id)
    with fleet.ledger.begin() as session:
        (violation,) = check_history(session)
    assert violation == (
        "a job that ended has one notification", str(job_id), "0 notifications in state published"
    )  # fmt: skip


_PUBLISHED = "(SELECT id FROM job WHERE state = 'published')"
_WAITING = "(SELECT id FROM job WHERE state = 'queued' AND started_at IS NULL)"
PLANTED = {
    "every job was accepted or refused": f"""
        DELETE FROM event WHERE kind = 'accepted' AND job_id = {_WAITING}""",
    "moves are legal": f"""
        INSERT INTO event (kind, job_id, data)
        VALUES ('state', {_PUBLISHED}, '{{"origin": "published", "target": "queued"}}')""",
    "moves follow each other": f"""
        DELETE FROM event WHERE kind = 'state' AND job_id = {_PUBLISHED} AND data ->> 'target' = 'scanning'""",
    "a job is where its last move led": f"UPDATE job SET state = 'running' WHERE id = {_WAITING}",
    "a job that ended has one end": f"""
        INSERT INTO event (kind, job_id, data) SELECT kind, job_id, data FROM event
         WHERE kind = 'ended' AND job_id = {_PUBLISHED}""",
    "a job that ended has one notification": f"""
        INSERT INTO notification (job_id, payload, attempts) VALUES ({_WAITING}, '{{}}', 0)""",
    "a job that ended has one audit row": f"""
        DELETE FROM audit WHERE action = 'job_ended' AND job_id = {_PUBLISHED}""",
    "a job that ended holds nothing": f"UPDATE site SET lock_job_id = {_PUBLISHED}",
    "an attempt ends once": f"""
        DELETE FROM event WHERE kind = 'attempt_ended' AND job_id = {_PUBLISHED}""",
    "a job is worked on by one attempt at a time": """
        UPDATE attempt SET ended_at = NULL FROM job WHERE job.id = job_id AND job.state = 'failed'""",
    "a published release was scanned and approved": "UPDATE release SET published_at = now()",
    "an active release was published": "UPDATE site SET active_release_id = gen_random_uuid()",
    "money is conserved": "UPDATE cap SET spent_nanousd = spent_nanousd + 1 WHERE scope = 'fleet_day'",
}


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_violation_is_found(fleet: Fleet, rule: str) -> None:
    fleet.execute(PLANTED[rule])
    assert rule in broken_rules(fleet)


MORE_PLANTED = {
    "an approval of another scan": (
        "UPDATE approval SET scan_digest = 'x'", "a published release was scanned and approved",
    ),
    "a scan that did not pass": (
        "UPDATE release SET scan_passed = false", "a published release was scanned and approved",
    ),
    "a reserve that leaked": (
        "UPDATE cap SET reserved_nanousd = reserved_nanousd + 1 WHERE scope = 'tier'", "money is conserved",
    ),
    "a cap that vanished": ("DELETE FROM cap WHERE scope = 'tenant_day'", "money is conserved"),
    "a call that was never booked": (
        "UPDATE call SET cost_nanousd = cost_nanousd * 2 WHERE state = 'settled'", "money is conserved",
    ),
    "an ended job that still waits": (
        "UPDATE job SET waiting_since = now() WHERE state = 'cancelled'", "a job that ended holds nothing",
    ),
    "a job that ended twice in the audit trail": (
        "INSERT INTO audit (action, actor, job_id, detail) SELECT action, actor, job_id, detail FROM audit",
        "a job that ended has one audit row",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE_PLANTED)
def test_it_also_finds(fleet: Fleet, name: str) -> None:
    statement, rule = MORE_PLANTED[name]
    fleet.execute(statement)
    assert rule in broken_rules(fleet)


def test_a_rollback_to_an_approved_release_breaks_no_rule(fleet: Fleet) -> None:
    fleet.execute("UPDATE release SET published_at = now() WHERE id = (SELECT active_release_id FROM site)")
    assert broken_rules(fleet) == set()
