"""The example sites in a real browser: what axe-core finds, what sticks out, and what hostile text does to a page."""

import json
from collections.abc import Callable
from copy import deepcopy
from itertools import count, cycle, pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from playwright.sync_api import Browser, Page, Request

from docs.pictures import BAKERY, SITES, build
from sites.directories import write_directory
from sites.spec.catalog import Tone, components
from sites.spec.drawings.requests import drawn
from sites.spec.model import Site, parse_site
from sites.spec.outline import expand_outline
from sites.spec.render import referenced_assets, render
from sites.spec.theme import Style
from tests.unit.sites.spec.drawings.test_requests import GOAT
from tests.unit.sites.spec.samples import every_component, with_every_text

HOSTILE = """</p></div><script>hit()</script>"'><img src=x onerror=hit()> <!-- ]]> {{7}} </style> &lt; &#x3c;script>"""
SKELETON = """() => {
  const names = node => [...node.attributes].map(each => each.name).sort();
  const walk = node => [node.localName, names(node), [...node.children].map(walk)];
  return walk(document.documentElement);
}"""
LINES_OF = """each => { const range = document.createRange();
  range.selectNodeContents(document.querySelector(each));
  return new Set([...range.getClientRects()].map(rect => Math.round(rect.bottom))).size; }"""

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture
def show(tab: Page, tmp_path: Path) -> Callable[..., Page]:
    """Opens a site's first page."""
    folders = count()

    def shown(site: Site | dict[str, Any], *, width: int = 1280, height: int = 900) -> Page:
        write_directory(
            render(parse_site(site) if isinstance(site, dict) else site), folder := tmp_path / str(next(folders))
        )
        tab.set_viewport_size({"width": width, "height": height})
        tab.emulate_media(color_scheme="light")
        tab.goto((folder / "index.html").as_uri())
        return tab

    return shown


def lines_of(page: Page, selector: str) -> Any:
    return page.evaluate(LINES_OF, selector)


COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe whose verdict may be another in another colour scheme."""
SCHEMES: tuple[tuple[Literal["light", "dark"], ...], ...] = (("light", "dark"), ("dark", "light"))
"""Of a phone and of a desk: pages take turns with them, as axe takes a second of the processor for a page."""


def violations(page: Page, *rules: str, within: str = "html") -> list[str]:
    """What axe finds by these rules, or by all."""
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = page.evaluate("async ([place, options]) => (await axe.run(place, options)).violations", [within, options])
    return [f"{each['id']}: {node['target']}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("folder", [*SITES, BAKERY], ids=lambda folder: folder.name)
def test_axe_finds_nothing_on_any_page_at_both_widths_and_in_light_and_dark(
    folder: Path, tmp_path: Path, tab: Page, axe: str
) -> None:
    build(folder, tmp_path / "site")
    found: dict[str, list[str]] = {}
    requests: list[str] = []

    def note(request: Request) -> None:
        requests.append(request.url)

    tab.on("request", note)
    schemes = cycle(SCHEMES)
    for file in sorted((tmp_path / "site").glob("*.html")):
        tab.goto(file.as_uri())
        tab.evaluate(axe)
        for width, scheme in zip((390, 1440), next(schemes), strict=True):
            tab.set_viewport_size({"width": width, "height": 900})
            tab.emulate_media(color_scheme=scheme)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, f"{file.name} sticks out at {width}"
            if complaints := violations(tab):
                found[f"{file.name} {width} {scheme}"] = complaints
    tab.remove_listener("request", note)
    assert all(url.startswith("file:") for url in requests), "a page loads from elsewhere"
    assert found == {}


def test_axe_finds_nothing_on_a_page_in_several_languages_with_posts_questions_and_coloured_tags(
    tmp_path: Path, tab: Page, axe: str
) -> None:
    nonprofit = next(folder for folder in SITES if folder.name == "nonprofit")
    document = json.loads((nonprofit / "site.json").read_text(encoding="utf-8"))
    index = document["pages"]["index.html"]["elements"]
    for layout in ("rows", "cards"):
        index[layout] = {"type": "Posts", "props": {"heading": layout, "path": "notes/", "layout": layout}}
        index["page"]["children"].insert(3, layout)
    for kind in ("ContactForm", "PriceList"):
        index[kind] = {"type": kind, "props": components()[kind].example}
        index["page"]["children"].insert(3, kind)
    index["header"]["props"]["notice"] = (
        "Closed from 24 to 26 December. [Donaudampfschifffahrtsgesellschaft](#gone-pricing)"
    )
    for kind, prop in (("PriceList", "items"), ("Features", "items"), ("Pricing", "plans"), ("Schedule", "items")):
        props = deepcopy(components()[kind].example)
        props[prop] = [{**entry, "sold_out": "Sold out"} for entry in props[prop]]
        index[f"gone-{kind}".lower()] = {
            "type": kind,
            "props": {**props, "heading": f"No more {kind}", "tone": "deep" if prop == "plans" else "tinted"},
        }
        index["page"]["children"].insert(4, f"gone-{kind}".lower())
    for path in [*document["pages"]]:
        for lang in ("de", "fr", "nl"):
            version = document["pages"][f"{lang}/{path}"] = deepcopy(document["pages"][path])
            version["elements"][version["root"]]["props"]["lang"] = lang
    files = render(parse_site(document))
    assets = {path: (nonprofit / path).read_bytes() for path in referenced_assets(parse_site(document))}
    write_directory(files | assets, tmp_path / "site")
    for path, schemes in zip(("index.html", "de/notes.html", "fr/notes/kingfisher.html"), cycle(SCHEMES), strict=False):
        tab.goto((tmp_path / "site" / path).as_uri())
        tab.evaluate(axe)
        for width, scheme in zip((320, 1440), schemes, strict=True):
            tab.set_viewport_size({"width": width, "height": 900})
            tab.emulate_media(color_scheme=scheme)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, f"{path} sticks out at {width}"
            assert violations(tab) == [], f"{path} {width} {scheme}"
    tab.goto((tmp_path / "site" / "notes.html").as_uri())
    tab.get_by_role("link", name="Deutsch").click()
    assert tab.url.endswith("/de/notes.html")
    assert "19. April 2026" in tab.locator("main").inner_text()
    tab.get_by_role("link", name="The kingfisher is back").click()
    assert tab.url.endswith("/de/notes/kingfisher.html")


def test_the_menu_of_a_narrow_screen_opens_and_closes_without_a_script(tmp_path: Path, tab: Page, axe: str) -> None:
    build(SITES[0], tmp_path / "site")
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.goto((tmp_path / "site" / "index.html").as_uri())
    links = tab.locator("header nav a")
    assert not links.first.is_visible()
    tab.get_by_role("button", name="Menu").click()
    assert links.first.is_visible()
    tab.evaluate(axe)
    assert violations(tab) == []
    tab.keyboard.press("Escape")
    assert not links.first.is_visible()
    tab.get_by_role("button", name="Menu").click()
    tab.get_by_role("button", name="Close").click()
    assert not links.first.is_visible()


@pytest.mark.threat("F13")
def test_hostile_text_in_every_prop_leaves_the_page_that_a_browser_builds_as_it_is(
    tmp_path: Path, browser: Browser
) -> None:
    page, built, hits = browser.new_page(), [], list[str]()
    page.expose_function("hit", lambda: hits.append("ran"))
    for name, text in (("plain", "plain " * 20), ("hostile", HOSTILE)):
        site = parse_site(with_every_text(every_component(), text))
        file = tmp_path / f"{name}.html"
        file.write_bytes(render(site)["index.html"])
        page.goto(file.as_uri())
        built.append(json.dumps(page.evaluate(SKELETON)))
    page.close()
    assert hits == []
    assert len(components()) > 30
    assert built[0] == built[1]


@pytest.mark.parametrize("text", ["many plain words to fill the room " * 20, "x" * 140], ids=["many words", "one word"])
def test_no_text_makes_any_component_stick_out_of_any_screen(text: str, show: Callable[..., Page]) -> None:
    document = with_every_text(every_component(), text)
    for style in (None, *get_args(Style)):
        page = show(_in_style(style, deepcopy(document)))
        for width in (320, 390, 768, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{style} at {width}"


def _in_style(style: str | None, document: dict[str, Any]) -> dict[str, Any]:
    props = document["elements"][document["root"]]["props"]
    props["theme"] = {**props.get("theme", {}), "style": style}
    sections = [
        each for each in document["elements"].values() if "tone" in components()[each["type"]].props.model_fields
    ]
    for at, each in enumerate(sections if style else ()):
        each["props"]["tone"] = get_args(Tone)[at % len(get_args(Tone))]
    return document


def _with(*, style: str | None = None, theme: dict[str, str] | None = None, **props: Any) -> dict[str, Any]:
    """A page of components of these types and props, or of all, with this theme alone."""
    document = _in_style(style, every_component())
    elements, root = document["elements"], document["elements"][document["root"]]
    if props:
        root["children"] = [key for key in root["children"] if elements[key]["type"] in props]
        made = {key: {**elements[key], "props": props[elements[key]["type"]]} for key in root["children"]}
        document["elements"] = {document["root"]: root, **made}
    if theme is not None:
        root["props"]["theme"] = theme
    return document


@pytest.mark.parametrize("style", get_args(Style))
def test_axe_finds_nothing_on_a_page_of_all_components_in_any_style(
    style: str, show: Callable[..., Page], axe: str
) -> None:
    page = show(_with(style=style))
    page.evaluate(axe)
    for width, scheme in ((390, "light"), (1440, "light"), (1440, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert violations(page, *(COLOURS if scheme == "dark" else ())) == [], f"{width} {scheme}"


@pytest.mark.parametrize("style", get_args(Style))
def test_the_facts_of_an_opening_are_read_above_a_call_in_any_style(
    style: str, show: Callable[..., Page], axe: str
) -> None:
    notes = [{"title": "Mon to Fri 8–5.30, Sat 8–12.30"}, {"title": "From £3"}, {"title": "Rye only"}]
    outline = {
        "name": "Mill Bakery",
        "lang": "en",
        "trade": "bakery",
        "theme": {"style": style},
        "contact": {"email": "a@b.example"},
        "sections": [
            {"kind": "Hero", "heading": "Bread", "items": notes},
            {"kind": "CallToAction", "heading": "Order now"},
            {"kind": "RichText", "heading": "Mill", "text": "Old."},
        ],
    }
    is_on_top = """each => { const range = document.createRange(); range.selectNodeContents(each);
      const {left, right, top, bottom} = range.getBoundingClientRect();
      return [left + 1, right - 1].every(x => each.contains(document.elementFromPoint(x, bottom - 1))); }"""
    for strip, tone in (("accent", "filled"), ("deep", "accent")):
        spec = expand_outline(outline).to_dict()
        spec["pages"]["index.html"]["elements"]["hero"]["props"] |= {"strip": strip, "tone": tone}
        spec["pages"]["index.html"]["elements"]["page"]["props"]["theme"]["mode"] = "auto"  # a new site has one scheme
        page = show(spec)
        page.evaluate(axe)
        for width, scheme in ((390, "light"), (1280, "light"), (2400, "dark")):
            page.set_viewport_size({"width": width, "height": 1800})
            page.emulate_media(color_scheme=scheme)
            assert violations(page, *COLOURS, within=".hero") == [], f"{strip} {width} {scheme}"
            facts = page.locator(".hero-strip li").evaluate_all(f"all => all.map({is_on_top})")
            assert facts == [True] * 3, f"{strip} {width} {scheme}"
            assert lines_of(page, ".hero-strip li > *") == 1 or width > 390, "hours broke after their dash (trial 18)"


@pytest.mark.parametrize("style", get_args(Style))
def test_what_new_sites_are_composed_of_is_read_and_stays_on_the_screen(
    style: str, show: Callable[..., Page], axe: str
) -> None:
    word = "Donaudampfschifffahrtsgesellschaftskapitänsmütze"
    prices = [{"title": word, "price": "from £3,280", "text": "A word. " * 20}, {"title": "Rye", "price": "£3"}]
    shapes = ["ground rect 0 0 1000 360", *(f"fill circle {at} 180 90" for at in (200, 500, 800))]
    hero = {"heading": f"{word} bread", "text": "Rye.", "layout": "wide", "drawing": {"of": "a mill", "shapes": shapes}}
    parts = {"hero": ("Hero", {**hero, "notes": ["One", "Two", "Three"], "strip": "accent", "tone": "filled"})}
    for tone in get_args(Tone):
        layouts = {"figures": prices, "lines": prices * 3}
        for layout, items in layouts.items():
            lists = {"heading": f"{layout} {tone}", "text": "Each.", "items": items, "layout": layout, "tone": tone}
            parts[f"{layout}-{tone}"] = ("PriceList", lists)
        call = {"heading": f"{word} {tone}", "text": "Rye.", "actions": [{"label": "Ring", "href": "tel:+441"}]}
        parts[f"call-{tone}"] = ("CallToAction", {**call, "layout": "centered", "tone": tone})
        cards = {"heading": f"Why {tone}", "items": [{"title": word, "text": "Slow."}] * 3, "tone": tone}
        parts[f"cards-{tone}"] = ("Features", cards)
    theme = {"preset": "warm", "style": style, "align": "center"}
    root = {"type": "Page", "props": {"title": "Mill", "theme": theme}, "children": [*parts]}
    elements = {key: {"type": kind, "props": props, "children": []} for key, (kind, props) in parts.items()}
    page = show({"root": "page", "elements": {"page": root, **elements}})
    page.evaluate(axe)
    assert page.locator(".hero-wide").count() == 1
    furthest = "Math.max(...[...document.querySelectorAll('h1, h2, h3, p')].map(e => e.getBoundingClientRect().right))"
    for width, scheme in ((320, "light"), (768, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{style} at {width}"
        assert page.evaluate(furthest) <= width, f"{style} at {width}"
        assert violations(page, *(COLOURS if scheme == "dark" else ())) == [], f"{width} {scheme}"


@pytest.mark.parametrize("leads_to_contact", [True, False])
def test_a_phone_s_header_cuts_no_word_of_the_name_and_leaves_the_button_to_a_menu_that_has_it(
    leads_to_contact: bool, show: Callable[..., Page]
) -> None:
    outline = {
        "name": "Hotel Bergblick",
        "lang": "de",
        "trade": "hotel",
        "contact": {"email": "a@b.example"},
        "sections": [
            {"kind": "Hero", "heading": "Ruhe"},
            {"kind": "RichText", "heading": "Haus", "text": "Alt."},
            {"kind": "ContactForm"},
        ],
    }
    spec = expand_outline(outline).to_dict()
    if not leads_to_contact:
        spec["pages"]["index.html"]["elements"]["header"]["props"]["action"]["href"] = "#rich-text"
    page = show(spec, width=390)
    assert page.locator("header .button").is_visible() != leads_to_contact
    page.get_by_role("button", name="Menü").click()
    assert page.locator("header nav a").last.inner_text() == "Kontakt"
    assert page.locator("header nav a").last.is_visible()
    page.keyboard.press("Escape")
    assert lines_of(page, ".brand-name") <= 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_phone_s_footer_cuts_no_word_of_the_name(show: Callable[..., Page]) -> None:
    outline = {
        "name": "Klompenmakerij Ten Dam",
        "lang": "nl",
        "mark": "a clog",
        "theme": {"style": "tiles", "headings": "bitter-1", "size": "larger"},
        "contact": {"email": "a@b.example", "phone": "0547 555 210", "address": "Dorpsstraat 88, Enter"},
        "sections": [{"kind": "Hero", "heading": "Klompen"}, {"kind": "MapLink", "heading": "Route"}],
    }
    spec = expand_outline(outline).to_dict()
    shapes = ["fill rect 100 100 300 300", "ink rect 150 150 90 90", "accent rect 260 150 90 90"]
    spec["pages"]["index.html"]["elements"]["footer"]["props"]["drawing"]["shapes"] = shapes
    assert lines_of(show(spec, width=390), ".site-footer .brand-name") == 2


@pytest.mark.parametrize("layout", ["mosaic", "grid"])
def test_a_gallery_of_any_number_of_pictures_leaves_no_hole(layout: str, show: Callable[..., Page]) -> None:
    galleries = {
        f"work-{number}": {"type": "Gallery", "props": {"layout": layout, "images": [{"art": "hills"}] * number}}
        for number in range(1, 13)
    }
    top = {"type": "Page", "props": {"title": "Work"}, "children": [*galleries]}
    page = show({"root": "page", "elements": {"page": top, **galleries}})
    left_and_right = """() => [...document.querySelectorAll(".gallery-grid")].map(each => {
      const [whole, ...pictures] = [each, ...each.children].map(one => one.getBoundingClientRect());
      const row = pictures.filter(one => one.top === pictures.at(-1).top);
      return [row[0].left - whole.left, whole.right - row.at(-1).right].map(Math.round);
    })"""
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert len(found := page.evaluate(left_and_right)) == len(galleries)
        assert found[0] == [0, 0], "a single picture is as wide as the page"
        assert [number for number, (left, right) in enumerate(found, 1) if left != right] == [], f"at {width}"


@pytest.mark.parametrize("preset", ["plum", "ocean"])
def test_a_weekday_and_its_time_stand_on_one_line(preset: str, show: Callable[..., Page]) -> None:
    items = [{"time": "Wednesday 19:00", "title": "Beginners", "text": "With Asha, 60 minutes"}] * 5
    page = show(_with(theme={"preset": preset}, Schedule={"heading": "Timetable", "items": items}))
    for width in (390, 960, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert lines_of(page, ".schedule-time") == 1, width


def test_a_button_on_a_ground_of_its_own_colour_keeps_an_edge(show: Callable[..., Page]) -> None:
    form = {"heading": "Write", "email": "a@b.example", "tone": "accent"}
    spec = _with(theme={"accent": "#e5874a", "buttons": "#e5874a"}, ContactForm=form)
    colours = """each => [getComputedStyle(each).borderTopColor,
      getComputedStyle(each.closest(".tone-accent")).backgroundColor]"""
    edge, ground = show(spec).locator(".contact.tone-accent .button").first.evaluate(colours)
    assert edge != ground


def test_a_button_that_has_the_accent_keeps_it_on_deep_ground_too(show: Callable[..., Page]) -> None:
    link = {"label": "See the work", "href": "#work", "accent": True}
    hero = {"heading": "Light", "layout": "cover", "art": "hills", "actions": [link]}
    theme = {"primary": "#1c1b1a", "accent": "#c9a15a", "deep": "#f0eeea"}
    button = show(_with(theme=theme, Hero=hero)).locator(".hero.tone-deep .button-accent").first
    assert button.evaluate("each => getComputedStyle(each).backgroundColor") == "rgb(201, 161, 90)"


def test_a_site_without_icons_has_those_of_its_controls_alone(show: Callable[..., Page]) -> None:
    shown = "all => all.filter(each => each.checkVisibility()).map(each => each.parentElement.className)"
    assert "icon-mark" in show(_with(theme={})).locator(".icon").evaluate_all(shown)
    kept = {"menu-button", "large-close", "video-play", "embed-mark", "yes", "menu-button menu-close"}
    assert set(show(_with(theme={"icons": "none"})).locator(".icon").evaluate_all(shown)) <= kept


def test_capitals_with_accents_have_room_below_the_line_above(show: Callable[..., Page]) -> None:
    hero = {"heading": "26 mètres de haut, jusqu’au 8e étage", "layout": "statement"}
    spec = _with(theme={"style": "poster", "headings": "oswald-1"}, Hero=hero)
    root = spec["elements"][spec["root"]]["props"]
    leading = "each => parseFloat(getComputedStyle(each).lineHeight) / parseFloat(getComputedStyle(each).fontSize)"
    found = {}
    for root["lang"] in ("en", "fr"):
        found[root["lang"]] = show(spec).locator(".hero :is(h1, h2)").first.evaluate(leading)
    assert found["en"] < 1 < 1.15 < found["fr"]


def test_a_quiet_button_is_read_on_a_plan_s_own_ground_where_buttons_have_that_colour(
    show: Callable[..., Page], axe: str
) -> None:
    page = show(_with(theme={"accent": "#e5874a", "buttons": "#e5874a"}))
    page.evaluate(axe)
    assert page.locator(".plan.tone-accent .button-quiet").count() == 1
    assert violations(page, *COLOURS, within=".plans") == []


def test_the_lines_of_an_answer_and_of_a_notice_stay_lines(show: Callable[..., Page]) -> None:
    header = components()["Header"].example | {"notice": "Closed\nuntil Monday"}
    faq = {"open": "all", "items": [{"question": "When?", "answer": "At noon\nand at six"}]}
    page = show(_with(Header=header, FAQ=components()["FAQ"].example | faq))
    lines = {place: page.locator(f"{place} p").inner_text() for place in (".notice", ".answer")}
    assert lines == {".notice": "Closed\nuntil Monday", ".answer": "At noon\nand at six"}


def test_three_people_of_a_printed_page_have_room_for_what_they_do(show: Callable[..., Page]) -> None:
    team = {"heading": "Team", "people": [{"name": "Vera Reindl", "role": "Orgelbaumeisterin"}] * 3}
    assert lines_of(show(_with(style="editorial", Team=team), width=1280), ".role") == 1


@pytest.mark.parametrize("style", get_args(Style))
def test_a_phone_breaks_no_word_of_what_people_do(style: str, show: Callable[..., Page]) -> None:
    person = {"name": "Tarek Aziz", "role": "Sportphysiotherapie", "text": "Betreut die Handballerinnen."}
    page = show(_with(style=style, Team={"heading": "Team", "people": [person] * 4}), width=390)
    assert lines_of(page, ".role") == 1


@pytest.mark.parametrize("style", get_args(Style))
def test_a_long_price_on_a_phone_leaves_its_title_a_line(style: str, show: Callable[..., Page]) -> None:
    item = {"title": "Restauration de livres", "price": "à partir de 120 €"}
    page = show(_with(style=style, PriceList={"heading": "Prix", "items": [item] * 4}), width=390)
    assert lines_of(page, ".line-top :is(h2, h3)") == 1


def test_a_phone_shows_a_table_of_short_values_whole_and_a_price_on_the_line_of_its_dish_beside_a_tag(
    show: Callable[..., Page],
) -> None:
    rows = [{"label": "Metres of bank", "values": ["–", "€1000", True]}]
    table = {"heading": "Gifts", "columns": ["€20", "€60", "€200"], "rows": rows}
    dish = {"title": "Tajarin, forty yolks", "tag": "vegetarian", "price": "17"}
    menu = {"heading": "Menu", "items": [dish]}
    page = show(_with(theme={"preset": "ink"}, ComparisonTable=table, PriceList=menu))
    parts = (".line-top :is(h2, h3)", ".line-price", ".line-top .tag", ".line-top")
    for width in (360, 390):
        page.set_viewport_size({"width": width, "height": 844})
        frame = page.locator(".table-frame").first
        assert frame.evaluate("each => each.scrollWidth - each.clientWidth") <= 0
        name, price, tag, line = (page.locator(each).evaluate("each => each.getBoundingClientRect()") for each in parts)
        assert price["x"] + price["width"] == pytest.approx(line["x"] + line["width"], abs=1)
        assert abs(price["y"] - name["y"]) < name["height"] / 2
        assert tag["y"] >= name["y"] + name["height"]


def test_a_plan_that_is_sold_out_and_has_no_button_says_so_above_its_name(show: Callable[..., Page]) -> None:
    """At the foot of its card it was overlooked, below a badge that praised it (trial 16)."""
    plan = {"name": "First loaf", "price": "€75", "features": ["One loaf"]}
    gone = {**plan, "name": "Croissants", "badge": "Most loved", "sold_out": "Back in May"}
    page = show(_with(Pricing={"plans": [{**plan, "action": {"label": "Book", "href": "index.html"}}, gone]}))
    assert page.locator(".plan .badge").all_inner_texts() == ["Back in May"]
    badge, name = (page.locator(f".plan.sold-out {part}").bounding_box() for part in (".badge", ":is(h2, h3)"))
    assert badge is not None
    assert name is not None
    assert badge["y"] + badge["height"] <= name["y"]


def test_a_plan_alone_stands_beside_its_heading_on_a_desk_and_below_it_on_a_phone(show: Callable[..., Page]) -> None:
    """Below it, half of the page was bare (trial 19)."""
    page = show(_with(Pricing={"heading": "Painting week", "plans": [{"name": "Six places", "price": "€740"}]}))
    for width, beside in ((1280, True), (390, False)):
        page.set_viewport_size({"width": width, "height": 900})
        heading, plan = (page.locator(part).bounding_box() for part in (".pricing .intro", ".pricing .plan"))
        assert heading is not None
        assert plan is not None
        assert (plan["x"] >= heading["x"] + heading["width"]) is beside
        assert (plan["y"] < heading["y"] + heading["height"]) is beside


@pytest.mark.parametrize("layout", ["cards", "plain"])
def test_five_offers_fill_their_rows_as_cards_and_without_frames_stand_in_columns(
    layout: str, show: Callable[..., Page]
) -> None:
    items = [{"title": f"Offer {at}", "text": "At no extra charge."} for at in range(5)]
    page = show(_with(Features={"heading": "Offers", "items": items, "layout": layout}))
    places = [each.bounding_box() for each in page.locator(".cards > li").all()]
    starts = [place["x"] for place in places if place]
    assert (starts[4] == starts[1]) is (layout == "plain")
    assert starts[3] == starts[0]


def test_a_list_in_running_text_stands_closer_to_the_line_that_announces_it_than_to_the_next(
    show: Callable[..., Page],
) -> None:
    """A board's text of two lists was read as one grey column (trial 19)."""
    page = show(_with(RichText={"body": "Welcome.\n\nYou:\n\n- walk\n- count\n\nWe:\n\n- bring trees"}))
    boxes = [each.bounding_box() for each in page.locator(".rich-text .prose > :not(:first-child)").all()]
    known = [box for box in boxes if box]
    assert len(known) == 4
    gaps = [below["y"] - above["y"] - above["height"] for above, below in pairwise(known)]
    assert gaps[0] == pytest.approx(gaps[2])
    assert gaps[0] * 2 < gaps[1]


