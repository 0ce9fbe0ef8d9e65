"""What words are about, for the second opinion."""

from __future__ import annotations

import pytest

from routing.decision.topics import topics_of


@pytest.mark.parametrize("word", ["invoice", "rechnungsbetrag", "fatture", "facturas", "betalingen", "acompte"])
def test_words_of_one_topic_are_told_alike_in_six_languages(word: str) -> None:
    assert "money" in topics_of(word)


def test_a_short_entry_counts_only_as_a_whole_word() -> None:
    assert "tool" in topics_of("ci")
    assert topics_of("cinnamon") == frozenset()
