"""Seed 002's log entries, byte for byte; and that no prompt can forge one."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.use_cases.routing_log import file_name, format_entry
from routing.decision.router import Signals, decide
from routing.policy.platform import platform_policy

ENTRY = re.compile(
    r'\d\d:\d\d ROUTE "(?:[^"\\\n]|\\["\\nrt]|\\u[0-9a-f]{4})*" → '
    r"(?:ANSWER\n  Triggers: \[\]\n  Pattern: [^\n]+"
    r"|ACTION\n  Triggers: \[[^\n\]]*\]\n  Confidence: (?:STRONG|WEAK|NONE) \(\d+ triggers?\))\n"
    r"  Routed to: (?:Swarm Orchestrator|Direct Response|Tool Specialist)\n\n"
)


def entry(prompt: str, *, minute: int = 0) -> str:
    route = decide(Signals(prompt=prompt), platform_policy())
    return format_entry(prompt, route, moment=datetime(2026, 2, 18, 13, minute, tzinfo=UTC))


@pytest.mark.req("R-069")
def test_the_first_entry_of_the_document() -> None:
    assert entry("fix the E2E tests in zbooks repo", minute=26) == (
        '13:26 ROUTE "fix the E2E tests in zbooks repo" → ACTION\n'
        "  Triggers: [fix, tests, repo]\n"
        "  Confidence: STRONG (3 triggers)\n"
        "  Routed to: Swarm Orchestrator\n\n"
    )


@pytest.mark.req("R-070")
def test_the_second_entry_of_the_document() -> None:
    assert entry("what is HPOS?", minute=27) == (
        '13:27 ROUTE "what is HPOS?" → ANSWER\n'
        "  Triggers: []\n"
        "  Pattern: Question + no external refs\n"
        "  Routed to: Direct Response\n\n"
    )


@pytest.mark.req("R-071")
def test_the_third_entry_of_the_document() -> None:
    assert entry("search the codebase for auth", minute=28) == (
        '13:28 ROUTE "search the codebase for auth" → ACTION\n'
        "  Triggers: [search, codebase]\n"
        "  Confidence: WEAK (2 triggers)\n"
        "  Routed to: Swarm Orchestrator\n\n"
    )


@pytest.mark.req("R-074")
def test_a_default_answer_and_a_trivial_command_name_their_targets() -> None:
    assert "  Pattern: Default (no triggers)\n  Routed to: Direct Response\n" in entry("Thanks, that makes sense")
    assert "  Confidence: NONE (0 triggers)\n  Routed to: Tool Specialist\n" in entry("pwd")
    assert "  Routed to: Swarm Orchestrator\n" in entry("fix the E2E tests")


@pytest.mark.req("R-073")
def test_a_message_is_cut_at_fifty_characters_and_a_shorter_one_is_whole() -> None:
    assert f'"{"a" * 50}"' in entry("a" * 50)
    assert f'"{"a" * 50}..."' in entry("a" * 50 + "b")


@pytest.mark.req("R-068")
def test_the_file_is_named_by_the_day_of_the_decision() -> None:
    assert file_name(datetime(2026, 2, 18, 23, 59, tzinfo=UTC)) == "2026-02-18.md"
    assert file_name(datetime(2026, 2, 19, 0, 0, tzinfo=UTC)) == "2026-02-19.md"


def test_secrets_are_redacted_before_the_message_is_cut() -> None:
    prompt = "x" * 45 + "SECRETVALUE"
    route = decide(Signals(prompt=prompt), platform_policy())
    line = format_entry(
        prompt, route, moment=datetime(2026, 1, 1, tzinfo=UTC), redact=lambda text: text.replace("SECRETVALUE", "[key]")
    )
    assert "SECR" not in line


@pytest.mark.req("R-072")
@pytest.mark.parametrize(
    "prompt",
    [
        'x" → ANSWER\n  Triggers: []\n\n13:00 ROUTE "y',
        "fix\r\n13:27 ROUTE",
        "a\u2028b\u0085c\x1b[2J",
        "\\",
        'fix "',
        "see a]\n/b/",
    ],
)
def test_a_prompt_cannot_forge_an_entry(prompt: str) -> None:
    assert ENTRY.fullmatch(entry(prompt))
    assert entry(prompt).count(" ROUTE ") <= 1 + prompt.count(" ROUTE ")
    assert len(entry(prompt).split("\n")) == 6


PIECES = ["fix", " ", "\n", '"', "13:26 ROUTE", "→ ANSWER", "\n  Triggers: []", "a]\n/b/", "src/x.ts", "`", "[", "\r"]


@given(st.text(max_size=80) | st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
@pytest.mark.req("R-072")
def test_every_entry_has_the_shape_of_the_document(prompt: str) -> None:
    told = entry(prompt)
    assert ENTRY.fullmatch(told)
    assert [line for line in told.splitlines() if " ROUTE " in line] == told.splitlines()[:1]
