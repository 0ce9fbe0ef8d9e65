"""A clarification as a job state: asked at submit, answered by rules or by a model through the gateway."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from ledger.errors import WrongStateError
from ledger.job_control import expire, lock_supersede_key, request_cancel, supersede
from ledger.jobs import lock_job
from ledger.tables import Job
from monitoring.event_metrics import fold
from monitoring.metrics import LADDER, series_key
from producers.errors import AdmissionRefusedError
from producers.use_cases.clarify import Clarifier, Reply
from producers.use_cases.jobs import describe
from producers.use_cases.routing_log import RoutingLog
from routing.clarify.ladder import LadderEventName
from routing.clarify.questions import ASK_OPTIONS
from routing.errors import InvalidJobError
from routing.jobs import State
from tests.integration.intake.test_intake import submit, take_in
from tests.integration.jobs.test_spec_jobs import Rig, rig, servers
from tests.integration.workers.worker_world import soft_limit_after
from tests.services import wait_until
from workers.handlers.intake import intake

__all__ = ["rig", "servers"]

UNBOUND = "Change the headline to 'Fresh bread'"
TYPO = "can you ope panel d pls"
LABELS = {"all": "Links Panels", "d": "Links Panel D", "e": "Links Panel E"}
LINKS = [{"id": option_id, "label": label} for option_id, label in LABELS.items()]
WIDGETS = [{"id": "w1", "label": "Weather", "source": "widget"}, {"id": "w2", "label": "Panel D", "source": "widget"}]
LLM = {"NEXT_PUBLIC_CLARIFICATION_LLM_ENABLED": "true"}
AUTO = LLM | {"NEXT_PUBLIC_LLM_AUTO_EXECUTE_ENABLED": "true"}
SHOWN = ["all", "d", "e"]
D_FIRST = ["d", "all", "e"]


def say(rig: Rig, job_id: UUID, text: str, *, switches: Mapping[str, str] | None = None, tenant: str = "acme") -> Reply:
    clarifier = Clarifier(rig.shop.ledger, rig.shop.policy, environment=lambda: switches or {})
    return clarifier.reply(job_id, text, tenant=tenant, actor="owner")


def choose(rig: Rig, job_id: UUID, option_id: str) -> Reply:
    clarifier = Clarifier(rig.shop.ledger, rig.shop.policy, environment=dict)
    return clarifier.choose(job_id, option_id, tenant="acme", actor="owner")


def shown(rig: Rig, job_id: UUID) -> list[str]:
    """The options in the order in which the job's view shows them."""
    with rig.shop.ledger.begin() as session:
        asked = describe(session, rig.shop.job(job_id)).clarification
    assert asked is not None
    return [option.id for option in asked.options]


def question(rig: Rig, job_id: UUID) -> str:
    asked = rig.shop.job(job_id).clarification
    assert asked is not None
    return str(asked["question"])


def ladder_events(rig: Rig, job_id: UUID) -> list[tuple[str, str]]:
    rows = rig.shop.rows("SELECT data FROM event WHERE kind = 'ladder' AND job_id = :id ORDER BY id", id=job_id)
    return [(row.data["event"], row.data["reason"]) for row in rows]


def asks(rig: Rig, job_id: UUID) -> bool:
    """Whether the job waits for its owner, and for no worker."""
    job = rig.shop.job(job_id)
    return job.state == State.CLARIFYING and job.waiting_since is None and job.expires_at is not None


@pytest.fixture
def links(rig: Rig, broker_url: str) -> UUID:
    """A job that asks which of the seed's three panels is meant."""
    return submit(rig, broker_url, UNBOUND, options=LINKS)


# ------------------------------------------------------------------------------------------------------------- asking


def test_an_action_that_is_bound_to_nothing_asks_which_site_is_meant(rig: Rig, broker_url: str) -> None:
    rig.shop.site("florist"), rig.shop.site("bakery"), rig.shop.site("foreign", tenant="other")
    job_id = submit(rig, broker_url, UNBOUND)
    assert asks(rig, job_id)
    with rig.shop.ledger.begin() as session:
        view = describe(session, rig.shop.job(job_id))
    assert view.clarification is not None
    assert view.clarification.question == "Which site is this about?"
    assert [(one.id, one.label) for one in view.clarification.options] == [
        (name, name) for name in ("bakery", "florist")
    ]
    assert (rig.calls(), rig.shop.scalar("SELECT count(*) FROM attempt")) == ([], 0)


