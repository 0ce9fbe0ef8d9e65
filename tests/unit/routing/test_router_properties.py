"""What never changes a decision, over all labelled prompts: politeness, case, white space, slips of the keyboard."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.use_cases.routing_log import format_entry
from routing.decision.router import Mode, Route, Signals, SiteSignals, decide
from routing.decision.triggers import parse_trivial
from routing.policy.platform import platform_policy
from tests.unit.producers.use_cases.test_routing_log import ENTRY
from tests.unit.routing.evaluation import samples

GOLDEN = samples(Path(__file__).resolve().parents[3] / "tests" / "data" / "routing_golden.jsonl")
PROMPTS = [line["prompt"] for line in GOLDEN if parse_trivial(line["prompt"]) is None]
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


def route(prompt: str) -> Route:
    return decide(Signals(prompt=prompt, site=SiteSignals(files=3)), platform_policy())


def essence(prompt: str) -> tuple[object, ...]:
    decision = route(prompt)
    shown = tuple(trigger.shown for trigger in decision.triggers)
    return (decision.mode, decision.tier, decision.intent, decision.debate, decision.stakes, decision.rule, shown)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_form_and_politeness_never_change_a_decision(form: Callable[[str], str]) -> None:
    changed = [prompt for prompt in PROMPTS[::STRIDE] if essence(form(prompt)) != essence(prompt)]
    assert changed == []


@pytest.mark.req("R-016", "R-112")
@pytest.mark.parametrize("path", ["src/app.js", "./index.html", "config.yaml"])
def test_a_path_beside_a_question_makes_it_an_action(path: str) -> None:
    answered = [prompt for prompt in QUESTIONS if route(f"{prompt} {path}").mode is Mode.ANSWER]
    assert answered == []


BESIDE = ["Quick question first: what is HPOS? {}", "Hi there! {}", "{}. What do you think?", "{}. Is that possible?"]


@pytest.mark.req("R-112")
@pytest.mark.parametrize("talk", BESIDE)
def test_a_question_or_chat_beside_an_order_never_hides_it(talk: str) -> None:
    answered = [prompt for prompt in ORDERS[::STRIDE] if route(talk.format(prompt.rstrip(".!? "))).mode is Mode.ANSWER]
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
    assert route(order.format(_slip(_slip(keyword, rng), rng))).mode is Mode.ACTION


PIECES = st.sampled_from(
    [
        "fix",
        " ",
        "\n",
        '"',
        "13:26 ROUTE",
        "→ ANSWER",
        "\n  Triggers: []",
        "a]\n/b/",
        "src/x.ts",
        "`",
        "```",
        "[",
        "\r",
        ",",
    ]
)


@pytest.mark.req("R-072")
@given(st.lists(PIECES, max_size=20).map("".join))
@settings(deadline=None)
def test_nothing_in_a_prompt_can_forge_a_log_entry(prompt: str) -> None:
    entry = format_entry(prompt, route(prompt), moment=datetime(2026, 1, 1, 13, 26, tzinfo=UTC), redact=str)
    assert ENTRY.fullmatch(entry)
    assert [line for line in entry.splitlines() if " ROUTE " in line] == entry.splitlines()[:1]
