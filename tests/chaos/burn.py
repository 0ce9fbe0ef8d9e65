"""The main scene: a whole fleet under fire; then it drains, and what it promised is held against what is there."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from redis import Redis
from sqlalchemy.exc import DBAPIError

from gateway.fake_provider.config import read_log
from gateway.journal import read_journal
from ledger.operations.history_reader import examine
from tests.chaos.accounts import USD, BilledCall, compare, passed_caps
from tests.chaos.callbacks import Callbacks
from tests.chaos.clients import Clients
from tests.chaos.fire import Fire
from tests.chaos.options import Options
from tests.chaos.people import People
from tests.chaos.report import Report
from tests.chaos.scene import Scene, burning, leftover_files, remaining
from tests.chaos.workload import plan_orders
from tests.services import wait_until

Say = Callable[[str], None]
_SAY_SECONDS = 15.0
_LOOK_SECONDS = 0.5
_GONE_SECONDS = 20.0
"""How long a process may take that has lost its parent, or was told to end."""
_OPEN = """
SELECT (SELECT count(*) FROM job WHERE ended_at IS NULL) AS jobs,
       (SELECT count(*) FROM job WHERE ended_at IS NOT NULL) AS ended,
       (SELECT count(*) FROM call WHERE state = 'reserved') AS calls,
       (SELECT count(*) FROM attempt WHERE ended_at IS NULL) AS attempts,
       (SELECT count(*) FROM site WHERE active_release_id IS DISTINCT FROM shown_release_id) AS lagging,
       (SELECT count(*) FROM notification WHERE delivered_at IS NULL AND next_at IS NOT NULL) AS untold
"""
_ENDED = """
SELECT id, state, EXISTS (SELECT 1 FROM event WHERE job_id = job.id AND kind = 'accepted') AS was_let_in
  FROM job WHERE id = ANY(:ids) AND ended_at IS NOT NULL