def test_at_most_twenty_sites_are_offered(rig: Rig, broker_url: str) -> None:
    for number in range(22):
        rig.shop.site(f"site-{number:02}")
    assert len(shown(rig, submit(rig, broker_url, UNBOUND))) == 20


def test_the_sites_that_a_request_may_mean_are_offered_first(rig: Rig, broker_url: str) -> None:
    for number in range(25):
        rig.shop.site(f"site-{number:02}")
    rig.shop.site("zum-anker")
    rig.shop.site("hotel-zum-anker")
    offered = shown(rig, submit(rig, broker_url, f"{UNBOUND} of the Hotel Anker"))
    assert offered[:3] == ["hotel-zum-anker", "zum-anker", "site-00"]
    assert len(offered) == 20


@pytest.mark.parametrize("answer", [say, choose])
def test_a_reply_may_name_a_site_beyond_those_that_are_offered(
    rig: Rig, broker_url: str, answer: Callable[[Rig, UUID, str], Reply]
) -> None:
    for number in range(20):
        rig.shop.site(f"site-{number:02}")
    last = rig.site("site-20")
    rig.shop.site("theirs", tenant="other")
    job_id = submit(rig, broker_url, UNBOUND)
    assert "site-20" not in shown(rig, job_id)
    with pytest.raises(InvalidJobError, match="no option of this question"):
        choose(rig, job_id, "theirs")
    assert answer(rig, job_id, "site-20").outcome == "deterministic_execute"
    assert (rig.shop.job(job_id).state, rig.shop.job(job_id).site_id) == ("queued", last)


def test_with_nothing_to_offer_an_unbound_action_is_refused_as_before(rig: Rig, broker_url: str) -> None:
    with pytest.raises(InvalidJobError, match="needs one of site"):
        submit(rig, broker_url, UNBOUND)


@pytest.mark.req("R-039", "R-041")
def test_a_weak_search_that_is_bound_to_nothing_asks_where(rig: Rig, broker_url: str) -> None:
    rig.shop.site("web")
    job_id = submit(rig, broker_url, "search for examples")
    with rig.shop.ledger.begin() as session:
        view = describe(session, rig.shop.job(job_id)).clarification
    assert view is not None
    assert view.question == "Search where? Web, codebase, or memory?"
    assert [option.id for option in view.options] == ["web", "codebase", "memory"]
    assert say(rig, job_id, "the web").handled
    job = rig.shop.job(job_id)
    assert (job.state, job.result["option"], job.site_id) == ("answered", "web", None), "a place is no site"


def test_a_strong_search_is_not_asked_about(rig: Rig, broker_url: str) -> None:
    with pytest.raises(InvalidJobError, match="needs one of site"):
        submit(rig, broker_url, "search the repository and grep our code for examples in src/a.ts", options=LINKS)


# ---------------------------------------------------------------------------------------------------- rules resolve it


@pytest.mark.req("L-002", "L-064", "L-065", "L-022", "L-033", "L-051", "L-069")
@pytest.mark.parametrize("said", ["the second one", "florist", "2", "the florist please"])
def test_a_reply_that_names_a_site_binds_the_job_and_routes_it_again(rig: Rig, broker_url: str, said: str) -> None:
    rig.site("bakery")
    site_id = rig.site("florist")
    job_id = submit(rig, broker_url, UNBOUND)
    assert say(rig, job_id, said) == Reply(True, "tier_1b3", "deterministic_execute")
    job = rig.shop.job(job_id)
    assert (job.state, job.queue, job.tier, job.site_id, job.expires_at) == ("queued", "spec", 1, site_id, None)
    assert (job.route["workflow"], job.mode, job.waiting_since is not None) == ("site", "ACTION", True)
    assert rig.calls() == []
    assert rig.run(job_id).state == State.AWAITING_APPROVAL
    assert rig.shop.rows("SELECT detail->>'site' FROM audit WHERE action = 'job_bound'") == [("florist",)]