@pytest.mark.parametrize("style", [None, *get_args(Style)])
def test_two_short_fields_of_a_form_share_a_line_and_a_message_has_its_own(
    style: str | None, show: Callable[..., Page]
) -> None:
    """A day and the number of guests had a line each, so that a table's form grew long (trial 19)."""
    questions = [{"label": "Day", "kind": "date"}, {"label": "Guests", "kind": "number"}]
    page = show(_with(style=style, ContactForm={"email": "a@b.example", "questions": questions}))
    places = [each.bounding_box() for each in page.locator(".form > .field").all()]
    tops = [place["y"] for place in places if place]
    assert tops[0] == tops[1] < tops[2] == tops[3] < tops[4]


def test_a_form_marks_what_has_to_be_filled_in_where_other_fields_need_not(show: Callable[..., Page]) -> None:
    """A telephone number that an owner wanted optional looked like what has to be filled in (trial 20)."""
    for kinds, marked in (([{"label": "Phone", "kind": "phone"}], [True, True, False, True]), ([], [False] * 3)):
        labels = show(_with(ContactForm={"email": "a@b.example", "questions": kinds})).locator(".form label")
        drawn = labels.evaluate_all("found => found.map(each => getComputedStyle(each, '::after').content)")
        assert ["*" in content for content in drawn] == marked


