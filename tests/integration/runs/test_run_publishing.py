"""The end of a run: its commit is pushed to a real bare repository, and a pull request opened at a real HTTP server."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from dulwich.repo import Repo
from pydantic import SecretStr

from gateway.forges.forge import TIMEOUT_SECONDS
from ledger.attempts import find_lapsed_attempts, recover
from ledger.job_control import request_cancel
from ledger.job_ends import RETRY_SECONDS
from ledger.jobs import lock_job
from ledger.tables import Job, Site
from producers.use_cases.tickets import TicketWriter
from routing.jobs import Reason, State
from routing.policy.agents import Account, AccountsConfig
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from sites.content_store import ContentStore
from sites.releases import build_release
from tests.factories import Shop
from tests.forge import TOKEN, Forge
from tests.integration.runs.run_world import PROJECT, Yard
from workers.handlers.publish import run_control
from workers.lifecycle import Resources
from workers.runs import coordinator, publishing

GITHUB = PROJECT + "integrations: {github: {repository: acme/shop, token: acme}}\n"
ACME = "https://forge.example/acme/"
TICKET = {
    "title": "Fix the broken header",
    "source": "github",
    "key": "acme/shop#12",
    "reference": "acme/shop#12",
    "url": "https://f.example/12",
}


@pytest.fixture
def forge() -> Iterator[Forge]:
    with Forge() as running:
        yield running


@pytest.fixture
def yard(shop: Shop, tmp_path: Path, forge: Forge) -> Yard:
    made = Yard(shop, tmp_path, project=GITHUB)
    account = Account(kind="github", api_url=forge.url, token=SecretStr(TOKEN), git_url=ACME, tenants=("acme",))
    made.resources = replace(made.resources, accounts=AccountsConfig(by_name={"acme": account}))
    return made


@contextmanager
def remote_of(yard: Yard) -> Iterator[Repo]:
    with closing(Repo(str(yard.home / "remotes" / "shop.git"))) as repository:
        yield repository


def branches_of(yard: Yard) -> set[str]:
    heads = b"refs/heads/"
    with remote_of(yard) as repository:
        return {name.removeprefix(heads).decode() for name in repository.get_refs() if name.startswith(heads)}


def names(repository: Repo, commit: bytes) -> set[str]:
    tree = repository[repository[commit].tree]  # type: ignore[attr-defined]
    return {item.path.decode() for item in tree.items()}


def to_publishing(yard: Yard, **body: Any) -> UUID:
    """Play a run until it waits to be published."""
    run_id = yard.submit("Fix the broken header", ticket=TICKET, **body)
    for _ in range(200):
        yard.wake()
        if yard.job(run_id).state == State.PUBLISHING:
            return run_id
        for job in [*yard.waiting(QueueName.CONTROL), *yard.waiting(QueueName.STEPS)]:
            if job.queue == QueueName.STEPS:
                yard.work_step(job)
            elif job.state != State.PUBLISHING:
                yard.work_control(job)
    raise AssertionError("it does not come to publishing")


def publish(yard: Yard, run_id: UUID) -> Job:
    yard.work_control(yard.job(run_id))
    return yard.job(run_id)


@pytest.mark.slow
@pytest.mark.req("S-003", "S-029")
def test_a_run_ends_as_a_branch_and_a_pull_request(yard: Yard, forge: Forge) -> None:
    run_id = to_publishing(yard)
    assert forge.asked == []  # nothing left the house before scan and gates were passed
    assert branches_of(yard) == {"main"}
    job = publish(yard, run_id)
    assert (job.state, job.reason) == (State.PUBLISHED, Reason.DONE)
    branch = f"pointsman/acme-shop-12-{run_id.hex[-8:]}"
    assert job.result["branch"] == branch
    assert job.result["pull_request"] == {"number": 1, "url": f"{forge.url}/acme/shop/pull/1"}
    with remote_of(yard) as repository:
        pushed = repository.refs[f"refs/heads/{branch}".encode()]
        assert pushed.decode() == job.result["commit"]
        assert repository[pushed].parents == [repository.refs[b"refs/heads/main"]]
        assert {"README.md", "src", "package.json"} == names(repository, pushed)
    (pull,) = forge.pulls
    assert (pull["head"]["ref"], pull["base"]["ref"], pull["title"]) == (branch, "main", "Fix the broken header")
    assert "https://f.example/12" in pull["body"]


def test_a_worker_that_dies_at_any_point_of_it_leaves_one_branch_and_one_pull_request(
    yard: Yard, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = to_publishing(yard)

    class DiedError(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise DiedError

    for name in ("push", "forge_of", "_end"):
        with monkeypatch.context() as patched:
            patched.setattr(publishing, name, die)
            with pytest.raises(DiedError):
                publish(yard, run_id)
        yard.shop.execute("UPDATE job SET lost_attempts = 0")  # it may die twice; here it dies three times
        yard.recover()
    job = publish(yard, run_id)
    assert job.state == State.PUBLISHED
    assert len(forge.pulls) == 1
    assert len(branches_of(yard)) == 2


def test_a_forge_that_is_away_is_waited_for_in_the_ledger_with_growing_pauses(yard: Yard, forge: Forge) -> None:
    run_id = to_publishing(yard)
    rests = []
    for failure in (502, 503, 502):
        forge.failures = [failure]
        job = publish(yard, run_id)
        assert (job.state, job.held_for, job.waiting_since is not None) == (State.PUBLISHING, "time", True)
        assert str(failure) in job.result["retrying"]["why"]
        assert yard.shop.try_claim(yard.shop.message(run_id)) is None, "no worker takes it up before its pause is over"
        rests.append(yard.shop.scalar("SELECT extract(epoch FROM held_until - now()) FROM job WHERE id = :i", i=run_id))
        yard.shop.let_time_pass()
    assert [round(float(rest) / 5) * 5 for rest in rests] == [5, 30, 120]
    assert yard.shop.scalar("SELECT count(*) FROM attempt WHERE ended_at IS NULL") == 0
    assert publish(yard, run_id).state == State.PUBLISHED
    assert len(forge.pulls) == 1
    assert yard.job(run_id).lost_attempts == 0


def test_a_run_whose_forge_stays_away_ends_when_the_policy_s_hours_are_over(yard: Yard, forge: Forge) -> None:
    run_id = to_publishing(yard)
    forge.failures = [502, 502]
    assert publish(yard, run_id).state == State.PUBLISHING
    yard.shop.let_time_pass()
    yard.shop.execute(
        "UPDATE job SET result = jsonb_set(result, '{retrying,since}', to_jsonb(extract(epoch FROM now()) - 43200))"
    )
    job = publish(yard, run_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.PUBLISH_FAILED)
    assert "502" in str(job.detail)
    assert job.result["kept"]["head"] == yard.run(run_id).head_commit


def test_a_forge_that_refuses_ends_the_run_and_what_was_done_is_kept(yard: Yard, forge: Forge) -> None:
    run_id = to_publishing(yard)
    forge.failures = [422]
    job = publish(yard, run_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.PUBLISH_FAILED)
    assert "422" in str(job.detail)
    assert job.result["kept"]["head"] == yard.run(run_id).head_commit
    assert TOKEN not in str(job.detail)


def test_all_that_one_try_to_publish_may_take_fits_its_queue() -> None:
    longest = publishing.PUSH_SECONDS + 2 * TIMEOUT_SECONDS
    assert longest < platform_policy().queues[QueueName.CONTROL].soft_seconds


def test_a_full_disk_is_waited_for_and_the_run_is_published_then(
    yard: Yard, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = to_publishing(yard)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", str(yard.home))

    with monkeypatch.context() as patched:
        patched.setattr(publishing.Workspace, "squash", full)
        job = publish(yard, run_id)
    assert (job.state, job.held_for) == (State.PUBLISHING, "time")
    assert job.result["retrying"]["why"] == "No space left on device", "no path of ours: its tenant reads it"
    ended = "SELECT outcome, reason FROM attempt WHERE job_id = :i ORDER BY number DESC LIMIT 1"
    assert yard.shop.rows(ended, i=run_id) == [("retrying", "storage_unavailable")], "no remote was away"
    yard.shop.let_time_pass()
    job = publish(yard, run_id)
    assert (job.state, "retrying" in job.result) == (State.PUBLISHED, False), "what has ended waits for nothing"


def test_an_advance_that_meets_a_full_disk_is_made_later_and_forgets_that_it_had_to_wait(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = yard.submit("Fix the broken header", ticket=TICKET)
    yard.work_control(yard.job(run_id))
    (step,) = yard.waiting(QueueName.STEPS)
    yard.work_step(step)
    yard.wake()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(coordinator, "merge_results", full)
        yard.work_control(yard.job(run_id))
    job = yard.job(run_id)
    assert (job.state, job.held_for, job.result["retrying"]["tries"]) == (State.RUNNING, "time", 1)
    yard.wake()
    assert yard.job(run_id).held_for is None
    yard.work_control(yard.job(run_id))
    assert "retrying" not in yard.job(run_id).result
    assert yard.play(run_id).state == State.PUBLISHED


def test_a_project_whose_account_is_somebody_elses_gets_no_pull_request(yard: Yard, forge: Forge) -> None:
    run_id = to_publishing(yard)
    foreign = Account(kind="github", api_url=forge.url, token=SecretStr(TOKEN), tenants=("others",))
    yard.resources = replace(yard.resources, accounts=AccountsConfig(by_name={"acme": foreign}))
    job = publish(yard, run_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.PUBLISH_FAILED)
    assert forge.asked == []


# ---------------------------------------------------------------- what its ticket is told


def told(forge: Forge) -> list[str]:
    return [comment["body"].splitlines()[0] for comment in forge.comments]


@pytest.mark.req("S-030", "S-029")
def test_a_ticket_is_told_that_work_began_that_a_person_is_waited_for_and_how_it_ended(
    yard: Yard, forge: Forge
) -> None:
    writer = TicketWriter(yard.shop.ledger, yard.resources.accounts)
    run_id = yard.submit("Fix the broken header", ticket=TICKET, priority="P0")
    assert writer.deliver_due() == 1
    yard.settle()
    gate = yard.open_gate(run_id)
    assert writer.deliver_due() == 1
    assert (forge.pulls, yard.run(run_id).scan) == ([], "passed"), "what is not let pass is not handed over"
    yard.decide(gate)
    assert yard.play(run_id).state == State.PUBLISHED
    assert writer.deliver_due() == 1
    assert writer.deliver_due() == 0
    started, waits, ended = told(forge)
    assert started == f"Pointsman works on this ticket (run `{run_id}`)."
    assert waits.startswith("Pointsman waits for a person: ")
    assert ended == "Pointsman is done with this ticket."
    assert f"{forge.url}/acme/shop/pull/1" in forge.comments[-1]["body"]
    assert {comment["issue"] for comment in forge.comments} == {"acme/shop#12"}


def test_a_note_is_sent_again_until_its_tracker_is_back_and_stands_there_once(yard: Yard, forge: Forge) -> None:
    writer = TicketWriter(yard.shop.ledger, yard.resources.accounts)
    yard.submit("Fix the broken header", ticket=TICKET)
    forge.failures = [503]
    assert writer.deliver_due() == 1
    assert writer.deliver_due() == 0  # not before its pause is over
    for _ in range(2):  # the second time as if its delivery had not been booked
        yard.shop.execute("UPDATE ticket_note SET next_at = now(), delivered_at = NULL")
        assert writer.deliver_due() == 1
    assert len(forge.comments) == 1


def test_a_note_that_no_try_can_send_is_given_up_and_says_why(yard: Yard, forge: Forge) -> None:
    writer = TicketWriter(yard.shop.ledger, AccountsConfig())
    run_id = yard.submit("Fix the broken header", ticket=TICKET)
    assert (writer.deliver_due(), writer.deliver_due()) == (1, 0)
    note = yard.shop.rows(
        "SELECT attempts, next_at, delivered_at, error FROM ticket_note WHERE run_id = :id", id=run_id
    )
    assert [tuple(row)[:3] for row in note] == [(1, None, None)]
    assert "no account" in note[0][3]
    assert forge.asked == []


def test_a_note_that_meets_an_error_of_no_forge_is_given_up_as_any_other_and_stands_in_no_other_s_way(
    yard: Yard, forge: Forge
) -> None:
    writer = TicketWriter(yard.shop.ledger, yard.resources.accounts)
    yard.submit("Fix the broken header", ticket=TICKET)
    yard.submit("Fix the broken footer", ticket=TICKET)
    whole = yard.shop.scalar("SELECT CAST(config AS text) FROM project")
    yard.shop.execute("""UPDATE project SET config = '{"of": "another version"}'""")
    for _ in range(len(RETRY_SECONDS) + 1):
        yard.shop.execute("UPDATE ticket_note SET next_at = now() WHERE next_at IS NOT NULL")
        assert writer.deliver_due() == 2
    yard.shop.execute("UPDATE project SET config = CAST(:config AS jsonb)", config=whole)
    assert writer.deliver_due() == 0
    assert set(yard.shop.rows("SELECT next_at, error FROM ticket_note")) == {(None, "our own error: ValidationError")}
    assert forge.asked == []


def test_nothing_is_written_to_a_ticket_of_another_repository_that_the_account_could_reach(
    yard: Yard, forge: Forge
) -> None:
    for reference in ("globex/shop#1", "acme/shop-2#1", "acme/shop"):
        yard.submit("Fix the broken header", ticket={**TICKET, "reference": reference})
    TicketWriter(yard.shop.ledger, yard.resources.accounts).deliver_due(limit=10)
    errors = [row[0] for row in yard.shop.rows("SELECT error FROM ticket_note WHERE next_at IS NULL")]
    assert errors == ["the ticket is not in the project's repository"] * 2 + ["'acme/shop' is no issue of a forge"]
    assert forge.asked == []


def test_an_issue_of_linear_that_a_submitter_named_is_written_to_if_it_is_of_the_project_s_team(
    shop: Shop, tmp_path: Path, forge: Forge
) -> None:
    yard = Yard(shop, tmp_path, project=PROJECT + "integrations: {linear: {team: ENG, token: lin}}\n")
    account = Account(kind="linear", api_url=f"{forge.url}/graphql", token=SecretStr(TOKEN), tenants=("acme",))
    for reference in ("issue-7", "issue-8"):
        ticket = {"title": "Fix it", "source": "linear", "key": "ENG-7", "reference": reference}
        yard.submit("Fix the broken header", ticket=ticket)
    TicketWriter(shop.ledger, AccountsConfig(by_name={"lin": account})).deliver_due(limit=10)
    assert [comment["issue"] for comment in forge.comments] == ["issue-7"]
    assert shop.scalar("SELECT error FROM ticket_note WHERE next_at IS NULL AND error IS NOT NULL").startswith(
        "the ticket is not of the project's team"
    )


def test_a_ticket_that_no_tracker_holds_is_owed_nothing(yard: Yard) -> None:
    yard.submit("Fix the broken header", ticket={"title": "From a file", "source": "file"})
    assert yard.shop.scalar("SELECT count(*) FROM ticket_note") == 0


# ---------------------------------------------------------------- what rests before it is tried again


def test_a_step_that_its_surroundings_failed_rests_before_its_next_try_and_one_that_failed_itself_does_not(
    yard: Yard,
) -> None:
    for reason, rests in ((Reason.PROVIDER_BUSY, True), (Reason.AGENT_FAILED, False)):
        yard.team.answers["plan"] = reason
        run_id = yard.submit("Fix the broken header", ticket={**TICKET, "key": f"k-{reason}"})
        yard.work_control(yard.job(run_id))
        (first,) = (job for job in yard.waiting(QueueName.STEPS) if job.parent_id == run_id)
        yard.work_step(first)
        yard.wake()
        yard.work_control(yard.job(run_id))
        (second,) = (job for job in yard.waiting(QueueName.STEPS) if job.parent_id == run_id)
        assert second.id != first.id
        assert (second.held_for == "time") is rests, reason
        with yard.shop.ledger.begin() as session:
            request_cancel(session, lock_job(session, run_id), actor="test")


def test_a_job_whose_worker_died_rests_longer_each_time(yard: Yard) -> None:
    shop = yard.shop
    claimed = shop.running(tier=None)
    for seconds in (5, 30, 30):
        shop.lapse(claimed)
        with shop.ledger.begin() as session:
            (lapsed,) = find_lapsed_attempts(session)
            recover(session, lapsed, max_lost=9, pauses=yard.policy.pauses.lost_worker)
        job = shop.job(claimed.job.id)
        left = shop.scalar("SELECT extract(epoch FROM held_until - now()) FROM job WHERE id = :id", id=job.id)
        assert (job.held_for, round(float(left) / 5) * 5) == ("time", seconds)
        assert shop.try_claim(shop.message(job.id)) is None
        shop.let_time_pass()
        claimed = shop.claim(job.id)


def test_a_publish_waits_for_a_store_that_is_not_there_at_all(shop: Shop, tmp_path: Path) -> None:
    home = tmp_path / "content-store"
    content_store = ContentStore(home)
    resources = Resources(
        ledger=shop.ledger,
        content_store=content_store,
        policy=shop.policy,
        gateway_url="http://127.0.0.1:1",
        worker="w1",
    )
    site_id = shop.site()
    claimed = shop.running(site_id=site_id)
    page = {"index.html": b"<!doctype html><html lang=en><title>x</title></html>"}
    with shop.ledger.begin() as session:
        new = build_release(content_store, page, site=session.get_one(Site, site_id), policy=shop.policy)
    shop.offer(
        claimed,
        **{field.name: getattr(new, field.name) for field in fields(new) if field.name not in ("job_id", "site_id")},
    )
    shop.approve(claimed.job.id)
    (home / "blobs").rename(tmp_path / "away")
    run_control(shop.message(claimed.job.id), resources)
    job = shop.job(claimed.job.id)
    assert (job.state, job.held_for) == (State.PUBLISHING, "time")
    assert "cannot be reached" in job.result["retrying"]["why"]
    assert shop.active(site_id) is None
    (tmp_path / "away").rename(home / "blobs")
    shop.let_time_pass()
    run_control(shop.message(job.id), resources)
    assert shop.job(job.id).state == State.PUBLISHED
