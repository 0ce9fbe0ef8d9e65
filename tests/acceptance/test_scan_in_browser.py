"""The scan's reader of HTML misses nothing that a real browser's parser makes of the same bytes (threat G6).

Chromium parses generated pages twice, with and without scripts. Whatever element with whatever attribute it ends up
with, the scan has to have seen, or it has to have refused the page as ambiguous.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from routing.yaml_data import load_yaml
from sites.scan import html_tokenizer
from sites.scan.html_tokenizer import MarkupBudget, Tag

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
CORPUS = Path(__file__).parents[1] / "data" / "hostile" / "G6.yaml"
PAGES, BATCH = int(os.environ.get("PAGES", "100")), 100
"""How many pages are generated; `make chaos ONLY=long` asks for more."""
RAW = ("textarea", "style", "title", "noscript", "script", "xmp", "iframe", "noframes", "noembed")
BAITS = [f'<{name}><a title="</{name}><img src=x onerror=Q>">' for name in RAW] + [
    '<!--<a title="--><img src=x onerror=Q>">',
    '<![CDATA[<a title="]]><img src=x onerror=Q>">',
    "<style><!--</style><img src=x onerror=Q>--></style>",
    "<script><!--<script></script>--></script><b onclick=Q>",
]
HTML = """
div p a b form button table tbody tr td th caption colgroup select template li dd ruby object h1
h2 nobr body html head option span marquee applet center frameset details
"""
FOREIGN = """
g a path title desc mi mtext textpath use text col tr td select option template button form foo
html script style image annotation-xml foreignobject font plaintext svg math
"""
LONE = ["<input>", "<br>", "<hr>", "<col>", "<img>", "x", "</p>", "</br>", "<svg a=b/>", "<!doctype html>", "</", "<?"]

WALK = """
texts => {
  const walk = root => {
    const found = [], stack = [root];
    while (stack.length) {
      const node = stack.pop();
      if (node.nodeType === 1)
        found.push([node.localName, [...node.attributes].map(one => [one.name, one.value]),
                    node.localName === 'style' ? node.textContent : null]);
      if (node.localName === 'template' && node.content) stack.push(node.content);
      stack.push(...node.childNodes);
    }
    return found;
  };
  return texts.map(text => {
    const frame = document.body.appendChild(document.createElement('iframe'));
    const shown = frame.contentDocument;
    shown.open(); shown.write(text); shown.close();
    const both = [walk(shown), walk(new DOMParser().parseFromString(text, 'text/html'))];
    frame.remove();
    return both;
  });
}
"""
Element = tuple[str, list[tuple[str, str]], str | None]


def generate(dice: random.Random) -> str:
    """Return a page whose elements are opened and closed in an order that tree builders have to mend."""
    page: list[str] = []
    opened: list[str] = []
    for _ in range(dice.randint(2, 9)):
        kind = dice.random()
        if kind < 0.4:
            opened.append(dice.choice(HTML.split()))
            page.append(f"<{opened[-1]}>")
        elif kind < 0.52:
            opened += [dice.choice(["svg", "svg", "math"]), dice.choice(FOREIGN.split())]
            page.append(f"<{opened[-2]}><{opened[-1]}>")
        elif kind < 0.75 and opened:
            page.append(f"</{opened.pop(dice.randrange(len(opened)))}>")
        elif kind < 0.82:
            page.append(f"</{dice.choice([*HTML.split(), *FOREIGN.split()])}>")
        elif kind < 0.88:
            page.append(dice.choice(LONE))
        else:
            page.append(dice.choice(BAITS))
    return "".join([*page, dice.choice(BAITS)])


def read(text: str, budget: MarkupBudget, *, has_scripts: bool = True) -> tuple[list[Tag], bool]:
    """Return what the scan sees of a page, and whether it doubts its own reading."""
    page = html_tokenizer.Page(text, budget, has_scripts=has_scripts)
    seen: list[Tag] = []
    doubts = False
    for tag in page.tags():
        seen.append(tag)
        if tag.name == "noscript" and tag.text:
            inner, is_doubtful = read(tag.text, budget, has_scripts=False)
            seen += inner
            doubts = doubts or is_doubtful
    return seen, doubts or bool(page.ambiguous)


def missed(text: str, tags: list[Tag], elements: list[Element]) -> list[Any]:
    """Return what the browser has and the scan has not."""
    names = {"image": "img"}  # browsers rename it
    pairs = {(names.get(tag.name, tag.name), one.name, one.value) for tag in tags for one in tag.attributes}
    styles = {tag.text for tag in tags if tag.name == "style"}
    return [
        (text, name, attributes)
        for name, attributes, style in elements
        if any((names.get(name.lower(), name.lower()), key.lower(), value) not in pairs for key, value in attributes)
        or (style and style not in styles)
    ]


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A page on which nothing runs and nothing loads, though scripts are not switched off."""

    def answer(route: Route) -> None:
        headers = {"Content-Security-Policy": "default-src 'none'"}
        if route.request.url == "https://parser.example/":
            route.fulfill(status=200, body="<!doctype html><body>", content_type="text/html", headers=headers)
        else:
            route.abort()

    opened = browser.new_page()
    opened.route("**/*", answer)
    opened.goto("https://parser.example/")
    yield opened
    opened.close()


@pytest.mark.threat("G6")
def test_nothing_that_chromium_sees_in_mended_markup_is_missed(tab: Page) -> None:
    dice = random.Random(20261122)
    certain = 0
    for _ in range(PAGES // BATCH):
        texts = [generate(dice) for _ in range(BATCH)]
        for text, parsed in zip(texts, tab.evaluate(WALK, texts), strict=True):
            tags, is_doubtful = read(text, MarkupBudget())
            if not is_doubtful:
                assert [one for elements in parsed for one in missed(text, tags, elements)] == []
                certain += 1
    assert certain > PAGES / 4, "a reader that doubts everything would pass too"


@pytest.mark.threat("G6")
def test_the_cases_of_the_corpus_are_live_in_chromium_or_in_another_browser(tab: Page) -> None:
    texts = [case["page"] for case in load_yaml(CORPUS.read_text(encoding="utf-8"))]
    live = 0
    for text, parsed in zip(texts, tab.evaluate(WALK, texts), strict=True):
        live += any(name.startswith("on") for elements in parsed for _, found, _ in elements for name, _ in found)
        tags, is_doubtful = read(text, MarkupBudget())
        assert is_doubtful or [one for elements in parsed for one in missed(text, tags, elements)] == []
    assert live > len(texts) / 2