def test_hours_in_a_fact_of_an_opening_are_as_far_from_its_other_words_as_words_are(show: Callable[..., Page]) -> None:
    """A gap stood before the comma behind them."""
    wide, narrow = (
        show(_with(Hero={"heading": "Bread", "notes": ["Mon 9–5, Sat 9–4", "Mon 9-5, Sat 9-4"]}))
        .locator(".hero-notes li > *")
        .evaluate_all("facts => facts.map(fact => fact.getBoundingClientRect().width)")
    )
    assert wide == pytest.approx(narrow, abs=12)


def test_the_dots_of_facts_are_seen_on_a_ground_of_the_accent(show: Callable[..., Page]) -> None:
    """They were yellow on yellow (trial 22)."""
    page = show(_with(Hero={"heading": "Bread", "notes": ["Rye", "Spelt"], "tone": "accent"}))
    dot, ground = page.evaluate("""() => ['::before', null].map((part, at) => getComputedStyle(
        document.querySelector(at ? '.hero' : '.hero-notes li'), part).backgroundColor)""")
    assert dot != ground


def test_a_name_of_one_word_stands_whole_beside_the_mark_and_the_button_of_a_phone_s_header(
    show: Callable[..., Page],
) -> None:
    parts = [{"kind": "Hero", "heading": "Twee uur bos"}, {"kind": "RichText", "heading": "Ik", "text": "Hilde."}]
    theme = {"preset": "sunset", "headings": "bricolage-grotesque-1", "font": "figtree-1", "style": "poster"}
    site = expand_outline({"name": "Modderpoot", "lang": "nl", "theme": theme, "mark": "a boot", "sections": parts})
    spec = drawn(site, {"a boot": GOAT}).to_dict()
    action = {"label": "App 06 5555 0176", "href": "https://wa.me/31655550176"}
    spec["pages"]["index.html"]["elements"]["header"]["props"]["action"] = action
    page = show(spec, width=390)
    assert page.locator(".site-header .mark").is_visible()
    assert page.locator(".site-header .button").is_visible()
    assert lines_of(page, ".brand-name") == 1


