from __future__ import annotations

import re

import pytest

from sites.spec.model import INDEX, Site, parse_site
from sites.spec.read_back import read_back
from sites.spec.render import detached_files, render
from tests.unit.sites.spec.samples import demo_site, element, page

SITE = demo_site()
FILES = render(SITE)
PAGE = FILES[INDEX].decode()
SECTIONS = re.findall(r"      <section id=.*?</section>\n", PAGE, re.S)
LINES = re.findall(r'            <li>\n              <div class="line-top">.*?</li>\n', PAGE, re.S)
SHORT = re.sub("              <p>.*?</p>\n", "", LINES[0]).replace("Millbrook", "Plain")
TAGGED = LINES[1].replace("Dark rye", "Beer bread").replace("vegan", "new")
EYEBROW = '            <p class="eyebrow">Our bread</p>\n'


def read(path: str, *changes: tuple[str, str]) -> Site | None:
    text = FILES[path].decode()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_back(SITE, FILES | {path: text.encode()})


@pytest.mark.parametrize(
    "changes",
    [
        [("<title>Hearth", "<title>Herd")],
        [("Bread with the patience left in", "Bread &amp; &lt;patience&gt;")],
        [('href="#menu"', 'href="https://shop.example/menu"')],
        [('alt="A brick oven', 'alt="An oven')],
        [(LINES[1], "")],
        [(LINES[1], LINES[1] + LINES[1].replace("Dark rye", "Light rye").replace("5.80", "4.20"))],
        [(LINES[0] + LINES[1], LINES[1] + LINES[0])],
        [(EYEBROW, "")],
        [(SECTIONS[1], "")],
        [(SECTIONS[1] + SECTIONS[2], SECTIONS[2] + SECTIONS[1])],
        [(SECTIONS[2], SECTIONS[2] + SECTIONS[2].replace("approach", "second").replace("The dough", "The rest"))],
        [("tone-tinted stats", "tone-deep stats")],
        [
            (
                '            <h2 id="approach.title">Three things we will not hurry</h2>\n',
                '            <h2 id="approach.title">'
                'Three things we will not hurry</h2>\n            <p class="lead">None of them is new.</p>\n',
            )
        ],
        [("".join(LINES[:3]), ""), (LINES[-1], SHORT + TAGGED)],
        [(LINES[1], LINES[1].replace('                <span class="tag">vegan</span>\n', ""))],
        [(SECTIONS[1], ""), (LINES[1], ""), ("Bread with the patience", "Loaves with the patience")],
    ],
)
def test_an_edit_that_the_spec_can_hold_is_read_back_to_the_byte(changes: list[tuple[str, str]]) -> None:
    edited = FILES[INDEX].decode()
    for old, new in changes:
        edited = edited.replace(old, new)
    site = read(INDEX, *changes)
    assert site is not None
    assert render(site) == FILES | {INDEX: edited.encode()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('<p class="lead">', '<p class="lead" style="color: red">'),
        ("</body>", "<script>alert(1)</script></body>"),
        ("</main>", "<p>More</p></main>"),
        ("</main>", "<!-- by hand --></main>"),
        ('class="brand-name">Hearth', 'class="brand-name">Hearths'),  # of the header that classes.html shows, too
        ("Three things we will not hurry", ""),
        ("<main", "<div>" * 5000 + "<main"),
        ("<main", '<a "' * 4000 + "<main"),
    ],
)
def test_any_other_edit_leaves_the_page_detached(old: str, new: str) -> None:
    assert read(INDEX, (old, new)) is None


def test_words_that_a_number_is_set_apart_from_are_read_back_with_it() -> None:
    call = {"label": "Ring 0161 555 017", "href": "tel:0161555017"}
    prices = element("PriceList", items=[{"title": "Rye", "price": "from £4"}], layout="figures")
    hero = element("Hero", heading="Bread", actions=[call])
    site = parse_site(page(hero=hero, prices=prices))
    files = render(site)
    edited = files[INDEX].replace(b"Ring <span", b"Call <span").replace("£4</span>".encode(), "£5</span>".encode())
    assert edited != files[INDEX]
    after = read_back(site, {**files, INDEX: edited})
    assert after is not None
    assert after.pages[INDEX]["elements"]["hero"]["props"]["actions"][0]["label"] == "Call 0161 555 017"
    assert after.pages[INDEX]["elements"]["prices"]["props"]["items"][0]["price"] == "from £5"


