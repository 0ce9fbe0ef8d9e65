from __future__ import annotations

from copy import deepcopy

import pytest

from sites.spec.languages.translation_requests import is_translation
from sites.spec.model import INDEX, Site, parse_site
from tests.unit.sites.spec.samples import demo_site


def in_language(lang: str) -> Site:
    site = deepcopy(demo_site().pages)
    home = site[INDEX]
    home["elements"][home["root"]]["props"]["lang"] = lang
    return parse_site({"pages": site})


WISHES: dict[tuple[str, bool], list[str]] = {
    # known by its words
    ("cy", True): [
        "Translate the page to French",
        "Bitte übersetze die Seite",
        "Bitte überall du statt Sie",
        "Traduis tout en anglais",
        "Can you put the classes page into French?",
        "Die ganze Seite auf Englisch umstellen",
        "Pon toda la página en inglés",
        "Add an English version of the site",
        "add a second language: French",
        "make the about page available in German as well",
        "mach die Seite auch auf Französisch",
        "Wir brauchen die Seite zweisprachig, deutsch und englisch",
        "Ajoute une version anglaise du site",
        "Passe la page d'accueil en anglais",
        "Mets tout le site de l'hôtel en anglais",
        "Metti la pagina dell'azienda in inglese",
        "Mets le texte d'accueil en allemand",
        "Metti la home in inglese",
        "Pon la portada en inglés",
        "Tout en anglais et en néerlandais aussi, s'il vous plaît",
        "Quiero la página también en inglés",
        "Ci vorrebbe la versione in inglese di tutte le pagine",
        "Zet de site ook in het Engels",
        'Könntest du die Seite "Über uns" zusätzlich auf Englisch anlegen?',
        "We want our website to be in German, too",
        "Vogliamo tutto il sito in tedesco",
        "La web entera en francés, por favor",
        "potete mettere il menù anche in tedesco?",
        "Pouvez-vous passer toute la page en italien ?",
    ],
    # a language that is only mentioned
    ("cy", False): [
        "Say that our translators are certified",
        "Put a sentence in French below the menu",
        "Say that we also speak English and French",
        "We also teach Spanish, add it to the courses",
        "Add an English breakfast to the menu",
        "Cook for the summer wanted, German or Italian enough. Page or not, you decide",
        "Bitte unter den drei Kästen, auf englisch (local tax), und auch noch als eigene Frage",
        "On the page about rooms, add a line in French as well",
        "Say on our page that we speak English",
        "Mettez sous les prix une phrase en anglais aussi",
        "Pon debajo una frase en inglés para los turistas",
        "Metti sotto gli orari una riga anche in tedesco",
        "Schreib auf die Seite einen Satz auf Englisch dazu",
        "Add our Italian lunch to the menu",
        "Add a card: authentic Italian home cooking",
    ],
    # a short page, or one of new facts: for the editor
    ("en", False): [
        "can you put a page in polish, just what we do, prices, and ring Piotr 087 555 0163",
        "A short page in French for our guests",
        "Eine Seite auf Deutsch, nicht alles, und mit unserer Nummer 0170 1234567",
    ],
    # a page of some sections is a translation of these, and so is a whole one
    ("en", True): [
        "Eine Seite auf Deutsch bitte, aber nicht alles: nur worum es geht und die Pflanztage",
        "just a page with hours and contact in German",
        "Une page en allemand, seulement l'essentiel",
        "A German page with 3 things: hours, prices, contact",
        "the page with the prices in German",
        "a page with everything in German",
        "Only the home page in German",
        "Translate only what guests read into German",
    ],
}
"""By the language of the site, and whether it is a translation."""


@pytest.mark.parametrize(
    ("lang", "is_one", "wish"), [(*key, wish) for key, wishes in WISHES.items() for wish in wishes]
)
def test_a_translation_is_told_from_a_language_that_is_mentioned_and_from_a_new_page(
    lang: str, is_one: bool, wish: str
) -> None:
    assert is_translation(wish, in_language(lang)) is is_one


@pytest.mark.parametrize(
    "wish",
    [
        "Wir brauchen eine Datenschutzseite auf Deutsch, im Footer verlinkt",
        "Bitte eine Seite Impressum und eine Seite Datenschutz auf Deutsch anlegen",
        "Add a privacy page in German",
        "Créez une page de mentions légales en français",
    ],
)
def test_a_legal_page_that_a_site_lacks_is_new_in_whatever_language_and_no_translation(wish: str) -> None:
    assert not is_translation(wish, in_language("cy"))
    assert is_translation(f"{wish}. And the whole site in German and French, please", in_language("cy"))
    document = in_language("cy").to_dict()
    document["pages"]["privacy.html"] = deepcopy(document["pages"]["classes.html"])
    assert is_translation(wish, parse_site(document))


@pytest.mark.parametrize(
    "wish",
    [
        "La camera passa a 185. Il sito resta in inglese, grazie!",
        "Die Adresse bitte überall ändern. Die Seite bleibt selbstverständlich auf Englisch",
        "Tallinn est annulé, à enlever. Tout en anglais sur le site bien sûr",
        "El texto en inglés por favor, que la página es en inglés",
        "The new price is 12. Keep the page in English please",
    ],
)
def test_a_site_that_stays_in_its_language_is_not_translated(wish: str) -> None:
    assert not is_translation(wish, in_language("en-GB"))
    assert is_translation(wish, in_language("de"))


def test_a_language_of_a_site_s_versions_is_none_that_it_lacks() -> None:
    home = demo_site().pages[INDEX]
    german = deepcopy(home)
    german["elements"][german["root"]]["props"]["lang"] = "de"
    both = parse_site({"pages": {INDEX: home, f"de/{INDEX}": german}})
    assert not is_translation("change the hours on the German page too, English pages are right", both)
    assert is_translation("We need an English, a German and a Welsh version", both)