@pytest.mark.parametrize("size", [None, "large", "larger"])
def test_larger_letters_cut_no_word_of_a_phone_s_header(size: str | None, show: Callable[..., Page]) -> None:
    (guesthouse,) = (path for path in SITES if path.name == "guesthouse")
    spec = json.loads((guesthouse / "site.json").read_text())
    spec["pages"]["index.html"]["elements"]["page"]["props"]["theme"]["size"] = size
    page = show(spec, width=390)
    assert lines_of(page, ".brand-name") <= 2  # Haus, Lärchgrat


def test_the_form_below_the_visit_leaves_the_address_and_further_ways_to_write_to_it(
    show: Callable[..., Page],
) -> None:
    ways = [{"title": "Which bread?", "detail": "text"}, {"title": "WhatsApp", "detail": "https://wa.me/442079460000"}]
    for items, is_shown in ((ways[:1], False), (ways, True)):
        outline = {
            "name": "Mill Bakery",
            "lang": "en",
            "trade": "bakery",
            "theme": {"style": "display"},
            "contact": {"email": "a@b.example", "address": "14 Mill Lane, Millbrook"},
            "sections": [
                {"kind": "Hero", "heading": "Bread"},
                {"kind": "MapLink", "heading": "Find us"},
                {"kind": "ContactForm", "heading": "Write to us", "items": items},
            ],
        }
        page = show(expand_outline(outline))
        assert page.locator(".visit-card [href^='mailto:']").is_visible()
        assert page.locator(".visit-card [href*='wa.me']").is_visible() == is_shown
        assert not page.locator(".contact-words address").is_visible()


