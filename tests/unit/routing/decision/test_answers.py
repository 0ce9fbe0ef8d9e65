"""Whether a prompt is answered: how sure the second opinion must be, by what the rules say."""

from __future__ import annotations

import pytest

from routing.decision.answers import LEAST, ORDERING, WISHED, classify_answer
from routing.decision.second_opinion import Opinion
from routing.prompt.parsed_prompt import Talk, parse_prompt
from routing.prompt.vocabulary import shipped_vocabulary

NEVER = 1.1
"""More than any probability."""


def talk(prompt: str, only_asks: float) -> Talk | None:
    opinion = Opinion(only_asks=only_asks, beyond_spec=0, agent=0, debated=0, high_stakes=0, mends=0)
    return classify_answer(parse_prompt(prompt, shipped_vocabulary()), (), is_bound=True, opinion=opinion)


@pytest.mark.parametrize(
    ("prompt", "least"),
    [
        ("Duzen oder siezen auf der Seite einer Yogaschule?", LEAST),
        ("posso cambiare io il menu del giorno oppure no", LEAST),
        ("What does the map cost us?", ORDERING),
        ("our kids loved the memory game, could we have one too", WISHED),
        ("Tom is the manager. Not Jim.", NEVER),
        ("La présentation est trop longue, raccourcis la à quatre lignes", NEVER),
        ("Duzen oder siezen? See index.html", NEVER),
        ("Please hide what the magazine said about us. We will want it again exactly as it is.", NEVER),
        ("Legal signed off this morning, please publish the site", NEVER),
        ("Remove what the magazine said about us. We will want it again exactly as it is.", NEVER),
        ("My brother says the writing is too small and he's right, go up a size", NEVER),
        ("If I understand correctly, change requests are free", LEAST),
        ("Let's try to understand why it is slow", LEAST),
        ("Legal signed off this morning, please say when it went live", LEAST),
    ],
)
def test_what_no_rule_takes_for_a_question_needs_more_certainty_and_an_order_is_never_one(
    prompt: str, least: float
) -> None:
    assert talk(prompt, least - 0.01) is None
    assert (talk(prompt, min(least, 1)) is not None) is (least < NEVER)


def test_a_hold_is_no_order_however_it_reads() -> None:
    assert talk("Do not change anything yet, please", 0) is not None


@pytest.mark.parametrize(
    "prompt",
    [
        "C'est écrit où, le nombre d'arbres ? Mettez « Bring a mug » là où il y a les bottes. Ne changez rien d'autre.",
        "Wie lange habt ihr offen? Macht die Schrift größer. Sonst bitte nichts ändern.",
    ],
)
def test_who_wants_nothing_else_changed_has_ordered_something(prompt: str) -> None:
    """A mug was to be brought to a planting day, and the prompt was only answered (issue 20)."""
    assert talk(prompt, 0.5) is None
