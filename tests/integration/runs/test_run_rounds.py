"""A published run is revised: one more commit on its branch, on the same bill, and a word on its pull request."""

from uuid import UUID

import pytest

from ledger.errors import NotContinuableError
from producers.intake.submit import Requester
from producers.use_cases.rounds import ReviseOrder, Rounds
from producers.use_cases.tickets import TicketWriter
from routing.jobs import Reason, Source, State
from tests.forge import Forge
from tests.integration.runs.run_world import Yard
from tests.integration.runs.test_run_publishing import forge, names, publish, remote_of, to_publishing, yard
from workers.runs import publishing

__all__ = ["forge", "yard"]


def revise(yard: Yard, job_id: UUID, text: str) -> UUID:
    yard._pause(is_paused=True)
    try:
        order, ann = ReviseOrder(text=text), Requester(tenant="acme", source=Source.PYTHON, actor="ann")
        return Rounds(yard.shop.ledger, yard.policy).revise(job_id, order, requester=ann).job.id
    finally:
        yard._pause(is_paused=False)


def step_refs(yard: Yard, run_id: UUID) -> dict[str, str]:
    place = yard.workspace(run_id).path / "refs" / "steps"
    return {str(path): path.read_text() for path in place.rglob("*") if path.is_file()}


def published(yard: Yard) -> UUID:
    run_id = to_publishing(yard)
    assert publish(yard, run_id).state == State.PUBLISHED
    return run_id


def test_a_published_run_is_revised_by_a_second_commit_on_its_branch_and_the_same_bill(
    yard: Yard, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = published(yard)
    writer = TicketWriter(yard.shop.ledger, yard.resources.accounts)
    writer.deliver_due()
    second = revise(yard, first, "Use the brand colour in the header")
    before, steps = yard.job(first), step_refs(yard, first)

    class DiedError(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:  # after the push, before anything of it is on record
        patched.setattr(publishing, "_end", die)
        with pytest.raises(DiedError):
            yard.play(second)
    yard.recover()
    job = yard.play(second)
    assert (job.state, job.root_id, job.cap_nanousd) == (State.PUBLISHED, first, before.cap_nanousd)
    assert job.result["branch"] == before.result["branch"]
    with remote_of(yard) as repository:
        pushed = repository.refs[f"refs/heads/{job.result['branch']}".encode()]
        assert pushed.decode() == job.result["commit"]
        assert repository[pushed].parents == [before.result["commit"].encode()]
        message = repository[pushed].message.decode()
        assert message == f"fix: Use the brand colour in the header\n\nRun: {second}"
        assert {"README.md", "src", "package.json"} == names(repository, pushed)
    calls, booked = yard.bill(first)
    assert calls == booked > 0
    assert "## Asked now\n\nUse the brand colour" in yard.run(second).ticket["body"]
    assert steps == step_refs(yard, first), "a round has steps of the same names"
    assert len(forge.pulls) == 1
    writer.deliver_due()
    on_pull = [comment["body"] for comment in forge.comments if comment["issue"] == "acme/shop#1"]
    assert [text.splitlines()[0][:30] for text in on_pull][-1] == f"Pointsman pushed {job.result['commit']}"[:30]
    with pytest.raises(NotContinuableError, match="goes on from it already"):
        revise(yard, first, "Once more")


def test_a_branch_that_somebody_else_pushed_to_is_left_alone_and_the_pull_request_says_so(
    yard: Yard, forge: Forge
) -> None:
    first = published(yard)
    second = revise(yard, first, "Use the brand colour in the header")
    with remote_of(yard) as repository:
        branch = f"refs/heads/{yard.job(first).result['branch']}".encode()
        theirs = repository.refs[b"refs/heads/main"]
        repository.refs[branch] = theirs
    job = yard.play(second)
    assert (job.state, job.reason) == (State.FAILED, Reason.PUBLISH_FAILED)
    with remote_of(yard) as repository:
        assert repository.refs[branch] == theirs
    TicketWriter(yard.shop.ledger, yard.resources.accounts).deliver_due()
    assert any("somebody else has pushed" in each["body"] for each in forge.comments if each["issue"] == "acme/shop#1")


def test_a_merged_pull_request_and_a_spent_bill_take_no_further_round(yard: Yard, forge: Forge) -> None:
    first = published(yard)
    second = revise(yard, first, "Use the brand colour in the header")
    forge.pulls[0]["state"] = "closed"
    job = yard.play(second)
    assert (job.state, "merged or closed" in str(job.detail)) == (State.FAILED, True)
    yard.shop.execute("UPDATE cap SET spent_nanousd = :n WHERE scope = 'job'", n=job.cap_nanousd)
    with pytest.raises(NotContinuableError, match="budget on top"):
        revise(yard, second, "Try again")
