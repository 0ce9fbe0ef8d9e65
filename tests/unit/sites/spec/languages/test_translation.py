from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.policy.platform import platform_policy
from sites.errors import SpecError
from sites.links import dead_links
from sites.spec.languages.address import address_line
from sites.spec.languages.translation import (
    MAX_CHUNK_CHARACTERS,
    MAX_CHUNKS,
    Entry,
    Versions,
    add_versions,
    apply_translation,
    choose_texts,
    chunks,
    entries_of,
    left_over,
)
from sites.spec.model import INDEX, MAX_PAGES, Site, parse_site
from sites.spec.quality import is_unchanged
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site, element, every_component, page

TEXTS = entries_of(demo_site())


def test_a_site_s_own_texts_change_nothing_and_fit_few_calls() -> None:
    for site in (demo_site(), parse_site(every_component())):
        texts = entries_of(site)
        same = [{"n": number, "text": entry.text} for number, entry in enumerate(texts)]
        assert is_unchanged(site, apply_translation(site, texts, [{"texts": same}]))
    parts = chunks(TEXTS)
    assert 1 < len(parts) <= MAX_CHUNKS
    assert all(len(re.sub(r"(?m)^\d+ \[[^]]+\] ", "", part)) < MAX_CHUNK_CHARACTERS * 1.1 for part in parts)
    given = [int(found) for part in parts for found in re.findall(r"(?m)^(\d+) \[", part)]
    assert [TEXTS[number].text for number in given] == list(dict.fromkeys(entry.text for entry in TEXTS))


def test_a_part_of_many_short_texts_fits_what_a_reply_may_write_of_them_in_german() -> None:
    entries = [Entry(INDEX, "list", ("items", n, "title"), f"{n:03} Thirty letters of a text") for n in range(200)]
    tokens = platform_policy().calls["spec_edit"].max_tokens
    for part in chunks(entries):
        given = re.findall(r"(?m)^(\d+) \[[^]]+\] (.*)$", part)
        reply = {"texts": [{"n": int(number), "text": f"{text}{'x' * 5}"} for number, text in given]}
        assert len(json.dumps(reply)) / 3 < tokens - 150, "German has 3 letters a token; a summary takes 130"


def test_texts_that_only_address_visitors_otherwise_take_their_forms_along() -> None:
    """A site was to say `du`: the texts that address nobody are not told, and the form says it, too (issue 20)."""
    hero, form = (
        element("Hero", heading="Besuchen Sie uns, wir zeigen Ihnen alles"),
        element("ContactForm", email="a@b.de"),
    )
    story = element("RichText", body="Der Ofen steht seit 1998 im selben Haus.")
    spec = page(hero=hero, story=story, contact=form)
    spec["elements"]["page"]["props"]["lang"] = "de"
    site = parse_site(spec)
    texts = entries_of(site)
    number = next(n for n, entry in enumerate(texts) if entry.element == "hero")
    new = {"n": number, "text": "Besuch uns, wir zeigen dir alles"}
    reply = {"language": "de", "source": "de", "beside": False, "texts": [new]}
    changed = apply_translation(site, texts, [reply])
    assert changed.pages[INDEX]["elements"]["contact"]["props"]["familiar"] is True
    assert b"Dein Name" in render(changed)[INDEX]
    assert left_over(site, texts, [reply]) == ()
    assert left_over(site, texts, [{**reply, "source": "en", "texts": [{"n": 0, "text": "Seite"}, new]}])
    back = {**reply, "texts": [{"n": number, "text": "Besuchen Sie uns, wir zeigen Ihnen alles"}]}
    assert apply_translation(changed, entries_of(changed), [back]).to_dict() == site.to_dict()
    spec["elements"]["contact"]["props"]["familiar"] = True
    chosen, other = parse_site(spec), next(n for n, entry in enumerate(texts) if entry.element == "story")
    reply = {**reply, "texts": [{"n": other, "text": "Der Ofen steht seit 1999 im selben Haus."}]}
    kept = apply_translation(chosen, texts, [reply]).pages[INDEX]["elements"]["contact"]["props"]
    assert kept["familiar"] is True, "its owner chose it, and no other address was wanted"