def test_a_page_from_right_to_left_sets_contact_data_beside_their_icons_and_an_address_in_its_own_order(
    show: Callable[..., Page],
) -> None:
    outline = {
        "name": "مخبز",
        "lang": "ar",
        "trade": "bakery",
        "contact": {"email": "a@b.example", "phone": "+44 20 7946 0000", "address": "14 Mill Lane"},
        "sections": [{"kind": "Hero", "heading": "خبز"}, {"kind": "MapLink", "heading": "العنوان"}],
    }
    page = show(expand_outline(outline))
    gaps = """() => [...document.querySelectorAll("address :has(> .icon)")].map(line => {
      const range = document.createRange(); range.selectNodeContents(line.lastChild);
      return line.querySelector(".icon").getBoundingClientRect().left - range.getBoundingClientRect().right; })"""
    assert len(found := page.evaluate(gaps)) >= 5
    assert all(0 <= gap < 30 for gap in found), found
    number = """() => { const text = document.querySelector(".map-address span").firstChild;
      const at = (from, to) => { const range = document.createRange(); range.setStart(text, from);
        range.setEnd(text, to); return range.getBoundingClientRect().left; };
      return at(0, 2) < at(3, 7); }"""
    assert page.evaluate(number), "the number of the house stands behind its street"


