from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
from lxml import html

from routing.policy.platform import platform_policy
from sites.links import dead_links
from sites.scan.engine import scan
from sites.spec.languages.translation import entries_of
from sites.spec.languages.versions import languages_of, lead_everywhere, outdated, own_name
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.read_back import read_back
from sites.spec.render import referenced_assets, render
from tests.unit.sites.spec.samples import demo_site, element, findings, page


def in_french(*paths: str, site: Site | None = None, lang: str = "fr") -> Site:
    """The demo site with versions of some pages, whose words are the same."""
    document = (site or demo_site()).to_dict()
    for path in paths:
        version = document["pages"][f"{lang[:2]}/{path}"] = deepcopy(document["pages"][path])
        version["elements"][version["root"]]["props"]["lang"] = lang
    return parse_site(document)


def tree_of(site: Site, path: str) -> Any:
    return html.document_fromstring(render(site)[path])


BOTH = in_french(INDEX, "classes.html")


def test_a_page_and_its_versions_name_each_other_and_lead_to_each_other() -> None:
    site = in_french(INDEX, "classes.html", site=in_french(INDEX, lang="de-AT"))
    for path, up in ((INDEX, ""), ("fr/index.html", "../"), ("de/index.html", "../")):
        document = tree_of(site, path)
        alternates = [(each.get("hreflang"), each.get("href")) for each in document.xpath("//link[@rel='alternate']")]
        expected = [("en", INDEX), ("de-AT", "de/index.html"), ("fr", "fr/index.html"), ("x-default", INDEX)]
        assert alternates == [(lang, up + to) for lang, to in expected]
        links = document.xpath("//header//nav[@class='languages']//a")
        assert {(each.text, each.get("lang"), each.get("href")) for each in links} == {
            (name, lang, up + to)
            for name, (lang, to) in zip(("English", "Deutsch", "Français"), expected, strict=False)
            if to != path
        }
    assert [document.get("lang") for document in (tree_of(site, "fr/index.html"), tree_of(site, INDEX))] == ["fr", "en"]
    assert tree_of(site, "de/index.html").xpath("//nav[@class='languages']/@aria-label") == ["Sprachen"]


def test_a_site_with_a_public_address_names_its_versions_by_whole_addresses_as_search_engines_want() -> None:
    document = in_french(INDEX, "classes.html").to_dict()
    document["pages"][INDEX]["elements"]["page"]["props"]["url"] = "https://www.hearth.example/shop/"
    site = parse_site(document)
    alternates = tree_of(site, "fr/classes.html").xpath("//link[@rel='alternate']")
    assert [(each.get("hreflang"), each.get("href")) for each in alternates] == [
        ("en", "https://www.hearth.example/shop/classes.html"),
        ("fr", "https://www.hearth.example/shop/fr/classes.html"),
        ("x-default", "https://www.hearth.example/shop/classes.html"),
    ]
    home = tree_of(site, "fr/index.html").xpath("//link[@rel='alternate']/@href")
    assert home == [f"https://www.hearth.example/shop/{path}" for path in ("", "fr/", "")]
    assert dead_links(render(site)) == frozenset()


@pytest.mark.parametrize(
    "url", ["www.hearth.example/", "https://hearth.example", "ftp://hearth.example/", "https://a/?x="]
)
def test_a_public_address_is_a_directory_of_the_web(url: str) -> None:
    document = demo_site().to_dict()
    document["pages"][INDEX]["elements"]["page"]["props"]["url"] = url
    assert [finding.path for finding in findings(document)] == ["/pages/index.html/elements/page/props/url"]


@pytest.mark.parametrize(
    ("lang", "direction"), [("ar", "rtl"), ("he-IL", "rtl"), ("az-Arab", "rtl"), ("ar-Latn", None), ("de", None)]
)
def test_pages_in_arabic_hebrew_and_persian_run_from_right_to_left(lang: str, direction: str | None) -> None:
    site = in_french(INDEX, lang=lang)
    assert tree_of(site, f"{lang[:2]}/{INDEX}").get("dir") == direction
    assert tree_of(site, INDEX).get("dir") is None