def test_every_text_that_visitors_read_can_be_translated() -> None:
    site = parse_site(every_component())
    texts = entries_of(site)
    marked = [{"n": number, "text": f"ZZ{entry.text}"} for number, entry in enumerate(texts)]
    translated = apply_translation(site, texts, [{"language": "de", "texts": marked}])
    page = render(translated)[INDEX].decode()
    assert '<html lang="de"' in page
    shown = [text for text in re.findall(r">([^<>]+)<", page.partition("<body")[2]) if any(map(str.isalpha, text))]
    ours = [text for text in shown if "ZZ" in text]
    assert len(ours) > 0.75 * len(shown), sorted(set(shown) - set(ours))


def test_a_section_in_another_language_says_so_until_its_page_is_in_it_too() -> None:
    """Screen readers read the Italian questions of an English page with an English voice (issue 20; WCAG 3.1.2)."""

    def language(site: Site) -> tuple[str, str | None]:
        elements = site.pages[INDEX]["elements"]
        return elements["page"]["props"].get("lang", "en"), elements["faq"]["props"].get("lang")

    questions = reply(f"{INDEX} faq", language="it", beside=False)
    site = apply_translation(demo_site(), TEXTS, [questions])
    assert language(site) == ("en", "it")
    assert re.search(rb'<section id="faq" class="[^"]*" lang="it"', render(site)[INDEX])
    assert len(entries_of(site)) == len(TEXTS), "it is no text"
    assert language(apply_translation(site, TEXTS, [{**questions, "language": "en"}])) == ("en", None)
    first = questions["texts"][:1]
    assert language(apply_translation(demo_site(), TEXTS, [{**questions, "texts": first}])) == ("en", None)
    assert language(apply_translation(site, TEXTS, [reply(language="it", beside=False)])) == ("it", None)
    german = added(site=site).site.pages["de/index.html"]["elements"]["faq"]
    assert "lang" not in german["props"], "its version is in the language of its page"
    courses = apply_translation(demo_site(), TEXTS, [reply("classes.html courses", language="de", beside=False)])
    assert courses.pages["classes.html"]["elements"]["courses"]["props"]["plans"][0]["price"] == "75\N{NO-BREAK SPACE}€"
    back = apply_translation(courses, TEXTS, [reply("classes.html courses", language="en", beside=False)])
    assert back.pages["classes.html"]["elements"]["courses"]["props"]["plans"][0]["price"] == "€75"


def test_what_a_form_asks_is_translated_and_the_names_of_its_fields_are_none_of_the_words() -> None:
    form = element(
        "ContactForm",
        email="a@b.example",
        questions=[{"label": "Arrival", "kind": "date"}],
        message="optional",
    )
    assert [entry.text for entry in entries_of(parse_site(page(form=form))) if entry.element == "form"] == ["Arrival"]
    faq = element("FAQ", items=[{"question": "Q", "answer": "A"}], open="all")
    assert [entry.text for entry in entries_of(parse_site(page(faq=faq))) if entry.element == "faq"] == ["A", "Q"]


@settings(max_examples=50)
@given(
    st.one_of(
        st.none(),
        st.just("text"),
        st.just([[]]),
        st.fixed_dictionaries(
            {"n": st.one_of(st.integers(-3, len(TEXTS) + 3), st.text(), st.booleans()), "text": st.text() | st.none()}
        ),
    )
)
def test_a_hostile_reply_is_refused_or_changes_one_text(step: object) -> None:
    try:
        translated = apply_translation(demo_site(), TEXTS, [{"language": "<x>", "texts": [step]}, {"texts": step}])
    except SpecError:
        return
    before, after = ([entry.text for entry in entries_of(site)] for site in (demo_site(), translated))
    assert sum(one != other for one, other in zip(before, after, strict=False)) <= 1


def reply(*chosen: str, language: str = "de", texts: Sequence[Entry] = TEXTS, **more: Any) -> dict[str, Any]:
    """A translation of the texts of some elements ("page element"), or of all."""
    steps = [
        {"n": number, "text": f"ZZ{entry.text}"}
        for number, entry in enumerate(texts)
        if not chosen or f"{entry.page} {entry.element}" in chosen
    ]
    return {"language": language, "beside": True, "source": "en", "texts": steps, **more}


def added(*chosen: str, site: Site | None = None, **more: Any) -> Versions:
    site = site or demo_site()
    texts = entries_of(site)
    return add_versions(site, texts, [reply(*chosen, texts=texts, **more)])