def test_work_that_cannot_be_undone_is_debated_after_its_site_is_named(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, "Remove the testimonials section")
    say(rig, job_id, "bakery")
    assert (rig.shop.job(job_id).state, rig.shop.job(job_id).queue) == ("debating", "intake")
    assert take_in(rig, job_id).state == State.QUEUED


@pytest.mark.req("R-059")
def test_a_request_whose_site_is_named_later_is_debated_once_in_its_session_too(rig: Rig, broker_url: str) -> None:
    rig.site(), rig.shop.tenant("other")

    def named(session: str) -> UUID:
        job_id = submit(rig, broker_url, "Remove the testimonials section", session=session)
        say(rig, job_id, "bakery")
        return job_id

    first = named("chat")
    assert rig.shop.job(first).state == State.DEBATING
    take_in(rig, first)
    assert rig.shop.job(named("chat")).state == State.QUEUED
    for field, other in (("session", "chat-2"), ("tenant", "other"), ("kind", "failure"), ("verdict", "stop")):
        before = rig.shop.scalar(f"SELECT {field} FROM debate")
        rig.shop.execute(f"UPDATE debate SET {field} = :other", other=other)
        assert rig.shop.job(named("chat")).state == State.DEBATING, field
        rig.shop.execute(f"UPDATE debate SET {field} = :before", before=before)


@pytest.mark.req("L-061", "L-066", "L-013", "L-127", "L-129", "L-130", "L-149", "L-068", "L-069", "L-003", "L-070")
def test_a_command_that_two_options_begin_with_chooses_among_them_and_is_not_carried_out(
    rig: Rig, broker_url: str
) -> None:
    dates = [{"id": "picker", "label": "Date picker"}, {"id": "list", "label": "Date list"}]
    job_id = submit(rig, broker_url, UNBOUND, options=dates)
    assert say(rig, job_id, "date") == Reply(True, "tier_1b3", "clarify")
    assert say(rig, job_id, "date", switches=AUTO).outcome == "asks_model"
    take_in(rig, job_id, environment=AUTO)
    assert asks(rig, job_id)
    assert ladder_events(rig, job_id)[-1][1] != "exact_command"


def test_an_option_that_is_no_site_ends_the_job_with_its_id(rig: Rig, links: UUID) -> None:
    assert say(rig, links, "links panel e").handled
    job = rig.shop.job(links)
    assert (job.state, job.reason, job.result) == ("answered", "done", {"option": "e"})


def test_an_option_can_be_chosen_by_its_id_and_an_unknown_id_changes_nothing(rig: Rig, links: UUID) -> None:
    with pytest.raises(InvalidJobError, match="is no option of this question"):
        choose(rig, links, "z")
    assert asks(rig, links)
    assert choose(rig, links, "d").outcome == "deterministic_execute"
    assert rig.shop.job(links).result == {"option": "d"}


def test_a_site_of_another_tenant_is_never_bound(rig: Rig, broker_url: str) -> None:
    rig.shop.site("secret", tenant="other")
    job_id = submit(rig, broker_url, UNBOUND, options=[{"id": "secret", "label": "Secret"}])
    choose(rig, job_id, "secret")
    assert (rig.shop.job(job_id).state, rig.shop.job(job_id).site_id) == ("answered", None)


@pytest.mark.req("L-082")
@pytest.mark.req("L-080")
@pytest.mark.parametrize("said", ["none of these", "cancel", "never mind"])
def test_an_exit_cancels_the_job(rig: Rig, links: UUID, said: str) -> None:
    assert say(rig, links, said).outcome == "exit"
    job = rig.shop.job(links)
    assert (job.state, job.reason, job.clarification) == ("cancelled", "cancelled", None)


