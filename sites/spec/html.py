"""HTML escaped by construction, the addresses allowed in it, the markup that components share, and drawings.

Blocks are on lines of their own, so that later diffs of a page work by line. Browsers strip tabs and newlines from
addresses, turn backslashes into slashes and read `//host` as another site; such addresses are refused, not repaired, so
that a browser follows what a reviewer reads.
"""

from __future__ import annotations

import html
import json
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, get_args
from urllib.parse import unquote

from routing.yaml_data import load_yaml
from sites.spec.languages.versions import Languages, primary

if TYPE_CHECKING:
    from sites.spec.catalog import Link, Picture, RenderContext, SectionProps


VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta", "source", "track"})
_INLINE_NAMES: Final = "a b br code em i img span strong svg path circle ellipse rect line cite time"
_INLINE: Final = frozenset(_INLINE_NAMES.split())
NUMBER: Final = re.compile(r"[+(]?\d[\d\s()/.\u2011-]{4,}\d")
"""A telephone number among words."""
_AMOUNT: Final = re.compile(
    r"(?:(?:[A-Z]{0,2}[£$€]|CHF|EUR)\s?)?\d(?:[\d.,'’\u202f\xa0 ]*\d)?(?:[.,][-–—])?"
    r"(?:\s?(?:[£$€]|(?:zł|Kč|kr|Ft|CHF|EUR|[Ee]uros?)\b))?(?!\d|\s?(?:g|kg|ml|l|cm|m|m²)\b)"
)
_HOURS: Final = re.compile(r"\d[\d.:]*h?\s?[–-]\s?\d[\d.:]*(?:\s?(?:Uhr|uur|h|am|pm)\b)?")
_ATTRIBUTE: Final = re.compile(r"[a-z][a-z0-9-]*", re.IGNORECASE)


class Html(str):
    """Escaped markup, made by `tag` and `join` and from the drawings of this package."""

    __slots__ = ()


class _Block(Html):
    """Markup that starts with an element on lines of its own."""

    __slots__ = ()


EMPTY: Final = Html("")


def tag(name: str, /, *children: str | None, **attributes: str | int | bool | None) -> Html:
    """Return one element.

    Args:
        name: the element's name.
        children: markup is kept, plain text is escaped, None and empty text are left out; lines of a paragraph's stay
            lines.
        attributes: `_` at the end of a name is dropped and every other one becomes a hyphen; None and False leave the
            attribute out, True writes it without a value.
    """
    opening = f"<{name}"
    for key, value in attributes.items():
        if isinstance(value, str):
            opening += f'{_ATTRIBUTE_NAMES[key]}="{_escaped(value)}"'
        elif value is True:
            opening += _ATTRIBUTE_NAMES[key]
        elif value is not None and value is not False:
            opening += f'{_ATTRIBUTE_NAMES[key]}="{value}"'
    kind = Html if name in _INLINE else _Block
    if name in VOID:
        return kind(f"{opening}>")
    parts, has_block = _as_markup(tuple(map(_in_lines, children)) if name == "p" else children)
    if has_block and kind is _Block:
        inner = "\n".join(parts).replace("\n", "\n  ")
        return _Block(f"{opening}>\n  {inner}\n</{name}>")
    return kind(f"{opening}>{''.join(parts)}</{name}>")


def join(*parts: str | None) -> Html:
    """Return pieces of markup one after the other, blocks on lines of their own; plain text is escaped."""
    markup, has_block = _as_markup(parts)
    if not has_block:
        return Html("".join(markup))
    kind = _Block if isinstance(markup[0], _Block) else Html
    return kind("\n".join(markup))


def _as_markup(pieces: tuple[str | None, ...]) -> tuple[list[str], bool]:
    """Return the pieces that are not empty, plain text escaped, and whether one is a block."""
    markup: list[str] = []
    has_block = False
    for piece in pieces:
        if piece:
            if piece.__class__ is _Block:
                has_block = True
            elif piece.__class__ is not Html:
                piece = _escaped(piece)
            markup.append(piece)
    return markup, has_block


def _in_lines(piece: str | None) -> str | None:
    """Return the plain text of a paragraph with its line ends as visitors shall see them."""
    if piece is None or "\n" not in piece or piece.__class__ in (Html, _Block):
        return piece
    return Html("<br>".join(_escaped(line) for line in piece.strip().splitlines()))


def _escaped(text: str) -> str:
    """Escape text for an element or a quoted attribute; line ends become references, which indenting leaves alone."""
    if "&" in text or "<" in text or ">" in text or '"' in text or "'" in text or "\n" in text or "\r" in text:
        return html.escape(text, quote=True).replace("\r", "&#13;").replace("\n", "&#10;")
    return text