def words(site: Site, path: str) -> str:
    return re.sub(r"<[^>]+>", " ", render(site)[path].decode().partition("<body")[2])


def test_a_further_language_stands_beside_the_pages_which_stay_as_they_are() -> None:
    made = added()
    assert (made.written, made.left) == (("de/index.html", "de/classes.html"), ())
    assert {path: made.site.pages[path] for path in demo_site().pages} == demo_site().pages
    assert "ZZ" in words(made.site, "de/classes.html")
    assert "ZZ" not in words(made.site, "classes.html")
    assert '<html lang="de"' in render(made.site)["de/index.html"].decode()
    assert entries_of(made.site) == TEXTS
    recoloured = made.site.to_dict()
    recoloured["pages"][INDEX]["elements"]["page"]["props"]["theme"]["primary"] = "teal"
    changed = render(parse_site(recoloured))
    assert {path for path, data in render(made.site).items() if changed[path] != data} == {"styles.css"}
    assert left_over(demo_site(), TEXTS, [reply()]) == ()


def test_only_a_page_whose_own_texts_come_gets_a_version_and_brings_header_and_footer_with_it() -> None:
    about = {entry.element for entry in TEXTS if entry.page == "classes.html"}
    chosen = [f"classes.html {key}" for key in about] + [f"{INDEX} header", f"{INDEX} footer"]
    made = added(*chosen)
    assert made.written == ("de/classes.html",)
    header = render(made.site)["de/classes.html"].decode().partition("<main")[0]
    assert "ZZHearth" in header
    assert 'href="../index.html"' in header
    assert added(site=made.site).written == ("de/index.html", "de/classes.html")


def test_a_new_section_comes_into_the_version_that_is_there_and_nothing_else_changes_in_it() -> None:
    document = added().site.to_dict()
    document["pages"]["de/index.html"]["elements"]["hero"]["props"]["heading"] = "Brot mit Geduld"
    index = document["pages"][INDEX]
    index["elements"]["news"] = element("RichText", heading="News", body="We open on Sundays.")
    index["elements"]["page"]["children"].insert(2, "news")
    site = parse_site(document)
    made = added(f"{INDEX} news", site=site)
    version = made.site.pages["de/index.html"]
    assert version["elements"]["page"]["children"][2] == "news"
    assert version["elements"]["news"]["props"]["body"] == "ZZWe open on Sundays."
    assert version["elements"]["hero"] == site.pages["de/index.html"]["elements"]["hero"]
    assert made.site.pages["de/classes.html"] == site.pages["de/classes.html"]


def test_a_version_of_only_some_sections_leaves_out_the_rest_and_what_leads_there() -> None:
    made = added(f"{INDEX} page", f"{INDEX} hero", f"{INDEX} faq", partial=True)
    assert made.written == ("de/index.html",)
    version, original = made.site.pages["de/index.html"], demo_site().pages[INDEX]
    shown = [version["elements"][key]["type"] for key in version["elements"]["page"]["children"]]
    assert shown == ["Header", "Hero", "FAQ", "Footer"]
    lost = [f"#{key}" for key in original["elements"] if key not in version["elements"]]
    texts = json.dumps(version)
    assert lost
    assert not [key for key in lost if f'"{key}"' in texts or f"({key})" in texts]
    assert dead_links(render(made.site)) == frozenset()
    assert made.site.pages[INDEX] == original
    whole = reply(f"{INDEX} hero", f"{INDEX} faq", partial=True)
    assert left_over(demo_site(), TEXTS, [whole]) == ()


def test_links_to_what_a_version_of_some_sections_lacks_lead_to_the_original_where_they_cannot_be_left_out() -> None:
    note = element("RichText", heading="Note", body="See [the prices](#prices).")
    card = element("Features", items=[{"title": "Bread", "link": {"label": "Prices", "href": "#prices"}}])
    prices = element("PriceList", heading="Prices", items=[{"title": "Rye", "price": "5"}])
    site = parse_site(page(note=note, card=card, prices=prices))
    made = added(f"{INDEX} note", f"{INDEX} card", site=site, partial=True)
    document = render(made.site)["de/index.html"].decode()
    assert document.count('href="../index.html#prices"') == 2
    assert "Rye" not in document


