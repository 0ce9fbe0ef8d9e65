"""The direct edit against what site owners say: nearly all is done, nothing wrongly, and form changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from sites.direct_edit.direct import PlainEdit, apply_direct, edit_plain, parse_direct
from tests.unit.sites.direct_edit.direct_corpus import Case, cases, is_as_wanted, plain_site, spec_site, wanted_files

LEFT_TO_A_MODEL = [
    'set hero.heading to "Plumbing done right"',
    'Please fix the typo: "burst pipes" should be "burst mains"',
    'We have moved. Our new address is "9 Patrick Street, Cork"',
    '1. Change the headline to "Hello Cork"\n2. Remove the gallery',
    'On the classes page, change the heading to "Our classes"',
    'Tom Reed is now "Yin and restorative teacher"',
    "Change the role of Asha Patel to Founder and lead teacher",
    'Set the title of the classes page to "Yoga classes in Bristol"',
    'change the title of the menu page to "Menu | Bistro Anker"',
]
"""Of the 181 requests of the corpus with a wanted outcome."""
SPEC_CASES = [case for case in cases() if case.site != "bistro"]
QUOTATION = re.compile(r"(\"[^\"]*\"|(?<!\w)'(?:[^']|'(?=\w))*'(?!\w)|“[^”]*”|`[^`]*`)")


def verdict(case: Case) -> str:
    if case.site == "bistro":
        files = plain_site(case.site)
        done = edit_plain(case.say, files)
        if not isinstance(done, PlainEdit):
            return "none"
        return "right" if case.want and dict(done.files) == wanted_files(case.want, files) else "wrong"
    site = spec_site(case.site)
    edit = parse_direct(case.say, site)
    if edit is None:
        return "none"
    return "right" if case.want and is_as_wanted(case.want, site, apply_direct(site, edit)) else "wrong"


@cache
def verdicts() -> dict[Case, str]:
    return {case: verdict(case) for case in cases()}


def test_no_request_is_done_wrongly() -> None:
    assert [case.say for case, found in verdicts().items() if found == "wrong"] == []


def test_requests_with_one_meaning_are_done_without_a_model_but_for_these() -> None:
    left = [case.say for case, found in verdicts().items() if case.want and found == "none"]
    assert left == LEFT_TO_A_MODEL


@cache
def plain_outcome(case: Case) -> str | None:
    return outcome(case.say, case)


def outcome(say: str, case: Case) -> str | None:
    site = spec_site(case.site)
    edit = parse_direct(say, site)
    return None if edit is None else apply_direct(site, edit).canonical()


# The cases are judged when a test first wants them: at import it would cost every process that collects tests seconds.
@cache
def done() -> list[Case]:
    return [case for case in SPEC_CASES if verdicts()[case] == "right"]


@cache
def orders() -> list[Case]:
    verbs = r"(?:change|set|remove|delete|move|add|replace|rename|make|swap) "
    return [case for case in done() if re.match(verbs, case.say, re.I)]


@cache
def closed() -> list[Case]:
    return [case for case in orders() if re.search(r"[\"'”]$", case.say)]


@cache
def quoting() -> list[Case]:
    return [
        case
        for case in closed()
        if case.say[:3].lower() != "add" and not re.search(r"://|[@#/€£]|\d", QUOTATION.sub("", case.say))
    ]


def one_of(cases: Callable[[], list[Case]]) -> st.SearchStrategy[Case]:
    return st.deferred(lambda: st.sampled_from(cases()))


@settings(max_examples=40)
@given(one_of(orders), st.sampled_from(["Please ", "Hi! ", "Hello, please ", "Could you ", "I'd like you to "]))
def test_a_polite_beginning_changes_nothing(case: Case, prefix: str) -> None:
    body = case.say[0].lower() + case.say[1:]
    assert outcome(prefix + body, case) == plain_outcome(case)


@settings(max_examples=40)
@given(one_of(closed), st.sampled_from([".", "!", " please", ", please.", ". Thanks!", " thank you", "  ", "\n"]))
def test_what_stands_behind_a_closed_order_changes_nothing(case: Case, suffix: str) -> None:
    assert outcome(case.say + suffix, case) == plain_outcome(case)


@settings(max_examples=30)
@given(one_of(quoting), st.booleans())
def test_the_case_of_the_order_changes_nothing(case: Case, upper: bool) -> None:
    parts = QUOTATION.split(case.say)
    folded = [part if index % 2 else part.upper() if upper else part.lower() for index, part in enumerate(parts)]
    assert outcome("".join(folded), case) == plain_outcome(case)


@settings(max_examples=30)
@given(one_of(done), st.sampled_from(["  ", "\t", "\u00a0", " \u00a0 "]))
def test_the_width_of_blanks_changes_nothing(case: Case, blank: str) -> None:
    parts = QUOTATION.split(case.say)
    spaced = [part if index % 2 else part.replace(" ", blank) for index, part in enumerate(parts)]
    assert outcome(" " + "".join(spaced) + " ", case) == plain_outcome(case)


DOUBTS = [
    "Don't {}",
    "Do not {}",
    "Never {}",
    "If it rains, {}",
    "When we close, {}",
    "Should I {}?",
    "Why did you {}?",
    "How do I {}?",
    "What if we {}?",
    "Unless it rains, {}",
    "Maybe {}",
    "{} unless it rains",
    "{} if we are closed",
    "{} or not",
    "I wonder whether to {}",
    "{} when it rains",
    "You must not {}",
    "Please don't {}",
]


@settings(max_examples=60)
@given(one_of(orders), st.sampled_from(DOUBTS))
def test_a_negation_a_question_or_a_condition_is_never_an_edit(case: Case, doubt: str) -> None:
    assert outcome(doubt.format(case.say[0].lower() + case.say[1:].rstrip(".?")), case) is None


@settings(max_examples=30)
@given(one_of(lambda: [case for case in orders() if "?" not in QUOTATION.sub("", case.say)]))
def test_an_order_with_a_question_mark_is_a_question(case: Case) -> None:
    assert outcome(case.say.rstrip(".") + "?", case) is None
