"""A floor for rendering: the same page by plain Python, which believes every word of the spec."""

import json
from collections.abc import Callable
from html import escape
from typing import Any

from benchmarks.inputs import page


def operation() -> Callable[[], object]:
    """Return what makes the page from its text."""
    text = json.dumps(page())

    def render() -> str:
        spec = json.loads(text)
        return _shown(spec["root"], spec["elements"])

    return render


def _shown(key: str, elements: dict[str, Any]) -> str:
    element = elements[key]
    return _TAGS[element["type"]](
        key, element["props"], "".join(_shown(child, elements) for child in element["children"])
    )


def _link(key: str, props: dict[str, Any], inner: str) -> str:
    return f'<p id="{key}"><a href="{escape(props["href"])}">{escape(props["label"])}</a></p>'


_TAGS: dict[str, Callable[[str, dict[str, Any], str], str]] = {
    "Page": lambda key, props, inner: f"<title>{escape(props['title'])}</title><main>{inner}</main>",
    "Section": lambda key, props, inner: f'<section id="{key}"><h2>{escape(props["heading"])}</h2>{inner}</section>',
    "Grid": lambda key, props, inner: f'<div class="cards cards-{props["columns"]}">{inner}</div>',
    "Stack": lambda key, props, inner: f'<div class="stack stack-{props["direction"]}">{inner}</div>',
    "Card": lambda key, props, inner: (
        f'<div id="{key}"><h3>{escape(props["heading"])}</h3><p>{escape(props["text"])}</p>{inner}</div>'
    ),
    "Text": lambda key, props, inner: f'<div id="{key}"><p>{escape(props["text"])}</p></div>',
    "Button": _link,
    "Link": _link,
}