class _AttributeNames(dict[str, str]):
    """The names of attributes with the space before them, by keyword; the catalog's code names them, never a spec."""

    def __missing__(self, key: str) -> str:
        name = key.rstrip("_").replace("_", "-")
        if not _ATTRIBUTE.fullmatch(name):
            raise ValueError(f"{name!r} is no attribute name")
        self[key] = f" {name}"
        return self[key]


_ATTRIBUTE_NAMES: Final = _AttributeNames()


_REFUSED_CHARS = re.compile(r"[\x00-\x20\x7f-\xa0\\<>\"'`{}|^\u2028\u2029\ufeff\u200b-\u200f]")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_WEB = re.compile(
    r"https?://(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?::\d{1,5})?(?:[/?#].*)?", re.I
)
_MAIL = re.compile(r"mailto:[^@:/?#&,;%]+@[a-z0-9.-]+(?:\?(?:subject|body)=[^&]*(?:&(?:subject|body)=[^&]*)?)?", re.I)
_PHONE = re.compile(r"(?:tel|sms):\+?[0-9().-]{3,24}", re.I)
_BY_SCHEME: Final = {"https": _WEB, "http": _WEB, "mailto": _MAIL, "tel": _PHONE, "sms": _PHONE}
MAX_URL_CHARS = 1000


def complaint_about_link(url: str) -> str | None:
    """Return why an address is not allowed in a link, or None if it is."""
    if complaint := _complaint_about_text(url):
        return complaint
    scheme = _SCHEME.match(url)
    if scheme is None:
        return _complaint_about_relative(url)
    pattern = _BY_SCHEME.get(scheme[1].lower())
    if pattern is None:
        return "links go to https:, http:, mailto:, tel: and sms: addresses, to pages of the site and to #sections"
    return None if pattern.fullmatch(url) else f"this is not a plain {scheme[1].lower()}: address"


def complaint_about_image(url: str) -> str | None:
    """Return why an address is not allowed as an image's source, or None if it is."""
    if complaint := _complaint_about_text(url):
        return complaint
    scheme = _SCHEME.match(url)
    if scheme is None:
        return "an image needs a path" if url.startswith(("#", "?")) else _complaint_about_relative(url)
    if scheme[1].lower() != "https":
        return "images come from https: addresses or from files of the site"
    return None if _WEB.fullmatch(url) else "this is not a plain https: address"


def is_external(url: str) -> bool:
    """Whether an accepted address leaves the site."""
    return _SCHEME.match(url) is not None


def relative_to(page: str, url: str) -> str:
    """Return an accepted address relative to a page; in a spec, paths count from the root."""
    if is_external(url) or url.startswith(("#", "?")):
        return url
    return "../" * page.count("/") + (url.lstrip("/") or "./")


def phone_url(phone: str) -> str:
    """Return the `tel:` address of a phone number."""
    return "tel:" + re.sub(r"[^0-9+]", "", phone.replace("(0)", ""))


def rings(href: str, phone: str) -> bool:
    """Return whether a link rings or texts a number, either of which may have the code of its country."""
    scheme, _, called = href.partition(":")
    called, known = (re.sub(r"[^0-9]", "", number).lstrip("0") for number in (called, phone_url(phone)))
    is_same = called.endswith(known) or known.endswith(called)
    return scheme in ("tel", "sms") and is_same and min(len(called), len(known)) >= _LEAST_DIGITS


_LEAST_DIGITS: Final = 6
"""Of a telephone number without its zeros; a year is none."""


def _complaint_about_text(url: str) -> str | None:
    if not url or len(url) > MAX_URL_CHARS:
        return f"an address has 1 to {MAX_URL_CHARS} characters"
    if _REFUSED_CHARS.search(url):
        return "an address holds no space, quote, backslash, bracket or control character"
    return None


def _complaint_about_relative(url: str) -> str | None:
    if url.startswith("//"):
        return "an address that starts with // leaves the site"
    path = unquote(url.partition("#")[0].partition("?")[0])
    if ".." in path.split("/") or "\\" in path or ":" in path or "\x00" in path:
        return "a path stays inside the site"
    return None


_BLANK_LINES: Final = re.compile(r"\n[ \t]*\n")
_MARKED: Final = re.compile(
    r"\[([^\[\]]{1,140})\]\(([^()\s]{1,1000})\)"
    r"|\*\*(?=\S)([^*]{1,400}(?<=\S))\*\*"
    r"|\*(?=\S)([^*\n]{1,400}(?<=\S)|(?<=(?<!\S)\*)[^*]{1,400}(?<=\S))\*"
    r"|(?<![\w./@+=?&-])(?<!mailto:)(\w[\w.+-]{,63}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,63})(?![\w-])"
)
"""A link, strong words, emphasis, or an e-mail address; asterisks touch their words: notes and dimensions have some."""


