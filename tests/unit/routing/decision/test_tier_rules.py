"""What an edit needs: the cases behind the tier rules."""

from __future__ import annotations

import pytest

from routing.decision.evaluation import batch_line
from routing.policy.platform import Assist, platform_policy

SITE = {"files": 4, "has_js": False, "has_build": False}
RULES_ALONE = platform_policy().model_copy(update={"assist": Assist(second_opinion=False)})


def tier(prompt: str) -> int | None:
    found: int | None = batch_line({"id": "t", "prompt": prompt, "site": SITE})["tier"]
    return found


@pytest.mark.parametrize(
    "prompt",
    [
        "Add a photo of two people in a 3D cinema",
        "class names: 'Power Loop', 'Database'",
        "We mend broken toys. Use this as the tagline.",
        "we fix bugs in old synthesizers - make that the subtitle",
        "Split the long about paragraph into three short ones",
        "new service: Database migration, from 900",
        "The leading boatyard on the Fal: put that under the name",
    ],
)
def test_what_is_only_shown_named_or_worded_stays_with_the_spec(prompt: str) -> None:
    assert tier(prompt) == 1


@pytest.mark.parametrize(
    "prompt",
    [
        "playable demo of level 1 in the browser with WebGL",
        "show the level of the river as given at https://api.example.org/river",
        "a page that works on the underground without reception",
        "split the long about page into three pages",
    ],
)
def test_a_new_thing_beside_one_that_is_there_is_still_new(prompt: str) -> None:
    assert tier(prompt) == 3


@pytest.mark.parametrize(
    "prompt",
    [
        "```css\n.card:hover { transform: none; }\n```\nthis for the prices",
        'target="_blank" for the link to the shop',
        "clamp the news to three lines",
    ],
)
def test_a_rule_or_an_attribute_that_is_shown_is_a_patch(prompt: str) -> None:
    assert tier(prompt) == 2


def test_a_page_behind_a_password_needs_an_agent() -> None:
    assert tier("Put the price list behind a password") == 3


@pytest.mark.parametrize(
    "prompt",
    [
        "Changez la photo de la vue sur le lac",
        "Nouveau tarif : chambre avec vue 95 euros",
        "We react to every mail within a day, put that in the FAQ",
        "Hugo has left, put Anna in his place on the team page",
        "Add our husky Balto to the team page",
        "From order to parcel it takes two weeks now, put that under delivery",
        "Canvas bags are 14 now, please change",
        "Change physics lessons to 35 an hour",
        "Put the generator hire at 60 a day",
    ],
)
def test_a_word_of_everyday_life_that_names_a_tool_too_needs_no_agent(prompt: str) -> None:
    assert tier(prompt) == 1


@pytest.mark.parametrize(
    "prompt",
    [
        "Opening hours and photos. No online shop",
        "Schreibt auf die Startseite: wir haben keinen Onlineshop",
        "Une page pour notre ferme, sans boutique en ligne",
        "Una página para mi taller, sin tienda online",
        "Un sito per il forno, senza negozio online",
        "Strona dla piekarni, bez booking online",
        "Add to the terms that the balance is paid by card on arrival",
    ],
)
def test_what_there_shall_not_be_or_is_only_written_needs_no_agent(prompt: str) -> None:
    """A site that said `no online shop` was sent to the agent (issue 20)."""
    assert by_rules(prompt)[0] == 1


def test_the_same_thing_needs_one_where_it_is_wanted() -> None:
    assert [by_rules(prompt)[0] for prompt in ("Add an online shop", "Baut einen Onlineshop ein")] == [3, 3]


@pytest.mark.parametrize(
    "prompt",
    [
        "Make 3 pages out of it",
        "Teile die Seite in die vier Seiten Start, Karte, Termine und Kontakt auf",
        "Ich hätte gern drei Seiten statt einer",
    ],
)
def test_pages_that_are_counted_and_wished_for_are(prompt: str) -> None:
    assert by_rules(prompt)[0] == 3


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Put the awards at the end of the page", 1),
        ("A link under the list, and one at the bottom of every page", 1),
        ("when you are at the bottom of the list load the next picture softly", 2),
        ("Show a pop-up when they reach the bottom of the page", 2),
    ],
)
def test_the_end_of_a_page_is_a_place_and_to_come_to_it_an_event(prompt: str, expected: int) -> None:
    assert by_rules(prompt)[0] == expected


def test_a_file_to_download_is_a_link_where_a_spec_has_one() -> None:
    def on_a_spec(prompt: str) -> int | None:
        return batch_line({"id": "t", "prompt": prompt, "site": {**SITE, "has_spec": True}}, RULES_ALONE)["tier"]

    assert on_a_spec("People should be able to download the menu as PDF, it's in assets/menu.pdf") == 1
    assert on_a_spec("Visitors can download our price list (assets/prices.pdf) under the table") == 1
    assert on_a_spec("Members should be able to download their invoices") == 3


def test_source_code_for_a_spec_site_is_a_patch_all_the_same() -> None:
    prompt = "Put `.card { border: 1px dotted }` into the stylesheet"
    assert batch_line({"id": "t", "prompt": prompt, "site": {**SITE, "has_spec": True}}, RULES_ALONE)["tier"] == 2


def test_what_one_works_with_is_no_widget_of_a_new_site() -> None:
    """A clockmaker's new site went to the code agent for its clocks (issue 20)."""
    trade = "A single page for my workshop. Longcase, bracket and cuckoo clocks. Cleaning a mantel clock from £190."
    assert batch_line({"id": "t", "prompt": trade, "new_site": True})["tier"] == 1
    widget = "A page for our team with a live clock that shows the time in Tokyo and Lima"
    assert batch_line({"id": "t", "prompt": widget, "site": SITE})["tier"] == 3


