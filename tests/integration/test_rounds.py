"""Rounds of a session on the real ledger: resumed and revised jobs, what each starts from, and their one bill."""

from pathlib import Path
from uuid import UUID

import pytest

from monitoring.ledger.tables import Job
from producers.jobs import JobView, PreviewLinks, describe
from producers.rounds import Asker, ResumeOrder, ReviseOrder, Rounds
from routing.jobs import Door
from sandbox.preview import PreviewSigner
from tests.integration.test_agent_jobs import edit, maker
from tests.integration.test_patch_jobs import PAGE, STYLE, plain_site
from tests.integration.test_spec_jobs import Rig, rig, servers
from tests.played_cli import PlayedMaker
from workers.agent import edit_with_agent
from workers.intake import intake
from workers.publish import run_publish

__all__ = ["maker", "rig", "servers"]  # fixtures

BASE = {"index.html": PAGE, "site.css": STYLE}
ASKER = Asker(tenant="acme", door=Door.PYTHON, actor="owner")
TOO_MUCH = 'call(about="x" * 400_000)\nresult("API Error", is_error=True)\nsys.exit(1)'


HAS = "assert pathlib.Path({!r}).exists()"


def rounds(rig: Rig) -> Rounds:
    return Rounds(rig.shop.ledger, rig.shop.policy)


def revise(rig: Rig, job: Job, text: str, **fields: object) -> Job:
    order = ReviseOrder.model_validate({"text": text, **fields})
    return rig.shop.job(rounds(rig).revise(job.id, order, asker=ASKER).job.id)


def resume(rig: Rig, job: Job, budget_usd: float = 0.2, **fields: object) -> Job:
    order = ResumeOrder.model_validate({"budget_usd": budget_usd, **fields})
    return rig.shop.job(rounds(rig).resume(job.id, order, asker=ASKER).job.id)


def view(rig: Rig, job: Job) -> JobView:
    links = PreviewLinks(PreviewSigner(["p" * 32]), "http://pages")
    with rig.shop.ledger.begin() as session:
        return describe(session, session.get_one(Job, job.id), links=links)


def session_that(*lines: str) -> str:
    return "\n".join(["init()", *lines, 'result("Done.")'])


def held_by(rig: Rig, site: UUID) -> UUID | None:
    found: UUID | None = rig.shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=site)
    return found


@pytest.mark.req("H-041")
def test_a_session_of_three_rounds_is_one_edit_on_one_bill(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", session_that('write("one.html", "<p>one")', "call()"))
    first = edit(rig, site, maker)
    looks = [view(rig, first)]

    told = 'assert "multi-page" in prompt and "Add a second page" in prompt'
    maker.program("claude", session_that(HAS.format("one.html"), told, 'write("two.html", "<p>two")', "call()"))
    second = revise(rig, first, "Add a second page", tier="agent")
    assert (rig.shop.job(first.id).state, rig.shop.job(first.id).reason) == ("rejected", "revised")
    assert held_by(rig, site) == second.id
    second = rig.run(second.id, edit_with_agent)
    looks.append(view(rig, second))

    maker.program(
        "claude", session_that('assert pathlib.Path("two.html").exists()', 'pathlib.Path("one.html").unlink()')
    )
    third = revise(rig, second, "Take the first page away again", tier="agent")
    assert third.state == "debating"  # sent back twice
    third = rig.run(third.id, intake(dict))
    third = rig.run(third.id, edit_with_agent)
    looks.append(view(rig, third))

    assert [one.detail for one in looks] == [None] * 3
    assert [(one.session, one.round) for one in looks] == [(first.id, 1), (first.id, 2), (first.id, 3)]
    assert len({one.preview_url for one in looks if one.preview_url}) == 3
    assert [one.verb for one in looks[-1].rounds] == [None, "revise", "revise"]
    assert rig.shown(site) == BASE
    assert rig.files(third.release_id) == {**BASE, "two.html": b"<p>two"}

    rig.shop.approve(third.id)
    run_publish(rig.shop.message(third.id), rig.resources)
    assert rig.shown(site) == {**BASE, "two.html": b"<p>two"}
    assert held_by(rig, site) is None
    spent = rig.shop.rows("SELECT key, spent_nanousd FROM cap WHERE scope = 'job'")
    paid = rig.shop.scalar("SELECT sum(cost_nanousd) FROM call")
    assert [(key, nanousd) for key, nanousd in spent] == [(str(first.id), paid)]
    assert view(rig, third).bill.session_spent_nanousd == paid > view(rig, third).bill.spent_nanousd
    assert rig.shop.scalar("SELECT count(*) FROM notification") == 3


def test_a_resumed_job_goes_on_from_what_was_kept_with_the_added_budget(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\ncall()\nwrite("half.html", "<p>half")\n{TOO_MUCH}')
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    assert job.state == "budget_exceeded"
    spent = rig.shop.scalar("SELECT spent_nanousd FROM cap WHERE scope = 'job'")
    again = resume(rig, job, 0.2)
    assert (again.cap_nanousd, again.start_release_id) == (spent + 200_000_000, job.release_id)
    assert (again.prompt, again.tier, again.queue, again.root_id) == (job.prompt, 3, "agent", job.id)
    maker.program("claude", session_that('assert pathlib.Path("half.html").read_text() == "<p>half"',
                                         'assert "begun" in prompt and "do not begin anew" in prompt',
                                         'write("rest.html", "<p>rest")'))  # fmt: skip
    again = rig.run(again.id, edit_with_agent)
    assert (again.state, again.detail) == ("awaiting_approval", None)
    assert rig.files(again.release_id) == {**BASE, "half.html": b"<p>half", "rest.html": b"<p>rest"}
    assert rig.shop.job(job.id).state == "budget_exceeded"
    assert rig.shown(site) == BASE