def heading(level: int, text: str, *, id: str | None = None) -> Html:
    """Return a heading, its level capped at h6."""
    return tag(f"h{min(max(level, 1), 6)}", text, id=id)


def section(ctx: RenderContext, props: SectionProps, *body: str | None, kind: str) -> Html:
    """Return a section of the page: its landmark, its width, its heading, then the body."""
    return band(ctx, props, intro(ctx, props), *body, classes=f"{props.ground} {kind}")


def band(ctx: RenderContext, props: SectionProps, *body: str | None, classes: str) -> Html:
    """Return a section of the page with its width, named by its heading if it has one."""
    inner = tag("div", *body, class_="wrap")
    name = f"{ctx.id}.title" if props.heading else None
    return tag("section", inner, id=ctx.id, class_=f"band {classes}", lang=props.lang, aria_labelledby=name)


def intro(ctx: RenderContext, props: SectionProps, *, above: Html | None = None) -> Html:
    """Return a section's eyebrow, heading and text, or nothing when it has none; `above` stands over the heading."""
    if not (props.eyebrow or props.heading or props.text):
        return EMPTY
    return tag(
        "div",
        paragraph(props.eyebrow, "eyebrow"),
        above,
        heading(ctx.level, props.heading, id=f"{ctx.id}.title") if props.heading else None,
        lead(ctx, props.text),
        class_="intro",
    )


def lead(ctx: RenderContext, text: str | None) -> Html | None:
    """Return the text below a heading, in which an address or a page may be a link."""
    return tag("p", _inline(ctx, text), class_="lead") if text else None


def level_inside(ctx: RenderContext, props: SectionProps) -> int:
    """Return the level of the headings inside a section."""
    return ctx.level + 1 if props.heading else ctx.level


def buttons(ctx: RenderContext, actions: Sequence[Link]) -> Html:
    """Return a row of links that look like buttons, the first one filled."""
    if not actions:
        return EMPTY
    links = [
        anchor(ctx, link, class_="button button-quiet" if place else "button") for place, link in enumerate(actions)
    ]
    return tag("p", *links, class_="actions")


def paragraph(words: str | None, class_: str | None = None) -> Html | None:
    """Return words as a paragraph, or nothing when there are none."""
    return tag("p", words, class_=class_) if words else None


def anchor(ctx: RenderContext, link: Link, *, class_: str | None = None) -> Html:
    """Return a link of the page; one with a class is a button, which sets the number that it rings apart."""
    numbers = NUMBER.finditer(link.label) if class_ else ()
    words = set_apart(link.label, [found for found in numbers if rings(link.href, found[0])][:1])
    return tag("a", words, class_=button_class(class_, link.accent) if class_ else None, href=ctx.url(link.href))


def set_apart(words: str, numbers: Iterable[re.Match[str]]) -> str:
    """Return words with these numbers in elements of their own, in which no line breaks."""
    pieces: list[str] = []
    end = 0
    for number in numbers:
        pieces += words[end : number.start()], tag("span", number[0], class_="number")
        end = number.end()
    return join(*pieces, words[end:]) if pieces else words


def hours_apart(words: str) -> str:
    """Return words in which no line breaks inside hours: `9:30–14 and 17–20`."""
    return set_apart(words, [hours for hours in _HOURS.finditer(words) if hours[0] != words])


def amount_apart(price: str) -> str:
    """Return a large price with its one amount apart from the words around it, which are set smaller."""
    amounts = [*_AMOUNT.finditer(price)]
    return set_apart(price, amounts) if len(amounts) == 1 and amounts[0][0] != price else price


def button_class(style: str, accent: bool | str) -> str:
    """Return the class of a button, which may have the accent colour or one of its own."""
    if not accent:
        return style
    return f"{style} button-accent hue-{accent}" if isinstance(accent, str) else f"{style} button-accent"


def image(ctx: RenderContext, picture: Picture, *, class_: str | None = None, eager: bool = False) -> Html:
    """Return an image; only images at the top of a page are loaded eagerly."""
    loading = None if eager else "lazy"
    return tag("img", src=ctx.url(picture.src), alt=picture.alt, class_=class_, loading=loading, decoding="async")


def language_links(page: str, lang: str, languages: Languages) -> Html | None:
    """Return the links from a page to itself in other languages, by their names."""
    others = languages.offered(page, lang)
    if not others:
        return None
    links = [
        tag("li", tag("a", name, href=relative_to(page, path), hreflang=other, lang=other))
        for other, path, name in others
    ]
    return tag("nav", icon("globe"), tag("ul", *links), class_="languages", aria_label=say("Languages", lang))


def post_line(day: str, author: str | None, lang: str) -> Html:
    """Return the line above a post: its date (ISO 8601), and whose it is."""
    when = tag("time", written_date(day, lang), datetime=day)
    return tag("p", when, f" · {author}" if author else None, class_="post-date")