def test_a_section_that_has_become_another_is_replaced_only_whole_and_otherwise_told() -> None:
    document = added().site.to_dict()
    faq = document["pages"][INDEX]["elements"]["faq"]["props"]["items"]
    faq.insert(0, {"question": "Do you deliver?", "answer": "In town, by bicycle."})
    site = parse_site(document)
    texts = entries_of(site)
    first = [number for number, entry in enumerate(texts) if entry.keys[:2] == ("items", 0) and entry.element == "faq"]
    one = {"language": "de", "beside": True, "texts": [{"n": number, "text": "Neu"} for number in first]}
    made = add_versions(site, texts, [one])
    assert made.site.pages["de/index.html"] == site.pages["de/index.html"]
    assert made.left == (f"faq of de/index.html stays as it is, as it differs from {INDEX}",)
    whole = added(f"{INDEX} faq", site=site)
    assert whole.site.pages["de/index.html"]["elements"]["faq"]["props"]["items"][0]["question"] == "ZZDo you deliver?"
    assert whole.left == ()


def test_sentences_that_no_reply_translates_are_told_and_names_are_not() -> None:
    most = reply(*{f"{INDEX} {entry.element}" for entry in TEXTS} - {f"{INDEX} faq"})
    (note,) = left_over(demo_site(), TEXTS, [most])
    assert "texts stay as they are, such as" in note
    (german,) = left_over(demo_site(), TEXTS, [most], told_in="de")
    assert "Texte bleiben, wie sie sind, etwa" in german
    named = [{"n": n, "text": "x"} for n, entry in enumerate(TEXTS) if len(entry.text.split()) > 3]
    assert left_over(demo_site(), TEXTS, [{"texts": named}]) == ()
    assert left_over(demo_site(), TEXTS, [reply(f"{INDEX} faq", beside=False)]) == (), "the others were not asked for"
    assert left_over(demo_site(), TEXTS, [reply(f"{INDEX} faq")]), "a version beside a page is of the whole page"
    assert left_over(demo_site(), TEXTS, [most | {"partial": True}]) == (), "nor what a part leaves out of a page"
    assert left_over(demo_site(), TEXTS, [{"texts": reply(f"{INDEX} faq")["texts"][:1]}]), "a section left half done"


def test_words_of_a_shared_footer_that_come_with_one_page_make_the_index_no_page_of_the_translation() -> None:
    classes = [
        number for number, entry in enumerate(TEXTS) if entry.page == "classes.html" or entry.element == "footer"
    ]
    assert left_over(demo_site(), TEXTS, [{"texts": [{"n": number, "text": "Wort"} for number in classes]}]) == ()


def test_pages_beyond_what_a_site_holds_get_no_version_and_are_named() -> None:
    document = demo_site().to_dict()
    for number in range(MAX_PAGES - 3):
        document["pages"][f"p{number}.html"] = page(text=element("Text", text="Hello"))
    made = added(site=parse_site(document))
    assert made.written == ("de/index.html",)
    assert len(made.left) == MAX_PAGES - 2
    assert made.left[0] == f"classes.html gets no version, as a site holds at most {MAX_PAGES} pages"


def test_a_site_of_more_texts_than_a_job_translates_is_translated_by_whole_pages_the_named_first() -> None:
    document = demo_site().to_dict()
    for name in ("one", "two", "three", "four", "five"):
        items = [{"question": f"{name} {at}", "answer": f"{name} {at}: " + "Bread and time. " * 50} for at in range(4)]
        document["pages"][f"{name}.html"] = page(faq=element("FAQ", items=items))
    site = parse_site(document)
    choice = choose_texts(site, "Translate the page Three into German")
    assert {entry.page for entry in choice.entries} >= {"three.html"}
    assert set(choice.left) == set(site.pages) - {entry.page for entry in choice.entries}
    assert choice.left
    assert len(chunks(choice.entries)) <= MAX_CHUNKS
    assert {entry.page for entry in choose_texts(site, "Translate it", without={INDEX}).entries}.isdisjoint({INDEX})
    done = add_versions(site, choice.entries, [reply(texts=choice.entries)]).site
    again = choose_texts(done, "Translate the rest into German")
    assert {entry.page for entry in again.entries} & set(choice.left), "pages in one language come first"