def test_an_entry_with_a_text_that_no_other_has_is_read_back() -> None:
    works = [{"time": f"{day} May", "title": f"Work {day}"} for day in (2, 9)]
    site = parse_site(page(days=element("Schedule", items=works)))
    built = render(site)[INDEX].decode()
    first, second = re.findall(r" +<li>.*?</li>\n", built, re.S)
    third = second.replace("9 May", "16 May").replace("Work 9", "Balsam")
    third = third.replace("</h2>\n", "</h2>\n                <p>Bring long sleeves.</p>\n")
    edited = built.replace(first + second, second + third).encode()
    found = read_back(site, render(site) | {INDEX: edited})
    assert found is not None
    assert render(found)[INDEX] == edited


def test_a_shared_header_that_was_edited_on_each_page_is_read_back() -> None:
    renamed = {
        path: data.replace(b'class="brand-name">Hearth', b'class="brand-name">Herd') for path, data in FILES.items()
    }
    site = read_back(SITE, renamed)
    assert site is not None
    assert detached_files(site, renamed) == frozenset()


def test_a_page_is_read_back_beside_one_that_cannot_be() -> None:
    shorter = FILES["classes.html"].replace(b"Learn it with your hands", b"Learn it")
    files = FILES | {INDEX: FILES[INDEX] + b"<!-- by hand -->", "classes.html": shorter}
    assert shorter != FILES["classes.html"]
    site = read_back(SITE, files)
    assert site is not None
    assert detached_files(site, files) == {INDEX}


def test_a_page_with_the_builder_s_own_script_is_read_back() -> None:
    rows = [{"label": name, "values": [price]} for name, price in (("Rye", "5"), ("Spelt", "6"))]
    table = element("ComparisonTable", sortable=True, columns=["€"], rows=rows)
    site = parse_site(page(hero=element("Hero", heading="Bread"), table=table))
    files = render(site)
    assert b"<script" in files[INDEX]
    after = read_back(site, files | {INDEX: files[INDEX].replace(b"Bread</h1>", b"Loaves</h1>")})
    assert after is not None
    assert b"Loaves</h1>" in render(after)[INDEX]


@pytest.mark.parametrize("body", ["Closed **24 to 26**.", "Closed 24 to 26. [Hours](https://x.example/)\n\nMore."])
@pytest.mark.parametrize("kind", ["RichText", "Header"])
def test_a_word_of_running_text_with_marks_is_read_back(kind: str, body: str) -> None:
    props = {"heading": "Note", "body": body} if kind == "RichText" else {"brand": "Hearth", "notice": body}
    site = parse_site(page(note=element(kind, **props), text=element("Text", text="Bread")))
    files = render(site)
    after = read_back(site, files | {INDEX: files[INDEX].replace(b"24 to 26", b"27 to 28")})
    assert after is not None
    assert body.replace("24 to 26", "27 to 28") in after.pages[INDEX]["elements"]["note"]["props"].values()


@pytest.mark.parametrize("path", [INDEX, "news/oven.html"])
def test_running_text_with_links_is_read_back_on_any_page(path: str) -> None:
    body = "The oven is **new**. See [*our* bread](bread.html), [the site](https://oven.example/) or [more](#text)."
    pages = {INDEX: page(hero=element("Hero", heading="Bread")), path: page(text=element("RichText", body=body))}
    files = render(parse_site({"pages": pages}))
    edited = files[path].replace(b"The oven", b"Our oven").replace(b"<em>our</em> bread", b"our <em>rye</em>")
    site = read_back(parse_site({"pages": pages}), files | {path: edited})
    assert site is not None
    after = body.replace("The oven", "Our oven").replace("*our* bread", "our *rye*")
    assert site.pages[path]["elements"]["text"]["props"]["body"] == after