def written_date(day: str, lang: str) -> str:
    """Return a date in words: "3. Mai 2026"; in a language that the builder does not know, as ISO 8601 has it.

    Args:
        day: ISO 8601.
        lang: BCP 47.
    """
    when = date.fromisoformat(day)
    if primary(lang) != "en" and primary(lang) not in _words():
        return day
    months = say("January February March April May June July August September October November December", lang)
    month = months.split()[when.month - 1]
    if lang.lower() == "en-us":
        return f"{month} {when.day}, {when.year}"
    form = say("1 {month} {year}", lang) if when.day == 1 else say("{day} {month} {year}", lang)
    return form.format(day=when.day, month=month, year=when.year)


def paragraphs(ctx: RenderContext, text: str) -> Html:
    """Return plain text with blank lines as paragraphs, `- ` lists, `**bold**`, `*emphasis*` and `[words](address)`."""
    return join(*(_block(ctx, block) for block in _BLANK_LINES.split(text) if block.strip()))


def _block(ctx: RenderContext, block: str) -> Html:
    lines = [line.strip() for line in block.strip().split("\n")]
    if all(line.startswith("- ") for line in lines):
        return tag("ul", *(tag("li", _inline(ctx, line[2:])) for line in lines))
    return tag("p", _inline(ctx, "\n".join(lines)))


def _inline(ctx: RenderContext, text: str, *, in_link: bool = False) -> Html:
    pieces: list[str] = []
    end = 0
    for match in _MARKED.finditer(text):
        pieces += [text[end : match.start()], _marked(ctx, match, in_link)]
        end = match.end()
    return join(*pieces, text[end:])


def _marked(ctx: RenderContext, match: re.Match[str], in_link: bool) -> str:
    label, url, strong, emphasis, email = match.groups()
    if email:
        return email if in_link else tag("a", email, href=f"mailto:{email}")
    if url:
        is_allowed = complaint_about_link(url) is None
        return tag("a", _inline(ctx, label, in_link=True), href=ctx.url(url)) if is_allowed else match[0]
    words = _inline(ctx, strong or emphasis, in_link=in_link)
    return tag("strong" if strong else "em", words)


def without_marks(text: str) -> str:
    """Return running text as visitors read it: the words of its links, and no asterisks."""
    return _MARKED.sub(lambda match: match[5] or without_marks(match[1] or match[3] or match[4]), text)


# Icons and drawings are inline SVG, hidden from assistive technology. Their shapes only name classes, so they follow
# the theme and its dark scheme.

ArtName = Literal[
    "tiles",
    "orbit",
    "hills",
    "waves",
    "rays",
    "arches",
    "dashboard",
    "room",
    "bread",
    "table",
    "tooth",
    "bicycle",
    "camera",
    "columns",
    "stage",
    "books",
    "dog",
    "workshop",
    "pencils",
    "road",
    "pitch",
    "cake",
    "flowers",
    "tap",
    "music",
    "stretch",
    "dance",
    "scissors",
    "car",
    "cup",
    "bulb",
    "motorbike",
    "armchair",
]
ART_NAMES: Final[tuple[str, ...]] = get_args(ArtName)


@cache
def art(name: ArtName | Literal["street-map"]) -> Html:
    """Return a drawing that fills the box it stands in."""
    return Html("".join(line.strip() for line in _read(f"{name}.svg").splitlines()))


@cache
def icon(name: str) -> Html:
    """Return a line icon of 24 by 24, coloured by its surroundings."""
    path = tag("path", d=_icon_paths()[name])
    return tag("svg", path, class_="icon", viewBox="0 0 24 24", aria_hidden="true", focusable="false")


@cache
def _icon_paths() -> dict[str, str]:
    paths: dict[str, str] = json.loads(_read("icons.json"))
    return paths


def _read(name: str) -> str:
    return (pkgutil.get_data(__name__, f"drawings/{name}") or b"").decode()


def say(phrase: str, lang: str, **values: str | int) -> str:
    """Return one of the builder's English phrases in a language (BCP 47), or as it is where it is not translated.

    Values replace their names in {}.
    """
    said = _words().get(primary(lang), {}).get(phrase, phrase)
    return said.format(**values) if values else said


def say_familiarly(phrase: str, lang: str, *, several: bool) -> str:
    """Return one of the builder's phrases as a site says it that says `tú`, or `voi` to several, to its visitors."""
    key = f"{primary(lang)}{', several' if several else ''}: {phrase}"
    return _words()["familiar"].get(key) or say(phrase, lang)


@cache
def _words() -> Mapping[str, Mapping[str, str]]:
    words: Mapping[str, Mapping[str, str]] = load_yaml(pkgutil.get_data(__name__, "words.yaml") or b"")
    return words