def test_no_rule_of_the_catalog_knows_left_from_right_where_a_page_can_be_mirrored() -> None:
    rules = render(demo_site())["styles.css"].decode()
    sided = re.findall(r"(?:text-align|float): (?:left|right)|(?:margin|padding|border)-(?:left|right)\b", rules)
    assert sided == []


def test_a_page_without_a_header_leads_to_its_versions_too() -> None:
    site = in_french(INDEX, site=parse_site({"pages": {INDEX: page(text=element("Text", text="Hello"))}}))
    assert tree_of(site, INDEX).xpath("//body/nav[@class='languages']//a/@href") == ["fr/index.html"]


def _links(site: Site, path: str) -> list[str]:
    return [str(href) for href in tree_of(site, path).xpath("//header//nav[@class='languages']//a/@href")]


def test_a_page_without_a_version_leads_to_the_home_page_in_that_language_where_index_says_so() -> None:
    document = in_french(INDEX, "classes.html", site=in_french(INDEX, lang="de")).to_dict()
    document["pages"]["news.html"] = deepcopy(document["pages"]["classes.html"])
    assert _links(parse_site(document), "news.html") == []
    document["pages"][INDEX]["elements"]["page"]["props"]["languages_everywhere"] = True
    site = parse_site(document)
    assert _links(site, "news.html") == ["de/index.html", "fr/index.html"]
    assert _links(site, "classes.html") == ["fr/classes.html", "de/index.html"]
    assert _links(site, "fr/classes.html") == ["../classes.html", "../de/index.html"]
    assert not tree_of(site, "news.html").xpath("//link[@rel='alternate']")
    assert dead_links(render(site)) == frozenset()


def test_a_link_to_a_language_says_what_that_page_or_its_home_page_wants_it_to_say() -> None:
    """An owner asked for a link called `Po polsku`, and there was no place for it (issue 20)."""
    document = in_french(INDEX, "classes.html").to_dict()
    root = document["pages"]["fr/index.html"]["elements"]["page"]["props"]
    said = "//header//nav[@class='languages']//a/text()"
    assert tree_of(parse_site(document), "classes.html").xpath(said) == ["Français"]
    root["language_name"] = "En français"
    site = parse_site(document)
    assert [tree_of(site, path).xpath(said) for path in (INDEX, "classes.html")] == [["En français"]] * 2
    assert tree_of(site, "fr/classes.html").xpath(said) == ["English"]
    assert not [entry for entry in entries_of(site) if "language_name" in entry.keys]


def test_a_first_version_of_the_home_page_is_led_to_from_every_page_and_one_that_was_there_is_not() -> None:
    before, after = demo_site(), in_french(INDEX)
    assert _links(lead_everywhere(before, after), "classes.html") == ["fr/index.html"]
    assert _links(lead_everywhere(None, after), "classes.html") == ["fr/index.html"]
    assert lead_everywhere(after, in_french(INDEX, "classes.html")) == in_french(INDEX, "classes.html")
    assert lead_everywhere(before, in_french("classes.html")) == in_french("classes.html")


def test_links_of_a_version_lead_to_versions_where_they_exist_and_elsewhere_stay() -> None:
    assert dead_links(render(BOTH)) == frozenset()
    only_home = in_french(INDEX)
    links = tree_of(only_home, "fr/index.html").xpath("//header//a/@href")
    assert "../classes.html" in links
    assert "../fr/index.html" in links
    assert "../fr/classes.html" in tree_of(BOTH, "fr/index.html").xpath("//header//a/@href")
    assert tree_of(BOTH, "fr/classes.html").xpath("//header//a[@aria-current]/@href") == ["../fr/classes.html"]


