"""Intake on a real ledger and through the real gateway, with the fake provider as advocate, critic and classifier."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from ledger.job_control import request_cancel
from ledger.jobs import lock_job
from ledger.tables import Job, Tenant
from producers.dispatch.broker import Publisher
from producers.intake.submit import Requester, Submitter
from producers.use_cases.clarify import Clarifier
from producers.use_cases.rounds import ReviseOrder, Rounds
from routing.broker import create_app
from routing.errors import InvalidJobError
from routing.jobs import Source, State
from routing.policy.platform import Assist, Policy, platform_policy
from routing.prompt.vocabulary import load_vocabularies
from routing.queues import QUEUES, QueueName
from tests.integration.jobs.test_spec_jobs import Rig, rig, servers
from workers.attempt import Attempt
from workers.errors import SoftTimeLimit
from workers.handlers.intake import intake
from workers.handlers.spec import edit_spec
from workers.outcomes import Outcome

__all__ = ["rig", "servers"]
REMOVAL = "Remove the testimonials section"
ASSISTING = platform_policy().model_copy(update={"assist": Assist(enabled=True)})


def submit(
    rig: Rig,
    broker_url: str,
    prompt: str,
    *,
    environment: Mapping[str, str] | None = None,
    policy: Policy | None = None,
    **body: object,
) -> UUID:
    publisher = Publisher(create_app(broker_url))
    submitter = Submitter(rig.shop.ledger, publisher, policy or rig.shop.policy, environment=lambda: environment or {})
    accepted = submitter.submit({"prompt": prompt, **body}, tenant="acme", source=Source.PYTHON)
    return accepted.job.id


def take_in(rig: Rig, job_id: UUID, *, environment: Mapping[str, str] | None = None) -> Job:
    return rig.run(job_id, intake(lambda: environment or {}))


ROUTED = {
    QueueName.SPEC: [
        "Change the hero heading to 'Fresh bread'",
        "Put the testimonials above the contact form",
        "Make the headings dark blue",
        "Replace the hero image with https://example.com/bread.jpg",
        "Add an FAQ section",
        "a longer title",
    ],
    QueueName.PATCH: [
        "Add a hover underline effect with CSS to the links in the menu",
        "Add an inline script that checks the contact form before it is sent",
        "Wrap the hero in an extra div with an aria attribute",
        "Fix the broken menu rendering on mobile",
    ],
    QueueName.AGENT: [
        "Convert to a multi-page site with shared nav",
        "Install swiper with npm and build a carousel",
        "Add a WebGL canvas that visitors can turn to the hero",
        "Restructure the whole layout into a magazine grid",
        "advanced edit: change the title",
    ],
}


@pytest.mark.req("H-072", "H-120", "H-124")
@pytest.mark.req("H-003", "H-005", "H-010", "H-015", "H-016", "H-017", "H-018", "H-019", "H-020", "H-029", "H-030")
@pytest.mark.req("H-031", "H-032", "H-037", "H-042", "H-043", "H-044", "H-045", "H-046", "H-053", "H-054", "H-055")
@pytest.mark.req("H-056", "H-057", "H-058", "H-059", "H-060")
def test_an_edit_waits_on_the_queue_of_the_tier_that_its_words_need(rig: Rig, broker_url: str) -> None:
    rig.site()
    orders = [(queue, {"prompt": one, "site": "bakery"}) for queue, words in ROUTED.items() for one in words]
    simple = {"prompt": ROUTED[QueueName.SPEC][0], "site": "bakery"}
    orders += [(QueueName.AGENT, {**simple, **wish}) for wish in ({"advanced_edit": True}, {"preference": "agent"})]
    orders += [(QueueName.SPEC, {"prompt": "Create a site for a bakery with opening hours", "new_site": "rolls"})]
    for queue, order in orders:
        job = rig.shop.job(submit(rig, broker_url, **order))
        assert (job.queue, job.tier, job.route["tier"]) == (queue, QUEUES[queue].tier, job.tier), order
    for queue, tier in ((QueueName.SPEC, "spec"), (QueueName.PATCH, "patch"), (QueueName.AGENT, "agent")):
        job = rig.shop.job(submit(rig, broker_url, **{**simple, "tier": tier}))
        assert (job.queue, job.route["rule"], job.route["cause"]) == (queue, "override", "override")


ANSWERED = [
    "What is HPOS?",
    "Explain how grep works",
    "Why did the test fail?",
    "HOW DOES caching work?",
    "Should I use a slider?",
    "What is the difference between HPOS and classic?",
    "How do I find files with grep?",
    "Thanks, that makes sense",
]
ACTED_ON = {
    "Why did tests/e2e/test.ts fail?": ("WEAK", "bypass"),
    "What is in the src/config.json file?": ("WEAK", "bypass"),
    "Find all .ts files in src/": ("STRONG", "bypass"),
    "search for similar implementations": ("WEAK", "bypass"),
    "fix the src/index.ts file": ("WEAK", "none"),
    "fix the E2E tests": ("WEAK", "none"),
    "fix the bug in src/api/auth.ts and update tests": ("STRONG", "planning"),
    "deploy the page to production": ("WEAK", "planning"),
    "Delete every testimonial, just do it": ("WEAK", "bypass"),
    "remember the opening hours": ("WEAK", "none"),
    "fetch https://example.com and add it to the page": ("STRONG", "none"),
}


@pytest.mark.req("R-004", "R-005", "R-012", "R-013", "R-014", "R-015", "R-016", "R-017", "R-018", "R-019", "R-020")
@pytest.mark.req("R-021", "R-022", "R-023", "R-024", "R-025", "R-026", "R-027", "R-028", "R-031", "R-032", "R-034")
@pytest.mark.req("R-035", "R-036", "R-037", "R-038", "R-040", "R-042", "R-043", "R-046", "R-047", "R-056", "R-057")
@pytest.mark.req("R-058", "R-066", "R-067", "R-076", "R-077", "R-078", "R-082", "R-083", "R-084", "R-085", "R-086")
@pytest.mark.req("R-087", "R-088", "R-089", "R-116")
def test_what_a_message_is_taken_for_decides_where_it_waits(rig: Rig, broker_url: str) -> None:
    rig.site()
    for words in ANSWERED:
        for target in ({}, {"site": "bakery"}):
            job = rig.shop.job(submit(rig, broker_url, words, **target))
            assert (job.mode, job.route["confidence"], job.queue, job.state) == ("ANSWER", "NONE", "answer", "queued")
    told = {}
    for words in ACTED_ON:
        job = rig.shop.job(submit(rig, broker_url, words, site="bakery"))
        assert job.mode == "ACTION", words
        told[words] = (job.route["confidence"], job.route["debate"])
        assert (job.state == State.DEBATING) == (job.route["debate"] == "planning"), words
    assert told == ACTED_ON
    for command in ("pwd", "date", "whoami", "echo delete all products"):
        job = rig.shop.job(submit(rig, broker_url, command))
        assert (job.queue, job.state, job.tier, job.route["debate"]) == ("tools", "queued", None, "bypass")


@pytest.mark.req("R-050", "R-060", "R-045")
def test_work_that_destroys_is_debated_on_record_before_it_is_queued(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, REMOVAL, site="bakery")
    before = rig.shop.job(job_id)
    assert (before.state, before.queue) == (State.DEBATING, "intake")
    after = take_in(rig, job_id)
    assert (after.state, after.queue, after.tier) == (State.QUEUED, "spec", 1)
    assert len(rig.calls()) == 2
    assert rig.shop.scalar("SELECT verdict FROM debate WHERE job_id = :id", id=job_id) in ("proceed", "revise")
    assert rig.run(job_id, edit_spec).state == State.AWAITING_APPROVAL


@pytest.mark.req("R-002", "R-003", "R-009", "R-044", "R-079", "R-080", "R-081", "R-114")
def test_plain_work_is_decided_without_a_model_and_goes_straight_to_its_queue(rig: Rig, broker_url: str) -> None:
    rig.site()
    job = rig.shop.job(submit(rig, broker_url, "Change the hero heading to 'Hi'", site="bakery"))
    assert (job.state, job.queue) == (State.QUEUED, "spec")
    assert job.route["rule"] == "V1-4"
    assert rig.calls() == []


def test_a_debate_that_says_stop_ends_the_job_with_its_note(rig: Rig, broker_url: str) -> None:
    rig.site()
    job = take_in(rig, submit(rig, broker_url, f"{REMOVAL} [rehearse:veto]", site="bakery"))
    assert (job.state, job.reason) == (State.REJECTED, "debate_stopped")
    assert job.detail == "It cannot be undone."
    assert job.site_id is not None
    assert rig.shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=job.site_id) is None


def test_debaters_read_what_visitors_read_on_the_page_that_the_request_is_about(rig: Rig, broker_url: str) -> None:
    rig.site()
    job = take_in(rig, submit(rig, broker_url, f"{REMOVAL} [rehearse:has-read]", site="bakery"))
    assert (job.state, job.reason) == (State.REJECTED, "debate_stopped")


@pytest.mark.req("R-059")
def test_a_debate_that_asks_waits_for_the_owner_and_is_not_held_again(rig: Rig, broker_url: str) -> None:
    rig.site()
    job = take_in(rig, submit(rig, broker_url, f"{REMOVAL} [rehearse:which]", site="bakery"))
    assert (job.state, job.clarification["question"]) == (State.CLARIFYING, "Which of the two?")
    Clarifier(rig.shop.ledger, rig.shop.policy, environment=dict).reply(
        job.id, "The one below the menu", tenant="acme", actor="owner"
    )
    assert rig.shop.job(job.id).state == State.DEBATING
    job = take_in(rig, job.id)
    assert (job.state, job.result["answers"][0]["answer"]) == (State.QUEUED, "The one below the menu")
    assert rig.shop.rows("SELECT verdict FROM debate") == [("ask",)]
    assert len(rig.calls()) == 2


@pytest.mark.req("R-059")
def test_a_round_of_the_session_in_the_same_words_is_not_debated_again(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, REMOVAL, site="bakery", session="chat")
    take_in(rig, job_id)
    assert rig.run(job_id, edit_spec).state == State.AWAITING_APPROVAL
    order, requester = ReviseOrder(text=REMOVAL), Requester("acme", Source.PYTHON, "owner")
    again = Rounds(rig.shop.ledger, rig.shop.policy).revise(job_id, order, requester=requester).job.id
    assert rig.shop.job(again).state == State.QUEUED


def test_a_debate_that_nobody_can_hold_asks_for_a_person_where_stakes_are_high(rig: Rig, broker_url: str) -> None:
    rig.site()
    with rig.shop.ledger.begin() as session:
        session.get_one(Tenant, "acme").auto_approve = True
    job_id = submit(rig, broker_url, f"{REMOVAL} [rehearse:down]", site="bakery")
    job = take_in(rig, job_id)
    assert (job.state, job.result["needs_person"]) == (State.QUEUED, True)


@pytest.mark.req("R-059")
def test_the_same_decision_is_debated_once_in_a_session(rig: Rig, broker_url: str) -> None:
    rig.site()
    take_in(rig, submit(rig, broker_url, REMOVAL, site="bakery", session="chat-1"))
    assert rig.shop.job(submit(rig, broker_url, REMOVAL, site="bakery", session="chat-1")).state == State.QUEUED
    assert rig.shop.job(submit(rig, broker_url, REMOVAL, site="bakery", session="chat-2")).state == State.DEBATING


@pytest.mark.req("P-010", "P-011")
def test_read_literally_a_short_call_to_haiku_tells_building_from_fixing(rig: Rig, broker_url: str) -> None:
    literally = {"INTENT_CLASSIFIER": "always"}
    rig.site()
    job_id = submit(rig, broker_url, "Fix the typo in the hero heading", environment=literally, site="bakery")
    assert (rig.shop.job(job_id).state, rig.shop.job(job_id).route["intent"]) == (State.RECEIVED, "fix")
    job = take_in(rig, job_id, environment=literally)
    (call,) = rig.calls()
    assert (call.model, call.tools) == ("claude-haiku-4-5-20251001", ("classify_intent",))
    assert (job.state, job.route["intent"]) == (State.QUEUED, "build"), "as the rehearsed model says"


@pytest.mark.req("H-061", "H-064", "H-007")
def test_a_model_chooses_the_tier_only_after_the_rules_route_is_stored(rig: Rig, broker_url: str) -> None:
    rig.site()
    prompt = "Make it feel like a warm Sunday morning [rehearse:patch-it]"
    job_id = submit(rig, broker_url, prompt, policy=ASSISTING, site="bakery")
    stored = rig.shop.job(job_id)
    assert (stored.state, stored.queue, stored.route["classifier"]) == (State.RECEIVED, "intake", "v1")
    assert rig.calls() == []
    rig.resources = type(rig.resources)(**{**vars(rig.resources), "policy": ASSISTING})
    job = take_in(rig, job_id)
    assert (job.state, job.queue, job.tier, job.route["classifier"]) == (State.QUEUED, "patch", 2, "v2")
    assert rig.calls()[0].model.startswith("claude-haiku")


@pytest.mark.req("R-009", "R-079", "R-098", "R-099", "R-006")
def test_with_hard_routing_off_a_model_decides_the_mode_and_nothing_usable_means_action(
    rig: Rig, broker_url: str
) -> None:
    off = {"ENABLE_HARD_ROUTING": "false"}
    rig.site()
    job_id = submit(rig, broker_url, "Tell me about the opening hours [rehearse:down]", environment=off, site="bakery")
    assert rig.shop.job(job_id).state == State.RECEIVED
    job = take_in(rig, job_id, environment=off)
    assert (job.mode, job.route["classifier"]) == ("ACTION", "soft-default")


def test_a_job_on_intake_can_be_cancelled(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, REMOVAL, site="bakery")
    with rig.shop.ledger.begin() as session:
        request_cancel(session, lock_job(session, job_id), actor="owner")
    assert rig.shop.job(job_id).state == State.CANCELLED
    assert QueueName(rig.shop.job(job_id).queue) == QueueName.INTAKE


def test_a_provider_that_says_nothing_does_not_stop_a_job_at_intake(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, REMOVAL, site="bakery")

    def out_of_time(attempt: Attempt) -> Outcome:
        def silent(*_: object) -> None:
            raise SoftTimeLimit

        return intake(dict)(replace(attempt, check=silent))

    job = rig.run(job_id, out_of_time)
    assert (job.state, job.result["needs_person"]) == (State.QUEUED, True)
    assert rig.calls() == []


def test_a_site_is_made_when_the_model_finds_work_where_the_rules_saw_a_question(rig: Rig, broker_url: str) -> None:
    off = {"ENABLE_HARD_ROUTING": "false"}
    job_id = submit(rig, broker_url, "What is a good site? [rehearse:act]", environment=off, new_site="better")
    assert rig.shop.job(job_id).site_id is None
    job = take_in(rig, job_id, environment=off)
    assert (job.state, job.mode, job.queue) == (State.QUEUED, "ACTION", "spec")
    assert job.site_id is not None


def test_limits_of_a_tenant_that_do_not_fit_are_refused_in_words(rig: Rig, broker_url: str) -> None:
    with rig.shop.ledger.begin() as session:
        session.get_one(Tenant, "acme").overrides = {"queues": {"spec": {"llm_usd": 9}}}
    with pytest.raises(InvalidJobError, match="ask its operator"):
        submit(rig, broker_url, "What is bread?")


@pytest.mark.req("R-104")
def test_an_operator_s_words_change_what_is_decided_at_the_intake(rig: Rig, broker_url: str, tmp_path: Path) -> None:
    rig.site()
    words = tmp_path / "words.yaml"
    words.write_text("phrases:\n  logic:\n    match: [zoetrope]\n")
    prompt = "Add a zoetrope to the story section"
    assert rig.shop.job(submit(rig, broker_url, prompt, site="bakery")).tier != 3
    own = load_vocabularies(words)
    submitter = Submitter(rig.shop.ledger, Publisher(create_app(broker_url)), rig.shop.policy, vocabularies=own)
    accepted = submitter.submit({"prompt": prompt, "site": "bakery"}, tenant="acme", source=Source.PYTHON)
    assert accepted.job.tier == 3
