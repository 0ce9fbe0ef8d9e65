"""Whether a prompt is answered: how sure the second opinion must be, by what else the prompt says."""

from __future__ import annotations

import pytest

from routing.decision.answers import CERTAIN, HELD, MARKED, ORDERLY, UNMARKED, classify_answer
from routing.decision.second_opinion import Opinion
from routing.prompt.parsed_prompt import Talk, parse_prompt
from routing.prompt.vocabulary import shipped_vocabulary

NEVER = 1.1
"""More than any probability."""


def talk(prompt: str, only_asks: float, *, is_new: bool = False) -> Talk | None:
    opinion = Opinion(only_asks=only_asks, beyond_spec=0, agent=0, debated=0, high_stakes=0, mends=0)
    parsed = parse_prompt(prompt, shipped_vocabulary())
    return classify_answer(parsed, (), is_bound=True, is_new=is_new, opinion=opinion)


@pytest.mark.parametrize(
    ("prompt", "least"),
    [
        ("Duzen oder siezen auf der Seite einer Yogaschule?", MARKED),
        ("posso cambiare io il menu del giorno oppure no", UNMARKED),
        ("c'est combien par mois chez vous", UNMARKED),
        ("Est-ce qu'on peut ajouter une page contact ?", ORDERLY),
        ("¿Cuándo vais a cambiar el teléfono? Ya os lo pedí", ORDERLY),
        ("all sorted, the map is broken no longer", CERTAIN),
        ("Nix ändern. Ein Kunde sagt, man kann ohne Anmeldung in die Werkstatt. Steht das da?", HELD),
        ("La présentation est trop longue, raccourcis la à quatre lignes", NEVER),
        ("Duzen oder siezen? Der Preis ist 45 Euro", NEVER),
    ],
)
def test_the_less_a_prompt_looks_like_a_question_the_surer_its_answer_must_be(prompt: str, least: float) -> None:
    assert talk(prompt, least - 0.01) is None
    assert (talk(prompt, min(least, 1)) is not None) is (least < NEVER)


def test_a_site_still_to_be_made_is_ordered_unless_it_is_certain() -> None:
    prompt = "Site pour une chorale de quartier : répétitions le jeudi, qui nous sommes ?"
    assert talk(prompt, MARKED) is Talk.OPINION
    assert talk(prompt, MARKED, is_new=True) is None
    assert talk(prompt, CERTAIN, is_new=True) is Talk.OPINION
