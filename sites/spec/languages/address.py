"""How a site addresses its visitors, stated once for all parts of a translation, which are made side by side."""

from __future__ import annotations

import re
from typing import Final

from sites.spec.languages.versions import primary
from sites.spec.model import Site

_ASKED: Final = re.compile(
    r"\b(?:(?P<informal>du-?form|duzen|per du|mit du|tutoyer|tutoiement|tutear|de tú|dare del tu|tutoyeren"
    r"|informal(?:ly)?)"
    r"|(?P<formal>sie-?form|siezen|per sie|mit sie|vouvoyer|vouvoiement|de usted|dare del lei|formal(?:ly)?))\b",
    re.IGNORECASE,
)
_FORMS: Final = {
    "de": (
        r"(?i)\b(?:du|dich|dir|dein\w*|euch|euer\w*)\b",
        r"(?<!^)(?<![.!?:] )\b(?:Sie|Ihnen|Ihre?[mnrs]?)\b",
    ),
    "fr": (r"(?i)\b(?:tu|toi|tes)\b", r"(?i)\b(?:vous|votre|vos)\b"),
    "es": (
        r"(?i)\b(?:tú|tus?|contigo|te|quieres|puedes|tienes|vienes|sabes|dinos|ven|pide|elige|mira|pásate|acércate"
        r"|llámanos|escríbenos|cuéntanos|pregúntanos|llámame|escríbeme|cuéntame|pregúntame)\b",
        r"(?i)\b(?:ustedes|usted|díganos|llámenos|escríbanos|cuéntenos|pregúntenos|llámeme|escríbame)\b",
    ),
    "it": (r"(?i)\b(?:tu|tuo|tua|tuoi|tue)\b", r"\b(?:Lei|Suo|Sua|Suoi|Sue)\b"),
    "nl": (r"(?i)\b(?:jij|je|jouw?|jullie)\b", r"(?i)\b(?:u|uw)\b"),
}
"""Words that address visitors informally and formally, by language."""


def address_line(site: Site, request: str) -> str:
    """Return the sentence that tells every part of a translation how visitors are addressed.

    The request decides, then what more of the site's texts do; where neither tells, it is formal.
    """
    asked = _ASKED.search(request)
    if asked["informal"] if asked else _informal_share(site) > 0:
        return "Visitors are addressed informally, as by du, tu, tú or je."
    return "Visitors are addressed formally, as by Sie, vous, usted, Lei or u."


def is_familiar(texts: object, lang: str) -> bool:
    """Return whether texts, in JSON data, speak to visitors as to friends."""
    return _share(texts, lang) > 0


def _informal_share(site: Site) -> int:
    """Return how many more words of a site's pages are informal than formal."""
    return sum(
        _share(page["elements"], str(page["elements"][page["root"]].get("props", {}).get("lang", "en")))
        for page in site.pages.values()
    )


def _share(texts: object, lang: str) -> int:
    if (forms := _FORMS.get(primary(lang))) is None:
        return 0
    text = _text(texts)
    informal, formal = (len(re.findall(words, text)) for words in forms)
    return informal - formal


def _text(value: object) -> str:
    """Return the strings in JSON data, one a line."""
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return "\n".join(filter(None, map(_text, parts)))
