"""Spaces at which a line must not break."""

import pytest

from sites.spec.languages.typography import with_kept_spaces
from sites.spec.outline import expand_outline
from tests.unit.sites.spec.test_outline import OUTLINE


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("Une question ? Écrivez-nous", "Une question\xa0? Écrivez-nous"),
        ("Venez ! Ou : appelez ; puis", "Venez\xa0! Ou\xa0: appelez\xa0; puis"),
        ("dit « Mousse » tout bas", "dit «\xa0Mousse\xa0» tout bas"),
        ("Vraiment ?!", "Vraiment\xa0?!"),
        ("https://a.example/?b=1 17:00", "https://a.example/?b=1 17:00"),
    ],
)
def test_french_marks_stay_with_their_words(written: str, kept: str) -> None:
    assert with_kept_spaces({"a": [written]}, "fr") == {"a": [kept]}
    assert with_kept_spaces(kept, "fr-CA") == kept
    assert with_kept_spaces(written, "de") == written


def test_a_new_french_site_breaks_no_line_before_a_mark() -> None:
    question = {"kind": "FAQ", "heading": "Une question ?", "items": [{"title": "Et ici ?", "text": "Oui !"}]}
    for lang, kept in (("fr", "\xa0"), ("en", " ")):
        text = expand_outline({**OUTLINE, "lang": lang, "sections": [question]}).canonical()
        assert all(f"{word}{kept}{mark}" in text for word, mark in (("question", "?"), ("ici", "?"), ("Oui", "!")))
