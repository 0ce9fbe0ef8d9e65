"""Whether a request asks for a site's texts in another language, judged by its words before a model is called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from sites.spec.languages.address import changes_address
from sites.spec.languages.versions import languages_of, main_language, primary, root_props
from sites.spec.model import INDEX, Site

_SPOKEN: Final[Mapping[str, str]] = {
    "ar": r"arabic|arabisch(?:e[nrsm]?)?|arabe",
    "cs": r"czech|tschechisch(?:e[nrsm]?)?",
    "cy": r"welsh",
    "da": r"danish|dänisch(?:e[nrsm]?)?",
    "de": r"german|deutsch(?:e[nrsm]?)?|allemande?|alem[aá]na?|tedesc[oa]|niemieck\w+|duitse?",
    "el": r"greek",
    "en": r"english|englisch(?:e[nrsm]?)?|anglaise?|ingl[eé]s[ae]?|angielsk\w+|engelse?",
    "es": r"spanish|spanisch(?:e[nrsm]?)?|espagnole?|español[ae]?|spagnol[oa]|spaanse?",
    "fr": r"french|französisch(?:e[nrsm]?)?|française?|franc[eé]s[ae]?|francusk\w+|franse?",
    "hr": r"croatian",
    "it": r"italian[oa]?|italienisch(?:e[nrsm]?)?|italiene?|italiaanse?",
    "ja": r"japanese|japanisch(?:e[nrsm]?)?",
    "nl": r"dutch|(?:nieder|hol)ländisch(?:e[nrsm]?)?|néerlandaise?|olandese|neerland[eé]s",
    "no": r"norwegian",
    "pl": r"polish|polnisch(?:e[nrsm]?)?|polonaise?|polacc?[oa]|poolse?",
    "pt": r"portuguese|portugiesisch(?:e[nrsm]?)?|portugaise?|portugu[eé]sa?|portoghese|portugee?se?",
    "ru": r"russian|russisch(?:e[nrsm]?)?|russe",
    "sv": r"swedish|schwedisch(?:e[nrsm]?)?",
    "tr": r"turkish|türkisch(?:e[nrsm]?)?",
    "uk": r"ukrainian|ukrainisch(?:e[nrsm]?)?|ukraińsk\w+",
    "zh": r"chinese|chinesisch(?:e[nrsm]?)?|chinoise?",
}
"""Names of languages in those that owners write, by primary tag."""
_LANGUAGE_NAMES: Final = rf"(?:{'|'.join(_SPOKEN.values())})"
_PAGES: Final = (
    r"(?:versions?|versi[oó]n(?:es|e|i)?|versies?|wersj\w+|vers(?:ão|ões)|\w*fassung\w*|sprachversion\w*|\w*pages?|"
    r"\w*seiten?|p[áa]ginas?|pagin[ae]|pagina['’]?s|\w*sites?|sit[oi]|sitios?|web|stron\w+|text(?:s|es?)|textos|testi|teksten|"
    r"everything|alles|tout|todo|tutto)"
)
_IN: Final = r"(?:in|into|auf|ins?|en|em|na|in het|in de|to)"
_PART: Final = r"(?:men[uùú]s?|menü\w*|\w*karten?|carte|carta|home|portada)"
"""Translated only *into* a language: French home cooking and an Italian menu are none."""
_NEW_TEXT: Final = r"(?:a|an|one|that|einen?|ein|dass|une?|que|qu['’]\w+|una|uno|che|een|dat)\b"
"""Between a page and a language it is something on the page that is in that language."""
_VERSION: Final = re.compile(
    rf"\b{_LANGUAGE_NAMES}(?:[\s-]+\w+)?[\s-]+{_PAGES}\b|\b{_PAGES}\s+{_LANGUAGE_NAMES}\b|"
    rf"\b(?:{_PAGES}|{_PART})(?:,?\s+(?!{_NEW_TEXT})[\w\"“”„«»'’]+){{0,4}}?\s+{_IN} {_LANGUAGE_NAMES}\b|"
    r"\b(?:also|another|further|additional|second|weiteren?|zweite[rsnm]?|otr[ao]s?|segund[ao]|altr[ae]|second[oae]|"
    r"autres?|deuxième|anderen?|tweede)\b.{0,12}\b(?:languages?|sprachen?|langues?|idiomas?|lingua|lingue|taal|língua)\b|"
    r"\b(?:bilingual|multilingual|zweisprachig|mehrsprachig|bilingues?|bilingüe|plurilingue|multilingue|tweetalig|meertalig)",
    re.I,
)
_TRANSLATE: Final = re.compile(
    r"\b(?:translat(?:e|ion|ing)|übersetz\w*|uebersetz\w*|tradu(?:is\w*|ire|ction|ce|cir|cción|zca|ci|rre|zione|z|zir|ção)|"
    r"vertaal\w*|vertaling|przetłumacz\w*|tłumacz\w*)\b|"
    rf"\b(?:put|turn|bring|convert|switch)\b.{{1,60}}\b(?:in)?to {_LANGUAGE_NAMES}\b|"
    rf"\bauf {_LANGUAGE_NAMES} (?:um)?stell",
    re.I,
)
_SHORT: Final = re.compile(
    r"\b(?:short|brief|kurze|courte|breve|korte|krótk\w+) (?:\w+ )?(?:page|version|seite|fassung|p[áa]gina|stron\w+)\b",
    re.I,
)
_REDUCED: Final = re.compile(
    r"\b(?:not everything|nicht alles|pas tout|no todo|non tutto|niet alles|nie wszystko)\b|"
    r"\b(?:just|only|nur|bloß|seulement|juste|s[oó]lo|soltanto|alleen|tylko) "
    r"(?:what|the (?:main|most important|basic|essential)|worum|was|das (?:wichtigste|nötigste)|ce qu|l['’]essen[tz]i|"
    r"lo (?:esencial|básico|más importante)|het belangrijkste|najważniejsz)",
    re.I,
)
_NEW_NUMBER: Final = re.compile(r"\d[\d ()/.-]{4,}\d")
"""A telephone number, or a date: on a page of a few things it is what the site does not say yet."""
_LEGAL: Final = re.compile(
    r"impressum|datenschutz|\bagb\b|privac[yi]|imprint|legal|légal|cookies?\b|\bterms\b|confidentialité|aviso|voorwaarden",
    re.I,
)


def is_translation(request: str, site: Site) -> bool:
    """Whether a request may ask for texts in another language, or for another address of visitors in all of them.

    The model that gets the texts says if it does not.

    A page in a language that the site has is none: `the site stays in English`; nor is one of words of its own, as a
    legal page that the site lacks.
    """
    if _TRANSLATE.search(request) or changes_address(request):
        return True
    is_new = _SHORT.search(request) or (_REDUCED.search(request) and _NEW_NUMBER.search(request))
    if is_new or all(_is_lacking(found, site) for found in _VERSION.finditer(request)):
        return False
    named = {tag for tag, names in _SPOKEN.items() if re.search(rf"\b(?:{names})\b", request, re.I)}
    return not named or not named <= {primary(lang) for lang in _spoken_on(site)}


def _is_lacking(version: re.Match[str], site: Site) -> bool:
    """Whether a page in a language is a legal one, by its name or the word before, that the site has in none."""
    before = version.string.rfind(" ", 0, max(version.start() - 1, 0)) + 1
    titles = (f"{path} {root_props(page).get('title')}" for path, page in site.pages.items() if path != INDEX)
    return bool(_LEGAL.search(version.string, before, version.end())) and not any(map(_LEGAL.search, titles))


def _spoken_on(site: Site) -> Iterator[str]:
    yield main_language(site)
    for versions in languages_of(site).groups.values():
        yield from (version.lang for version in versions)
