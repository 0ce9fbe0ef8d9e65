from __future__ import annotations

import pytest

from sites.spec.languages.owner import written_in


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("Bitte die Preise überall um zwei Euro erhöhen", "de"),
        ("Put a notice on top: closed 24-26 December", "en"),
        ("Il manque le déjeuner du vendredi sur le programme", "fr"),
        ("Poned por favor los precios de invierno de las tres habitaciones", "es"),
        ("La camera passa a 185. Il sito resta in inglese, grazie!", "it"),
        ("Goedemiddag, gasten snappen de kamers niet, kunt u dat verbeteren?", "nl"),
        ("Proszę zmienić godziny na stronie, bo nie są aktualne", "pl"),
        ("Por favor, mude o horário da loja para as nove e também aos domingos", "pt"),
        ("Dobrý den, potřebuju web pro svou firmu, dělám střechy", "cs"),
        ("Undskyld, det bliver kl. 15. Og sæt det hellere længere nede", "da"),
        ("Do I need a new photo?", "en"),
        ("Kannst du Preise ändern?", "de"),
        ("Pon una foto nueva en portada", "es"),
        ("Prix en gras dans le menu", "fr"),
        ("Ersetze “the bread that we bake for you and your family” bitte durch „Brot“", "de"),
    ],
)
def test_the_language_of_an_owner_is_known_by_its_small_words(text: str, lang: str) -> None:
    assert written_in(text, otherwise="xx") == lang


@pytest.mark.parametrize("text", ["", "phone 087 555 0163", "Öffnungszeiten"])
def test_where_no_word_tells_it_is_the_site_s(text: str) -> None:
    assert written_in(text, otherwise="de") == "de"