"""
"""What a Celery client sends and is refused is a row, too: it was never accepted, and its owner is owed nothing."""


def run(options: Options, say: Say) -> Report:
    """Set a fleet on fire, and report."""
    began = time.monotonic()
    report = Report(f"{options.jobs} jobs under fire, seed {options.seed}")
    with burning(options) as scene:
        report.notes += scene.notes
        assert scene.fleet.supervisor is not None
        say(
            f"a fleet of {len(scene.fleet.supervisor.pids())} processes and PostgreSQL "
            f"runs after {time.monotonic() - began:.0f} s, with {len(scene.sites)} sites for each of "
            f"{len(scene.keys)} tenants"
        )
        fire = Fire(
            scene.fleet,
            seed=options.seed,
            kill_seconds=options.kill_seconds,
            seconds=options.burns_seconds,
            is_short=options.is_short,
            say=say,
        )
        try:
            with Callbacks(scene.fleet.environment["POINTSMAN_WEBHOOK__SECRET"]) as callbacks:
                _burn(scene, options, report, fire=fire, callbacks=callbacks, say=say)
        finally:
            fire.release()
        scene.fleet.supervisor.stop()
        _put_down_what_is_left(report, scene)
    report.figures["seconds in all"] = time.monotonic() - began
    return report


def _burn(scene: Scene, options: Options, report: Report, *, fire: Fire, callbacks: Callbacks, say: Say) -> None:
    began = time.monotonic()
    deadline = began + options.minutes * 60
    fire_seconds = options.burns_seconds
    orders = plan_orders(options.jobs, seed=options.seed, sites=scene.sites)
    clients = Clients(scene, orders, callbacks=callbacks, seconds=fire_seconds * 0.9, deadline=deadline)
    people = People(scene, clients, seed=options.seed)
    people.start()
    fire.start()
    try:
        clients.run()
        say(
            f"{len(clients.told.accepted)} of {len(orders)} jobs are submitted after {time.monotonic() - began:.0f} s, "
            f"{sum(fire.kills.values())} kills"
        )
        drained = _drain(scene, clients, fire, deadline=deadline, say=say)
    finally:
        fire.put_out()
        people.stop()
        clients.close()
    seconds = time.monotonic() - began
    report.figures |= {
        "seconds": seconds,
        "jobs a second": len(clients.told.accepted) / seconds,
        "kills": dict(fire.kills),
        "and": ", ".join(fire.blows),
        "started again": dict(fire.revived),
        "clients had to ask again": clients.told.retries,
        "sent again at the Celery intake": clients.told.resent,
        "refused at a source": dict(clients.told.refused),
        "done by people": dict(people.done),
    }
    report.promise("everything has ended in time", [] if drained else [_still_open(scene)], is_late=True)
    report.promise("every caller got an answer", [f"{order.kind} by {order.source}" for order in clients.told.given_up])
    report.promise("one idempotency key is one job", clients.told.wrong)
    report.promise("what was to go wrong went wrong", fire.missed())
    report.promise("what went wrong was put right", fire.problems)
    _judge(scene, clients, report)


def _drain(scene: Scene, clients: Clients, fire: Fire, *, deadline: float, say: Say) -> bool:
    """Wait until nothing is open any more; False when the time is over first."""
    said = time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        try:
            unseen = clients.send_again()
            row = scene.rows(_OPEN)[0]
        except DBAPIError:
            continue
        if time.monotonic() - said > _SAY_SECONDS:
            said = time.monotonic()
            say(f"{row.ended} ended, {row.jobs} open, {row.calls} calls, {deadline - said:.0f} s left")
        is_open = unseen or row.jobs or row.calls or row.attempts or row.lagging or row.untold
        if not (fire.is_burning or is_open):
            return True
    return False


def _still_open(scene: Scene) -> str:
    rows = scene.rows("SELECT state, queue, held_for, count(*) FROM job WHERE ended_at IS NULL GROUP BY 1, 2, 3")
    return f"{tuple(scene.rows(_OPEN)[0])}; " + ", ".join(
        f"{row[3]} {row[0]} on {row[1]}{f' held for {row[2]}' if row[2] else ''}" for row in rows
    )


def _judge(scene: Scene, clients: Clients, report: Report) -> None:
    ids = list(clients.told.accepted)
    states = scene.rows("SELECT state, count(*) FROM job GROUP BY 1")
    report.figures["ended as"] = {row[0]: row[1] for row in states}
    reasons = scene.rows("SELECT reason, count(*) FROM job WHERE state NOT IN ('answered', 'published') GROUP BY 1")
    report.figures["and why"] = {str(row[0]): row[1] for row in reasons}
    details = scene.rows("SELECT detail, count(*) FROM job WHERE reason = 'internal_error' GROUP BY 1")
    report.figures["internal errors"] = {str(row[0]): row[1] for row in details}
    report.figures["errors in the logs"] = dict(errors_in(scene.fleet.home / "logs").most_common(12))
    found = {row.id: row for row in scene.rows(_ENDED, ids=ids)}
    report.figures["accepted, as callers were told"] = len(ids)
    known = {row[0] for row in scene.rows("SELECT id FROM job WHERE id = ANY(:ids)", ids=ids)}
    report.figures["ended, of these"] = len(found)
    report.figures["late, of these"] = len(known) - len(found)
    report.promise("what was accepted is there", [f"job {id_}" for id_ in ids if id_ not in known])
    ends = {
        order.id: (id_, found[id_].state)
        for id_, order in clients.told.accepted.items()
        if order.has_callback and id_ in found and found[id_].was_let_in
    }
    told = clients.callbacks.told.values()
    report.figures["owners told"] = f"{len(told)}, {sum(len(one) > 1 for one in told)} of them more than once"
    report.promise("each owner that wanted it was told the end", clients.callbacks.problems(ends))
    _judge_releases(scene, report)
    _judge_money(scene, report)
    _judge_rest(scene, report)
    journal = read_journal(scene.fleet.home / "journal")
    verdict = examine(scene.ledger.engine, scene.policy.retention, journal=journal)
    report.figures["history"] = f"{verdict.jobs} jobs, {verdict.attempts} attempts, {verdict.calls} model calls"
    report.promise(
        "the history breaks no rule", [f"{one.rule.value}: {one.subject} {one.detail}" for one in verdict.violations]
    )


def errors_in(logs: Path) -> Counter[str]:
    """Count what processes logged as errors, by what they call it and the last line of its traceback."""
    found: Counter[str] = Counter()
    for path in sorted(logs.glob("*.log")):
        for line in path.read_text(errors="replace").splitlines():
            if not line.startswith("{") or '"level": "error"' not in line:
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut by a kill
            last = str(entry.get("exception") or entry.get("exc_info") or "").strip().rpartition("\n")[2]
            found[f"{path.stem.removesuffix('-2')} {entry.get('event') or entry.get('message')}: {last[:120]}"] += 1
    return found


def _judge_releases(scene: Scene, report: Report) -> None:
    published = scene.scalar("SELECT count(*) FROM release WHERE published_at IS NOT NULL AND job_id IS NOT NULL")
    approved = scene.scalar("""
        SELECT count(*) FROM approval JOIN job ON job.id = approval.job_id
         WHERE decision = 'approved' AND job.state = 'published'""")
    all_approved = scene.scalar("SELECT count(*) FROM approval WHERE decision = 'approved'")
    report.figures["had their effect twice"] = scene.scalar("""
        SELECT count(*) FROM (SELECT job_id FROM event WHERE kind = 'ended' GROUP BY 1 HAVING count(*) > 1) AS twice""")
    report.figures["published releases"] = f"{published}, of {all_approved} approvals"
    report.promise(
        "each published release has one approval", [] if published == approved else [f"{published} and {approved}"]
    )


def _judge_money(scene: Scene, report: Report) -> None:
    rows = scene.rows("SELECT id, state, finish, reserved_nanousd, cost_nanousd, caps FROM call")
    calls = [BilledCall(*row) for row in rows]
    log = read_log(scene.fleet.request_log)
    audit = compare(calls, log, scene.policy.prices)
    report.figures["model calls"] = (
        f"{audit.calls}: {audit.equal} billed as served, {audit.over} over after a cut, {audit.unserved} never served"
    )
    report.figures["dollars"] = f"{audit.billed_nanousd / USD:.4f} billed, {audit.served_nanousd / USD:.4f} served"
    wasted = scene.scalar("SELECT coalesce(sum((data ->> 'wasted_nanousd')::bigint), 0) FROM event")
    report.figures["dollars in vain"] = int(wasted) / USD
    report.promise("each bill is the provider's log; over by at most the reserve after a cut", audit.problems)
    limits = {(row[0], row[1]): row[2] for row in scene.rows("SELECT scope, key, limit_nanousd FROM cap")}
    report.promise("no cap is passed by the provider's log", passed_caps(calls, log, limits, scene.policy.prices))


def _judge_rest(scene: Scene, report: Report) -> None:
    held = {
        "locks": "SELECT count(*) FROM site WHERE lock_job_id IS NOT NULL",
        "leases": "SELECT count(*) FROM attempt WHERE ended_at IS NULL",
        "reservations": "SELECT count(*) FROM cap WHERE reserved_nanousd <> 0",
        "notifications that were not delivered": "SELECT count(*) FROM notification WHERE delivered_at IS NULL",
    }
    left = [f"{count} {name}" for name, query in held.items() if (count := scene.scalar(query))]
    with Redis.from_url(scene.fleet.broker_url, decode_responses=True) as broker:
        # A worker may still have to read the second copy of a message whose job has ended.
        with suppress(AssertionError):
            wait_until(lambda: not standing(broker), seconds=_GONE_SECONDS, what="no message stands")
        left += [f"{length} messages on {name}" for name, length in standing(broker).items()]
        report.figures["keys in the broker"] = broker.dbsize()
    report.promise("no lock, lease, reservation, message or word to an owner is left", left)


def standing(broker: Redis) -> dict[str, int]:
    """Return how many messages stand on which list, whatever its name: the fleet's own, sources, unrouted."""
    return {str(name): int(str(broker.llen(str(name)))) for name in broker.scan_iter(_type="list")}


def _put_down_what_is_left(report: Report, scene: Scene) -> None:
    """After the fleet was told to end: nothing of it may be there, however often its parts were killed."""
    deadline = time.monotonic() + _GONE_SECONDS
    while (left := remaining(scene.earlier, besides="postgres")) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    report.promise("no process is left", [f"{one.pid} {' '.join(one.cmdline())[:120]}" for one in left])
    report.promise("no socket or temporary file is left", leftover_files(scene.fleet.home))