def test_a_text_too_long_for_a_call_is_left_as_it_is_and_told() -> None:
    site = parse_site(page(text=element("RichText", body="Bread and time. " * 300)))
    texts = entries_of(site)
    assert "".join(chunks(texts)).count("Bread") == 0
    [note] = left_over(site, texts, [{"texts": [{"n": 0, "text": "Eine Seite"}]}])
    assert note.startswith("“Bread and time. ")
    assert note.endswith("” stays as it is")


@pytest.mark.parametrize("said", [{"language": ""}, {"language": "../x"}, {"language": "en"}, {"language": 7}])
def test_a_version_needs_a_language_that_the_pages_are_not_in(said: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="/language"):
        added(**{"source": "en", **said})


def test_pages_that_never_said_their_language_do_so_before_an_english_version_comes() -> None:
    document = demo_site().to_dict()
    for each in document["pages"].values():
        each["elements"][each["root"]]["props"].pop("lang", None)
    made = added(site=parse_site(document), language="en", source="de")
    assert '<html lang="de"' in render(made.site)[INDEX].decode()
    assert '<html lang="en"' in render(made.site)["en/index.html"].decode()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.fixed_dictionaries({"n": st.integers(-1, len(TEXTS)), "text": st.text(max_size=5)}), max_size=6))
def test_any_reply_gives_a_valid_site_whose_pages_stay_or_is_refused(steps: list[dict[str, Any]]) -> None:
    try:
        made = add_versions(demo_site(), TEXTS, [{"language": "fr", "texts": steps}])
    except SpecError:
        return
    assert {path: made.site.pages[path] for path in demo_site().pages} == demo_site().pages
    render(made.site)


def asking_twice() -> Site:
    hero = element("Hero", heading="The last house", actions=[{"label": "Ask", "href": "#call"}])
    call = element("CallToAction", heading="Come", actions=[{"label": "Ask", "href": "#hero"}])
    return parse_site(page(hero=hero, call=call))


def given_texts(site: Site) -> dict[str, int]:
    lines = re.findall(r"(?m)^(\d+) \[([^]]+)\] (.*)$", "\n".join(chunks(entries_of(site))))
    assert len({text for _, _, text in lines}) == len(lines)
    return {text: int(number) for number, _, text in lines}


def labels(site: Site) -> list[str]:
    elements = site.pages[INDEX]["elements"]
    return [elements[key]["props"]["actions"][0]["label"] for key in ("hero", "call")]


def test_a_text_in_several_places_is_given_once_and_is_the_same_in_all_of_them() -> None:
    site = asking_twice()
    numbers = given_texts(site)
    assert "hero.actions.0.label; index.html call.actions.0.label] Ask" in "\n".join(chunks(entries_of(site)))
    texts = [{"n": number, "text": f"ZZ{text}"} for text, number in numbers.items()]
    done = apply_translation(site, entries_of(site), [{"language": "de", "texts": texts}])
    assert labels(done) == ["ZZAsk", "ZZAsk"]


def test_a_text_in_several_places_stays_where_nothing_else_is_translated() -> None:
    site = asking_twice()
    numbers = given_texts(site)
    call = [{"n": numbers[text], "text": f"ZZ{text}"} for text in ("Come", "Ask")]
    assert labels(apply_translation(site, entries_of(site), [{"language": "de", "texts": call}])) == ["Ask", "ZZAsk"]
    alone = [{"n": numbers["Ask"], "text": "ZZAsk"}]
    assert labels(apply_translation(site, entries_of(site), [{"language": "de", "texts": alone}])) == ["ZZAsk", "Ask"]


@pytest.mark.parametrize(
    ("lang", "text", "request_", "informal"),
    [
        ("en", "Ask us.", "Put it into German", False),
        ("en", "Ask us.", "Auf Deutsch bitte, in der Du-Form", True),
        ("de", "Frag uns, wenn du magst. Wir helfen dir.", "Translate it into French", True),
        ("de", "Fragen Sie uns, wir helfen Ihnen.", "Translate it into French", False),
        ("de", "Frag uns, wir helfen dir.", "auf Französisch, aber mit vouvoiement", False),
        ("fr", "Viens nous voir, tu es chez toi.", "auf Deutsch", True),
    ],
)
def test_every_part_is_told_how_visitors_are_addressed(lang: str, text: str, request_: str, informal: bool) -> None:
    document = page(text=element("RichText", body=text))
    document["elements"]["page"]["props"]["lang"] = lang
    site = parse_site(document)
    assert ("informally" in address_line(site, request_)) is informal
