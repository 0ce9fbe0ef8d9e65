"""A ledger's whole history against the promises: an honest one breaks none, and each that is broken is found."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text
from typer.testing import CliRunner, Result

from ledger.attempts import escalate, lock_owned_job
from ledger.job_control import reject, request_cancel
from ledger.jobs import lock_job
from ledger.operations.history import Rule, Violation
from ledger.operations.history_reader import Verdict, examine, examine_snapshot
from ledger.store import Ledger
from producers.cli import app
from routing.jobs import Reason, State
from routing.queues import Tier
from tests.integration.monitoring.driving import Fleet, create_fleet


@pytest.fixture(scope="module")
def fleet(module_ledger: tuple[Ledger, str]) -> Fleet:
    """A fleet with a history: published, failed, rejected, cancelled, running and waiting jobs."""
    ledger, url = module_ledger
    fleet = create_fleet(ledger, url)
    published = fleet.accept()
    claimed = fleet.claim(published)
    fleet.call(claimed)
    fleet.offer(claimed)
    fleet.approve(published)
    fleet.publish(fleet.claim(published))
    escalated = fleet.claim(fleet.accept())
    with ledger.begin() as session:
        job = lock_owned_job(session, escalated.attempt)
        escalate(session, job, to=Tier.PATCH, reason=Reason.SPEC_INVALID, detail="")
    patching = fleet.claim(escalated.job.id)
    fleet.call(patching)
    fleet.end(patching, State.FAILED, Reason.NOT_AVAILABLE)
    rejected = fleet.accept()
    fleet.offer(fleet.claim(rejected))
    with ledger.begin() as session:
        reject(session, rejected, actor="reviewer", reason="no")
    with ledger.begin() as session:
        request_cancel(session, lock_job(session, fleet.accept()), actor="owner")
    fleet.open_call(fleet.claim(fleet.accept(tier=None)))
    fleet.accept()
    return fleet


def broken(fleet: Fleet, *planted: str) -> list[Violation]:
    """What is found after something was done to the ledger that its own code never does; it is undone again."""
    with fleet.ledger.engine.connect() as connection:
        for statement in planted:
            connection.execute(text(statement))
        return list(examine_snapshot(connection, fleet.policy.retention).violations)


def broken_rules(fleet: Fleet, *planted: str) -> set[Rule]:
    return {violation.rule for violation in broken(fleet, *planted)}


def test_an_honest_history_breaks_no_rule(fleet: Fleet) -> None:
    verdict = examine(fleet.ledger.engine, fleet.policy.retention)
    assert verdict.violations == ()
    assert verdict == Verdict(jobs=6, attempts=6, calls=3, releases=1, violations=())


def test_a_request_refused_of_celery_owes_nothing(fleet: Fleet) -> None:
    refused = """
        INSERT INTO job (id, tenant, source, state, reason, prompt, request, request_digest, priority, root_id, route,
                         queue, fence, lost_attempts, cap_nanousd, result, created_at)
        VALUES (gen_random_uuid(), 'acme', 'celery', 'rejected', 'invalid_request', '', '{}', '', 'P2',
                gen_random_uuid(), '{}', 'intake', 0, 0, 0, '{}', now())
    """
    assert broken_rules(fleet, refused) == set()


def test_a_violation_names_its_subject_and_what_is_wrong(fleet: Fleet) -> None:
    job_id = fleet.scalar("SELECT id FROM job WHERE state = 'published'")
    (violation,) = broken(fleet, f"DELETE FROM notification WHERE job_id = '{job_id}'")
    assert violation == (Rule.ONE_NOTIFICATION, str(job_id), "0 notifications in state published")


def test_what_retention_took_of_the_events_is_not_missed(fleet: Fleet) -> None:
    older = "UPDATE job SET created_at = created_at - interval '31 days' WHERE state = 'published'"
    swept = f"DELETE FROM event WHERE job_id = {_PUBLISHED}"
    assert broken_rules(fleet, older, swept) == set()
    assert broken_rules(fleet, older, swept.replace(_PUBLISHED, _FAILED)) >= {Rule.ACCEPTED_ONCE, Rule.ONE_END}


def test_events_that_retention_took_are_not_missed_though_nobody_has_left_any(fleet: Fleet) -> None:
    older = "UPDATE job SET created_at = created_at - interval '31 days' WHERE ended_at IS NOT NULL"
    swept = "DELETE FROM event USING job WHERE job.id = event.job_id AND job.ended_at IS NOT NULL"
    assert broken_rules(fleet, older, swept) == set()
    assert broken_rules(fleet, swept) >= {Rule.ACCEPTED_ONCE, Rule.ONE_END}


def test_what_retention_took_as_a_whole_is_not_missed(fleet: Fleet) -> None:
    gone = fleet.scalar("SELECT id FROM job WHERE state = 'failed'")
    today = "to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
    older = f"""
        UPDATE call SET caps = replace(caps::text, {today}, '2001-01-01')::jsonb;
        UPDATE cap SET key = replace(key, {today}, '2001-01-01')"""
    swept = [
        f"DELETE FROM {table} WHERE {column} = '{gone}'"
        for table, column in {
            "call": "job_id",
            "attempt": "job_id",
            "notification": "job_id",
            "event": "job_id",
            "job": "id",
        }.items()
    ]
    caps = f"DELETE FROM cap WHERE key LIKE '{gone}%'"
    assert broken_rules(fleet, older, *swept, caps) == set()
    assert broken_rules(fleet, *swept, caps) == {Rule.MONEY}, "no retention takes the calls of today"


def test_audit_rows_that_were_archived_are_not_missed(fleet: Fleet) -> None:
    older = "UPDATE job SET ended_at = ended_at - interval '366 days' WHERE ended_at IS NOT NULL"
    assert broken_rules(fleet, older, "DELETE FROM audit") == set()
    assert broken_rules(fleet, "DELETE FROM audit") == {Rule.ONE_AUDIT_ROW}


def test_that_somebody_went_back_may_have_been_archived(fleet: Fleet) -> None:
    went_back = "UPDATE site SET active_release_id = NULL"
    older = "UPDATE site SET created_at = created_at - interval '366 days'"
    assert broken_rules(fleet, went_back, older) == set()
    assert broken_rules(fleet, went_back) == {Rule.CHAIN}


_PUBLISHED = "(SELECT id FROM job WHERE state = 'published')"
_WAITING = "(SELECT id FROM job WHERE state = 'queued' AND started_at IS NULL)"
_FAILED = "(SELECT id FROM job WHERE state = 'failed')"
_RUNNING = "(SELECT id FROM job WHERE state = 'running')"


def told(kind: str, job: str, data: str = "{}") -> str:
    return f"INSERT INTO event (kind, job_id, data) VALUES ('{kind}', {job}, '{data}')"


def moved(origin: str, target: str, job: str) -> str:
    return told("state", job, json.dumps({"origin": origin, "target": target}))


def told_twice(kind: str, job: str) -> str:
    own = f"SELECT kind, job_id, data FROM event WHERE kind = '{kind}' AND job_id = {job}"
    return f"INSERT INTO event (kind, job_id, data) {own}"


def untold(kind: str, job: str) -> str:
    return f"DELETE FROM event WHERE kind = '{kind}' AND job_id = {job}"


def dearer(kind: str, job: str) -> str:
    return (
        f"UPDATE event SET data = data || '{{\"cost_nanousd\": 99000000000}}' WHERE kind = '{kind}' AND job_id = {job}"
    )


def lapsed(table: str, condition: str) -> str:
    return f"UPDATE {table} SET lease_until = now() - interval '10 minutes' WHERE {condition}"


_TWICE_AUDITED = (
    "INSERT INTO audit (action, actor, job_id, detail, at) SELECT action, actor, job_id, detail, at FROM audit"
)
_OF_NO_END = f"INSERT INTO notification (job_id, payload, attempts, created_at) VALUES ({_WAITING}, '{{}}', 0, now())"
_WITHOUT_ITS_ATTEMPT = f"""
    DELETE FROM call WHERE job_id = {_FAILED}; DELETE FROM attempt WHERE number = 1 AND job_id = {_FAILED}"""
_OTHER_PAYS = f"""
    UPDATE call SET caps = replace(caps::text, job_id::text, gen_random_uuid()::text)::jsonb WHERE job_id = {_FAILED}"""
_ATTEMPT_GOES_ON = f"UPDATE attempt SET ended_at = NULL WHERE number = 1 AND job_id = {_PUBLISHED}"
_OTHER_BASE = f"UPDATE release SET base_release_id = gen_random_uuid() WHERE job_id = {_PUBLISHED}"
PLANTED = {
    "an acceptance that is missing": (Rule.ACCEPTED_ONCE, untold("accepted", _WAITING)),
    "a second acceptance": (Rule.ACCEPTED_ONCE, told_twice("accepted", _WAITING)),
    "a move out of an end": (Rule.LEGAL_MOVES, moved("published", "queued", _PUBLISHED)),
    "a move of a run by a job that is none": (Rule.LEGAL_MOVES, moved("running", "awaiting_approval", _RUNNING)),
    "a move that is missing": (
        Rule.MOVES_FOLLOW,
        f"{untold('state', _PUBLISHED)} AND data ->> 'target' = 'scanning'",
    ),
    "a state that no move led to": (Rule.STATE_FITS, f"UPDATE job SET state = 'running' WHERE id = {_WAITING}"),
    "an undo after the publish had begun": (
        Rule.UNDONE_IN_TIME,
        moved("publishing", "awaiting_approval", _PUBLISHED),
    ),
    "a second end": (Rule.ONE_END, told_twice("ended", _PUBLISHED)),
    "an end without its moment": (Rule.ONE_END, f"UPDATE job SET ended_at = NULL WHERE id = {_PUBLISHED}"),
    "a wait after an end": (Rule.NOTHING_AFTER_END, told("waiting", _PUBLISHED)),
    "a notification of no end": (Rule.ONE_NOTIFICATION, _OF_NO_END),
    "an end that the audit trail does not know": (
        Rule.ONE_AUDIT_ROW,
        f"DELETE FROM audit WHERE action = 'job_ended' AND job_id = {_PUBLISHED}",
    ),
    "an end that the audit trail knows twice": (Rule.ONE_AUDIT_ROW, _TWICE_AUDITED),
    "a fence that fell": (Rule.FENCES_RISE, f"UPDATE job SET fence = 0 WHERE id = {_FAILED}"),
    "two attempts with one fence": (Rule.FENCES_RISE, f"UPDATE attempt SET fence = 1 WHERE job_id = {_FAILED}"),
    "two live attempts": (Rule.ONE_AT_A_TIME, f"UPDATE attempt SET ended_at = NULL WHERE job_id = {_FAILED}"),
    "a live attempt that was fenced off": (Rule.ONE_AT_A_TIME, f"UPDATE job SET fence = 9 WHERE id = {_RUNNING}"),
    "an attempt whose end is not told": (Rule.ATTEMPTS_RECORDED, untold("attempt_ended", _PUBLISHED)),
    "an attempt that started twice": (Rule.ATTEMPTS_RECORDED, told_twice("started", _RUNNING)),
    "an attempt that is not there": (Rule.ATTEMPTS_RECORDED, _WITHOUT_ITS_ATTEMPT),
    "a lock of a job that ended": (Rule.HOLDS_NOTHING, f"UPDATE site SET lock_job_id = {_PUBLISHED}"),
    "an ended job that waits": (Rule.HOLDS_NOTHING, "UPDATE job SET waiting_since = now() WHERE state = 'cancelled'"),
    "an ended job that is held": (Rule.HOLDS_NOTHING, "UPDATE job SET held_for = 'time' WHERE state = 'cancelled'"),
    "an ended job with a live attempt": (Rule.HOLDS_NOTHING, _ATTEMPT_GOES_ON),
    "a job that nobody will come back to": (
        Rule.ATTENDED,
        f"UPDATE job SET waiting_since = NULL WHERE id = {_WAITING}",
    ),
    "a lease that nobody took away": (Rule.LEASES_RENEWED, lapsed("attempt", f"job_id = {_RUNNING}")),
    "a call that nobody settled": (Rule.LEASES_RENEWED, lapsed("call", "state = 'reserved'")),
    "a call that was told twice": (Rule.COST_RECORDED, told_twice("call", _PUBLISHED)),
    "an attempt that cost less than was told": (Rule.COST_RECORDED, dearer("attempt_ended", _FAILED)),
    "an end that tells of more than the bill": (Rule.COST_RECORDED, dearer("ended", _FAILED)),
    "waste that is not told": (
        Rule.WASTE_ONCE,
        f"UPDATE event SET data = data - 'wasted_nanousd' WHERE kind = 'attempt_ended' AND job_id = {_FAILED}",
    ),
    "a call that another job pays": (Rule.ON_THE_BILL, _OTHER_PAYS),
    "an approval of another scan": (Rule.APPROVED, "UPDATE approval SET scan_digest = 'x'"),
    "an approval of another base": (Rule.APPROVED, "UPDATE approval SET base_release_id = gen_random_uuid()"),
    "a scan that did not pass": (Rule.APPROVED, "UPDATE release SET scan_passed = false"),
    "a release that nobody approved": (Rule.APPROVED, "UPDATE release SET published_at = now()"),
    "a release of a job that failed": (Rule.PUBLISHED_ONCE, f"UPDATE release SET job_id = {_FAILED}"),
    "a second publish": (Rule.PUBLISHED_ONCE, moved("publishing", "published", _PUBLISHED)),
    "an active release that never was published": (
        Rule.ACTIVE_PUBLISHED,
        "UPDATE site SET active_release_id = gen_random_uuid()",
    ),
    "a site that shows nothing any more": (Rule.CHAIN, "UPDATE site SET active_release_id = NULL"),
    "a release over one that was not published": (Rule.CHAIN, _OTHER_BASE),
    "two releases over the same": (Rule.CHAIN, "UPDATE release SET published_at = now(), base_release_id = NULL"),
    "a cap that spent more than its calls": (
        Rule.MONEY,
        "UPDATE cap SET spent_nanousd = spent_nanousd + 1 WHERE scope = 'fleet_day'",
    ),
    "a reserve that leaked": (
        Rule.MONEY,
        "UPDATE cap SET reserved_nanousd = reserved_nanousd + 1 WHERE scope = 'tier'",
    ),
    "a cap that vanished": (Rule.MONEY, "DELETE FROM cap WHERE scope = 'tenant_day'"),
    "a call that was never booked": (
        Rule.MONEY,
        "UPDATE call SET cost_nanousd = cost_nanousd * 2 WHERE state = 'settled'",
    ),
    "a cap that was passed": (Rule.CAPS_HOLD, "UPDATE cap SET limit_nanousd = 1 WHERE scope = 'job'"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(fleet: Fleet, name: str) -> None:
    rule, statement = PLANTED[name]
    assert rule in broken_rules(fleet, statement)


def test_every_rule_has_a_violation_that_finds_it() -> None:
    elsewhere = {Rule.RUN_STEPS, Rule.SERVED_BOOKED}  # tests/unit/monitoring/test_history.py, test_served_calls.py
    assert {rule for rule, _ in PLANTED.values()} | elsewhere == set(Rule)


def test_a_rollback_to_an_approved_release_breaks_no_rule(fleet: Fleet) -> None:
    again = "UPDATE release SET published_at = now() WHERE id = (SELECT active_release_id FROM site)"
    assert broken_rules(fleet, again) == set()


def audit_history(fleet: Fleet) -> Result:
    return CliRunner().invoke(app, ["audit", "history", "--json"], env={"POINTSMAN_LEDGER__URL": fleet.url})


def test_an_operator_is_told_which_promise_was_broken_for_whom(fleet: Fleet) -> None:
    honest = audit_history(fleet)
    assert (honest.exit_code, json.loads(honest.stdout)["violations"]) == (0, [])
    locked_by = fleet.scalar("SELECT lock_job_id FROM site")
    fleet.execute(f"UPDATE site SET lock_job_id = {_PUBLISHED}")
    dishonest = audit_history(fleet)
    fleet.execute("UPDATE site SET lock_job_id = :job", job=locked_by)
    site = str(fleet.site_id)
    assert dishonest.exit_code == 1
    assert json.loads(dishonest.stdout)["violations"] == [
        {"rule": Rule.HOLDS_NOTHING, "subject": site, "detail": "is locked by a job that is published"}
    ]
