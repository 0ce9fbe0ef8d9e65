"""What holds after a partition, read from ledger, history, the model's request log and the content store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from sqlmodel import select

from gateway.fake_provider.config import read_log
from ledger.operations.history_reader import examine
from ledger.releases import active_release
from ledger.tables import Site
from routing.jobs import ENDS, Reason
from routing.policy.platform import platform_policy
from sites.releases import manifest_of, site_key
from tests.chaos.accounts import USD, BilledCall, compare, passed_caps
from tests.chaos.report import Report
from tests.chaos.three_hosts import ThreeHosts
from tests.services import wait_until

_SETTLED_SECONDS = 60.0
"""What the gateway left open is presumed spent half a minute later."""
_OURS = (
    Reason.WORKER_LOST,
    Reason.INTERNAL_ERROR,
    Reason.TIME_LIMIT,
    Reason.PUBLISH_FAILED,
    Reason.PROVIDER_BUSY,
    Reason.GATEWAY_UNREACHABLE,
)
"""Ends that a caller would hold against the fleet, not against the job."""


def judge(hosts: ThreeHosts, accepted: Sequence[UUID], report: Report) -> None:
    """Say of each promise whether it was kept, when every job has ended."""
    _wait_for(lambda: hosts.rows("SELECT 1 FROM call WHERE state = 'reserved'") == [])
    _wait_for(lambda: not _lagging(hosts))
    report.promise("each accepted job ended once, and no other", _ends_once(hosts, accepted))
    report.promise(
        "no job ended badly because a host was away",
        _told(
            hosts,
            """
        SELECT id, state, reason, detail FROM job WHERE reason = ANY(:ours)""",
            ours=list(_OURS),
        ),
    )
    report.promise("each release went live once, approved, over the one before it", _publishes(hosts))
    _judge_money(hosts, report)
    report.promise(
        "no lock and no lease is left",
        _told(
            hosts,
            """
        SELECT 'site', name FROM site WHERE lock_job_id IS NOT NULL
        UNION ALL SELECT 'attempt', id::text FROM attempt WHERE ended_at IS NULL""",
        ),
    )
    report.promise("the content store shows what is active", _lagging(hosts))
    verdict = examine(hosts.ledger.engine, platform_policy().retention)
    broken = [f"{one.rule.value}: {one.subject} {one.detail}" for one in verdict.violations]
    report.promise("the history breaks no rule", broken)


def _wait_for(look: Callable[[], bool]) -> None:
    """Give what comes later its time; whether it came is said by the promise."""
    with suppress(AssertionError):
        wait_until(look, seconds=_SETTLED_SECONDS, what="it has settled")


def _told(hosts: ThreeHosts, query: str, **values: object) -> list[str]:
    return [" ".join(str(cell) for cell in row) for row in hosts.rows(query, **values)]


def _ends_once(hosts: ThreeHosts, accepted: Sequence[UUID]) -> list[str]:
    rows = hosts.rows(
        "SELECT job_id, count(*) FROM event WHERE kind = 'state' AND data ->> 'target' = ANY(:ends) GROUP BY job_id",
        ends=sorted(ENDS),
    )
    times: dict[UUID, int] = {job_id: count for job_id, count in rows}
    wrong = [job_id for job_id in {*times, *accepted} if times.get(job_id) != 1 or job_id not in accepted]
    return [f"job {job_id} ended {times.get(job_id, 0)} times" for job_id in wrong]


def _publishes(hosts: ThreeHosts) -> list[str]:
    published = {job_id for (job_id,) in hosts.rows("SELECT id FROM job WHERE state = 'published'")}
    live = "release.published_at IS NOT NULL AND release.job_id IS NOT NULL"
    went = dict(hosts.rows(f"SELECT job_id, count(*) FROM release WHERE {live} GROUP BY 1"))  # type: ignore[arg-type]
    wrong = [
        f"job {job_id}: {went.get(job_id, 0)} releases"
        for job_id in {*published, *went}
        if went.get(job_id) != 1 or job_id not in published
    ]
    return wrong + _told(
        hosts,
        f"""
        SELECT 'unapproved', release.id::text FROM release LEFT JOIN approval ON approval.release_id = release.id
         WHERE {live} AND approval.job_id IS NULL
        UNION ALL SELECT 'two came after', base_release_id::text FROM release WHERE {live}
         GROUP BY base_release_id HAVING count(*) > 1""",
    )


def _judge_money(hosts: ThreeHosts, report: Report) -> None:
    rows = hosts.rows("SELECT id, state, finish, reserved_nanousd, cost_nanousd, caps FROM call")
    calls = [BilledCall(*row) for row in rows]
    log, prices = read_log(hosts.request_log), platform_policy().prices
    audit = compare(calls, log, prices)
    report.figures["model calls"] = (
        f"{audit.calls}: {audit.equal} billed as served, {audit.over} over after a cut, {audit.unserved} never served"
    )
    report.figures["dollars"] = f"{audit.billed_nanousd / USD:.4f} billed, {audit.served_nanousd / USD:.4f} served"
    report.promise("each bill is the provider's log; over by at most the reserve after a cut", audit.problems)
    limits = {(row[0], row[1]): row[2] for row in hosts.rows("SELECT scope, key, limit_nanousd FROM cap")}
    left = _told(hosts, "SELECT scope, key, reserved_nanousd FROM cap WHERE reserved_nanousd <> 0")
    report.promise("no cap is passed and no reserve is left", passed_caps(calls, log, limits, prices) + left)


def _lagging(hosts: ThreeHosts) -> list[str]:
    """The sites whose copy on disk is not the release that the ledger says is active."""
    with hosts.ledger.begin() as session:
        sites = [(site, active_release(session, site)) for site in session.exec(select(Site))]
        return [
            site.name
            for site, release in sites
            if release is not None
            and release.job_id is not None
            and not hosts.content_store.shows(site_key(site), manifest_of(release), release_id=str(release.id))
        ]