@pytest.mark.req("L-053", "L-006", "L-054", "L-066", "L-109", "L-098", "L-047", "L-050", "L-060", "L-068")
@pytest.mark.req("L-100", "L-110", "L-138", "L-152")
@pytest.mark.parametrize(("said", "tier"), [("what is a proxy?", "router"), ("pwd", "command")])
def test_what_is_no_answer_is_let_go_by_its_tier_and_the_question_stays(
    rig: Rig, links: UUID, said: str, tier: str
) -> None:
    assert say(rig, links, said, switches=LLM) == Reply(False, tier, "escape")
    assert asks(rig, links)
    assert (shown(rig, links), rig.calls()) == (SHOWN, [])


# ------------------------------------------------------------------------------------------ the typo collisions of 004


@pytest.mark.req(
    "L-008",
    "L-017",
    "L-018",
    "L-024",
    "L-038",
    "L-041",
    "L-042",
    "L-043",
    "L-055",
    "L-056",
    "L-058",
    "L-059",
    "L-062",
    "L-067",
    "L-102",
    "L-011",
    "L-013",
    "L-099",
    "L-005",
    "L-012",
    "L-031",
    "L-047",
    "L-050",
    "L-057",
    "L-060",
    "L-090",
)
@pytest.mark.req("L-105", "L-106", "L-111", "L-114")
def test_a_typo_shows_the_same_options_again_while_no_model_may_be_asked(rig: Rig, links: UUID) -> None:
    for said in (TYPO, TYPO, "ping panel d"):
        assert say(rig, links, said) == Reply(True, "tier_1b3", "clarify")
        assert asks(rig, links)
        assert shown(rig, links) == SHOWN
        assert question(rig, links) == ASK_OPTIONS
    assert (rig.calls(), ladder_events(rig, links)) == ([], [])


@pytest.mark.req(
    "L-016",
    "L-018",
    "L-020",
    "L-028",
    "L-035",
    "L-040",
    "L-049",
    "L-070",
    "L-102",
    "L-115",
    "L-122",
    "L-123",
    "L-011",
    "L-022",
    "L-033",
    "L-051",
    "L-064",
    "L-065",
    "L-069",
    "L-086",
    "L-099",
    "L-003",
    "L-063",
    "L-068",
    "L-144",
)
@pytest.mark.req("L-019", "L-072", "L-093", "L-106", "L-111", "L-128", "L-140", "L-147")
def test_a_model_reorders_the_options_and_a_place_means_the_new_order(rig: Rig, links: UUID) -> None:
    assert say(rig, links, TYPO, switches=LLM).outcome == "asks_model"
    waiting = rig.shop.job(links)
    assert (waiting.state, waiting.queue, waiting.expires_at) == ("received", "intake", None)
    assert rig.calls() == []
    take_in(rig, links, environment=LLM)
    assert asks(rig, links)
    assert (shown(rig, links), len(rig.calls())) == (D_FIRST, 1)
    assert ladder_events(rig, links) == [("llm_arbitration_called", "no_deterministic_match")]
    assert rig.shop.scalar("SELECT sum(cost_nanousd) FROM call WHERE job_id = :id", id=links) > 0
    say(rig, links, "1", switches=LLM)
    assert rig.shop.job(links).result == {"option": "d"}


@pytest.mark.req("L-073", "L-075", "L-081")
@pytest.mark.req("L-106", "L-023", "L-032", "L-034", "L-083", "L-084", "L-085", "L-103", "L-104", "L-136", "L-150")
def test_the_same_reply_again_asks_no_model_again_and_keeps_the_order(rig: Rig, links: UUID) -> None:
    say(rig, links, TYPO, switches=AUTO | {"NEXT_PUBLIC_LLM_AUTO_EXECUTE_ENABLED": "false"})
    take_in(rig, links, environment=LLM)
    assert say(rig, links, TYPO, switches=AUTO) == Reply(True, "tier_1b3", "clarify")
    assert asks(rig, links)
    assert (shown(rig, links), len(rig.calls())) == (D_FIRST, 1)
    assert say(rig, links, "pwd", switches=LLM) == Reply(False, "command", "escape")
    assert say(rig, links, TYPO, switches=LLM).outcome == "asks_model"


