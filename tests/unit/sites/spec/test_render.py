from __future__ import annotations

import gc
import re
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree, html

from sites.direct_edit.direct import apply_direct, parse_direct
from sites.errors import DetachedPagesError, SpecError
from sites.spec import render as render_module
from sites.spec import validate
from sites.spec.catalog import components
from sites.spec.expressions import walk
from sites.spec.model import INDEX, Site, check_json, parse_site, strings_in
from sites.spec.render import STYLESHEET, detached_files, referenced_assets, render, render_onto, theme_notes
from sites.spec.theme import MIN_TEXT_CONTRAST, Theme, contrast, palette
from tests.unit.sites.direct_edit.direct_corpus import spec_site
from tests.unit.sites.spec.samples import (
    demo_site,
    demo_text,
    element,
    every_component,
    page,
    reordered,
    with_every_text,
)

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(1)> {{7*7}} </style> & -->"""


def page_of(spec: dict[str, Any]) -> str:
    return render(parse_site(spec))[INDEX].decode()


def tree_of(spec: dict[str, Any]) -> etree._Element:
    return html.document_fromstring(page_of(spec).encode(), parser=html.HTMLParser(encoding="utf-8"))


def test_a_site_stays_with_its_spec_when_components_get_new_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    site = demo_site()
    changed = (
        apply_direct(site, next_edit) if (next_edit := parse_direct("make the accent colour teal", site)) else site
    )
    monkeypatch.setattr(render_module, "component_rules", lambda: (".old { top: 0 }",))
    files = render(site)
    monkeypatch.undo()
    assert files[STYLESHEET] != render(site)[STYLESHEET]
    assert detached_files(site, files) == frozenset()
    assert render_onto(site, changed, files) == render(changed) != render(site)

    for part in (b".old", b"--bg"):  # in the rules or in the theme
        by_hand = {**files, STYLESHEET: files[STYLESHEET].replace(part, part + b"er", 1)}
        assert detached_files(site, by_hand) == {STYLESHEET}
        with pytest.raises(DetachedPagesError):
            render_onto(site, changed, by_hand)


@pytest.mark.req("H-002", "H-012")
def test_a_site_builds_to_html_and_css_and_nothing_else() -> None:
    files = render(demo_site())
    assert set(files) == {"index.html", "classes.html", STYLESHEET}
    assert all(data.startswith(b"<!doctype html>") for path, data in files.items() if path.endswith(".html"))


def test_a_site_that_was_checked_is_neither_checked_nor_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = parse_site(demo_text())
    made = render(checked)
    monkeypatch.setattr(validate, "check_page", pytest.fail)
    monkeypatch.setattr(validate, "resolve_site", pytest.fail)
    assert checked.trees is not None
    assert all(node.checked for tree in checked.trees.values() for node in walk(tree))

    assert render(checked) == made
    assert checked == demo_site()  # what is known about a value is no part of it


def test_a_rendered_page_leaves_no_cycles_for_the_garbage_collector() -> None:
    render(parse_site(demo_text()))
    gc.collect()
    render(parse_site(demo_text()))

    assert gc.collect() == 0


def test_a_change_of_a_checked_site_is_checked_anew() -> None:
    site = parse_site(demo_text())
    pages = site.to_dict()["pages"]
    pages[INDEX]["root"] = "nowhere"

    with pytest.raises(SpecError):
        render(replace(site, pages=pages))


@pytest.mark.parametrize(
    "value", [{"a": [0, {"b/c~": "\x00"}]}, {"a": [0, {"b/c~": float("nan")}]}, {"a": [0, {"b/c~": 2**60}]}]
)
def test_what_no_json_may_hold_is_refused_at_its_place(value: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        check_json(value)
    assert caught.value.findings[0].path == "/a/1/b~1c~0"


@pytest.mark.req("H-012", "H-022", "H-024")
def test_the_same_spec_gives_the_same_bytes_whatever_the_order_of_keys() -> None:
    assert render(parse_site(reordered(demo_site().to_dict()))) == render(demo_site())


@pytest.mark.req("H-012", "H-024")
def test_the_same_spec_gives_the_same_bytes_in_another_process() -> None:
    program = (
        "import hashlib, sys; from sites.spec.model import parse_site; from sites.spec.render import render\n"
        "files = render(parse_site(sys.stdin.read()))\n"
        "print(hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        input=demo_text(),
        env={"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = repr(sorted(render(parse_site(demo_text())).items()))
    assert other.stdout == f"{sha256(here.encode()).hexdigest()}\n"


@pytest.mark.req("H-021")
@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("Hero", "Bread worth getting up for"),
        ("Testimonials", "The best rye in town."),
        ("ComparisonTable", '<th scope="col">Basic</th>'),
        ("FAQ", "<summary>Do you deliver?</summary>"),
        ("Footer", "© Hill Bakery"),
        ("ContactForm", '<form action="mailto:hello@bakery.example"'),
    ],
)
def test_the_catalog_holds_and_renders_the_six_named_components(name: str, shows: str) -> None:
    assert shows in page_of(page(one=element(name, **components()[name].example)))


TEXT_PLACES = [(name, place) for name, component in components().items() for place, _ in strings_in(component.example)]


@pytest.mark.threat("F13")
def test_hostile_text_in_any_text_prop_is_shown_and_never_run() -> None:
    for name, place in TEXT_PLACES:
        props = parse_site({"root": "p", "elements": {"p": {"props": components()[name].example}}}).to_dict()
        target = example = props["pages"][INDEX]["elements"]["p"]["props"]
        for step in place[:-1]:
            target = target[step]
        target[place[-1]] = HOSTILE[:60] if len(str(target[place[-1]])) < 60 else HOSTILE
        if name == "Page":
            spec = page()
            spec["elements"]["page"]["props"] = example
        else:
            spec = page(one=element(name, **example))
        try:
            built = render(parse_site(spec))
        except SpecError:
            continue  # this prop takes no free text: an address, a price, a choice
        document = html.document_fromstring(built[INDEX], parser=html.HTMLParser(encoding="utf-8"))
        live = document.xpath("//script | //img[@onerror] | //*[@onerror or @onclick or @onload or @style]")
        assert not live, (name, place)
        assert b"<script" not in built[STYLESHEET]


def test_every_free_text_of_the_catalog_is_covered_by_the_escaping_test() -> None:
    assert len(TEXT_PLACES) > 60


@settings(max_examples=30)
@given(
    st.text(
        st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cf", "Cn", "Co", "Zl", "Zp")),
        min_size=1,
        max_size=100,
    )
)
def test_any_text_comes_out_of_the_page_as_it_went_in(text: str) -> None:
    document = tree_of(page(hero=element("Hero", heading=text)))
    shown = document.xpath("//h1")[0].text_content()
    assert shown.split() == text.split()


MARKUP_CHARACTERS = st.text(st.sampled_from("<>\"'&;/=!?#x\\`{}()] \tscriptonb"), min_size=1, max_size=60).filter(
    str.strip
)
"""Without the signs of running text: `*` and `[`."""


def skeleton(node: etree._Element) -> list[Any]:
    """The elements of a tree with the names of their attributes, without any text."""
    return [node.tag, sorted(node.attrib), [skeleton(child) for child in node]]


@pytest.mark.threat("F13")
@settings(max_examples=20)
@given(MARKUP_CHARACTERS)
def test_no_text_changes_what_a_page_is_made_of(text: str) -> None:
    harmless = "a" * len(text)
    built = [tree_of(with_every_text(every_component(), words)) for words in (text, harmless)]
    assert skeleton(built[0]) == skeleton(built[1])
    assert built[0].xpath("//*[@id='e-Code']//code")[0].text_content() == text
    assert built[0].xpath("//*[@id='e-Image']//img/@alt") == [text]


@settings(max_examples=200)
@given(
    st.sampled_from(
        ["", "https://", "HTTPS:", "//", "java", "javascript:", "data:", "mailto:", "tel:", "#", "?", "/", ".."]
    ),
    st.text(st.sampled_from("ab0:/\\@.?#&;%<>\"' \t\njscript()="), max_size=20),
)
def test_an_accepted_address_is_read_back_as_it_was_and_goes_nowhere_else(start: str, rest: str) -> None:
    href = start + rest
    try:
        document = tree_of(page(one=element("Link", label="Go", href=href)))
    except SpecError:
        return
    (shown,) = document.xpath("//*[@id='one']//a/@href")
    assert shown in (href, href.lstrip("/"), "./")
    assert urlsplit(shown).scheme.lower() in ("", "http", "https", "mailto", "tel")
    assert not shown.startswith(("//", "\\"))


def test_lines_of_code_keep_their_indentation_however_deep_they_stand() -> None:
    code = "if a:\n    b()\n\n\tc()\r\nd()"
    spec = page(free=element("Section", heading="x") | {"children": ["code"]})
    spec["elements"]["code"] = element("Code", code=code)
    assert tree_of(spec).xpath("//pre/code")[0].text_content() == code


def test_no_page_carries_a_script_an_inline_style_or_a_handler() -> None:
    for path, data in render(demo_site()).items():
        if path.endswith(".html"):
            document = html.document_fromstring(data)
            assert not document.xpath("//script | //style | //*[@style] | //iframe | //object | //base")
            assert not [name for node in document.iter() for name in node.attrib if name.lower().startswith("on")]
    assert not re.search(rb"@import|url\(|expression\(|javascript:", render(demo_site())[STYLESHEET])


def test_a_page_has_landmarks_one_h1_and_no_skipped_heading_level() -> None:
    for spec in (every_component(), *demo_site().pages.values()):
        if "Shared" in str(spec):
            continue
        document = tree_of(spec)
        levels = [
            int(node.tag[1])
            for node in document.iter()
            if isinstance(node.tag, str) and re.fullmatch("h[1-6]", node.tag)
        ]
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert [len(document.xpath(f"//{name}")) for name in ("header", "main", "footer")] == [1, 1, 1]


def test_a_page_without_any_heading_still_has_an_h1_for_those_who_listen() -> None:
    document = tree_of(page(text=element("Text", text="Hello")))
    assert document.xpath("//h1/text()") == ["A page"]


def test_every_id_is_unique_and_every_reference_leads_to_one() -> None:
    for path, data in render(demo_site()).items():
        if path.endswith(".html"):
            document = html.document_fromstring(data)
            ids = document.xpath("//@id")
            assert len(ids) == len(set(ids))
            wanted = document.xpath("//@aria-labelledby | //label/@for") + [
                ref[1:] for ref in document.xpath("//a/@href") if ref.startswith("#")
            ]
            assert set(wanted) <= set(ids)


def test_every_field_has_a_label_and_every_image_an_alt() -> None:
    document = html.document_fromstring(render(demo_site())["classes.html"])
    fields = document.xpath("//input | //select | //textarea")
    assert fields
    assert {field.get("id") for field in fields} == set(document.xpath("//label/@for"))
    assert not document.xpath("//img[not(@alt)]")


def test_shared_elements_come_from_the_index_page_and_mark_the_current_page() -> None:
    document = html.document_fromstring(render(demo_site())["classes.html"])
    assert document.xpath("//nav//a[@aria-current='page']/text()") == ["Classes"]


def test_addresses_count_from_the_root_of_the_site_on_pages_in_folders() -> None:
    site = parse_site(
        {
            "pages": {
                INDEX: page(),
                "a/b/deep.html": page(hero=element("Hero", heading="x", image={"src": "assets/x.svg", "alt": ""})),
            }
        }
    )
    text = render(site)["a/b/deep.html"].decode()
    assert 'href="../../styles.css"' in text
    assert 'src="../../assets/x.svg"' in text


def test_referenced_assets_are_the_files_that_must_travel_beside() -> None:
    from importlib import resources

    shipped = {f"assets/{entry.name}" for entry in (resources.files("producers.local.demo_site") / "assets").iterdir()}
    assert referenced_assets(demo_site()) == shipped


def test_a_change_of_content_leaves_the_stylesheet_as_it_is() -> None:
    one = render(parse_site(page(hero=element("Hero", heading="x"))))
    two = render(parse_site(page(faq=element("FAQ", **components()["FAQ"].example))))
    assert one[STYLESHEET] == two[STYLESHEET]


def test_a_page_with_a_theme_of_its_own_shares_the_one_stylesheet() -> None:
    other = page()
    other["elements"]["page"]["props"]["theme"] = {"preset": "plum"}
    files = render(parse_site({"pages": {INDEX: page(), "b.html": other}}))
    name = re.search(r'<html lang="en" class="(theme-[0-9a-f]{8})">', files["b.html"].decode())
    assert name is not None
    assert f":root.{name[1]} {{" in files[STYLESHEET].decode()


def test_a_family_asked_for_by_name_is_set_in_the_nearest_fonts_and_the_reply_says_so() -> None:
    spec, plain = page(), page()
    spec["elements"]["page"]["props"]["theme"] = {"headings": "EB Garamond", "font": "Lato"}
    plain["elements"]["page"]["props"]["theme"] = {"headings": "serif", "font": "humanist"}
    named, known = (parse_site({"pages": {INDEX: each}}) for each in (spec, plain))
    assert render(named)[STYLESHEET] == render(known)[STYLESHEET]
    assert [note.partition(" fonts")[0] for note in theme_notes(named, "en")] == [
        "Lato is set in the humanist",
        "EB Garamond is set in the serif",
    ]
    assert theme_notes(known, "en") == ()


def test_a_site_whose_colour_is_mended_says_so_once_and_of_a_theme_that_is_new() -> None:
    """A shopkeeper read "index.html: words in #B8481A would be hard to read here and are set in #a23f17" (issue 20)."""
    gold, yellow = page(), page()
    gold["elements"]["page"]["props"]["theme"] = {"primary": "gold"}
    yellow["elements"]["page"]["props"]["theme"] = {"primary": "yellow"}
    site = parse_site({"pages": {INDEX: gold, "b.html": gold}})
    (note,) = theme_notes(site, "en")
    assert note == "words in the colour chosen would be hard to read here, so they have its nearest shade that is not"
    assert theme_notes(site, "en", before=site) == ()
    assert theme_notes(parse_site({"pages": {INDEX: yellow, "b.html": gold}}), "en", before=site) == (note,)
    assert theme_notes(demo_site(), "en") == ()


def test_the_owner_of_a_german_site_is_told_in_german() -> None:
    spec = page()
    spec["elements"]["page"]["props"]["theme"] = {"primary": "gold", "headings": "EB Garamond"}
    font, colour = theme_notes(parse_site({"pages": {INDEX: spec}}), "de-AT")
    assert font == "EB Garamond erscheint in der ähnlichsten Schrift (serif) auf dem Gerät der Besucher"
    assert colour.startswith("Wörter in der gewählten Farbe wären hier schwer zu lesen")
    english = parse_site({"pages": {INDEX: spec}})
    spec["elements"]["page"]["props"]["lang"] = "de"
    assert theme_notes(parse_site({"pages": {INDEX: spec}}), "de") == theme_notes(english, "de"), "told once"


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_a_colour_is_noted_where_it_is_too_faint_with_a_shade_that_is_not_and_only_then(mode: str) -> None:
    for hue in range(0, 256, 5):
        spec = page()
        theme = {"primary": f"#{hue:02x}7{hue % 16:x}2f", "background": "#f5f8ee" if mode == "light" else "#101410"}
        spec["elements"]["page"]["props"]["theme"] = {**theme, "mode": mode}
        colours = palette(Theme.model_validate({**theme, "mode": mode}), dark=mode == "dark")
        grounds = [colours[name] for name in ("bg", "surface", "tint")]
        for note in theme_notes(parse_site(spec), "en"):
            assert min(contrast(theme["primary"], ground) for ground in grounds) < MIN_TEXT_CONTRAST, note
            assert min(contrast(colours["link"], ground) for ground in grounds) >= MIN_TEXT_CONTRAST, note


YOGA = spec_site("yoga")
FILES = render(YOGA) | {"assets/room.jpg": b"\xff"}


def edited(prompt: str) -> Site:
    edit = parse_direct(prompt, YOGA)
    assert edit is not None
    return apply_direct(YOGA, edit)


def by_hand(*paths: str) -> dict[str, bytes]:
    return FILES | {path: FILES[path] + b"<!-- by hand -->" for path in paths}


def test_only_what_differs_from_its_render_is_detached() -> None:
    assert detached_files(YOGA, FILES) == frozenset()
    assert detached_files(YOGA, by_hand("classes.html")) == {"classes.html"}
    gone = {path: data for path, data in FILES.items() if path != "contact.html"}
    assert detached_files(YOGA, gone) == {"contact.html"}


def test_a_detached_page_and_foreign_files_keep_their_bytes() -> None:
    files = by_hand("classes.html")
    after = render_onto(YOGA, edited("Change the hero heading to 'Breathe'"), files)
    assert b"Breathe" in after["index.html"]
    assert {path: data for path, data in after.items() if path != "index.html"} == {
        path: data for path, data in files.items() if path != "index.html"
    }


@pytest.mark.parametrize(
    ("prompt", "detached"),
    [
        ("Change the hero heading to 'Breathe'", "index.html"),
        ("Rename the studio to 'Deep Water Yoga'", "contact.html"),
        ("Change the primary colour to navy", STYLESHEET),
        ("Remove the footer", "classes.html"),
    ],
)
def test_a_change_that_needs_a_detached_file_is_refused_and_names_it(prompt: str, detached: str) -> None:
    with pytest.raises(DetachedPagesError, match=detached):
        render_onto(YOGA, edited(prompt), by_hand(detached))


@settings(max_examples=25)
@given(
    st.sets(st.sampled_from(sorted(render(YOGA)))),
    st.sampled_from(
        [
            "Change the hero heading to 'Breathe'",
            "Remove the stats",
            "Change the primary colour to navy",
            "Change the monthly price to £85",
            "Rename the studio to 'Deep Water Yoga'",
        ]
    ),
)
def test_no_render_ever_changes_a_detached_file(paths: set[str], prompt: str) -> None:
    files = by_hand(*paths)
    try:
        after = render_onto(YOGA, edited(prompt), files)
    except DetachedPagesError:
        return
    assert {path: after[path] for path in paths} == {path: files[path] for path in paths}


def test_a_page_that_the_spec_drops_goes_and_one_that_it_adds_never_covers_a_file() -> None:
    smaller = Site({path: page for path, page in YOGA.pages.items() if path != "contact.html"})
    assert "contact.html" not in render_onto(YOGA, smaller, FILES)
    assert "contact.html" in render_onto(smaller, YOGA, render(smaller))
    with pytest.raises(DetachedPagesError, match=r"contact\.html"):
        render_onto(smaller, YOGA, render(smaller) | {"contact.html": b"mine"})


def set_in(font: str | None, *, text: str = "sans") -> Site:
    spec = page()
    spec["elements"]["page"]["props"]["theme"] = {"headings": font, "text": text} if font else {}
    return parse_site({"pages": {INDEX: spec, "a/b.html": page()}})


def test_a_site_carries_the_fonts_that_its_theme_names_and_has_those_of_headings_fetched_first() -> None:
    files = render(set_in("fraunces-1", text="figtree-1"))
    fonts = ["figtree-1-LICENSE.txt", "figtree-1-ext.woff2", "figtree-1.woff2"]
    fonts += ["fraunces-1-LICENSE.txt", "fraunces-1-ext.woff2", "fraunces-1.woff2"]
    assert sorted(path for path in files if path.startswith("fonts/")) == [f"fonts/{name}" for name in fonts]
    for path, address in ((INDEX, "fonts/fraunces-1.woff2"), ("a/b.html", "../fonts/fraunces-1.woff2")):
        assert f'<link rel="preload" href="{address}" as="font" type="font/woff2" crossorigin>' in files[path].decode()
    sheet = files[STYLESHEET].decode()
    assert {path for path in files if path.endswith(".woff2")} == {*re.findall(r'url\("([^"]+)"\)', sheet)}


def test_a_site_of_looks_carries_no_font() -> None:
    for font in (None, "serif", "Playfair Display", "Inter"):
        files = render(set_in(font))
        assert sorted(files) == ["a/b.html", INDEX, STYLESHEET]
        assert not [data for data in files.values() if b"@font-face" in data or b"preload" in data]


def test_fonts_come_and_go_with_the_theme_and_one_that_is_missing_detaches_nothing() -> None:
    plain, warm, dark = set_in(None), set_in("fraunces-1"), set_in("playfair-display-1")
    own = {"fonts/mine.woff2": b"wOF2", "logo.svg": b"<svg/>"}
    files = render_onto(plain, warm, render(plain) | own)
    assert files == render(warm) | own
    assert render_onto(warm, dark, files) == render(dark) | own
    bare = {path: data for path, data in files.items() if path not in render(warm) or path in render(plain)}
    assert detached_files(warm, bare) == frozenset()
    assert render_onto(warm, dark, bare) == render(dark) | own
    with pytest.raises(DetachedPagesError):
        render_onto(plain, warm, render(plain) | {"fonts/fraunces-1.woff2": b"the owner's"})
