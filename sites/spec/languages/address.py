"""How a site addresses its visitors, stated once for all parts of a translation, which are made side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from sites.spec.catalog import components
from sites.spec.languages.versions import lang_of, primary
from sites.spec.model import JsonObject, Site, strings_in

_NEGATED: Final = (
    r"not|no|never|don't|without|instead of|rather than|nicht|kein\w*|ohne|statt|ne|pas|sans|plutôt que|sin|en vez de"
    r"|non|senza|invece di|niet|geen|zonder|in plaats van"
)
_ASKED: Final = re.compile(
    rf"(?P<before>\b(?:{_NEGATED}) (?:(?!(?:und|and|et|y|e|en)\b)\w+ )?)?\b"
    r"(?:(?P<informal>du-?form|(?:ge)?duz(?:en|t)|per du|mit du|tuto[iy]\w+|tutea\w*|tuteen?|de tú|informal(?:ly)?"
    r"|d(?:are|iamo|ai|ate) del tu)"
    r"|(?P<formal>sie-?form|(?:ge)?siez(?:en|t)|per sie|mit sie|vouvo[iy]\w+|vousvoyer\w+|de usted|formal(?:ly)?"
    r"|d(?:are|iamo|ai|ate) del lei))\b(?P<after> (?:nicht|pas|niet)\b)?",
    re.IGNORECASE,
)
_FAMILIAR, _POLITE = r"(?:du|ihr|tu|tú|je|jij)", r"(?:sie|vous|usted|lei|u)"
_INSTEAD: Final = (
    r"(?:(?:an)?statt|instead of|rather than|au lieu d[eu]|en (?:vez|lugar) de|invece d(?:i|el)|in plaats van)"
)
_CHANGED: Final = {
    is_familiar: re.compile(
        rf"\b{new}(?: aan)? {_INSTEAD} (?:\w+ )?{old}\b"
        rf"|\b(?:from|vo[mn]|d[aeu]l?|van) {old} (?:to|auf|zum?|[àa]|au|al|naar) {new}\b"
        rf"|\bauf (?:das )?{new} (?:um(?:ge)?(?:stell|schreib)|wechseln)",
        re.IGNORECASE,
    )
    for is_familiar, new, old in ((True, _FAMILIAR, _POLITE), (False, _POLITE, _FAMILIAR))
}
"""`du statt Sie`, by whether the new address is the familiar one."""
_EVERYWHERE: Final = re.compile(
    r"\b(?:überall|durchgehend|durchweg|everywhere|throughout|partout|ovunque|overal"
    r"|(?:ganze[nrs]?|alle[ns]?|all|whole|toute?s?|tous|tod[oa]s?|tutt[oaie]|hele) (?:(?:the|l[aeo]s?|el|il|i|gli|our"
    r"|nos|nuestr[oa]s|onze|unser\w{,2}) )?(?:(?:web)?site|web|sitio|sito|(?:web|unter)?seiten?|p[aá]g[ei]\w*|text\w*"
    r"|testi|gäste\w?|kund\w+|leser\w*|patient\w*|besucher\w*|guests|customers|visitors|readers|visit(?:eur|ante|ator)\w*"
    r"|client\w*|klanten|bezoekers|lezers))\b",
    re.IGNORECASE,
)
_LIMITED: Final = re.compile(
    r"(?<!nicht )(?<!not )(?<!niet )(?<!pas )(?<!no )(?<!non )\b(?:nur|only|sólo|solo|seulement|alleen|weiterhin|add)\b"
    r"|\b(?:neue[nrs]?|new|nouve\w+|nuev\w+|nuov\w+|nieuwe?) (?:abschnitt|absatz|seite|section|paragraph|page|sección"
    r"|página|sezione|pagina|alinea|sectie)\b",
    re.IGNORECASE,
)
_SHORT: Final = 8
"""Words of a request that needs not say that it means all of them: `Sie statt du, bitte`."""
_FORMS: Final = {
    "de": (
        r"\b(?:[Dd](?:u|ich|ir|ein\w*)|[Ee]uch|[Ee]u(?:er|re)\w*|[Ii]hr(?= [a-zäöüß]{2,}t\b)"
        r"|(?<=(?:evor|wenn|dass) )ihr)\b",
        r"(?m)(?<!^)(?<![.!?:] )\b(?:Sie|Ihnen|Ihr(?! [a-zäöüß]{2,}t\b)|Ihre[mnrs]?)\b",
    ),
    "fr": (r"(?i)\b(?:tu|toi|tes)\b", r"(?i)\b(?:vous|votre|vos)\b"),
    "es": (
        r"(?i)\b(?:tú|tus?|contigo|te|quieres|puedes|tienes|vienes|sabes|dinos|ven|pide|elige|mira|\w*[áéíóú]\w{1,3}[ae]te"
        r"|llámanos|escríbenos|cuéntanos|pregúntanos|llámame|escríbeme|cuéntame|pregúntame"
        r"|os|vosotr[oa]s|vuestr[oa]s?|\w+[áé]is|(?:(?:escrib|ven|ped)id|(?:llam|pregunt|reserv|cont)ad)(?:nos|me)?)\b",
        r"(?i)\b(?:ustedes|usted|díganos|llámenos|escríbanos|cuéntenos|pregúntenos|llámeme|escríbame)\b",
    ),
    "it": (r"(?i)\b(?:tu|tuo|tua|tuoi|tue)\b", r"\b(?:Lei|Suo|Sua|Suoi|Sue)\b"),
    "nl": (r"(?i)\b(?:jij|je|jouw?|jullie)\b", r"(?i)\b(?:u|uw)\b"),
}
"""Words that address visitors informally and formally, by language."""
_VOI: Final = re.compile(r"(?i)\b(?:voi|vi|vostr[oaie]|\w{2,}(?:ate|ete|ite)(?:ci|mi|lo|la))\b")


def address_line(site: Site, request: str) -> str:
    """Return the sentence that tells every part of a translation how visitors are addressed.

    The request decides, by what it asks for or else by what it rules out, then what more of the site's texts do; where
    neither tells, it is formal.
    """
    asked = _asked(request)
    if _informal_share(site) > 0 if asked is None else asked:
        return "Visitors are addressed informally, as by du, tu, tú or je."
    return "Visitors are addressed formally, as by Sie, vous, usted, Lei or u."


def _asked(request: str) -> bool | None:
    """Return whether a request asks for the informal address, or None if it says nothing of it."""
    if (changed := _changed(request)) is not None:
        return changed
    said = [(bool(each["before"] or each["after"]), bool(each["informal"])) for each in _ASKED.finditer(request)]
    said.sort(key=lambda each: each[0])
    return next((is_informal is not is_ruled_out for is_ruled_out, is_informal in said), None)


def _changed(request: str) -> bool | None:
    return next((is_familiar for is_familiar, words in _CHANGED.items() if words.search(request)), None)


def changes_address(request: str) -> bool:
    """Return whether a request wants all visitors to be addressed otherwise: `du statt Sie`, `duzen` everywhere."""
    if _LIMITED.search(request):
        return False
    is_everywhere = bool(_EVERYWHERE.search(request))
    if _changed(request) is not None:
        return is_everywhere or len(request.split()) <= _SHORT
    named = (each["informal"] or each["formal"] for each in _ASKED.finditer(request))
    return is_everywhere and any("formal" not in name.casefold() for name in named)


def address_of(texts: object, lang: str) -> bool | Literal["several"]:
    """Return how texts, in JSON data, speak to visitors: as to friends, as to several, or formally."""
    share = _share(texts, lang)
    if primary(lang) == "it" and len(_VOI.findall(_text(texts))) > abs(share):
        return "several"
    return share > 0


def address_forms(before: Mapping[str, JsonObject], pages: Mapping[str, JsonObject], lang: str) -> None:
    """Let the words that the forms of a language's pages have by themselves follow the address of their texts.

    Where that has not changed, they stay as their owner has them.
    """
    paths = [path for path, page in pages.items() if primary(lang_of(page)) == primary(lang)]
    spoken = [pages[path]["elements"] for path in paths]
    address = address_of(spoken, lang)
    if not paths:
        return
    was = lang_of(before[paths[0]])
    if primary(was) == primary(lang) and address == address_of([before[path]["elements"] for path in paths], was):
        return
    for element in (element for elements in spoken for element in elements.values()):
        if "familiar" in components()[element["type"]].props.model_fields:
            props = element.setdefault("props", {})
            props.pop("familiar", None)
            props |= {"familiar": address} if address else {}


def _informal_share(site: Site) -> int:
    """Return how many more words of a site's pages are informal than formal."""
    return sum(_share(page["elements"], lang_of(page)) for page in site.pages.values())


def _share(texts: object, lang: str) -> int:
    if (forms := _FORMS.get(primary(lang))) is None:
        return 0
    text = _text(texts)
    informal, formal = (len(re.findall(words, text)) for words in forms)
    return informal - formal


def _text(value: object) -> str:
    """Return the strings in JSON data, one a line."""
    return "\n".join(text for _, text in strings_in(value))
