"""Rules for the look: colours, fonts, corners, spacing and mode of the site's theme, and the tone of a section."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.spec.catalog import components
from sandbox.spec.colours import COLOUR_NAMES
from sandbox.spec.model import INDEX, Site
from sandbox.spec.rules.edits import DirectEdit, Rule, setting
from sandbox.spec.rules.forms import Put, Step
from sandbox.spec.rules.targets import find_sections, root_of
from sandbox.spec.rules.vocabulary import COLOUR_ROLES, FONTS, RADII, SPACINGS, TONES, by_name, words
from sandbox.spec.rules.wording import Request, plain
from sandbox.spec.theme import PRESETS

_SITE: Final = r"(?: (?:of|on|for|in|across) (?:the |our )?(?:whole |entire )?(?:site|website|page)| everywhere)?"
_ROLES: Final = by_name(COLOUR_ROLES)
_COLOUR: Final = re.compile(
    rf"(?:new )?(?:(?P<role>{words(_ROLES)}) colou?r|(?P<ground>(?:page |site )?background)){_SITE}"
)
_FONT_OF: Final = r"site|website|main|whole site|body|body text|text|paragraphs?|headings?|titles?|headlines?"
_FONT: Final = re.compile(
    rf"(?:(?P<role>{_FONT_OF}) )?(?:fonts?|typeface)(?: family)?"
    rf"(?: (?:of|on|for|in) (?:the |all )?(?:the )?(?P<of>{_FONT_OF}))?{_SITE}"
    r"|(?:all )?(?P<words>headings?|titles?|body text)"
)
_THEME: Final = re.compile(rf"(?:theme|palette|preset|colou?rs|colou?r scheme|look){_SITE}")
_MODE: Final = re.compile(r"(?:site|website|page|whole site|mode|theme|scheme|colou?r scheme)")
_CORNERS: Final = re.compile(rf"corners?(?: radius)?{_SITE}")
_SPACING: Final = re.compile(rf"(?:spacing|layout){_SITE}")
_MORE_SPACE: Final = re.compile(
    rf"(?:spacing|space|white ?space|layout)(?: between (?:the |our )?(?:\w+ )?sections)?{_SITE}"
)
_TONE_OF: Final = re.compile(
    r"(?:background|tone|background colou?r) (?:of|on|in|for) (?P<section>.+)|(?P<named>.+?)(?:'s)? (?:background|tone)"
)
_STEPS: Final = ("compact", "regular", "airy")


def _set(site: Site, changes: Mapping[str, Any], kind: str, summary: str) -> Iterator[DirectEdit]:
    root = root_of(site, INDEX)
    theme = root.props.get("theme")
    if theme is not None and not isinstance(theme, dict):
        return
    if any(isinstance(page["elements"][page["root"]].get("props", {}).get("theme"), dict)
           for path, page in site.pages.items() if path != INDEX):  # fmt: skip
        return
    kept = {key: value for key, value in {**(theme or {}), **changes}.items() if value is not None}
    yield setting(kind, summary, path=f"{root.path}/props/theme", value=kept, is_new="theme" not in root.props)


def _put(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    if order.old is not None:
        return
    target = plain(order.target)
    bare = re.sub(r" (?:font|typeface|one)$", "", order.value, flags=re.I)
    word = _word(order.value, request)
    yield from _colour(target, word, site)
    yield from _font(target, _word(bare, request), site)
    yield from _choice(target, word, site)


def _word(token: str, request: Request) -> str:
    return request.literal(re.sub(r"^(?:an?|the) ", "", token, flags=re.I)).lower()


def parse_colour_word(word: str) -> str | None:
    """Return a colour that is named or written in hex as a spec writes it, or None."""
    colour = re.sub(r" (?:colou?r|one)$", "", word.lower()).replace(" ", "")
    is_colour = colour in COLOUR_NAMES or re.fullmatch(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})", colour)
    return colour if is_colour else None


def _colour(target: str, word: str, site: Site) -> Iterator[DirectEdit]:
    match, colour = _COLOUR.fullmatch(target), parse_colour_word(word)
    if match and colour:
        role = _ROLES[match["role"]] if match["role"] else "background"
        yield from _set(site, {role: colour}, "colour", f"Set the {role} colour to {colour}.")


def _font(target: str, word: str, site: Site) -> Iterator[DirectEdit]:
    match, font = _FONT.fullmatch(target), by_name(FONTS).get(word)
    if not match or font is None or (match["role"] and match["of"]):
        return
    role = match["role"] or match["of"] or match["words"] or ""
    theme = root_of(site, INDEX).props.get("theme") or {}
    if role.startswith(("head", "title")):
        yield from _set(site, {"headings": font}, "font", f"Set the font of the headings to {font}.")
    elif role.startswith(("body", "text", "paragraph")):
        headings = theme.get("headings") or theme.get("font") or PRESETS[theme.get("preset", "slate")].headings
        changes = {"font": font, "headings": headings}
        yield from _set(site, changes, "font", f"Set the font of the body text to {font}.")
    else:
        yield from _set(site, {"font": font, "headings": None}, "font", f"Set the font of the whole site to {font}.")


def _choice(target: str, word: str, site: Site) -> Iterator[DirectEdit]:
    if _CORNERS.fullmatch(target) and (radius := by_name(RADII).get(word)):
        yield from _set(site, {"radius": radius}, "corners", f"Set the corner radius to {radius}.")
    if _SPACING.fullmatch(target) and (spacing := by_name(SPACINGS).get(word)):
        yield from _set(site, {"spacing": spacing}, "spacing", f"Set the spacing to {spacing}.")
    mode = re.sub(r" (?:mode|theme)$", "", word)
    if _MODE.fullmatch(target) and mode in ("dark", "light"):
        yield from _set(site, {"mode": mode}, "mode", f"The site is now always {mode}.")
    preset = re.sub(r" (?:theme|palette|preset|colou?rs|colou?r scheme|look)$", "", word)
    if _THEME.fullmatch(target) and preset in PRESETS:
        own = dict.fromkeys(("primary", "accent", "background"))
        yield from _set(site, {"preset": preset, **own}, "theme", f"Switched to the {preset} colours.")


def _tone(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    """Set the background of one section, which the theme has three of."""
    tone = by_name(TONES).get(_word(order.value, request))
    if tone is None or order.old is not None:
        return
    match = _TONE_OF.fullmatch(plain(order.target))
    phrase = (match["section"] or match["named"]) if match else order.target
    for place in find_sections(phrase, site, request):
        if "tone" in components()[place.type].props.model_fields:
            summary = f"Gave {place.title()} a {tone} background."
            is_new = "tone" not in place.props
            yield setting("colour", summary, path=f"{place.path}/props/tone", value=tone, is_new=is_new)


def _step(order: Step, request: Request, site: Site) -> Iterator[DirectEdit]:
    current = (root_of(site, INDEX).props.get("theme") or {}).get("spacing") or "regular"
    if not _MORE_SPACE.fullmatch(plain(order.what)) or current not in _STEPS:
        return
    wanted = _STEPS.index(current) + (1 if order.is_more else -1)
    if 0 <= wanted < len(_STEPS):
        yield from _set(site, {"spacing": _STEPS[wanted]}, "spacing", f"Set the spacing to {_STEPS[wanted]}.")


RULES: Final = (Rule(Put, _put), Rule(Put, _tone), Rule(Step, _step))
