"""Where prompts go: seed 002's modes, seed 000's tiers, seed 003's intents, and the planning debate."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from routing.decision.evaluation import batch_line
from routing.decision.llm_router import first_stage
from routing.decision.router import (
    Intent,
    Mode,
    Route,
    RouteTarget,
    Signals,
    SiteSignals,
    Workflow,
    classify_task,
    debate_key,
    decide,
    needs_swarm,
    signals_of,
)
from routing.decision.triggers import Confidence, Debate, Stakes, parse_trivial
from routing.jobs import JobRequest, State
from routing.policy.platform import Assist, platform_policy
from routing.prompt.tokens import canonicalise
from routing.prompt.vocabulary import shipped_vocabulary
from routing.queues import QueueName, Tier
from sites.spec.catalog import components
from tests.unit.routing.prompt.test_tokens import HOSTILE

SITE = SiteSignals(files=4)
RULES_ALONE = platform_policy().model_copy(update={"assist": Assist(second_opinion=False)})


def route(prompt: str, **signals: Any) -> Route:
    return decide(Signals(prompt=prompt, **{"site": SITE, **signals}), platform_policy())


def ruled(prompt: str) -> Route:
    """Return the decision of the rules alone: the second opinion would hide one that is broken."""
    return decide(Signals(prompt=prompt, site=SITE), RULES_ALONE)


def unbound(prompt: str) -> Route:
    return decide(Signals(prompt=prompt), platform_policy())


# --- seed 002: mode ---------------------------------------------------------------------------------------------------


@pytest.mark.req("R-004", "R-074", "R-075")
def test_there_are_two_modes_three_targets_and_two_levels_of_stakes() -> None:
    assert [mode.value for mode in Mode] == ["ANSWER", "ACTION"]
    assert {stakes.value for stakes in Stakes} == {"high", "medium"}
    assert {target.value for target in RouteTarget} == {"Swarm Orchestrator", "Direct Response", "Tool Specialist"}


@pytest.mark.req("R-015", "R-016", "R-017", "R-043", "R-076", "R-084", "R-082", "R-013")
@pytest.mark.parametrize(
    "prompt",
    [
        "What is HPOS?",
        "Explain how grep works",
        "Why did the test fail?",
        "What is the difference between HPOS and classic?",
        "How do I find files with grep?",
        "WHAT IS a repo",
        "how does search work",
        "Should I deploy on Fridays?",
        "Do you want to run the tests?",
        "why update anything",
    ],
)
@pytest.mark.parametrize("bound", [True, False])
def test_a_question_without_a_reference_is_answered(prompt: str, bound: bool) -> None:
    decision = route(prompt) if bound else unbound(prompt)
    assert (decision.mode, decision.rule, decision.triggers) == (Mode.ANSWER, "precedence", ())
    assert decision.confidence is Confidence.NONE
    assert decision.queue is QueueName.ANSWER
    assert decision.target is RouteTarget.DIRECT_RESPONSE


QUESTION_PATTERNS = ("What is", "Explain", "How does", "Why", "Should I", "Do you want")


@pytest.mark.req("R-013", "R-082", "R-084")
@pytest.mark.parametrize("pattern", QUESTION_PATTERNS)
@pytest.mark.parametrize("case", [str.lower, str.upper, str.swapcase])
def test_each_question_pattern_of_the_document_asks_where_it_begins_the_message(
    pattern: str, case: Callable[[str], str]
) -> None:
    asked = canonicalise(case(f"{pattern} this"))
    [hit] = shipped_vocabulary().find(asked.tokens, asked.shown)["question_002"]
    assert hit.first == 0
    assert unbound(case(f"{pattern} HPOS")).rule == "precedence"
    for before in ("Update the page to say", "Update the repo and", "In the project"):
        assert unbound(f"{before} {case(pattern)} HPOS").mode is Mode.ACTION


@pytest.mark.req("R-012", "R-014", "R-018", "R-022", "R-077", "R-078", "R-083")
@pytest.mark.parametrize(
    "prompt",
    [
        "Why did tests/e2e/test.ts fail?",
        "fix the src/index.ts file",
        "Find all .ts files in src/",
        "What is in the src/config.json file?",
        "What is https://example.com/a",
        "Explain ```x = 1```",
        "What is in `src/config.json`?",
        "What is in 'theme.css'?",
    ],
)
@pytest.mark.parametrize("bound", [True, False])
def test_a_reference_makes_any_message_an_action(prompt: str, bound: bool) -> None:
    assert (ruled(prompt) if bound else unbound(prompt)).mode is route(prompt).mode is Mode.ACTION


@pytest.mark.req("R-034", "R-035", "R-036", "R-086")
@pytest.mark.parametrize("prompt", ["Thanks, that makes sense", "so in short it is a cache", "interesting idea"])
def test_an_unbound_message_without_trigger_is_answered_by_default(prompt: str) -> None:
    decision = unbound(prompt)
    assert (decision.mode, decision.rule, decision.pattern) == (Mode.ANSWER, "default", "Default (no triggers)")
    assert decision.workflow is Workflow.NONE


@pytest.mark.req("R-012", "R-036")
def test_precedence_is_looked_at_before_triggers() -> None:
    assert unbound("How do I find and update tests?").rule == "precedence"
    assert unbound("Update the tests").rule == "unbound", "and triggers before the default"


@pytest.mark.req("R-117")
@pytest.mark.parametrize(
    "prompt",
    [
        "Why is the menu broken on mobile? Please fix it.",
        "What is a good colour for a bakery? Use it for the header.",
        "Which font is this, and please change it to Lora",
        "Can you make the logo bigger?",
        "How about a darker footer?",
        "Why don't we move the form up?",
        "Is it possible to add a map?",
        "Could the headline be shorter?",
        "Explain our returns policy in the FAQ section",
        "Explain in the README how to run the worker locally",
        "explain in a comment above the regex what each group catches",
        "Why choose us section with three icons",
        "Is the contact form broken on my page?",
        "What's new page with three cards",
        "Looks great, but the logo is too small",
        "Don't touch the footer, but make the header blue",
        "¿Puedes cambiar el color del título?",
    ],
)
def test_in_doubt_a_prompt_for_a_site_is_an_action(prompt: str) -> None:
    assert route(prompt).mode is ruled(prompt).mode is Mode.ACTION


@pytest.mark.parametrize(
    "prompt",
    [
        "Don't change anything yet. Why is a sticky header bad?",
        "I sell candles. Which colours fit?",
        "For a law firm, should I use a serif font?",
        "no worries, I'll do it myself",
        "Can you explain what a sitemap is?",
        "¿Qué es un dominio?",
        "Warum ist https wichtig?",
        "does my site need cookies?",
    ],
)
def test_mere_talk_about_a_site_is_answered(prompt: str) -> None:
    assert route(prompt).mode is Mode.ANSWER


@pytest.mark.parametrize(
    ("asked", "ordered"),
    [
        (
            "does it say anything about dogs? one guest claims we promised water",
            "does it say dogs? we promised, put it in",
        ),
        ("Is anything outdated? just tell us, don't change it", "Is anything outdated? just change it"),
        ("We had two guests. I'd like to know what they pay.", "I want to know when somebody books a table"),
        ("On which days can somebody have breakfast? just want to know", "On which days? write: daily"),
        ("do we say how they get off the newsletter?", "the newsletter button fell off, fix it"),
        ("Wie kühl wirkt die Seite auf Sie?", "die Seite wirkt kühl, können Sie da was machen?"),
    ],
)
def test_who_asks_beside_what_others_say_or_wants_only_to_be_told_orders_nothing(asked: str, ordered: str) -> None:
    assert (route(asked).mode, route(ordered).mode) == (Mode.ANSWER, Mode.ACTION)


@pytest.mark.req("R-081", "R-087")
def test_the_functions_of_the_document_keep_their_meaning() -> None:
    assert [needs_swarm(task) for task in ("pwd", "  PWD ", "fix x", "What is HPOS?")] == [False, False, True, False]
    assert not any(needs_swarm(task) for task in ("date +%Y/%m/%d", "echo fix our repo", "ping https://acme.dev/"))
    assert classify_task("What is HPOS?") == "ANSWER"
    assert classify_task("fix it") == "ACTION"
    assert needs_swarm("echo x > src/config.json")


@pytest.mark.req("R-057", "R-066", "R-067", "R-088")
@pytest.mark.parametrize("command", ["pwd", "date", "whoami", "echo delete all products"])
def test_a_trivial_command_takes_the_fast_path_without_debate_or_tier(command: str) -> None:
    for decision in (route(command), unbound(command), route(command, site=None, project=True)):
        assert (decision.queue, decision.target, decision.tier) == (QueueName.TOOLS, RouteTarget.TOOL_SPECIALIST, None)
        assert (decision.trivial, decision.debate, decision.rule) == (True, Debate.BYPASS, "trivial")
        assert decision.argv == parse_trivial(command)
        assert first_stage(decision, platform_policy(), environment={}).queue is QueueName.TOOLS
    assert route("date picker is broken").trivial is False


@pytest.mark.req("R-001", "R-003", "R-116", "H-009")
def test_a_decision_is_the_same_every_time_and_says_why() -> None:
    for prompt in (*PROMPTS, "gli orari (9-19) anche in fondo a tutte le pagine"):  # the last by the second opinion
        once = route(prompt)
        assert all(route(prompt) == once for _ in range(20))
    first = route("Add a hover effect to the cards")
    assert first.reason == "Patch: its words are those of stylesheets."
    assert (first.rule, first.classifier, first.policy_version) == ("V1-3", "v1", platform_policy().version)
    of_spec = decide(Signals(prompt="a longer title", site=SiteSignals(files=3, has_spec=True)), platform_policy())
    assert of_spec.reason == "Page spec: texts, pictures and choices of looks can express it."
    assert (
        route("a longer title").reason == "Direct edit or patch: texts, pictures and choices of looks can express it."
    )


# --- seed 000: tiers --------------------------------------------------------------------------------------------------


@pytest.mark.req("H-003", "H-010", "H-016", "H-017", "H-018", "H-019", "H-020", "H-059")
@pytest.mark.parametrize(
    "prompt",
    [
        "Change the hero heading to Welcome",
        "Rewrite the copy of the intro",
        "Shorten the description under the gallery",
        "Move the testimonials above the pricing section",
        "Add a section about our history",
        "Take the partners section out",
        "Reorder the sections",
        "Remove the partners section",
        "Make the headline dark green",
        "Change the color of the buttons",
        "Use a serif font for the headings",
        "More space between the sections",
        "Less spacing above the footer",
        "Replace the hero image with https://cdn.example.net/a.jpg",
        "Swap the logo for https://cdn.example.net/logo.svg",
        "Add a hero",
        "Add testimonials",
        "Add a comparison table",
        "Add an FAQ",
        "Add a footer",
        "Add a contact form",
        "Put a quote from the local newspaper under the heading",
        "Sign-up for the newsletter in the footer",
        "Add a booking button that leads to https://book.example.com/osteria-nove in the header",
        "Füge eine Frage hinzu: Sprechen Sie auch Englisch? Ja, alle Partner.",
        "Set the intro in two columns",
        "The shop moves to Lindenweg 4 in March",
        "florble the wug",
    ],
)
def test_what_the_page_spec_can_express_is_tier_1(prompt: str) -> None:
    decision = route(prompt)
    assert (decision.tier, decision.rule, decision.queue) == (Tier.SPEC, "V1-4", QueueName.SPEC)


@pytest.mark.req("H-020")
@pytest.mark.parametrize("name", sorted(components().keys() - {"Code", "Embed", "Shared"}))
def test_each_component_of_the_catalog_is_added_in_tier_1(name: str) -> None:
    """But `a code` says nothing, what is embedded may be any script, and nobody asks for what pages share."""
    assert route(f"Add a {re.sub('(?<=[a-z])(?=[A-Z])', ' ', name).lower()}").rule == "V1-4"


@pytest.mark.req("H-015")
def test_a_new_site_from_a_description_is_tier_1() -> None:
    described = "Create a new site for a bakery with a hero, opening hours and a contact form"
    for prompt in (described, f"{described}, and a hover effect on the buttons with CSS"):
        for signals in (Signals(prompt=prompt, new_site=True), Signals(prompt=prompt, site=SiteSignals(files=0))):
            for policy in (platform_policy(), RULES_ALONE):
                assert decide(signals, policy).tier is Tier.SPEC


@pytest.mark.parametrize(
    "prompt",
    [
        "A page for our plant nursery. The dust: nobody takes it off, so remove your shoes. Delete no mail of ours",
        "Una web para el vivero. Camino de tierra, se puede ir con silla de ruedas pero el polvo no lo quita nadie",
    ],
)
def test_nothing_can_be_taken_from_a_site_that_is_to_be_made(prompt: str) -> None:
    assert decide(Signals(prompt=prompt, new_site=True), platform_policy()).debate is Debate.NONE


@pytest.mark.parametrize(
    ("prompt", "tier"),
    [
        ("A site for a small hotel in the Alps with a page for booking requests", Tier.SPEC),
        ("Neue Seite für den Schachverein Ulm: Start, Kalender 2027 mit den Turnieren, Kontakt", Tier.SPEC),
        ("Sito per il coro di Trento: chi siamo, calendario dei concerti, modulo per iscriversi", Tier.SPEC),
        ("Website for a restaurant with table reservation by phone and the menu", Tier.SPEC),
        ("Guests should see the rooms and prices at once. A site for a guesthouse", Tier.SPEC),
        ("Eine Seite für unsere Hundeschule mit Anmeldung zum Kurs", Tier.SPEC),
        ("Page for my barbershop, customers can book online through our Treatwell link", Tier.SPEC),
        ("Website in two languages, Welsh and English, for my sheepdog lessons, a hour costs £45", Tier.SPEC),
        ("Window cleaning. Want a form where people put in their postcode, so we can text them a price.", Tier.SPEC),
        ("A site for our club. A form where people can choose a free court and pay", Tier.AGENT),
        ("A site for our tennis club with a members area and court booking", Tier.AGENT),
        ("A website for a hotel where guests book a room and pay online", Tier.AGENT),
    ],
)
def test_a_new_site_asks_for_a_system_only_where_more_than_a_word_of_booking_says_so(prompt: str, tier: Tier) -> None:
    assert decide(Signals(prompt=prompt, new_site=True), platform_policy()).tier is tier


@pytest.mark.req("H-030")
@pytest.mark.parametrize("script", ["form validation", "scroll behavior", "smooth scrolling", "an analytics snippet"])
def test_each_inline_script_of_the_document_is_tier_2(script: str) -> None:
    decision = route(f"Add {script}")
    assert (decision.tier, decision.rule, "inline script" in decision.reason) == (Tier.PATCH, "V1-3", True)


@pytest.mark.req("H-029", "H-031", "H-032", "H-058", "H-065")
@pytest.mark.parametrize(
    "prompt",
    [
        "Add a hover underline effect with CSS",
        "Tweak the JavaScript of the menu",
        "Add form validation to the contact form",
        "Add a smooth scroll animation to the hero section",
        "Add this analytics snippet to the site",
        "Wrap the hero in an extra div with an aria attribute",
        "Wrap the hero in an extra div",
        "Change the HTML structure of the hero",
        "Add an alt attribute to the hero image",
        "Fix the broken menu rendering on mobile",
        "There is a bug in the menu",
        "The menu has a rendering issue on phones",
        "logo is stretched in Firefox",
        "the gallery won't open",
    ],
)
def test_css_scripts_html_and_bugs_are_tier_2(prompt: str) -> None:
    decision = route(prompt)
    assert (decision.tier, decision.rule, decision.queue) == (Tier.PATCH, "V1-3", QueueName.PATCH)


@pytest.mark.req("H-003", "H-037", "H-042", "H-043", "H-044", "H-045", "H-053", "H-057")
@pytest.mark.parametrize(
    ("prompt", "scope"),
    [
        ("convert to a multi-page site with shared nav", "structural"),
        ("Restructure the whole layout into a magazine grid", "structural"),
        ("Install swiper with npm and build a carousel", "single_section"),
        ("Install date-fns with npm", "single_section"),
        ("Install the package fluffle", "single_section"),
        ("Change the structure of several files", "structural"),
        ("Add custom JS logic to the form", "single_section"),
        ("Add a custom animation to the logo", "single_section"),
        ("Add an interactive price calculator", "single_section"),
        ("Add an interactive widget that shows the tides", "single_section"),
        ("Add a canvas element to the hero", "single_section"),
        ("A WebGL globe behind the hero", "single_section"),
    ],
)
def test_packages_structure_and_custom_logic_are_tier_3(prompt: str, scope: str) -> None:
    decision = route(prompt)
    assert (decision.tier, decision.rule, decision.scope) == (Tier.AGENT, "V1-2", scope)
    assert (decision.queue, decision.cause) == (QueueName.AGENT, "rule")


@pytest.mark.parametrize(
    ("prompt", "tier"),
    [
        ("How it works section: add a fourth step", Tier.SPEC),
        ("a form that works out the price", Tier.AGENT),
        ("Open graph image: https://cdn.example.net/a.png", Tier.PATCH),
        ("Draw a graph of our prices", Tier.AGENT),
    ],
)
def test_a_heading_and_a_meta_tag_that_sound_like_logic_are_none(prompt: str, tier: Tier) -> None:
    assert route(prompt).tier is tier


@pytest.mark.req("H-037", "H-046", "H-054", "H-055", "H-056")
@pytest.mark.parametrize(
    ("prompt", "signals"),
    [
        ("advanced edit: change the title", {}),
        ("use the code agent and make the logo bigger", {}),
        ("use code-agent to change the title", {}),
        ("code mode: change the title", {}),
        ("I want code-level control: change the title", {}),
        ("change the title", {"advanced_edit": True}),
        ("change the title", {"preference": "agent"}),
    ],
)
def test_an_explicit_request_is_tier_3_before_any_other_rule(prompt: str, signals: dict[str, Any]) -> None:
    decision = route(prompt, **signals)
    assert (decision.tier, decision.rule, decision.cause) == (Tier.AGENT, "V1-1", "explicit")


@pytest.mark.req("H-054")
def test_a_preference_for_the_spec_caps_nothing_and_no_preference_makes_a_question_an_edit() -> None:
    assert route("Add a quiz", preference="spec").tier is Tier.AGENT
    assert route("Change the title", preference="spec").tier is Tier.SPEC
    assert route("How does smooth scroll work?", preference="agent", advanced_edit=True).mode is Mode.ANSWER


@pytest.mark.req("H-060")
def test_the_rules_are_taken_in_their_order() -> None:
    assert route("advanced edit: install swiper with npm").rule == "V1-1"
    assert route("fix the header bug and install swiper with npm").rule == "V1-2"
    assert route("advanced edit: fix the header bug").rule == "V1-1"
    assert route("Change the tagline and add a hover effect").rule == "V1-3"


@pytest.mark.req("H-015", "H-051", "H-052", "H-054", "H-055", "H-056", "H-072", "H-120")
def test_a_request_tells_the_router_everything_it_says() -> None:
    request = JobRequest.model_validate({"prompt": "Hi", "tier": "patch", "advanced_edit": True, "preference": "agent"})
    signals = signals_of(request, site=SiteSignals(files=3), debated=frozenset({"k"}))
    assert (signals.prompt, signals.tier, signals.advanced_edit, signals.preference) == ("Hi", 2, True, "agent")
    assert (signals.site, signals.session_debated, signals.new_site) == (SiteSignals(files=3), {"k"}, False)
    made = JobRequest.model_validate({"prompt": "A site for a bakery", "new_site": "bakery"})
    assert signals_of(made, site=None, debated=frozenset()).new_site


@pytest.mark.req("H-055")
@pytest.mark.parametrize(
    "prompt", ["Add an 'advanced edit' card", "Add a section titled Advanced edit for photographers"]
)
def test_a_power_keyword_in_wording_is_no_power_keyword(prompt: str) -> None:
    assert route(prompt).tier is Tier.SPEC


@pytest.mark.req("H-072")
@pytest.mark.parametrize("tier", list(Tier))
def test_the_caller_may_choose_any_tier_at_any_confidence(tier: Tier) -> None:
    for prompt in ("fix the bug in src/api/auth.ts and update tests", "What is HPOS?", "change the title", "pwd"):
        decision = route(prompt, tier=tier)
        assert (decision.tier, decision.rule, decision.cause) == (tier, "override", "override")
        assert decision.mode is Mode.ACTION


@pytest.mark.req("H-052")
def test_site_complexity_is_a_signal_with_three_parts_beside_whether_a_spec_renders_it() -> None:
    assert set(SiteSignals.model_fields) == {"files", "has_js", "has_build", "has_spec"}


@pytest.mark.parametrize(
    "prompt",
    [
        "Add an English version of the site",
        "Make the site bilingual, German and English, with a language switcher",
        "Translate the whole site into German",
        "mach die Seite auch auf Französisch",
        "Wir brauchen die Website zweisprachig, deutsch und englisch",
        "Alle Seiten auch auf Englisch, mit Sprachumschalter",
        "Rends le site bilingue, français et anglais",
        "Haz la web bilingüe",
        "Rendi il sito bilingue",
        "Embed our YouTube video",
        "Make the price table sortable",
        "Visitors should be able to sort the table by price",
        "sort the table by clicking on a column",
        "Please add a date and the number of guests to the reservation form",
        "Please move the reservation part up so that it comes directly after the menu.",
        "Please take out the comparison table with the spreadsheet, our lawyer doesn't like it.",
    ],
)
def test_what_the_components_of_a_spec_do_is_tier_1_on_a_site_that_has_one(prompt: str) -> None:
    assert route(prompt, site=SiteSignals(files=4, has_spec=True)).tier is Tier.SPEC


@pytest.mark.parametrize(
    ("prompt", "site"),
    [
        ("Add an English version of the site", SiteSignals(files=4)),
        ("Add an English version of the site", SiteSignals(files=4, has_spec=True, has_build=True)),
        ("Trilingual site with automatic language detection", SiteSignals(files=4, has_spec=True)),
        ("A right-to-left version in Arabic beside the English one", SiteSignals(files=4, has_spec=True)),
        ("A sortable table of our boats that can be filtered and searched", SiteSignals(files=4, has_spec=True)),
    ],
)
def test_what_no_component_does_or_no_spec_renders_still_needs_the_agent(prompt: str, site: SiteSignals) -> None:
    assert route(prompt, site=site).tier is Tier.AGENT


def test_an_existing_widget_that_is_reworded_or_broken_needs_no_agent() -> None:
    assert route("change the label of the booking button to 'Reserve'").tier is Tier.SPEC
    assert route("The slider is stuck").tier is Tier.PATCH
    assert route("Add a slider with our photos").tier is Tier.AGENT


@pytest.mark.req("H-005")
@given(
    prompt=st.text(max_size=120)
    | st.sampled_from(("list all pages", "pwd", "What is HPOS?", "Add a footer", "Add a hover effect", "Add a quiz"))
)
@settings(max_examples=150, deadline=None)
def test_every_edit_of_a_site_gets_exactly_one_tier_and_its_queue(prompt: str) -> None:
    decision = route(prompt)
    is_edit = decision.mode is Mode.ACTION and not decision.read_only
    assert (decision.tier is not None) == is_edit
    of_tier = {Tier.SPEC: QueueName.SPEC, Tier.PATCH: QueueName.PATCH, Tier.AGENT: QueueName.AGENT}
    assert decision.queue in ((QueueName.TOOLS, QueueName.ANSWER) if decision.tier is None else of_tier[decision.tier])


@pytest.mark.req("R-005", "R-060")
@pytest.mark.parametrize(
    ("prompt", "bound", "queue"),
    [
        ("What is HPOS?", {}, "answer"),
        ("Add a gallery of our cakes", {}, "spec"),
        ("Fix the error in app.js", {}, "patch"),
        ("Add a footer", {"site": None, "project": True}, "control"),
    ],
)
def test_a_question_is_answered_at_once_and_an_order_is_handed_to_the_workers_of_its_tier_or_planned(
    prompt: str, bound: dict[str, Any], queue: str
) -> None:
    decision = route(prompt, **bound)
    stage = first_stage(decision, platform_policy(), environment={})
    assert (stage.state, stage.queue) == (State.QUEUED, queue)
    assert (decision.mode is Mode.ANSWER) == (queue == "answer")


# --- seed 003: lanes and intents --------------------------------------------------------------------------------------


@pytest.mark.req("P-010", "P-012")
def test_an_intent_is_build_fix_or_question() -> None:
    assert [intent.value for intent in Intent] == ["build", "fix", "question"]
    assert route("Add a footer").intent is Intent.BUILD
    assert route("the menu is broken").intent is Intent.FIX
    assert route("fix the typo in the intro").intent is Intent.FIX
    assert route("What is a footer?").intent is Intent.QUESTION
    assert route("search the codebase for auth").intent is Intent.QUESTION


def test_work_on_a_project_goes_to_the_steps_queue_without_a_tier() -> None:
    decision = decide(Signals(prompt="add a login page", project=True), platform_policy())
    assert (decision.workflow, decision.queue, decision.tier) == (Workflow.TICKET, QueueName.STEPS, None)
    assert decide(Signals(prompt="What is HPOS?", project=True), platform_policy()).queue is QueueName.ANSWER


def test_of_a_project_the_second_opinion_weighs_only_whether_it_is_a_question_and_no_defect() -> None:
    def routes(prompt: str) -> tuple[Route, Route]:
        signals = Signals(prompt=prompt, project=True)
        return decide(signals, platform_policy()), decide(signals, RULES_ALONE)

    assert [each.mode for each in routes("Kann der Export auch CSV?")] == [Mode.ANSWER, Mode.ACTION]
    for prompt in ("Use connection pooling for Postgres", "The report is wrong, how come?"):
        weighed, by_rules = ((each.mode, each.intent, each.debate) for each in routes(prompt))
        assert weighed == by_rules
        assert (weighed[0], weighed[2]) == (Mode.ACTION, Debate.NONE)


def test_checking_others_beside_what_ought_to_be_otherwise_changes_it() -> None:
    assert route("the initials say AB. check the others too").read_only
    assert not route("the initials say AB. should be BA! check the others too").read_only


def test_a_wish_beside_a_question_and_what_only_sounds_like_a_search_is_an_edit() -> None:
    seen = "on the computer there's only Menu, The house and Find us. why is that??"
    assert route(seen).read_only
    assert not route(f"{seen} i'd like Hours on the computer as well pls").read_only


@pytest.mark.parametrize(
    "prompt",
    [
        "Check that the postcode has five digits before the form is sent",
        "verify the email while people type, otherwise show a red hint",
        "Could it say somewhere near the form that we answer within two working days?",
    ],
)
def test_what_a_form_checks_and_an_order_that_sounds_like_a_question_are_edits(prompt: str) -> None:
    assert not route(prompt).read_only
    assert route(prompt).tier is not None


def test_there_is_nothing_to_look_at_on_a_new_site() -> None:
    prompt = "Dashboard for a farm: look at the milk yield, compare two months. White with green."
    assert (route(prompt, site=SiteSignals(files=0)).tier, route(prompt).tier) == (Tier.AGENT, None)


def test_what_shows_something_on_the_page_and_asks_for_a_hint_is_an_edit() -> None:
    assert route("show me all headings and count the links").read_only
    prompt = "Could we show the rainfall? My brother measures it. And tell me how I change the number myself"
    assert not route(prompt).read_only


@pytest.mark.parametrize(
    "prompt", ["list all pages", "grep -rn 'TODO' src/", "What is in css/a.css?", "find every mention of the old name"]
)
def test_an_action_that_only_looks_changes_nothing(prompt: str) -> None:
    decision = route(prompt)
    assert (decision.mode, decision.read_only, decision.tier) == (Mode.ACTION, True, None)
    assert (decision.queue, decision.intent) == (QueueName.ANSWER, Intent.QUESTION)


def test_a_verb_alone_is_decided_too() -> None:
    """`check` alone was read beyond its end."""
    words = shipped_vocabulary().words
    for verb in sorted(words["order"] | words["read"]):
        assert route(f"please {verb}").mode in Mode


@pytest.mark.parametrize("prompt", ["find the old name and replace it", "check ./a.html and close the <div>"])
def test_looking_and_changing_is_an_edit(prompt: str) -> None:
    assert route(prompt).tier is not None


# --- the planning debate ----------------------------------------------------------------------------------------------


@pytest.mark.req("R-045", "R-046", "R-047", "R-060", "R-075")
@pytest.mark.parametrize(
    "prompt",
    [
        "delete the team section",
        "por favor, quite su foto",
        "Quite al equipo de la página",
        "We'll retire the shop page",
        "drop the testimonials to make room",
        "drop the section below the hero",
        "Please drop the two pages between home and contact",
        "drop the users table",
        "remove the blog",
        "truncate the guestbook",
        "overwrite the about text",
        "deploy it",
        "publish the site",
        "release the new version",
        "push to prod",
        "push to main",
        "rework the auth module",
        "rotate the token",
        "change the password rules",
        "move the secret to the config",
        "replace the API key",
        "rotate the key",
        "update the credential file",
        "delete all pages",
        "families complained, so take down the obituaries page",
        "Kontaktformular bitte ganz wegmachen, kriegen nur Müll",
        "l'ancienne page historique doit disparaître",
        "Submit the new build to the App Store",
        "get 2.4 into the app stores this week",
        "Bringt die neue Version in die Produktion",
        "stanotte si passa in produzione col nuovo motore prezzi",
        "los horarios viejos ya no valen, quitadlos",
        "Sortez la 0.12 sur PyPI",
        "Bitte das App-Update in beide Stores hochladen",
        "bin the gallery",
        "the about page should be deleted",
        "die Galerie muss weg",
        "Flip the site from hidden to visible",
        "Container neu bauen und in den Cluster schieben",
        "XSS: markdown comments render raw <script>",
        "ajouter la vérif CSRF aux formulaires",
        "Die Kennwörter gehören gehasht gespeichert!",
        "chiffrer les sauvegardes avant l'envoi",
    ],
)
def test_destruction_deployment_and_secrets_are_debated_at_high_stakes(prompt: str) -> None:
    for decision in (route(prompt), ruled(prompt)):
        assert (decision.debate, decision.stakes) == (Debate.PLANNING, Stakes.HIGH)
        assert "debated first because" in decision.reason


@pytest.mark.parametrize(
    ("asked", "wished"),
    [
        (
            "Kurze Frage: stimmen die Zahlen bei den Spenden? Also Bäume pro Euro, auf der ganzen Seite. "
            "Bitte nur antworten, nichts ändern.",
            "Il sito non mi convince più tanto, è un po' freddo secondo me, e anche Marco lo dice. "
            "Potete fare qualcosa?",
        ),
        (
            "Stimmen die Preise? Bitte nur antworten, nichts ändern.",
            "Stimmen die Preise? Falls nicht bitte anpassen, sonst nichts ändern.",
        ),
        ("I numeri tornano? Rispondete soltanto, non cambiate niente.", "Cambiate il numero, il resto resta"),
        ("Les chiffres sont-ils justes ? Répondez seulement, ne changez rien.", "Corrigez-le, ne changez rien d'autre"),
        ("Do the prices agree? Please only answer, change nothing.", "Please change nothing but the phone number"),
        (
            "Somebody says our page contradicts itself about the opening hours. Does it? Just tell me, I'll decide.",
            "Somebody says our page contradicts itself about the opening hours. Nine is right, change nothing else.",
        ),
        (
            "Si alguien le da a «Book a class», ¿reserva de verdad o qué pasa? Una alumna dice que ha reservado y "
            "aquí no tenemos nada. No toques nada todavía, solo explícamelo.",
            "Una alumna dice que ha reservado y no tenemos nada. El botón tiene que abrir el correo.",
        ),
    ],
)
def test_a_question_that_holds_back_is_answered_and_a_wish_told_as_a_question_is_done(asked: str, wished: str) -> None:
    site = SiteSignals(files=9)
    assert (route(asked, site=site).mode, route(wished, site=site).mode) == (Mode.ANSWER, Mode.ACTION)


@pytest.mark.req("R-048", "R-060", "R-075")
@pytest.mark.parametrize(
    "prompt", ["recolour all headings", "resize every image", "translate the entire site", "reformat css/*.css"]
)
def test_bulk_operations_are_debated_at_medium_stakes(prompt: str) -> None:
    for decision in (route(prompt), ruled(prompt)):
        assert (decision.debate, decision.stakes) == (Debate.PLANNING, Stakes.MEDIUM)


@pytest.mark.req("R-049")
def test_a_vague_request_is_debated_only_when_the_action_is_weak() -> None:
    for decided_by in (route, ruled):
        weak = decided_by("make it nicer")
        assert (weak.confidence, weak.debate, weak.stakes) == (Confidence.WEAK, Debate.PLANNING, Stakes.MEDIUM)
        strong = decided_by("update, refactor and test the project until it looks nicer")
        assert (strong.confidence, strong.debate) == (Confidence.STRONG, Debate.NONE)
        assert decided_by("make the logo smaller").debate is Debate.NONE


@pytest.mark.req("R-044", "R-047", "R-060")
@pytest.mark.parametrize(
    "prompt",
    [
        "Add a footer",
        "improve the keyboard photo",
        "show the author under the quote",
        "add our key features",
        "add a drop shadow",
        "drop the gallery below the testimonials",
        "Drop the contact form between the team and the FAQ",
        "drop our logo into the top left corner",
        "something's not quite right with the gallery arrows",
        "I retire in June, please add a line about that to the about page",
        "a dropdown menu for the services",
        "add a card for the press release",
        "refresh the weather every 10 min",
        "remove the underline from links",
        "open all day, put that in the footer",
        "Add 'delete your account' to the FAQ",
        "a form that lets visitors edit and delete entries",
        "write a paragraph about password managers",
        "the secret garden tour needs a photo",
        "Ich bin freie Lektorin in Leipzig: erstelle mir eine Website",
        "put the last thing back how it was, it was better before",
        "Grüezi, i bin de Beat vom Schlüsseldienst, schribe Sie bitte d Öffnigszite neu",
        "keys, locks, emergency opening: that is what our locksmiths do, write it on the home page",
        "make the contact page look like the login page of a bank",
        "the heap dump in /tmp/gw.heapsnapshot shows a leak, stop it",
        "le rideau est tiré sur la photo, mettez la nouvelle",
        "Footer still says 'a trading name of Hobbs Ltd', drop the line",
        "quita la frase sobre la inauguración",
        "Bitte den Weg via Thun auf der Seite Anfahrt beschreiben",
        "the waterfall disappears in summer, say so in the text",
        "Our bread is in all stores of the town, write that",
        "Die Käserei bringt den Käse in die Stadt, das soll auf die Startseite",
        "Readable please, people read the guide at 3am when deploys are stuck",
        "Upload a new photo of the store to the gallery",
        "Lade das Bild vom Concept Store in die Galerie hoch",
        "Add a link to our app in the app store",
        "Write that visitors can get our app in the app store",
        "Füge ein Foto aus der Backstube ein: Einblick in die Produktion",
        "Setz den Chat-Link in die Live-Ansicht",
        "Indica que tenemos tres vinos en producción limitada",
        "Switch the order so the prices are visible first",
        "Il nuovo indirizzo è Via La Spezia 12, aggiornalo",
        "Ajoute qu'on peut réserver via la page contact",
        "We're taking down payments of 20%: add this to the terms",
        "C'est Solène, Hannes m'a donné le mot de passe et la liste : on ouvre à 18 h maintenant",
        "Jens here, Marta gave me the password. New phone number: 0163 960 417",
        "Hier ist Tom, ich habe die Zugangsdaten von Ute bekommen. Neue Telefonnummer: 0163 960 417",
    ],
)
def test_ordinary_work_is_not_debated(prompt: str) -> None:
    assert route(prompt).debate is Debate.NONE


@pytest.mark.parametrize(
    ("told", "debated"),
    [
        ("our phone number is now 0163 960 417, change it everywhere", "change the phone number everywhere"),
        ("Frau Lehmann heißt jetzt Frau Wirth, bitte überall ändern", "bitte überall schöner machen"),
        ("gli orari (9-19) anche in fondo a tutte le pagine", "più spazio in fondo a tutte le pagine"),
        ("a new question: do you take cards? (yes, all of them)", "bold all of them"),
        ("notre adresse est désormais 4 rue Haute, corrigez partout", "tous les titres en gras"),
    ],
)
def test_one_fact_told_with_its_new_value_is_not_debated(told: str, debated: str) -> None:
    assert (route(told).debate, route(debated).debate) == (Debate.NONE, Debate.PLANNING)


@pytest.mark.req("R-056")
def test_reading_is_never_debated_and_grep_i_only_when_it_writes() -> None:
    for prompt in ("search the codebase for auth", "list the password fields", "cat secrets.json", "grep token src/"):
        assert route(prompt).debate is Debate.BYPASS


@pytest.mark.req("R-058")
@pytest.mark.parametrize("phrase", ["just do it", "skip confirmation", "I'm sure"])
def test_an_insisting_user_skips_the_debate_and_nothing_else(phrase: str) -> None:
    decision = route(f"delete the team section, {phrase}")
    assert (decision.debate, decision.mode, decision.tier) == (Debate.BYPASS, Mode.ACTION, Tier.SPEC)
    assert route(f"Set the headline to '{phrase}' and delete the blog").debate is Debate.PLANNING


@pytest.mark.req("R-059")
def test_the_same_request_is_debated_once_in_a_session() -> None:
    debated = frozenset({debate_key("Delete the  blog")})
    assert route("delete the blog", session_debated=debated).debate is Debate.BYPASS
    assert route("delete the team page", session_debated=debated).debate is Debate.PLANNING


# --- properties -------------------------------------------------------------------------------------------------------

PROMPTS = [
    "Add a hover effect to the cards",
    "delete all the old posts",
    "What is the best font for a bakery?",
    "logo is stretched in Firefox",
    "Make it pop",
    "Install swiper with npm and build a carousel",
    "search the site for the old address",
    "Should I remove the team section or keep it?",
    "change the tagline to 'Slow coffee'",
    "convert to a multi-page site with shared nav",
]


def essence(decision: Route) -> tuple[object, ...]:
    return (
        *(
            decision.mode,
            decision.tier,
            decision.queue,
            decision.intent,
            decision.debate,
            decision.stakes,
            decision.rule,
        ),
        tuple(trigger.shown for trigger in decision.triggers),
    )


@given(
    st.sampled_from(PROMPTS),
    st.lists(st.sampled_from([" ", "  ", "\t", "\n", " \n", "\u00a0"]), min_size=20, max_size=20),
)
@settings(deadline=None)
def test_white_space_never_changes_a_decision(prompt: str, blanks: list[str]) -> None:
    words = prompt.split(" ")
    spread = "".join(word + blank for word, blank in zip(words, blanks, strict=False))
    assert essence(route("\n" + spread)) == essence(route(prompt))


@given(st.sampled_from(PROMPTS), st.integers(min_value=0))
@settings(deadline=None)
def test_case_never_changes_a_decision(prompt: str, bits: int) -> None:
    mixed = "".join(c.upper() if bits >> i & 1 else c.lower() for i, c in enumerate(prompt))
    assert essence(route(mixed)) == essence(route(prompt))
    assert essence(route(prompt.upper())) == essence(route(prompt))


@given(
    st.sampled_from(["What is", "Explain", "How does", "Why is", "Should I use", "Do you want", "How do I open"]),
    st.sampled_from(["src/app.js", "./index.html", "css/a/b.css", "config.yaml", "~/x", "../up", "main.py"]),
    st.sampled_from(["{} {}", "{} {}?", "{} the thing in {} ?", "{} `{}` there?"]),
)
@settings(deadline=None)
def test_a_path_in_a_question_makes_it_an_action(question: str, path: str, form: str) -> None:
    assert route(form.format(question, path)).mode is Mode.ACTION


@given(st.text(max_size=400))
@settings(max_examples=150, deadline=None)
def test_no_prompt_breaks_the_router(prompt: str) -> None:
    assert route(prompt) == route(prompt)


MOST_SECONDS = 0.03
"""Of one core. The promise is 10 ms, and a quiet machine keeps it; a shared one is not quiet."""
PIECES = (
    "change the heading ",
    "to ",
    "when you click ",
    "don't ",
    "and ",
    "a/b.css ",
    "'q' ",
    '"',
    "`x` ",
    "1/2 ",
    "? ",
    ". ",
    ": ",
    "\n",
    "\u0301",
    "\u200b",
    "é",
    "ﬁ",
    "https://a.b/c ",
    "a@b.c ",
    "(",
    "[",
    "the ",
    "search ",
    "what is ",
    "予約",
    "{}",
    "- ",
)


def seconds_for(prompt: str) -> float:
    """Return the CPU time of a decision, the best of three."""
    whole = prompt.encode()[: 32 * 1024].decode(errors="ignore")

    def once() -> float:
        begun = time.process_time()
        route(whole)
        return time.process_time() - begun

    return min(once() for _ in range(3))


@pytest.mark.parametrize("prompt", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_prompt_of_32_kib_is_decided_in_bounded_time(prompt: str) -> None:
    assert seconds_for(prompt) < MOST_SECONDS


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_prompt_of_32_kib_is_decided_in_bounded_time(pieces: list[str]) -> None:
    row = "".join(pieces)
    assert seconds_for(row * (32 * 1024 // len(row.encode()) + 1)) < MOST_SECONDS


def test_a_prompt_too_long_to_be_read_whole_is_never_a_mere_question() -> None:
    assert route("What is this? " * 2000).mode is Mode.ACTION
    question = "Where are the opening times? "
    assert route(question * 85 + "Delete the blog. " + question * 40 + "Why?").mode is Mode.ACTION  # too many tokens


# --- the batch ----------------------------------------------------------------------------------------------------


def test_a_line_of_a_batch_has_the_fields_of_the_format() -> None:
    line = {"id": "a", "prompt": "delete the blog", "site": {"files": 3, "has_js": False, "has_build": False}}
    assert batch_line(line) == {
        "id": "a",
        "mode": "ACTION",
        "confidence": "WEAK",
        "intent": "build",
        "tier": 1,
        "queue": "spec",
        "debate": "planning",
        "stakes": "high",
        "trivial": False,
        "triggers": ["delete"],
        "reason": "Direct edit or patch: nothing in it needs more; "
        "it is debated first because it takes something away.",
        "classifier": "v1",
    }


# Rows of seeds 000 and 002 that no single rule owns.

EDITS = (
    "Change the headline to Welcome",
    "Add a hover underline effect to the links",
    "The menu is broken on phones",
    "Remove the last section",
    "Make the whole thing a bit friendlier",
)


def on_site(prompt: str, **signals: object) -> Signals:
    return Signals.model_validate({"prompt": prompt, "site": SiteSignals(files=3), **signals})


@pytest.mark.req("H-003", "H-005")
def test_the_decision_names_both_ends_and_the_middle() -> None:
    assert {tier.name: tier.value for tier in Tier} == {"SPEC": 1, "PATCH": 2, "AGENT": 3}


@pytest.mark.req("H-008", "R-118")
def test_a_decision_takes_far_less_than_ten_milliseconds() -> None:
    decide(on_site(EDITS[0]), platform_policy())
    taken = []
    for _ in range(40):
        for prompt in EDITS:
            started = time.perf_counter()
            decide(on_site(prompt), platform_policy())
            taken.append(time.perf_counter() - started)
    assert sorted(taken)[len(taken) // 2] < 0.010


@pytest.mark.req("H-008")
def test_a_decision_reads_no_file_calls_nobody_and_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    decide(on_site(EDITS[0]), platform_policy())
    with monkeypatch.context() as without:
        for way_out in ("builtins.open", "io.open", "os.open", "socket.socket", "subprocess.Popen"):
            without.setattr(way_out, pytest.fail)
        for prompt in EDITS:
            decide(on_site(prompt), platform_policy())


@pytest.mark.req("H-047")
def test_tier_3_may_use_more_than_tiers_1_and_2_in_every_number() -> None:
    spec, patch, agent = (platform_policy().limits_of(tier) for tier in Tier)
    for field in ("soft_seconds", "hard_seconds", "llm_usd", "output_bytes"):
        assert getattr(agent, field) > max(getattr(spec, field), getattr(patch, field))


@pytest.mark.req("H-120")
@pytest.mark.parametrize("prompt", [*EDITS, "Fix the typo in the intro"])
def test_an_explicit_request_always_reaches_the_agent(prompt: str) -> None:
    assert decide(on_site(prompt, advanced_edit=True), platform_policy()).tier is Tier.AGENT
    for asked in (prompt, "pwd"):
        assert decide(on_site(asked, tier=Tier.AGENT), platform_policy()).queue is QueueName.AGENT


@pytest.mark.req("R-042", "R-091")
def test_an_answer_has_no_triggers_and_no_confidence() -> None:
    route = decide(Signals(prompt="What is the difference between HPOS and classic?"), platform_policy())
    assert (route.mode, route.triggers, route.confidence) == (Mode.ANSWER, (), Confidence.NONE)
    assert (route.queue, route.target) == (QueueName.ANSWER, RouteTarget.DIRECT_RESPONSE)


@pytest.mark.req("R-002", "R-037", "R-091", "R-114")
@pytest.mark.parametrize(
    "prompt", ["fix the bug in src/api/auth.ts and update tests", "find, fix and deploy our project"]
)
def test_strong_action_is_always_delegated(prompt: str) -> None:
    for signals in (on_site(prompt), Signals(prompt=prompt), Signals(prompt=prompt, project=True)):
        route = decide(signals, platform_policy())
        assert (route.mode, route.confidence) == (Mode.ACTION, Confidence.STRONG)
        assert route.target is RouteTarget.SWARM_ORCHESTRATOR
        assert route.queue is not QueueName.ANSWER
    for tier in Tier:
        assert decide(on_site(prompt, tier=tier), platform_policy()).mode is Mode.ACTION
    with pytest.raises(ValidationError, match="mode"):
        JobRequest.model_validate({"prompt": prompt, "mode": "ANSWER"})


@pytest.mark.req("R-002")
def test_weak_action_is_delegated_too() -> None:
    prompt = "Fix the header"
    for signals in (on_site(prompt), Signals(prompt=prompt), Signals(prompt=prompt, project=True)):
        route = decide(signals, RULES_ALONE)
        assert (route.mode, route.confidence) == (Mode.ACTION, Confidence.WEAK)
        assert route.target is RouteTarget.SWARM_ORCHESTRATOR
        assert route.queue is not QueueName.ANSWER


# What never changes a decision, over all labelled prompts: politeness, case, white space, slips of the keyboard.

GOLDEN_FILE = Path(__file__).resolve().parents[3] / "data" / "routing_golden.jsonl"
GOLDEN = [json.loads(line) for line in GOLDEN_FILE.read_text(encoding="utf-8").splitlines() if line.strip()]
GOLDEN_PROMPTS = [line["prompt"] for line in GOLDEN if parse_trivial(line["prompt"]) is None]
QUESTIONS = [line["prompt"] for line in GOLDEN if line["expect"]["mode"] == "ANSWER"]
ORDERS = [line["prompt"] for line in GOLDEN if line["expect"]["mode"] == "ACTION" and not line["expect"]["trivial"]]
STRIDE = 13
"""Every thirteenth prompt is enough to be quick; another start takes others."""
KEYWORDS = [
    *("implement", "refactor", "search", "execute", "restart", "remember", "download", "create", "update", "delete"),
    *("publish", "convert", "redesign", "overwrite", "truncate", "release", "install", "replace", "rename", "remove"),
]
FORMS: dict[str, Callable[[str], str]] = {
    "shouted": str.upper,
    "spread": lambda prompt: "  " + prompt.replace(" ", "   ") + "\n",
    "on its own lines": lambda prompt: "\n\n" + prompt + "\n\n",
    "please before": lambda prompt: "please " + prompt,
    "please after": lambda prompt: prompt.rstrip(". ") + ", please",
    "pls after": lambda prompt: prompt + " pls",
    "greeting": lambda prompt: "Hi, " + prompt,
    "thanks": lambda prompt: prompt.rstrip() + " Thanks!",
    "thank you": lambda prompt: prompt.rstrip(". ") + ". Thank you!",
}


def decided(prompt: str) -> Route:
    return decide(Signals(prompt=prompt, site=SiteSignals(files=3)), platform_policy())


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_form_and_politeness_never_change_a_decision(form: Callable[[str], str]) -> None:
    prompts = [*PROMPTS, *GOLDEN_PROMPTS[::STRIDE]]
    assert [prompt for prompt in prompts if essence(decided(form(prompt))) != essence(decided(prompt))] == []


@pytest.mark.req("R-016", "R-112")
@pytest.mark.parametrize("path", ["src/app.js", "./index.html", "config.yaml"])
def test_a_path_beside_a_question_makes_it_an_action(path: str) -> None:
    answered = [prompt for prompt in QUESTIONS if decided(f"{prompt} {path}").mode is Mode.ANSWER]
    assert answered == []


BESIDE = ["Quick question first: what is HPOS? {}", "Hi there! {}", "{}. What do you think?", "{}. Is that possible?"]


@pytest.mark.req("R-112")
@pytest.mark.parametrize("talk", BESIDE)
def test_a_question_or_chat_beside_an_order_never_hides_it(talk: str) -> None:
    answered = [
        prompt for prompt in ORDERS[::STRIDE] if decided(talk.format(prompt.rstrip(".!? "))).mode is Mode.ANSWER
    ]
    assert len(answered) <= len(ORDERS[::STRIDE]) / 100, answered


def _slip(word: str, rng: random.Random) -> str:
    at = rng.randrange(1, len(word) - 1)
    slips = (
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
    )
    return rng.choice(slips)


@pytest.mark.req("R-112")
@given(
    st.sampled_from(KEYWORDS),
    st.sampled_from(["{} the team section", "pls {} the old footer text", "can you {} the page", "{} it"]),
    st.integers(min_value=0),
)
@settings(deadline=None)
def test_two_slips_in_a_keyword_never_turn_an_order_into_a_question(keyword: str, order: str, seed: int) -> None:
    rng = random.Random(seed)
    assert decided(order.format(_slip(_slip(keyword, rng), rng))).mode is Mode.ACTION


@pytest.mark.parametrize(
    ("held", "followed"),
    [
        ("Wait with the summer menu, the chef is still tasting", "Wait with the photos but put the new hours up"),
        ("Not yet with the new logo. Paul has to see it first.", "Not yet the logo. Write 9 to 5 instead"),
        (
            "Wartet mit dem Kalender, der Vorstand tagt erst am Freitag",
            "Noch nicht die Fotos, aber setz die Zeiten neu",
        ),
        (
            "Attendez avant de publier la carte, le chef n'a pas fini",
            "Attendez pour les photos, mais changez le numéro",
        ),
        ("Todavía no con la galería, mi socia la quiere ver", "Espera con las fotos pero cambia el horario"),
        ("Aspetta con il listino, mia sorella lo controlla", "Aspetta con le foto ma metti gli orari nuovi"),
        ("Wacht nog met de prijslijst, mijn broer kijkt er naar", "Wacht met de foto's maar zet de tijden op 9 uur"),
    ],
)
def test_who_says_to_wait_orders_nothing_unless_an_order_follows(held: str, followed: str) -> None:
    modes = [ruled(each).mode for each in (held, followed)]
    assert modes == [Mode.ANSWER, Mode.ACTION]


@pytest.mark.parametrize(
    "prompt",
    [
        "Findet sich irgendwo noch die alte Faxnummer? Nur nachschauen bitte.",
        "Which of the pages still mention the old landlord? A list is enough",
        "Où parle-t-on encore de l'ancien tarif ? Juste regarder, merci.",
        "¿Qué páginas nombran al antiguo dueño? Basta una lista",
        "Welke pagina's noemen de oude prijs nog? Een lijstje is genoeg",
    ],
)
def test_who_wants_it_only_looked_up_is_answered(prompt: str) -> None:
    assert ruled(prompt).mode is Mode.ANSWER


@pytest.mark.parametrize(
    "prompt",
    [
        "Dürfte ich um eine Karte unter den Öffnungszeiten bitten?",
        "Wäre es zu viel verlangt, die Preise größer zu machen?",
        "Would it be a big ask to put our new hours in the footer?",
        "Is het te doen dat de prijzen onder de foto's komen?",
    ],
)
def test_a_favour_that_is_asked_for_is_an_order(prompt: str) -> None:
    assert route(prompt).mode is Mode.ACTION


@pytest.mark.parametrize(
    "prompt",
    [
        "Our nurses must only see the records of the patients on their own ward",
        "Les clients sont prélevés deux fois quand le webhook de paiement arrive en double",
        "Kunden sollen ein Konto anlegen, Termine buchen und mit Karte zahlen können",
        "Alle gebruikersgegevens van de oude database naar de nieuwe Postgres overzetten",
    ],
)
def test_access_money_and_personal_data_of_a_project_are_debated_at_high_stakes(prompt: str) -> None:
    decided = route(prompt, site=SiteSignals(files=300, has_js=True, has_build=True))
    assert (decided.tier, decided.debate, decided.stakes) == (Tier.AGENT, Debate.PLANNING, Stakes.HIGH)


@pytest.mark.parametrize(
    "prompt",
    [
        "Im Dockerfile die Zeitzone auf Europe/Vienna",
        "typo in the README: 'adress'",
        "letter missing in mails/hello.mjml",
    ],
)
def test_a_small_edit_of_a_named_file_of_a_project_is_a_patch(prompt: str) -> None:
    decided = route(prompt, site=SiteSignals(files=300, has_js=True, has_build=True))
    assert (decided.tier, decided.debate) == (Tier.PATCH, Debate.NONE)
