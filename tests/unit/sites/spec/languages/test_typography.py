"""Spaces at which a line must not break."""

import pytest

from sites.spec.languages.typography import typeset, with_prices
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
    assert typeset({"a": [written]}, "fr") == {"a": [kept]}
    assert typeset(kept, "fr-CA") == kept
    assert typeset(written, "de") == written


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("Thursday, 17 September", "Thursday, 17\xa0September"),
        ("March 3, 2026, 7.30 pm", "March\xa03, 2026, 7.30\xa0pm"),
        ("am 3. Mai um 19 Uhr", "am 3.\xa0Mai um 19\xa0Uhr"),
        ("72 € im Jahr, 640 m²", "72\xa0€ im Jahr, 640\xa0m²"),
        ("10:00 – 23:00, 8 h – 12 h, 35 zł, 40 Kč", "10:00\xa0–\xa023:00, 8\xa0h\xa0–\xa012\xa0h, 35\xa0zł, 40\xa0Kč"),
        ("Saturdays, 9.30 to 4, from 8 bis 12, to 7", "Saturdays, 9.30\xa0to\xa04, from 8\xa0bis\xa012, to 7"),
        ("Dorpsstraat 88, 7468 CN Enter, in 2027 US prices", "Dorpsstraat 88, 7468\xa0CN\xa0Enter, in 2027 US prices"),
        ("Eperweg 2, 8084 AB 't Harde", "Eperweg 2, 8084\xa0AB\xa0’t Harde"),
        ("Le mercredi, 14 h 30", "Le mercredi, 14\xa0h\xa030"),
        ("Smit & Zn. & Bakker", "Smit &\xa0Zn. & Bakker"),
        ("otro número: 600 555 043.", "otro número: 600\xa0555\xa0043."),
        ("Ring 01559 555 0141 first", "Ring 01559\xa0555\xa00141 first"),
        ("Unit 4, Stroud GL5 1DF, Galway H91 X5R2", "Unit 4, Stroud GL5\xa01DF, Galway H91\xa0X5R2"),
        ("Königstraße 28, 96052 Bamberg", "Königstraße 28, 96052\xa0Bamberg"),
        ("It's the '60s, l'oreille", "It’s the '60s, l’oreille"),
        ("Abbeydale Rd, Sheffield S7 1FE", "Abbeydale Rd, Sheffield S7\xa01FE"),
        ("11 rue de Saint-Malo, 35000 Rennes", "11 rue de Saint-Malo, 35000\xa0Rennes"),
        ("1921 mayors, 5 marks, 14 Mill Lane", "1921 mayors, 5 marks, 14 Mill Lane"),
    ],
)
def test_dates_times_prices_and_numbers_stay_whole_in_any_language(written: str, kept: str) -> None:
    for lang in ("en", "de", "fr"):
        assert typeset({"text": [written]}, lang) == {"text": [kept]}
    assert typeset({"phone": written}, "en") == {"phone": written}


@pytest.mark.parametrize(
    ("written", "set_"),
    [
        ("Accordé à l'oreille", "Accordé à l’oreille"),
        ("What we'll do, since the '90s, at 6' by 4'", "What we’ll do, since the '90s, at 6' by 4'"),
        ("dicht l’ascensore", "dicht l’ascensore"),
        ("Kom 's middags, in 't veen", "Kom ’s middags, in ’t veen"),
    ],
)
def test_an_apostrophe_within_a_word_is_that_of_print(written: str, set_: str) -> None:
    assert typeset({"heading": written, "email": "o'neil@bakery.example"}, "fr") == {
        "heading": set_,
        "email": "o'neil@bakery.example",
    }


def test_a_short_sentence_of_a_heading_stays_whole() -> None:
    given = {"heading": "I print. By hand, with pressure. I mean it.", "text": "I mean it."}
    kept = {"heading": "I\xa0print. By hand, with pressure. I\xa0mean\xa0it.", "text": "I mean it."}
    assert typeset(given, "en") == kept


def test_an_address_in_a_text_stays_as_it_is() -> None:
    text = "[l'atelier](https://bakery.example/l'atelier 35000 Rennes), https://bakery.example/o'neil"
    assert typeset(text, "fr") == text.replace("[l'", "[l’")


def test_a_new_french_site_breaks_no_line_before_a_mark() -> None:
    question = {"kind": "FAQ", "heading": "Une question ?", "items": [{"title": "Et ici ?", "text": "Oui !"}]}
    for lang, kept in (("fr", "\xa0"), ("en", " ")):
        text = expand_outline({**OUTLINE, "lang": lang, "sections": [question]}).canonical()
        assert all(f"{word}{kept}{mark}" in text for word, mark in (("question", "?"), ("ici", "?"), ("Oui", "!")))


@pytest.mark.parametrize(
    ("price", "english", "german", "dutch"),
    [
        ("45 €", "€45", "45\u00a0€", "€\u00a045"),
        ("€4.50", "€4.50", "4,50\u00a0€", "€\u00a04,50"),
        ("4,50\u00a0€", "€4.50", "4,50\u00a0€", "€\u00a04,50"),
        ("12.30", "12.30", "12.30", "12.30"),
        ("from €45", "from €45", "from €45", "from €45"),
        ("€5 €", "€5 €", "€5 €", "€5 €"),
    ],
)
def test_a_price_that_stands_alone_is_written_as_a_language_does(
    price: str, english: str, german: str, dutch: str
) -> None:
    """An Italian page's English version said '€85 per person' and '45 €' (issue 20)."""
    said = [with_prices({"items": [{"price": price}]}, lang)["items"][0]["price"] for lang in ("en", "de", "nl")]
    assert said == [english, german, dutch]


def test_a_site_whose_language_nobody_named_is_set_too() -> None:
    """Models leave out `lang` of an English site, whose numbers then broke (issue 20)."""
    named = {name: value for name, value in OUTLINE.items() if name != "lang"}
    hero = {"kind": "Hero", "heading": "Bread", "text": "Sat 9 am–2 pm"}
    assert "Sat 9\xa0am–2\xa0pm" in expand_outline({**named, "sections": [hero]}).canonical()