def test_a_version_shares_the_header_of_the_home_page_in_its_language() -> None:
    document = in_french(INDEX, "classes.html").to_dict()
    document["pages"]["fr/index.html"]["elements"]["header"]["props"]["brand"] = "Foyer et levain"
    site = parse_site(document)
    assert "Foyer et levain" in tree_of(site, "fr/classes.html").xpath("string(//header)")
    assert "Foyer et levain" not in tree_of(site, "classes.html").xpath("string(//header)")
    root = document["pages"]["fr/index.html"]
    root["elements"]["page"]["children"].remove("header")
    del root["elements"]["header"]
    assert "Hearth" in tree_of(parse_site(document), "fr/classes.html").xpath("string(//header)")


def test_a_link_to_a_section_that_a_version_lacks_stays_with_the_page_that_has_it() -> None:
    document = BOTH.to_dict()
    version = document["pages"]["fr/index.html"]
    shared = {"type": "Shared", "props": {"of": "header"}, "children": []}
    version["elements"]["header"] = shared
    version["elements"]["page"]["children"] = ["header", "hero"]
    version["elements"] = {key: version["elements"][key] for key in ("page", "header", "hero")}
    version["elements"]["hero"]["props"].pop("actions", None)
    assert not dead_links(render(parse_site(document)))


@pytest.mark.parametrize(
    ("path", "lang"),
    [("it/index.html", "en"), ("shop/index.html", "fr"), ("fr/other.html", "fr"), ("en/index.html", "en")],
)
def test_a_folder_that_is_no_language_of_its_page_changes_nothing(path: str, lang: str) -> None:
    document = demo_site().to_dict()
    copy = document["pages"][path] = deepcopy(document["pages"][INDEX])
    copy["elements"]["page"]["props"]["lang"] = lang
    site = parse_site(document)
    assert languages_of(site).groups == {}
    before = render(demo_site())
    assert {name: data for name, data in render(site).items() if name in before} == before


def test_a_version_of_a_version_is_a_page_like_any_other() -> None:
    site = in_french("fr/index.html", site=in_french(INDEX), lang="de")
    assert set(languages_of(site).groups) == {INDEX, "fr/index.html"}


def test_versions_that_an_edit_of_their_page_left_behind_are_named() -> None:
    def edited(site: Site, path: str, key: str, prop: str, value: object) -> Site:
        document = site.to_dict()
        document["pages"][path]["elements"][key]["props"][prop] = value
        return parse_site(document)

    one = edited(BOTH, INDEX, "hero", "heading", "Bread")
    assert outdated(BOTH, one) == ("fr/index.html",)
    assert outdated(BOTH, edited(one, "fr/index.html", "hero", "heading", "Du pain")) == ()
    assert outdated(BOTH, edited(BOTH, "fr/index.html", "hero", "heading", "Du pain")) == ()
    assert outdated(BOTH, edited(BOTH, INDEX, "page", "theme", {"preset": "ink"})) == ()


def test_languages_are_called_by_their_own_names_or_by_their_tag() -> None:
    assert [own_name(lang) for lang in ("pt-BR", "EL", "tlh")] == ["Português", "Ελληνικά", "TLH"]


def test_the_scan_accepts_pages_in_several_languages() -> None:
    assets = {path: b'<svg xmlns="http://www.w3.org/2000/svg"/>' for path in referenced_assets(BOTH)}
    report = scan(render(BOTH) | assets, platform_policy().profiles["default"], profile_name="default")
    assert report.findings == ()


def test_an_edit_of_a_versions_own_words_and_of_its_shared_header_is_read_back() -> None:
    files = render(BOTH)
    edited = dict(files)
    for path in ("fr/index.html", "fr/classes.html"):
        edited[path] = edited[path].replace(b">Hearth", b">Foyer")
    assert edited != files
    site = read_back(BOTH, edited)
    assert site is not None
    assert render(site) == edited
    assert site.pages[INDEX] == BOTH.pages[INDEX]