@pytest.mark.req("L-079", "L-141", "L-145", "L-124", "L-127", "L-144")
def test_a_sure_answer_acts_where_every_gate_is_open(rig: Rig, links: UUID) -> None:
    say(rig, links, TYPO, switches=AUTO)
    job = take_in(rig, links, environment=AUTO)
    assert (job.state, job.result, job.clarification) == ("answered", {"option": "d"}, None)


def test_a_model_s_answer_can_bind_a_site(rig: Rig, broker_url: str) -> None:
    site_id = rig.site("d")
    job_id = submit(rig, broker_url, UNBOUND, options=LINKS)
    say(rig, job_id, TYPO, switches=AUTO)
    job = take_in(rig, job_id, environment=AUTO)
    assert (job.state, job.queue, job.site_id) == ("queued", "spec", site_id)
    assert rig.run(job_id).state == State.AWAITING_APPROVAL


@pytest.mark.req("L-062", "L-123", "L-099")
@pytest.mark.req("L-114", "L-125", "L-139", "L-142")
@pytest.mark.parametrize("said", [TYPO, "ping panel d"])
def test_a_switch_that_went_off_while_a_reply_waited_stops_the_call(rig: Rig, links: UUID, said: str) -> None:
    environment = dict(AUTO)
    handler = intake(lambda: environment)
    assert say(rig, links, said, switches=AUTO).outcome == "asks_model"
    environment.clear()
    rig.run(links, handler)
    assert asks(rig, links)
    assert (shown(rig, links), rig.calls()) == (SHOWN, [])


@pytest.mark.req("L-048", "L-101", "L-088", "L-146", "L-090")
@pytest.mark.req("L-004", "L-021", "L-030", "L-087", "L-089", "L-137", "L-151")
@pytest.mark.parametrize(
    ("said", "failure"),
    [
        ("ope panel e [rehearse:down]", "unavailable"),
        ("opne panel d [rehearse:busy]", "rate_limited"),
        ("gribble panel d", "abstain"),
        ("wobble panel d", "low_confidence"),
    ],
)
def test_a_failure_shows_the_same_options_in_the_same_order_though_every_gate_is_open(
    rig: Rig, links: UUID, said: str, failure: str
) -> None:
    assert say(rig, links, said, switches=AUTO).outcome == "asks_model"
    take_in(rig, links, environment=AUTO)
    assert asks(rig, links)
    assert shown(rig, links) == SHOWN
    assert ladder_events(rig, links)[-1] == ("llm_arbitration_failed_fallback_clarifier", failure)


@pytest.mark.req("L-004", "L-021", "L-030", "L-087", "L-089", "L-137", "L-151", "L-088", "L-146")
def test_a_model_that_says_nothing_until_the_time_is_up_leads_back_to_the_question(rig: Rig, links: UUID) -> None:
    say(rig, links, "ope panel e [rehearse:timeout]", switches=AUTO)
    with soft_limit_after(0.7):
        take_in(rig, links, environment=AUTO)
    assert asks(rig, links)
    assert ladder_events(rig, links)[-1] == ("llm_arbitration_failed_fallback_clarifier", "timeout")


# --------------------------------------------------------------------------------------------------------- scope cues


@pytest.mark.req("L-026", "L-052", "L-074", "L-091", "L-092", "L-094", "L-097")
@pytest.mark.req("L-025", "L-036", "L-037", "L-044", "L-045", "L-095", "L-107", "L-108", "L-112")
def test_from_chat_chooses_among_the_chat_s_options_though_a_widget_s_are_active(rig: Rig, broker_url: str) -> None:
    job_id = submit(rig, broker_url, UNBOUND, options=WIDGETS + LINKS)
    assert shown(rig, job_id) == ["w1", "w2", *SHOWN]
    assert say(rig, job_id, "can you ope panel d from chat pls", switches=LLM).outcome == "asks_model"
    take_in(rig, job_id, environment=LLM)
    assert shown(rig, job_id) == [*D_FIRST, "w1", "w2"]
    (prompt,) = rig.shop.rows("SELECT clarification FROM job WHERE id = :id", id=job_id)
    asked = prompt.clarification["state"]["cycle"]["key"]
    assert "w1" not in asked
    assert "w2" not in asked
    assert say(rig, job_id, "links panel d from chat") == Reply(True, "scope_cue", "deterministic_execute")


