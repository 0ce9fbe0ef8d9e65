"""Rounds of a session on the real ledger: resumed and revised jobs, what each starts from, and their one bill."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from ledger.attempts import recover
from ledger.errors import ApprovalRefusedError, IdempotencyConflictError, NotContinuableError, WrongStateError
from ledger.job_control import approve, reject, request_cancel
from ledger.jobs import lock_job
from ledger.operations.history_reader import examine
from ledger.releases import sweep_site
from ledger.tables import Job, Release
from producers.errors import AdmissionRefusedError
from producers.intake.submit import Requester
from producers.use_cases.changes import changes_of_job
from producers.use_cases.jobs import JobView, PreviewLinks, describe
from producers.use_cases.rounds import ResumeOrder, ReviseOrder, Rounds
from routing.decision.router import Signals, SiteSignals, decide
from routing.errors import InvalidJobError
from routing.jobs import Reason, Source, State
from sites.content_store import review_diff
from sites.preview import PreviewSigner
from tests.integration.jobs.test_agent_jobs import NPM, PACKAGE, edit, maker
from tests.integration.jobs.test_patch_jobs import PAGE, STYLE, plain_site
from tests.integration.jobs.test_spec_jobs import BY_MODEL, DIRECT, Rig, rig, servers
from tests.played_cli import PlayedMaker
from workers.handlers.agent import edit_with_agent
from workers.handlers.intake import intake
from workers.handlers.patch import patch_files
from workers.handlers.publish import run_control

__all__ = ["maker", "rig", "servers"]  # fixtures

BASE = {"index.html": PAGE, "site.css": STYLE}
ASKER = Requester(tenant="acme", source=Source.PYTHON, actor="owner")
TOO_MUCH = 'call(about="x" * 400_000)\nresult("API Error", is_error=True)\nsys.exit(1)'


HAS = "assert pathlib.Path({!r}).exists()"


def rounds(rig: Rig) -> Rounds:
    return Rounds(rig.shop.ledger, rig.shop.policy)


def revise(rig: Rig, job: Job, text: str, **fields: object) -> Job:
    order = ReviseOrder.model_validate({"text": text, **fields})
    return rig.shop.job(rounds(rig).revise(job.id, order, requester=ASKER).job.id)


def resume(rig: Rig, job: Job, budget_usd: float = 0.2, **fields: object) -> Job:
    order = ResumeOrder.model_validate({"budget_usd": budget_usd, **fields})
    return rig.shop.job(rounds(rig).resume(job.id, order, requester=ASKER).job.id)


def view(rig: Rig, job: Job) -> JobView:
    links = PreviewLinks(PreviewSigner(["p" * 32]), "http://pages")
    with rig.shop.ledger.begin() as session:
        return describe(session, session.get_one(Job, job.id), links=links)


def session_that(*lines: str) -> str:
    return "\n".join(["init()", *lines, 'result("Done.")'])


def held_by(rig: Rig, site: UUID) -> UUID | None:
    found: UUID | None = rig.shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=site)
    return found


@pytest.mark.slow
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
    run_control(rig.shop.message(third.id), rig.resources)
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
    maker.program(
        "claude",
        session_that(
            'assert pathlib.Path("half.html").read_text() == "<p>half"',
            'assert "begun" in prompt and "do not begin anew" in prompt',
            'write("rest.html", "<p>rest")',
        ),
    )
    again = rig.run(again.id, edit_with_agent)
    assert (again.state, again.detail) == ("awaiting_approval", None)
    assert rig.files(again.release_id) == {**BASE, "half.html": b"<p>half", "rest.html": b"<p>rest"}
    assert rig.shop.job(job.id).state == "budget_exceeded"
    assert rig.shown(site) == BASE


def test_what_the_added_budget_does_not_pay_is_refused_and_kept_again(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{TOO_MUCH}')
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    again = rig.run(resume(rig, job, 0.05).id, edit_with_agent)
    assert (again.state, again.reason) == ("budget_exceeded", "cost_cap")
    assert again.release_id != job.release_id
    assert rig.files(again.release_id) == {**BASE, "half.html": b"<p>half"}
    *_, argv = maker.boxes[-1].commands
    assert "--max-budget-usd=0.0500" in argv
    assert rig.shop.scalar("SELECT count(*) FROM call") == 0, "nothing was reserved: the box was told its budget"


def test_work_that_was_all_done_when_the_money_ran_out_becomes_a_candidate_without_another_change(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{TOO_MUCH}')
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    maker.program("claude", session_that("pass"))
    again = rig.run(resume(rig, job).id, edit_with_agent)
    assert (again.state, again.result["changes"]["added"]) == ("awaiting_approval", ["half.html"])


def test_a_revision_that_changes_nothing_fails_and_is_tried_again_from_the_same_work(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", session_that('write("a.html", "x")'))
    first = edit(rig, plain_site(rig, tmp_path), maker)
    maker.program("claude", session_that("pass"))
    second = rig.run(revise(rig, first, "Make it half as long", tier="agent").id, edit_with_agent)
    assert (second.state, second.reason, second.release_id) == ("failed", "agent_failed", None)
    child = rig.shop.job(UUID(second.result["continued_as"]))
    assert (child.prompt, child.start_release_id) == ("Make it half as long", first.release_id)


def test_a_job_that_kept_nothing_is_resumed_from_the_site_as_it_is_and_says_so(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f"init()\n{TOO_MUCH}")
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    assert (job.state, job.release_id) == ("budget_exceeded", None)
    with pytest.raises(NotContinuableError, match="kept nothing"):
        revise(rig, job, "Make it blue")
    again = resume(rig, job)
    assert again.start_release_id is None
    maker.program("claude", session_that('assert "nothing of it was kept" in prompt', 'write("a.html", "<p>a")'))
    again = rig.run(again.id, edit_with_agent)
    assert rig.files(again.release_id) == {**BASE, "a.html": b"<p>a"}


def test_a_failed_build_is_resumed_with_what_the_builder_said(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\nwrite("package.json", {PACKAGE!r})\nresult()')
    maker.program("npm", "import sys\nprint('no such package', file=sys.stderr)\nsys.exit(1)")
    job = edit(rig, site, maker)
    assert (job.state, job.reason) == ("failed", "build_failed")
    maker.program("claude", session_that('assert "no such package" in prompt', 'write("ok.txt", "x")'))
    maker.program("npm", NPM)
    again = rig.run(resume(rig, job).id, edit_with_agent)
    assert (again.state, again.detail) == ("awaiting_approval", None)
    assert {"package.json", "ok.txt", "dist/built.css"} <= rig.files(again.release_id).keys()


def test_a_lower_tier_revises_what_an_agent_made_and_is_compared_with_the_live_site(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", session_that('write("extra.html", "<p>extra")'))
    first = edit(rig, site, maker)
    text = 'Change "Open from 8 to 17." to "Open from 7 to 18."'
    child = revise(rig, first, text, tier="patch")
    done = rig.run(child.id, patch_files)
    assert (done.state, done.detail) == ("awaiting_approval", None)
    files = rig.files(done.release_id)
    assert files["extra.html"] == b"<p>extra"
    assert files["index.html"] != PAGE
    release: Release = rig.shop.find(Release, done.release_id)
    assert release.base_release_id == rig.shop.active(site)
    content_store = rig.resources.content_store
    assert release.diff_sha256 is not None
    assert release.reverse_sha256 is not None
    assert content_store.get(release.diff_sha256) == review_diff(BASE, files)
    assert content_store.get(release.reverse_sha256) == review_diff(files, BASE)
    assert {
        change.path for change in changes_of_job(rig.shop.ledger, content_store, done.id, tenant="acme").changes
    } == {
        "extra.html",
        "index.html",
    }


def test_spec_then_patch_then_spec_as_rounds_keeps_every_change(rig: Rig) -> None:
    site = rig.site()
    live = rig.shown(site)
    first = rig.edit(DIRECT, site)
    text = 'Change "For those who have never met a starter." to "For those who begin."'
    second = rig.run(revise(rig, first, text, tier="patch").id, patch_files)
    assert (second.state, second.detail) == ("awaiting_approval", None)
    third = revise(rig, second, "Change the heading 'Three things we will not hurry' to 'Three slow things'")
    assert third.tier == 1
    third = rig.run(rig.run(third.id, intake(dict)).id)
    assert (third.state, third.tier) == ("awaiting_approval", 1)
    files = rig.files(third.release_id)
    assert b"Bread since 1932" in files["index.html"]
    assert b"Three slow things" in files["index.html"]
    assert b"For those who begin." in files["classes.html"]
    release: Release = rig.shop.find(Release, third.release_id)
    assert release.spec_sha256 is not None
    assert b"Bread since 1932" in rig.resources.content_store.get(release.spec_sha256)
    assert rig.shown(site) == live
    rig.shop.approve(third.id)
    run_control(rig.shop.message(third.id), rig.resources)
    assert rig.shown(site) == files


def test_a_revision_for_which_nothing_has_to_change_keeps_the_work_and_says_why(rig: Rig) -> None:
    first = rig.edit(DIRECT, rig.site())
    second = rig.run(revise(rig, first, f"{BY_MODEL} [rehearse:already]").id)
    assert (second.state, second.result["summary"]) == ("awaiting_approval", "It says so already.")
    assert rig.files(second.release_id) == rig.files(first.release_id)


def test_a_question_comes_with_the_preview_of_what_is_clear_and_is_answered_by_the_next_round(rig: Rig) -> None:
    """A request of nine parts stood still for one open fact (issue 20)."""
    rig.shop.tenant(auto_approve=True)
    first = rig.edit(f"{BY_MODEL} [rehearse:one-thing-open]", rig.site())
    assert (first.state, first.result["summary"]) == ("awaiting_approval", "The text is new. Who teaches it?")
    assert b"Baked slowly." in rig.files(first.release_id)["index.html"]
    second = rig.run(revise(rig, first, "It is Wren").id)
    assert b"By Wren." in rig.files(second.release_id)["index.html"]


def test_policy_never_approves_a_later_round_in_a_person_s_place(rig: Rig) -> None:
    site = rig.site()
    first = rig.edit(DIRECT, site)
    rig.shop.tenant(auto_approve=True)
    second = rig.run(revise(rig, first, "Change the hero heading to 'Bread since 1933'").id)
    assert (second.tier, second.state) == (1, "awaiting_approval")


@pytest.mark.threat("H6")
def test_where_policy_wants_four_eyes_nobody_approves_who_asked_for_any_round(rig: Rig) -> None:
    rules = rig.shop.policy.approval.model_copy(update={"requester_may_approve": False})
    strict = rig.shop.policy.model_copy(update={"approval": rules})
    first = rig.edit(DIRECT, rig.site(), requested_by="alice")
    second = rig.run(revise(rig, first, "Change the hero heading to 'Bread since 1933'").id)
    for asked in ("alice", ASKER.actor):
        with pytest.raises(ApprovalRefusedError, match="second person"), rig.shop.ledger.begin() as session:
            approve(session, second.id, actor=asked, policy=strict)
    with rig.shop.ledger.begin() as session:
        assert approve(session, second.id, actor="carol", policy=strict).state == "publishing"


def test_nobody_else_s_edit_gets_between_two_rounds(rig: Rig) -> None:
    site = rig.site()
    first = rig.edit(DIRECT, site)
    other = rig.shop.accept(prompt=BY_MODEL, site_id=site)
    second = revise(rig, first, "Change the hero heading to 'Bread since 1933'")
    assert rig.shop.try_claim(rig.shop.message(other)) is None
    assert rig.run(second.id).state == "awaiting_approval"
    with rig.shop.ledger.begin() as session:
        reject(session, second.id, actor="reviewer", reason="no")
    assert rig.shop.try_claim(rig.shop.message(other)) is not None


def test_a_cancelled_round_frees_the_site_and_can_itself_be_gone_on_from(rig: Rig) -> None:
    site = rig.site()
    first = rig.edit(DIRECT, site)
    second = revise(rig, first, "Change the hero heading to 'Bread since 1933'")
    with rig.shop.ledger.begin() as session:
        request_cancel(session, lock_job(session, second.id), actor="owner")
    assert held_by(rig, site) is None
    third = revise(rig, rig.shop.job(second.id), "Change the hero heading to 'Bread since 1934'")
    assert third.start_release_id == first.release_id
    assert rig.run(third.id).state == "awaiting_approval"


def test_a_question_is_no_revision_and_sends_nothing_back(rig: Rig) -> None:
    first = rig.edit(DIRECT, rig.site())
    with pytest.raises(InvalidJobError, match="has to say what to change"):
        revise(rig, first, "Is it responsive?")
    assert rig.shop.job(first.id).state == "awaiting_approval"
    assert rig.shop.scalar("SELECT count(*) FROM job") == 1


DAY_IS_SPENT = """
    INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd)
    SELECT 'tenant_day', 'acme/' || to_char(timezone('UTC', now()), 'YYYY-MM-DD'), n, n, 0 FROM (VALUES (5e11)) AS t (n)
    ON CONFLICT (scope, key) DO UPDATE SET spent_nanousd = excluded.spent_nanousd"""
QUEUES_ARE_FULL = """
    INSERT INTO backlog (queue, tenant, waiting, drained_per_second)
    SELECT queue, '', 1000000, 1 FROM unnest(ARRAY['spec', 'agent', 'intake']) AS queues (queue)
    ON CONFLICT (queue, tenant) DO UPDATE SET waiting = excluded.waiting"""
ROOM_AGAIN = "UPDATE cap SET spent_nanousd = 0; UPDATE backlog SET waiting = 0"


@pytest.mark.parametrize("shortage", [DAY_IS_SPENT, QUEUES_ARE_FULL], ids=["day is spent", "queues are full"])
def test_a_revision_for_which_there_is_no_headroom_leaves_the_preview_up_for_approval(rig: Rig, shortage: str) -> None:
    first = rig.edit(DIRECT, rig.site())
    rig.shop.execute(shortage)
    with pytest.raises(AdmissionRefusedError):
        revise(rig, first, BY_MODEL)
    assert (rig.shop.job(first.id).state, rig.shop.scalar("SELECT count(*) FROM job")) == ("awaiting_approval", 1)
    rig.shop.execute(ROOM_AGAIN)
    second = revise(rig, first, BY_MODEL, idempotency_key="once")
    rig.shop.execute(shortage)
    assert revise(rig, first, BY_MODEL, idempotency_key="once").id == second.id, "accepted before"


@pytest.mark.parametrize("shortage", [DAY_IS_SPENT, QUEUES_ARE_FULL], ids=["day is spent", "queues are full"])
def test_money_added_to_a_job_buys_it_no_place_before_others(rig: Rig, shortage: str) -> None:
    claimed = rig.shop.running(prompt=BY_MODEL, site_id=rig.site())
    rig.shop.end(claimed, State.BUDGET_EXCEEDED, Reason.COST_CAP)
    rig.shop.execute(shortage)
    with pytest.raises(AdmissionRefusedError):
        resume(rig, rig.shop.job(claimed.job.id))
    rig.shop.execute(ROOM_AGAIN)
    assert resume(rig, rig.shop.job(claimed.job.id)).state == "queued"


def test_work_on_a_site_that_has_moved_on_is_refused_at_once(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{TOO_MUCH}')
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    rig.shop.show(site)
    with pytest.raises(NotContinuableError) as caught:
        resume(rig, job)
    assert caught.value.reason == "site_moved_on"


def test_work_on_a_site_that_moves_on_while_it_waits_is_not_begun(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{TOO_MUCH}')
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    again = resume(rig, job)
    spent, boxes = rig.shop.scalar("SELECT sum(cost_nanousd) FROM call"), len(maker.boxes)
    shown = rig.shop.show(site)
    again = rig.run(again.id, edit_with_agent)
    assert (again.state, again.reason) == ("failed", "publish_conflict")
    assert (rig.shop.scalar("SELECT sum(cost_nanousd) FROM call"), len(maker.boxes)) == (spent, boxes)
    assert rig.shop.active(site) == shown.id


@pytest.mark.threat("H7")
def test_what_a_waiting_round_starts_from_is_not_swept_and_what_was_swept_is_not_started_from(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{TOO_MUCH}')
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    other = edit(rig, site, maker, prompt="Add a shop", cap_nanousd=150_000_000)
    again = resume(rig, job)
    rig.shop.execute("UPDATE release SET created_at = now() - interval '1 year'")
    with rig.shop.ledger.begin() as session:
        swept = sweep_site(session, site, rig.shop.policy.retention)
    assert swept == {other.release_id}
    with pytest.raises(NotContinuableError, match="given up"):
        resume(rig, other)
    maker.program("claude", session_that(HAS.format("half.html"), 'write("rest.html", "x")'))
    assert rig.run(again.id, edit_with_agent).state == "awaiting_approval"


@pytest.mark.parametrize("verb", ["resume", "revise"])
def test_of_many_at_once_exactly_one_goes_on(rig: Rig, maker: PlayedMaker, tmp_path: Path, verb: str) -> None:
    site = plain_site(rig, tmp_path)
    body = (
        f'init()\nwrite("half.html", "<p>half")\n{TOO_MUCH}'
        if verb == "resume"
        else session_that('write("a.html", "x")')
    )
    maker.program("claude", body)
    job = edit(rig, site, maker, cap_nanousd=150_000_000)

    def ask(number: int) -> str:
        try:
            child = resume(rig, job) if verb == "resume" else revise(rig, job, f"Add a menu {number}")
        except NotContinuableError as error:
            return error.reason
        return str(child.id)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert answers.count("continued") == 5
    (child,) = rig.shop.rows("SELECT id FROM job WHERE parent_id = :id", id=job.id)
    assert str(child.id) in answers


def test_the_same_order_under_the_same_key_is_one_job_and_another_order_is_refused(rig: Rig) -> None:
    first = rig.edit(DIRECT, rig.site())
    text = "Change the hero heading to 'Bread since 1933'"
    second = revise(rig, first, text, idempotency_key="k1")
    assert revise(rig, first, text, idempotency_key="k1").id == second.id
    with pytest.raises(IdempotencyConflictError):
        revise(rig, first, "Change the hero heading to 'Bread since 1934'", idempotency_key="k1")
    with pytest.raises(IdempotencyConflictError):
        revise(rig, second, text, idempotency_key="k1")
    assert rig.shop.scalar("SELECT count(*) FROM job") == 2


def test_a_second_failure_is_debated_in_a_job_that_keeps_the_work_and_goes_on_from_it(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{TOO_MUCH}')
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    again = rig.run(resume(rig, job, 0.05).id, edit_with_agent)
    child = rig.shop.job(UUID(again.result["continued_as"]))
    assert (child.state, child.start_release_id, child.root_id) == ("debating", again.release_id, job.id)
    with pytest.raises(NotContinuableError, match=str(child.id)):
        resume(rig, again)
    route = decide(Signals(prompt=child.prompt, site=SiteSignals()), rig.shop.policy)
    rig.shop.execute("UPDATE job SET route = CAST(:route AS jsonb)", route=route.model_dump_json())
    child = rig.run(child.id, intake(dict))
    assert (child.state, child.queue, child.start_release_id) == ("queued", "agent", again.release_id)
    maker.program("claude", session_that(HAS.format("half.html"), 'write("rest.html", "x")'))
    assert rig.run(child.id, edit_with_agent).state == "awaiting_approval"
    assert [one.verb for one in view(rig, child).rounds] == [None, "resume", "debate"]


@pytest.mark.req("R-053")
def test_work_that_is_sent_back_twice_is_debated_before_it_is_done_a_third_time(rig: Rig) -> None:
    first = rig.edit(DIRECT, rig.site())
    second = revise(rig, first, "Change the hero heading to 'Bread since 1933'")
    assert (second.state, second.result.get("failure_debate")) == ("queued", None)
    second = rig.run(second.id)
    third = revise(rig, second, "Change the hero heading to 'Bread since 1934'")
    assert (third.state, third.queue, third.result["failure_debate"]) == ("debating", "intake", True)
    assert [failure["reason"] for failure in third.result["failures"]] == ["revised", "revised"]
    assert rig.shop.scalar("SELECT count(*) FROM job") == 3


def test_every_promise_of_the_ledger_holds_after_a_session_and_all_of_it_is_told(rig: Rig) -> None:
    first = rig.edit(DIRECT, rig.site(), callback_url="https://example.com/hook")
    second = rig.run(revise(rig, first, "Change the hero heading to 'Bread since 1933'").id)
    rig.shop.approve(second.id)
    run_control(rig.shop.message(second.id), rig.resources)
    assert examine(rig.shop.ledger.engine, rig.shop.policy.retention).violations == ()
    told = {row.payload["job_id"]: row.payload for row in rig.shop.rows("SELECT payload FROM notification")}
    assert told[str(first.id)]["continued_as"] == str(second.id)
    assert (told[str(first.id)]["reason"], told[str(second.id)]["parent_id"]) == ("revised", str(first.id))
    done = rig.shop.rows("SELECT action, detail ->> 'continued_as' AS child FROM audit WHERE action = 'job_revised'")
    assert [(row.action, row.child) for row in done] == [("job_revised", str(second.id))]
    urls = set(rig.shop.rows("SELECT callback_url FROM notification"))
    assert urls == {("https://example.com/hook",)}


def test_a_revision_is_a_decision_of_its_own_and_a_resumed_job_is_none(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site = plain_site(rig, tmp_path)
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{TOO_MUCH}')
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    maker.program("claude", session_that("pass"))
    resumed = rig.run(resume(rig, job).id, edit_with_agent)
    revised = revise(rig, resumed, "Make the headings larger")
    told = rig.shop.rows("SELECT job_id, data ->> 'mode' AS mode FROM event WHERE kind = 'accepted' ORDER BY id")
    assert {row.job_id: row.mode for row in told}[revised.id] == "ACTION"
    assert {row.job_id: row.mode for row in told}[resumed.id] is None


def test_a_round_whose_worker_dies_starts_again_from_the_same_work(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", session_that('write("a.html", "x")'))
    first = edit(rig, plain_site(rig, tmp_path), maker)
    second = revise(rig, first, "Add a menu", tier="agent")
    claimed = rig.shop.claim(second.id)
    rig.shop.lapse(claimed)
    with rig.shop.ledger.begin() as session:
        recover(session, claimed.attempt, max_lost=2)
    maker.program("claude", session_that(HAS.format("a.html"), 'write("b.html", "x")'))
    assert rig.run(second.id, edit_with_agent).state == "awaiting_approval"


def test_a_job_that_was_bound_to_nothing_when_it_ended_is_submitted_again(rig: Rig) -> None:
    job_id = rig.shop.accept(prompt="make it blue", tier=None)
    rig.shop.execute(
        "UPDATE job SET queue = 'intake', route = '{\"queue\": \"intake\"}', state = 'failed' WHERE id = :id", id=job_id
    )
    with pytest.raises(NotContinuableError, match="submit it again"):
        resume(rig, rig.shop.job(job_id))


def test_a_preview_is_either_approved_or_sent_back_whoever_comes_first(rig: Rig) -> None:
    site = rig.site()
    job = rig.edit(DIRECT, site)

    def judge(verdict: str) -> str:
        try:
            if verdict == "approve":
                rig.shop.approve(job.id)
            else:
                revise(rig, job, "Change the hero heading to 'Bread since 1933'")
        except (NotContinuableError, WrongStateError):
            return "refused"
        return verdict

    with ThreadPoolExecutor(8) as pool:
        answers = [one for one in pool.map(judge, ["approve", "revise"] * 4) if one != "refused"]
    assert len(answers) == 1
    state = {"approve": "publishing", "revise": "rejected"}[answers[0]]
    assert rig.shop.job(job.id).state == state
    assert rig.shop.scalar("SELECT count(*) FROM job") == (1 if answers == ["approve"] else 2)
    assert examine(rig.shop.ledger.engine, rig.shop.policy.retention).violations == ()
