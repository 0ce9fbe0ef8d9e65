from sites.spec.languages.glossary import glossary, repeated_terms, with_glossary
from sites.spec.languages.translation import Entry

TEXTS = (
    "Pitches",
    "Book",
    "Our pitches are level.",
    "Bookings close at six.",
    "A heading that is far too long for a term",
)
ENTRIES = [Entry("index.html", f"e{number}", ("text",), text) for number, text in enumerate(TEXTS)]
PARTS = ["0 [x] Pitches\n1 [x] Book", "2 [x] Our pitches are level.\n3 [x] Bookings close at six.", f"4 [x] {TEXTS[4]}"]


def test_a_heading_that_recurs_in_another_part_is_a_term() -> None:
    assert repeated_terms(ENTRIES, PARTS) == {0: "Pitches"}


def test_a_part_is_given_the_pairs_of_words_that_it_has() -> None:
    reply = {"texts": [{"n": 0, "text": "Stellplätze"}, {"n": 9, "text": "x"}, {"n": [], "text": "x"}, "y", {"n": 0}]}
    pairs = glossary({0: "Pitches"}, reply)
    assert pairs == {"Pitches": "Stellplätze"}
    assert '"Pitches": "Stellplätze"' in with_glossary(PARTS[1], pairs)
    assert with_glossary(PARTS[2], pairs) == PARTS[2]
    assert glossary({0: "Pitches"}, {"texts": "none"}) == {}