@pytest.mark.req("L-041", "L-043", "L-067", "L-096", "L-097")
@pytest.mark.req("L-113")
def test_a_named_scope_without_options_asks_for_more_and_decides_nothing(rig: Rig, broker_url: str) -> None:
    job_id = submit(rig, broker_url, UNBOUND, options=WIDGETS)
    assert say(rig, job_id, "ope panel d from chat", switches=AUTO) == Reply(True, "scope_cue", "need_more_info")
    assert asks(rig, job_id)
    assert (shown(rig, job_id), rig.calls()) == (["w1", "w2"], [])


# -------------------------------------------------------------------------------------------- once, and only the owner


def test_of_two_replies_at_once_one_counts(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, UNBOUND)

    def answer(_: int) -> Any:
        try:
            return say(rig, job_id, "bakery")
        except WrongStateError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(answer, range(4)))
    assert sum(isinstance(one, Reply) for one in taken) == 1
    assert rig.shop.scalar("SELECT count(*) FROM event WHERE kind = 'waiting' AND job_id = :id", id=job_id) == 1


@pytest.mark.req("L-006")
def test_a_job_whose_reply_waits_for_a_model_takes_no_other_and_can_be_cancelled(rig: Rig, links: UUID) -> None:
    say(rig, links, TYPO, switches=LLM)
    with pytest.raises(WrongStateError):
        say(rig, links, "1")
    with rig.shop.ledger.begin() as session:
        request_cancel(session, lock_job(session, links), actor="owner")
    assert rig.shop.job(links).state == State.CANCELLED


def test_a_question_that_nobody_answers_expires(rig: Rig, links: UUID) -> None:
    rig.shop.execute("UPDATE job SET expires_at = now() - interval '1 second' WHERE id = :id", id=links)
    with rig.shop.ledger.begin() as session:
        expire(session, links)
    job: Job = rig.shop.job(links)
    assert (job.state, job.detail) == ("expired", "nobody answered its question in time")
    with pytest.raises(WrongStateError):
        say(rig, links, "1")


def test_the_routing_log_has_one_entry_for_a_job_however_often_it_asked(
    rig: Rig, broker_url: str, tmp_path: Path
) -> None:
    rig.site("d")
    job_id = submit(rig, broker_url, UNBOUND, options=LINKS)
    log = RoutingLog(rig.shop.ledger, tmp_path)
    assert log.write_pending() == 0
    say(rig, job_id, TYPO, switches=LLM)
    take_in(rig, job_id, environment=LLM)
    assert log.write_pending() == 0
    say(rig, job_id, "1")
    assert (rig.shop.job(job_id).state, log.write_pending(), log.write_pending()) == ("queued", 1, 0)


@pytest.mark.req("L-116", "L-117", "L-118", "L-119", "L-022", "L-033", "L-051", "L-069")
def test_each_of_the_four_events_of_the_ladder_is_counted_by_its_reason(rig: Rig, links: UUID) -> None:
    say(rig, links, "pwd")
    say(rig, links, "panel")
    say(rig, links, "gribble panel d", switches=LLM)
    take_in(rig, links, environment=LLM)
    events = rig.shop.rows("SELECT kind, data FROM event WHERE job_id = :id", id=links)
    counted = fold(events)
    for event, reason in [
        (LadderEventName.BYPASSED, "exact_command"),
        (LadderEventName.MULTI_MATCH, "multi_match_no_exact_winner"),
        (LadderEventName.LLM_CALLED, "no_deterministic_match"),
        (LadderEventName.LLM_FAILED, "abstain"),
    ]:
        assert (event, reason) in LADDER.zeros
        assert counted[series_key(LADDER.name, {"event": event.value, "reason": reason})] == 1
    assert counted[series_key("clarifications_total", {"mode": "action", "confidence": "weak"})] == 2


# ---------------------------------------------------------------------------------- what holds when the target is known


