"""Rules for the look: colours, fonts, corners, spacing, light and dark, all of them in the index page's theme."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.spec.colours import COLOUR_NAMES
from sandbox.spec.model import INDEX, Site
from sandbox.spec.rules.targets import root_of
from sandbox.spec.rules.wording import DirectEdit, Request, Rule, rule
from sandbox.spec.theme import FONT_STACKS, PRESETS

_COLOUR_ROLES: Final = {
    "primary": "primary", "main": "primary", "brand": "primary", "theme": "primary",
    "accent": "accent", "secondary": "accent", "highlight": "accent",
    "background": "background", "page background": "background", "site background": "background", "bg": "background",
}  # fmt: skip
_FONTS: Final = {
    **{name: name for name in FONT_STACKS},
    **dict.fromkeys(("sans-serif", "sans serif", "system"), "sans"),
    **dict.fromkeys(("slab serif", "slab-serif"), "slab"),
    **dict.fromkeys(("monospace", "monospaced"), "mono"),
}
_RADII: Final = {
    **dict.fromkeys(("square", "sharp"), "none"),
    **dict.fromkeys(("slightly rounded", "small"), "small"),
    **dict.fromkeys(("rounded", "round"), "medium"),
    **dict.fromkeys(("very rounded", "very round", "fully rounded", "large"), "large"),
}
_SPACINGS: Final = {
    **dict.fromkeys(("compact", "tight", "dense"), "compact"),
    **dict.fromkeys(("regular", "normal", "default"), "regular"),
    **dict.fromkeys(("airy", "generous", "spacious", "loose", "roomy"), "airy"),
}
_SPACING_STEPS: Final = ("compact", "regular", "airy")


def _set(site: Site, changes: Mapping[str, Any], kind: str, summary: str) -> Iterator[DirectEdit]:
    root = root_of(site, INDEX)
    theme = root.props.get("theme")
    if theme is not None and not isinstance(theme, dict):
        return
    if any(isinstance(page["elements"][page["root"]].get("props", {}).get("theme"), dict)
           for path, page in site.pages.items() if path != INDEX):  # fmt: skip
        return
    kept = {key: value for key, value in {**(theme or {}), **changes}.items() if value is not None}
    op = "replace" if "theme" in root.props else "add"
    yield DirectEdit(kind, summary, ({"op": op, "path": f"{root.path}/props/theme", "value": kept},))


def _colour(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    token = request.quoted(match["colour"]) or match["colour"]
    colour = token.lower().replace(" ", "")
    if colour not in COLOUR_NAMES and not re.fullmatch(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})", colour):
        return
    role = _COLOUR_ROLES[match["role"].lower()]
    yield from _set(site, {role: colour}, "colour", f"Set the {role} colour to {colour}.")


def _font(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    font = _FONTS.get((request.quoted(match["font"]) or match["font"]).lower())
    if font is None:
        return
    role = (match["role"] or match.groupdict().get("role2") or "").lower()
    theme = root_of(site, INDEX).props.get("theme") or {}
    if role.startswith(("head", "title")):
        yield from _set(site, {"headings": font}, "font", f"Set the font of the headings to {font}.")
    elif role.startswith(("body", "text", "paragraph")):
        headings = theme.get("headings") or theme.get("font") or PRESETS[theme.get("preset", "slate")].headings
        changes = {"font": font, "headings": headings}
        yield from _set(site, changes, "font", f"Set the font of the body text to {font}.")
    else:
        yield from _set(site, {"font": font, "headings": None}, "font", f"Set the font of the whole site to {font}.")


def _corners(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    radius = _RADII[match["corners"].lower()]
    yield from _set(site, {"radius": radius}, "corners", f"Set the corner radius to {radius}.")


def _spacing(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    spacing = _SPACINGS[match["spacing"].lower()]
    yield from _set(site, {"spacing": spacing}, "spacing", f"Set the spacing to {spacing}.")


def _spacing_step(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    current = (root_of(site, INDEX).props.get("theme") or {}).get("spacing") or "regular"
    step = 1 if re.match(r"(?:more|increase|add)", match["way"], re.I) else -1
    wanted = _SPACING_STEPS.index(current) + step if current in _SPACING_STEPS else -1
    if 0 <= wanted < len(_SPACING_STEPS):
        spacing = _SPACING_STEPS[wanted]
        yield from _set(site, {"spacing": spacing}, "spacing", f"Set the spacing to {spacing}.")


def _mode(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    mode = match["mode"].lower()
    yield from _set(site, {"mode": mode}, "mode", f"The site is now always {mode}.")


def _preset(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    name = (request.quoted(match["preset"]) or match["preset"]).lower()
    if name in PRESETS:
        plain = dict.fromkeys(("primary", "accent", "background"))
        yield from _set(site, {"preset": name, **plain}, "theme", f"Switched to the {name} colours.")


def _words(table: Mapping[str, Any]) -> str:
    return "(?:" + "|".join(re.escape(word) for word in sorted(table, key=lambda word: (-len(word), word))) + ")"


_ROLE: Final = rf"(?P<role>{_words(_COLOUR_ROLES)})"
_NAME: Final = r"(?P<colour>#[0-9a-fA-F]+|[a-zA-Z]+(?: (?!as\b|for\b|to\b|the\b)[a-zA-Z]+){0,2}|<Q>)"
_FONT_ROLE: Final = r"(?:(?P<role>(?:site|website|main|whole site|body|body text|text|paragraph|headings?|titles?)) )?"
_SITE: Final = r"(?: (?:of|on|for) (?:the |our )?(?:whole |entire )?(?:site|website|page|everything)| everywhere)?"

_MAKE: Final = r"(?:change|set|make|turn|switch|update)"
RULES: Final[tuple[Rule, ...]] = (
    rule(rf"{_MAKE} <THE>{_ROLE} colou?r{_SITE}(?: to| as| into| be)? {_NAME}", _colour),
    rule(rf"{_MAKE} <THE>(?P<role>(?:page |site )?background){_SITE}(?: to| as| into| be)? {_NAME}", _colour),
    rule(rf"(?:use|make) {_NAME} (?:as |for |to be )?<THE>(?:new )?{_ROLE}(?: colou?r)?{_SITE}", _colour),
    rule(rf"<THE>{_ROLE} colou?r(?: should be|:| =) ?{_NAME}", _colour),
    rule(
        rf"{_MAKE} <THE>{_FONT_ROLE}(?:fonts?|typeface)(?: family)?{_SITE}(?: to| as| into)? "
        rf"(?:an? )?(?P<font>[a-z -]+?|<Q>)(?: (?:font|typeface|one))?",
        _font,
    ),
    rule(
        r"(?:use|switch to|change to) (?:an? )?(?P<font>[a-z -]+?|<Q>) (?:fonts?|typeface)(?: (?:for|in|on) "
        r"(?:the |all )?"
        r"(?P<role>headings?|titles?|body(?: text)?|text|site|website|whole site))?",
        _font,
    ),
    rule(
        rf"(?:change|set|make|switch) (?:the |all )?(?P<role>headings?|titles?|body text) (?:to |in |into )(?:an? )?"
        rf"(?P<font>{_words(_FONTS)})(?: font)?",
        _font,
    ),
    rule(
        rf"(?:use|make|set|change) (?:the |all )?corners?{_SITE}(?: to)?(?: be)? (?P<corners>{_words(_RADII)})",
        _corners,
    ),
    rule(rf"use (?P<corners>{_words(_RADII)}) corners?{_SITE}", _corners),
    rule(
        rf"(?:make|set|change|use) (?:the )?spacing{_SITE}(?: to)?(?: be)? (?P<spacing>{_words(_SPACINGS)})", _spacing
    ),
    rule(rf"use (?:a )?(?P<spacing>{_words(_SPACINGS)}) spacing{_SITE}", _spacing),
    rule(
        rf"(?P<way>(?:use |add )?more|increase(?: the)?|less|(?:use )?less|reduce(?: the)?|decrease(?: the)?) spacing"
        rf"(?: between (?:the )?sections)?{_SITE}",
        _spacing_step,
    ),
    rule(
        r"(?:switch to|use|enable|turn on|go|set|always use)(?: (?:the|to))? (?P<mode>dark|light)(?: "
        r"(?:mode|theme|scheme|colou?r scheme))",
        _mode,
    ),
    rule(
        r"(?:make|turn|set) (?:it|the (?:site|website|page|whole site)) (?:to )?(?P<mode>dark|light)(?: mode)?", _mode
    ),
    rule(
        rf"(?:use|switch to|change to|apply|set) (?:the )?(?P<preset>{_words(PRESETS)}|<Q>) "
        rf"(?:theme|palette|preset|colou?rs|colou?r scheme|look){_SITE}",
        _preset,
    ),
    rule(
        rf"(?:change|set|switch) (?:the )?(?:theme|palette|preset|colou?r scheme|look){_SITE} to (?:the "
        rf")?(?P<preset>{_words(PRESETS)}|<Q>)",
        _preset,
    ),
)