LINES = {"phone": "+44 20 7946 0000", "email": "hello@bakery.example", "address": "1 Mill Lane"}
HOURS = {"hours": [{"days": "Monday", "time": "9-5"}]}


@pytest.mark.parametrize(
    ("contact", "is_said"),
    [
        ({**LINES, **HOURS}, True),
        (LINES, False),
        *[({**{name: LINES[name] for name in LINES if name != left}, **HOURS}, False) for left in LINES],
    ],
    ids=["all", "no hours", *(f"no {name}" for name in LINES)],
)
def test_the_end_of_a_page_leaves_out_contact_data_only_where_the_page_has_said_all_of_them(
    contact: dict[str, Any], is_said: bool, show: Callable[..., Page]
) -> None:
    kind, said = "ContactForm" if "email" in contact else "MapLink", {"heading": "Here", **contact}
    props: dict[str, dict[str, Any]] = {"said": said, "end": {"brand": "Bakery", **LINES, **HOURS}}
    props["page"] = {"title": "Bakery", "theme": {"style": "display"}}
    elements = {
        key: {"type": type_, "props": props[key], "children": children}
        for key, type_, children in (("page", "Page", ["said", "end"]), ("said", kind, []), ("end", "Footer", []))
    }
    page = show({"root": "page", "elements": elements})
    assert page.locator(".site-footer address").is_visible() is not is_said
