"""What people call the parts of a site: the one list of names that all rules and both kinds of site share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final


def words(names: Iterable[str]) -> str:
    """Return a pattern for any of some names, the longest first."""
    return "(?:" + "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name))) + ")"


def by_name(table: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return what each name stands for."""
    return {name: key for key, names in table.items() for name in names}


FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "heading": ("heading", "headline", "title", "header", "header text", "heading text", "title text", "main heading",
                "caption heading"),
    "text": ("text", "subheading", "sub-heading", "subheadline", "sub-headline", "subtitle", "description", "copy",
             "paragraph", "intro", "intro text", "lead", "lead text", "blurb", "introduction"),
    "eyebrow": ("eyebrow", "kicker", "overline", "eyebrow text"),
    "tagline": ("tagline", "slogan", "strapline", "motto"),
    "body": ("body", "body text", "text", "copy", "content"),
    "note": ("note", "copyright", "copyright line", "copyright text", "copyright notice", "small print", "footnote"),
    "button": ("submit button", "submit button text", "send button", "send button text"),
}  # fmt: skip
"""Props of a section."""

ENTRY_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "price": ("price", "cost", "fee"),
    "text": ("text", "description", "blurb", "bio"),
    "title": ("title", "name", "heading"),
    "name": ("name",),
    "role": ("role", "job title", "position", "job"),
    "answer": ("answer",),
    "question": ("question", "heading", "name"),
    "period": ("period",),
    "quote": ("quote", "review", "testimonial"),
    "value": ("value",),
    "caption": ("caption", "name"),
    "tag": ("tag", "label"),
    "badge": ("badge",),
}
"""Props of a list entry."""

CLEAR_WITHOUT_SECTION: Final = frozenset(
    {*FIELDS["tagline"], *FIELDS["button"], "heading", "eyebrow", "small print", "price", "answer", "quote",
     "copyright", "copyright line", "copyright text", "copyright notice"}
)  # fmt: skip
"""Names of section props that say which one is meant, if the site has just one."""

HEADLINE: Final = frozenset(
    {"headline", "main heading", "main headline", "h1", "main title", "page heading", "page headline",
     "heading at the top", "headline at the top", "title at the top", "big heading", "big headline"}
)  # fmt: skip
"""Names of the heading that opens a page."""

SUBHEADLINE: Final = frozenset(
    {"subheadline", "sub-headline", "subheading", "sub-heading", "subtitle"}
    | {f"{text} {below} {head}" for text in ("text", "paragraph", "line", "sentence") for below in ("under", "below")
       for head in ("headline", "the headline", "the main heading", "the heading", "the main headline")}
)  # fmt: skip
"""Names of the text below it."""

FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "email": ("email", "email address", "e-mail", "e-mail address", "contact email", "mail address", "contact e-mail"),
    "phone": ("phone", "phone number", "telephone", "telephone number", "contact number", "tel", "tel number",
              "contact phone", "contact phone number"),
    "address": ("address", "street address", "postal address"),
    "brand": ("business name", "company name", "shop name", "site name", "brand name", "brand", "name of the site",
              "name of the brand"),
}  # fmt: skip
BUSINESS: Final = frozenset(
    [
        "business",
        "company",
        "shop",
        "studio",
        "store",
        "restaurant",
        "cafe",
        "café",
        "firm",
        "practice",
        "clinic",
        "salon",
        "bakery",
        "agency",
        "hotel",
        "school",
        "club",
        "gallery",
        "bar",
        "pub",
        "bistro",
        "workshop",
        "brand",
        "site",
        "website",
    ]
)
"""What people call their own business."""
FACT_SHAPES: Final[Mapping[str, re.Pattern[str]]] = {
    "email": re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+"),
    "phone": re.compile(r"\+?[0-9(][0-9 ()./-]{4,28}[0-9]"),
}

BUTTON: Final = r"(?:button|cta)"
LABEL: Final = r"(?:text|label|caption|wording|name)"
ADDRESS: Final = r"(?:link|url|href|target|destination|address)"
IMAGE: Final = r"(?:image|picture|photo|illustration|photograph|pic)"
NAVIGATION: Final = (
    r"(?:navigation(?: bar| menu)?|nav(?: bar)?|menu(?: bar)?|header|navbar|top bar|top menu|main menu|footer)"
)
LINK: Final = (
    r"(?:link|item|entry|menu item|menu entry|nav item|menu link|nav link|navigation link|footer link|header link)"
)

COLOUR_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "primary": ("primary", "main", "brand", "theme"),
    "accent": ("accent", "secondary", "highlight"),
    "background": ("background", "page background", "site background", "bg"),
}
FONTS: Final[Mapping[str, tuple[str, ...]]] = {
    "sans": ("sans", "sans-serif", "sans serif", "system"), "serif": ("serif",), "humanist": ("humanist",),
    "geometric": ("geometric",), "classical": ("classical",), "slab": ("slab", "slab serif", "slab-serif"),
    "rounded": ("rounded",), "mono": ("mono", "monospace", "monospaced"),
}  # fmt: skip
RADII: Final[Mapping[str, tuple[str, ...]]] = {
    "none": ("square", "sharp"), "small": ("slightly rounded", "small"), "medium": ("rounded", "round"),
    "large": ("very rounded", "very round", "fully rounded", "large"),
}  # fmt: skip
SPACINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "compact": ("compact", "tight", "dense"), "regular": ("regular", "normal", "default"),
    "airy": ("airy", "generous", "spacious", "loose", "roomy"),
}  # fmt: skip
TONES: Final[Mapping[str, tuple[str, ...]]] = {
    "plain": ("plain", "untinted"), "tinted": ("tinted",), "deep": ("dark", "deep"),
}  # fmt: skip

SAID_OF_MANY: Final = frozenset(
    {"services", "offers", "benefits", "highlights", "about", "about us", "about section", "story", "menu", "prices",
     "intro", "opening", "banner", "table"}
)  # fmt: skip
"""Names that people give to sections of several kinds ("menu": dishes or navigation; "about us": a text or the team).
They name a section only by its own heading or key, never by the kind of its component."""

ENTRY_NOUNS: Final[Mapping[str, tuple[str, ...]]] = {
    "FAQ": ("question", "faq entry", "faq", "faq question", "entry", "question and answer"),
    "Features": ("service", "feature", "offer", "benefit", "item"),
    "PriceList": ("item", "dish", "product", "price", "menu item", "entry"),
    "Testimonials": ("review", "testimonial", "customer quote", "quote"),
    "Team": ("person", "teacher", "team member", "colleague", "member", "employee", "staff member"),
    "Steps": ("step",),
    "Stats": ("number", "figure", "stat"),
    "Pricing": ("plan", "package"),
}
"""What one entry of a component's list is called."""
