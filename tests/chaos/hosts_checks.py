"""What holds after a partition, read from the ledger, the model's own request log and the Den."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlmodel import select

from monitoring.ledger.releases import active_release
from monitoring.ledger.tables import Site
from routing.jobs import ENDS, Reason
from routing.policy import platform_policy
from sandbox.rehearsal.log import billed_nanousd, read_log
from sandbox.release import manifest_of, site_key
from tests.chaos.three_hosts import ThreeHosts
from tests.services import wait_until

_OURS = (Reason.WORKER_LOST, Reason.INTERNAL_ERROR, Reason.TIME_LIMIT, Reason.PUBLISH_FAILED, Reason.PROVIDER_BUSY,
         Reason.GATEWAY_UNREACHABLE)  # fmt: skip
"""Ends that a caller would hold against the fleet, not against the job."""


def check_all(hosts: ThreeHosts, accepted: Sequence[UUID]) -> None:
    """Check everything that has to hold when every job has ended."""
    ends_once(hosts, accepted)
    publishes_once(hosts)
    bills_what_was_served(hosts)
    holds_nothing(hosts)
    shows_what_is_active(hosts)


def ends_once(hosts: ThreeHosts, accepted: Sequence[UUID]) -> None:
    """Each accepted job has one end, and there are no others."""
    ends = sorted(ENDS)
    ended = dict(hosts.rows(
        "SELECT job_id, count(*) FROM event WHERE kind = 'state' AND data ->> 'target' = ANY(:ends) GROUP BY job_id",
        ends=ends,
    ))  # type: ignore[arg-type]  # fmt: skip
    wrong = {job_id for job_id in set(ended) | set(accepted) if ended.get(job_id) != 1}
    odd = hosts.rows("SELECT id, state, reason, prompt FROM job WHERE id = ANY(:wrong)", wrong=list(wrong))
    assert not wrong, (len(wrong), {row[0]: ended.get(row[0]) for row in odd}, odd[:5])
    ours = hosts.rows("SELECT state, reason, detail FROM job WHERE reason = ANY(:ours)", ours=list(_OURS))
    assert ours == [], "no job ends badly because its host was away"
    by_state = hosts.rows("SELECT count(*) FROM job WHERE NOT state = ANY(:ends)", ends=ends)
    assert by_state == [(0,)]


def publishes_once(hosts: ThreeHosts) -> None:
    """Each published job has one approved release that went live, and each of those is one job's."""
    published = hosts.rows("SELECT id FROM job WHERE state = 'published'")
    went_live = hosts.rows(
        "SELECT job_id, count(*) FROM release WHERE published_at IS NOT NULL AND job_id IS NOT NULL GROUP BY job_id"
    )
    assert sorted(went_live) == sorted((job_id, 1) for (job_id,) in published)
    unapproved = hosts.rows(
        "SELECT release.id FROM release LEFT JOIN approval ON approval.release_id = release.id "
        "WHERE release.published_at IS NOT NULL AND release.job_id IS NOT NULL AND approval.job_id IS NULL"
    )
    assert unapproved == []
    forked = hosts.rows(
        "SELECT base_release_id, count(*) FROM release WHERE published_at IS NOT NULL AND job_id IS NOT NULL "
        "GROUP BY base_release_id HAVING count(*) > 1"
    )
    assert forked == [], "each release replaced another one: the swap compares"


def bills_what_was_served(hosts: ThreeHosts) -> None:
    """No call is billed under what the model's own log says; no cap is passed, and no job owes another's calls."""
    open_calls = "SELECT count(*) FROM call WHERE state = 'reserved'"
    wait_until(lambda: hosts.rows(open_calls) == [(0,)], seconds=60, what="every call is settled")
    billed = {str(call): cost for call, cost in hosts.rows("SELECT id, cost_nanousd FROM call")}
    prices = platform_policy().prices
    for served in read_log(hosts.request_log):
        assert served.call is not None
        assert billed[served.call] >= billed_nanousd(served, prices), served
    assert hosts.rows("SELECT scope, key FROM cap WHERE spent_nanousd > limit_nanousd") == []
    assert hosts.rows("SELECT scope, key FROM cap WHERE reserved_nanousd <> 0") == []


def holds_nothing(hosts: ThreeHosts) -> None:
    """No lock of a site and no attempt is left."""
    assert hosts.rows("SELECT name FROM site WHERE lock_job_id IS NOT NULL") == []
    assert hosts.rows("SELECT id FROM attempt WHERE ended_at IS NULL") == []


def shows_what_is_active(hosts: ThreeHosts) -> None:
    """The copy of each site on disk is the release that the ledger says is active."""

    def lagging() -> list[str]:
        with hosts.ledger.begin() as session:
            sites = [(site, active_release(session, site)) for site in session.exec(select(Site))]
            return [
                site.name for site, release in sites
                if release is not None and release.job_id is not None
                and not hosts.den.shows(site_key(site), manifest_of(release), release_id=str(release.id))
            ]  # fmt: skip

    wait_until(lambda: not lagging(), seconds=20, what="the Den shows what is active")