@pytest.mark.parametrize("prompt", ["Stell die Seite auf Vue um", "migrate it to Hugo"])
def test_a_tool_that_is_meant_needs_one(prompt: str) -> None:
    assert tier(prompt) == 3


def by_rules(prompt: str) -> tuple[int | None, str]:
    """Return tier and reason without the second opinion, which could be right by chance."""
    decided = batch_line({"id": "t", "prompt": prompt, "site": SITE}, RULES_ALONE)
    return decided["tier"], decided["reason"]


def test_an_em_is_a_unit_behind_its_number_alone() -> None:
    """In Portuguese it is a preposition (trial 22)."""
    assert by_rules("Mude o horário: em agosto fechamos às 18")[0] == 1
    assert by_rules("letters apart by 0.1 em")[0] == 2


@pytest.mark.parametrize(
    "prompt",
    [
        "keep the navigation at the top while people scroll",
        "sticky header, please",
        "the menu should stay visible when you scroll down",
        "let the gallery photos open large when somebody clicks them",
        "a lightbox for the photos of the hall",
    ],
)
def test_what_the_catalog_pins_and_enlarges_needs_no_script(prompt: str) -> None:
    assert by_rules(prompt)[0] == 1


@pytest.mark.parametrize("prompt", ["keep the button at the top while people scroll", "a lightbox for the login form"])
def test_what_the_catalog_does_not_know_still_needs_one(prompt: str) -> None:
    assert by_rules(prompt)[0] in (2, 3)


@pytest.mark.parametrize(
    "prompt",
    [
        "Expertenmodus, dann die Farbe ändern",
        "en mode développeur : change le titre",
        "modo avanzado: cambia el título",
        "con l'agente di codice, cambia il titolo",
        "give this to a real developer: another title",
    ],
)
def test_a_tier_asked_for_in_one_s_own_words_is_taken(prompt: str) -> None:
    assert by_rules(prompt) == (3, "Code agent: you asked for an advanced edit.")


@pytest.mark.parametrize(
    "prompt",
    [
        "Kunden sollen einen Termin selbst buchen",
        "les membres doivent pouvoir se connecter",
        "Los socios deben poder reservar la sala",
        "i clienti devono poter pagare",
    ],
)
def test_what_visitors_do_by_themselves_is_logic_in_any_language(prompt: str) -> None:
    assert by_rules(prompt)[0] == 3


def test_a_field_of_a_form_is_no_logic() -> None:
    assert by_rules("Kunden sollen im Formular die Uhrzeit wählen")[0] == 1


@pytest.mark.parametrize(
    "prompt",
    [
        "port the parser in src/lexer to async",
        "Aggiungi al .gitignore la cartella .venv",
        "redirige /tarifs vers /prix dans le .htaccess",
        "rename it in cmd/tides/main.go",
    ],
)
def test_a_file_or_folder_of_source_code_is_no_page(prompt: str) -> None:
    assert by_rules(prompt)[0] == 2


def test_a_tag_is_markup() -> None:
    assert by_rules("paste this in the head <script src=x></script>")[0] == 2


@pytest.mark.parametrize(
    ("told", "meant", "otherwise"),
    [
        ("The soup goes down to 7 from Monday", "301 from /old.html to /new.html", 2),
        (
            "Our cook leaves at the end of the year, take him off the team",
            "at the end of the page, scroll to the top",
            2,
        ),
        ("new event: Sun 3 May, open day, no work, bring cake", "the send button no work", 2),
        ("Put it where no one can overlook it", "nobody can see the menu", 2),
        ("'By the lake' stimmt dann nicht mehr, schreiben Sie 'By the zoo'", "das Menü stimmt nicht mehr", 2),
        ("the bar now stops at 23:00 instead of 24", "the film stops at 0:30", 2),
        ("Add an entry to the guest book section", "add a guest book", 3),
        ("people can book through the contact form", "visitors can book a table online", 3),
        ("a room enquiry form with arrival date", "a booking form with live availability", 3),
        ("Add a calendar of our talks: 3 March, 7 April", "Add a calendar of free rooms", 3),
        ("a map with the way from the harbour", "a map with pins that open", 3),
    ],
)
def test_what_is_told_of_the_business_is_no_defect_script_or_widget(told: str, meant: str, otherwise: int) -> None:
    assert tier(told) == 1
    assert by_rules(meant)[0] == otherwise


def test_on_a_spec_site_an_address_to_link_needs_no_agent_whatever_the_words_around_it_mostly_need() -> None:
    prompt = "wo ist denn eigentlich unser Instagram verlinkt? falls nirgends bitte unten rein: instagram.com/nove"
    of_spec = batch_line({"id": "t", "prompt": prompt, "site": SITE | {"has_spec": True}})
    assert of_spec["tier"] == 1


@pytest.mark.parametrize(
    "prompt",
    [
        "make the title bigger but not bold",
        "Regular is sold out: it should show the price but say so, and you can't buy it",
        "My mother in law can't read half of it, the small grey stuff under the pictures. Bigger and darker letters",
        "Fix the two columns of the team, they look crooked",
        "Quieter please, edges straight. No gradients please. On the phone it should feel just as calm",
        "Dunkel wie ein Terminal, keine runden Ecken, keine Schatten",
    ],
)
def test_on_a_spec_site_what_looks_or_reads_wrong_is_first_tried_where_its_builder_is_told(prompt: str) -> None:
    assert by_rules(prompt)[0] == 2
    assert batch_line({"id": "t", "prompt": prompt, "site": SITE | {"has_spec": True}})["tier"] == 1