def test_a_job_that_learns_its_site_takes_the_place_of_an_older_edit_of_it(rig: Rig, broker_url: str) -> None:
    rig.site("bakery"), rig.site("florist")
    old = submit(rig, broker_url, UNBOUND, site="florist", supersede_key="headline")
    elsewhere = submit(rig, broker_url, UNBOUND, site="bakery", supersede_key="headline")
    new = submit(rig, broker_url, UNBOUND, supersede_key="headline")
    choose(rig, new, "florist")
    ended = rig.shop.job(old)
    assert (ended.state, ended.reason, ended.superseded_by) == ("cancelled", "superseded", new)
    assert [rig.shop.job(job_id).state for job_id in (elsewhere, new)] == ["queued", "queued"]


def test_a_job_that_learns_its_site_gives_way_to_a_newer_edit_of_it(rig: Rig, broker_url: str) -> None:
    rig.site("florist")
    old = submit(rig, broker_url, UNBOUND, supersede_key="headline")
    new = submit(rig, broker_url, UNBOUND, site="florist", supersede_key="headline")
    choose(rig, old, "florist")
    ended = rig.shop.job(old)
    assert (ended.state, ended.reason, ended.superseded_by) == ("cancelled", "superseded", new)
    assert rig.shop.job(new).state == "queued"


@pytest.mark.parametrize("how", ["said", "chosen", "told by a model"])
def test_an_answer_waits_for_a_newer_job_that_takes_its_place_and_never_stands_in_its_way(
    rig: Rig, broker_url: str, how: str
) -> None:
    rig.site("d")
    old, new = (submit(rig, broker_url, UNBOUND, options=LINKS) for _ in range(2))
    rig.shop.execute("UPDATE job SET supersede_key = 'headline'")
    if how == "told by a model":
        say(rig, old, TYPO, switches=AUTO)
    answers: dict[str, Callable[[], Any]] = {
        "said": partial(say, rig, old, "links panel d"),
        "chosen": partial(choose, rig, old, "d"),
        "told by a model": partial(take_in, rig, old, environment=AUTO),
    }
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
    with ThreadPoolExecutor(1) as pool:
        with rig.shop.ledger.begin() as session:
            newer = session.get_one(Job, new)
            lock_supersede_key(session, newer)
            answered = pool.submit(answers[how])
            wait_until(lambda: rig.shop.scalar(waiting), seconds=10, what="the answer waits for its turn")
            session.execute(text("SET LOCAL lock_timeout = '100ms'"))
            assert supersede(session, newer) == [old], "nobody who waits for a turn holds a row"
        with suppress(WrongStateError):
            answered.result(timeout=10)
    ended = rig.shop.job(old)
    assert (ended.state, ended.reason, ended.superseded_by) == ("cancelled", "superseded", new)


def test_an_answer_for_which_there_is_no_room_leaves_the_question_open(rig: Rig, broker_url: str) -> None:
    rig.site("florist")
    job_id = submit(rig, broker_url, UNBOUND)
    rig.shop.execute("""
        INSERT INTO backlog (queue, tenant, waiting, drained_per_second) SELECT queue, '', 1000000, 1
        FROM unnest(ARRAY['spec', 'intake']) AS queues (queue)
        ON CONFLICT (queue, tenant) DO UPDATE SET waiting = excluded.waiting""")
    with pytest.raises(AdmissionRefusedError, match="waiting jobs"):
        choose(rig, job_id, "florist")
    with pytest.raises(AdmissionRefusedError, match="waiting jobs"):
        say(rig, job_id, "hm, that flowery one i guess", switches=LLM)
    assert asks(rig, job_id)
    rig.shop.execute("UPDATE backlog SET waiting = 0")
    choose(rig, job_id, "florist")
    assert rig.shop.job(job_id).state == "queued"


def test_a_job_that_asks_first_may_not_be_put_off_further_than_any_other(rig: Rig, broker_url: str) -> None:
    rig.site("florist")
    with pytest.raises(InvalidJobError, match="days ahead"):
        submit(rig, broker_url, UNBOUND, start_at=(datetime.now(UTC) + timedelta(days=31)).isoformat())
