"""What opens a page or calls the visitor to act, words, pictures and films."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from sites.spec.catalog import (
    Business,
    Component,
    HeroLayout,
    Label,
    Link,
    LinkUrl,
    LongText,
    OutlineSection,
    Phone,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Text,
    Title,
    Tone,
    is_link,
    outlined_links,
    section_props,
)
from sites.spec.drawings.shapes import WIDE, Drawing, mark_of
from sites.spec.embeds import frame_of, framed
from sites.spec.html import (
    NUMBER,
    ArtName,
    Html,
    anchor,
    art,
    band,
    buttons,
    heading,
    hours_apart,
    icon,
    image,
    intro,
    is_external,
    join,
    lead,
    paragraph,
    paragraphs,
    phone_url,
    post_line,
    rings,
    section,
    tag,
)
from sites.spec.model import JsonObject

ANY_ART: Final = ("tiles", "orbit", "waves", "rays", "arches")
"""Drawings that suit any trade."""


class HeroProps(SectionProps):
    """The opening of a page; with nothing to stand beside the words it is neither split nor covered."""

    heading: Title
    actions: Annotated[tuple[Link, ...], Field(max_length=3)] = ()
    image: Picture | None = None
    art: ArtName | None = None
    """A drawing in the site's colours, for where there is no image."""
    drawing: Drawing | None = None
    """A drawing of the site's own, which wins over `art` once it is drawn."""
    layout: HeroLayout = "split"
    notes: Annotated[tuple[Title, ...], Field(max_length=4)] = ()
    """Facts below the buttons."""
    long: bool = False
    """Whether the heading has a word or a number that would not fit its column in the largest letters."""
    strip: Tone | None = None
    """The ground of a strip at the foot of the opening, in which the notes stand instead."""
    phone: Phone | None = None
    """The number that the heading has, which is a link there."""

    def with_call(self) -> Self:
        """Return the opening with its number as a link, if the heading has it, with or without a country's code."""
        for found in NUMBER.finditer(self.heading if self.phone else ""):
            if rings(href := phone_url(self.phone or ""), found[0]):
                before, after = self.heading[: found.start()], self.heading[found.end() :]
                words = join(before, tag("a", found[0], href=href), after)
                return self.model_copy(update={"heading": words})
        return self


_LETTER: Final = re.compile(r"[^\W\d_]")


def _hero_picture(props: HeroProps, ctx: RenderContext) -> Html | None:
    if aside := ctx.slot("aside", deeper=True):
        return tag("div", aside, class_="hero-aside")
    if props.image:
        return tag("div", image(ctx, props.image, eager=True), class_="hero-picture")
    drawing = _drawn(props.drawing) or (art(props.art) if props.art else None)
    return tag("div", drawing, class_="hero-picture hero-art") if drawing else None


def _fitting(props: HeroProps) -> HeroLayout:
    """Return the layout, or another where no picture is there that could go across the page."""
    fits = props.image or (props.drawing and props.drawing.box == WIDE)
    return "split" if props.layout == "wide" and not fits else props.layout


def _drawn(drawing: Drawing | None) -> Html | None:
    return drawing.html() if drawing and drawing.shapes else None


def _outlined_picture(section: OutlineSection) -> JsonObject:
    if section.image:
        return {"image": {"src": section.image, "alt": ""}}
    return {"drawing": {"of": section.drawing}} if section.drawing else {}


def _outline_hero(section: OutlineSection, business: Business) -> JsonObject:
    found: dict[tuple[str, str], JsonObject] = {}  # a number among the facts is no further button
    for link in outlined_links(section):
        if href := _called(link["href"], business):
            key = href, "" if href.startswith(("tel:", "sms:")) else link["label"]
            if not _LETTER.search(found.get(key, {}).get("label", "")):
                found[key] = _with_number({**link, "href": href}, business)
    links = [*found.values()][:3]
    notes = [item["title"] for item in section.items if item.get("title") and not is_link(item)]
    props: JsonObject = {"heading": business.name, **section_props(section), "layout": business.opening}
    if business.phone and NUMBER.search(props["heading"]):
        props["phone"] = business.phone
    if business.tagline and business.tagline != props.get("text"):
        props["eyebrow"] = business.tagline[:60]
    if section.image:
        props["image"] = {"src": section.image, "alt": ""}
    elif business.art or business.opening != "statement":  # which stands well on its own
        props["art"] = _art_for(business)
    if (drawing := section.drawing or business.drawing) and not section.image:
        props["drawing"] = {"of": drawing}
    if business.contact_href and not links:
        links = [{"label": business.say("Get in touch"), "href": business.contact_href}]
    return props | ({"actions": links} if links else {}) | ({"notes": notes[:4]} if notes else {})


def _with_number(link: JsonObject, business: Business) -> JsonObject:
    """Return a button that rings or texts with the number on it, which a desktop can only show."""
    known = "; ".join([business.phone or "", *(way.label for way in business.ways)])
    number = next((found[0] for found in NUMBER.finditer(known) if rings(link["href"], found[0])), "")
    if not number or any(rings(link["href"], found[0]) for found in NUMBER.finditer(link["label"])):
        return link
    whole = number.replace(" ", "\N{NO-BREAK SPACE}")
    words = link["label"][: 57 - len(whole)].rstrip()
    return link | {"label": f"{words} · {whole}" if words[-1:].isdigit() else f"{words} {whole}"}


def _art_for(business: Business) -> str:
    """Return the drawing of the choice or trade, else one by the name, so that two new sites seldom open alike."""
    return business.art or ANY_ART[sum(business.name.encode()) % len(ANY_ART)]


@Component(
    "Hero",
    summary="opening: actions (max 3), image, art or drawing, layout split|mirrored|framed|centered|"
    "cover (light words over the picture, always shaded dark)|statement|masthead|wide, notes [text]; slot aside",
    example={
        "heading": "Bread worth getting up for",
        "text": "Baked every night in a wood oven.",
        "actions": [{"label": "See the menu", "href": "#menu"}],
    },
    words=("hero", "hero section", "hero banner", "banner", "opening", "masthead", "intro"),
    slots=("aside",),
    outline=_outline_hero,
    outline_hint="items: up to 2 buttons (in the header: a call or the first) with detail tel:NUMBER "
    "(its label shows it), #contact, ...; then up to 4 facts as title",
)
def _hero(props: HeroProps, ctx: RenderContext) -> Html:
    props = props.with_call()
    style = f"hero-notes hero-strip tone-{props.strip}" if props.strip else "hero-notes"
    whole = ((note, hours_apart(note)) for note in props.notes)
    told = (tag("li", note if apart == note else tag("span", apart)) for note, apart in whole)
    notes = tag("ul", *told, class_=style) if props.notes else None
    strip, notes = (notes, None) if props.strip else (None, notes)
    picture = _hero_picture(props, ctx)
    layout = "centered" if picture is None and props.layout != "statement" else _fitting(props)
    words: tuple[Html | None, ...] = (intro(ctx, props), buttons(ctx, props.actions), notes)
    if layout in ("statement", "masthead", "wide"):
        head = props.model_copy(update={"text": None})
        if layout == "masthead":  # beside the picture, not below the buttons
            strip, words = strip or notes, words[:2]
        rest = [part for part in (lead(ctx, props.text), *words[1:]) if part]
        words = (intro(ctx, head), tag("div", *rest, class_="hero-rest") if rest else None)
    ground = "tone-deep" if layout == "cover" else props.ground
    words_box = tag("div", *words, class_="hero-words")
    size = " hero-long" if props.long else ""
    return band(ctx, props, words_box, picture, strip, classes=f"hero hero-{layout}{size} {ground}")


class PageIntroProps(SectionProps):
    """The opening of a page that is not the front page: a heading with its text, beside a picture if there is one."""

    heading: Title
    image: Picture | None = None
    drawing: Drawing | None = None
    marked: bool = False
    """Whether the drawing is the site's mark, which looks in at the corner."""


def _outline_page_intro(section: OutlineSection, business: Business) -> JsonObject:
    picture = _outlined_picture(section) or (business.marked() | {"marked": True} if business.mark else {})
    return {"heading": business.name, **section_props(section), **picture}


@Component(
    "PageIntro",
    summary="opens a further page: image or drawing",
    example={"heading": "Our classes", "text": "Small groups, every weekend."},
    words=("page intro", "page header", "page introduction"),
    outline=_outline_page_intro,
    outline_hint="opens a further page",
)
def _page_intro(props: PageIntroProps, ctx: RenderContext) -> Html:
    drawing = mark_of(props.drawing) if props.marked else _drawn(props.drawing)
    shown = image(ctx, props.image, eager=True) if props.image else drawing
    picture = tag("div", shown, class_="page-intro-picture") if shown else None
    post = ctx.site.trees[ctx.page].props
    when = post_line(post["date"], post.get("author"), ctx.lang) if post.get("date") else None
    return band(ctx, props, intro(ctx, props, above=when), picture, classes=f"page-intro {props.ground}")


class CallToActionProps(SectionProps):
    """One invitation, in a panel of the site's own colour, or on the ground of its section."""

    heading: Title
    layout: Literal["open", "centered"] | None = None
    actions: Annotated[tuple[Link, ...], Field(max_length=2)] = ()
    drawing: Drawing | None = None
    """The site's mark, as in the header."""


def _outline_call(section: OutlineSection, business: Business) -> JsonObject:
    actions = [
        _with_number({"label": item["title"][:60], "href": href}, business)
        for item in section.items
        if item.get("title") and (href := _called(item.get("detail"), business))
    ]
    if not actions and business.contact_href:
        actions = [{"label": business.say("Get in touch"), "href": business.contact_href}]
    return {"heading": business.name, **section_props(section), "actions": actions[:2], **business.marked()}


def _called(given: str | None, business: Business) -> str | None:
    return business.contact_href if given in (None, "#contact") else given


@Component(
    "CallToAction",
    summary="one invitation in a box of primary: actions (max 2), layout open (no box)|centered",
    example={"heading": "Come for breakfast", "actions": [{"label": "Book a table", "href": "#contact"}]},
    words=("call to action", "cta", "call-to-action", "call to action section"),
    outline=_outline_call,
    outline_hint="one item or two: title = button label, detail = its address (https:, tel:, sms:, mailto:, or # and "
    "a page's name or a section's heading) where it is not the contact",
)
def _call_to_action(props: CallToActionProps, ctx: RenderContext) -> Html:
    words = (mark_of(props.drawing), intro(ctx, props), buttons(ctx, props.actions))
    if props.layout == "open":
        return band(ctx, props, *words, classes=f"{props.ground} call-open")
    panel = tag("div", *words, class_="panel")
    return band(ctx, props, panel, classes=f"{props.ground} call{' call-centered' if props.layout else ''}")


class HeadingProps(Props):
    """A heading of its own inside a section, of the level that its place has."""

    text: Title


@Component("Heading", summary="text", example={"text": "Also good"})
def _heading(props: HeadingProps, ctx: RenderContext) -> Html:
    return heading(ctx.level, props.text, id=ctx.id)


class TextProps(Props):
    text: LongText


@Component("Text", summary="text", example={"text": "We bake at night."})
def _text(props: TextProps, ctx: RenderContext) -> Html:
    return tag("div", paragraphs(ctx, props.text), class_="prose", id=ctx.id)


@Component("Link", summary="label, href", example={"label": "All breads", "href": "#menu"})
def _link(props: Link, ctx: RenderContext) -> Html:
    return tag("p", anchor(ctx, props), id=ctx.id)


class ButtonProps(Link):
    variant: Literal["filled", "quiet"] = "filled"


@Component(
    "Button",
    summary="label, href, variant filled|quiet",
    example={"label": "Order", "href": "#contact"},
    words=("button",),
)
def _button(props: ButtonProps, ctx: RenderContext) -> Html:
    style = "button" if props.variant == "filled" else "button button-quiet"
    return tag("p", anchor(ctx, props, class_=style), class_="actions", id=ctx.id)


class CardProps(Props):
    heading: Title | None = None
    text: Text | None = None
    image: Picture | None = None
    link: Link | None = None


@Component(
    "Card",
    summary="frame: heading, text, image, link; children",
    example={"heading": "Rye", "text": "Dense and sour."},
    has_children=True,
    words=("card",),
)
def _card(props: CardProps, ctx: RenderContext) -> Html:
    picture = image(ctx, props.image, class_="card-image") if props.image else None
    title = heading(ctx.level, props.heading) if props.heading else None
    children = ctx.children(deeper=props.heading is not None)
    link = tag("p", anchor(ctx, props.link), class_="card-link") if props.link else None
    return tag("div", picture, title, paragraph(props.text), children, link, class_="card", id=ctx.id)


class RichTextProps(SectionProps):
    """Running text with paragraphs, lists and emphasis, beside its picture if it has one."""

    body: LongText
    image: Picture | None = None
    drawing: Drawing | None = None


def _outline_rich_text(section: OutlineSection, business: Business) -> JsonObject:
    head = {key: value for key, value in section_props(section).items() if key != "text"}
    extra = [": ".join(part for part in (item.get("title"), item.get("text")) if part) for item in section.items]
    blocks = [section.text or "", "\n".join(f"- {line}" for line in extra if line)]
    return {**head, "body": "\n\n".join(block for block in blocks if block), **_outlined_picture(section)}


@Component(
    "RichText",
    summary="body (blank line = paragraph, '- ' = list), image or drawing",
    example={"heading": "Our story", "body": "We began in **1998**.\n\nThe oven is older."},
    words=("rich text", "text section", "about", "story", "about section", "text block"),
    outline=_outline_rich_text,
    outline_hint="text = the paragraphs; items: title = list line",
    nav_label="About",
)
def _rich_text(props: RichTextProps, ctx: RenderContext) -> Html:
    body = tag("div", paragraphs(ctx, props.body), class_="prose")
    shown = image(ctx, props.image) if props.image else _drawn(props.drawing)
    if shown is None:
        return section(ctx, props, body, kind="rich-text rich-text-plain")
    row = tag("div", tag("div", intro(ctx, props), body), tag("div", shown, class_="prose-picture"))
    return band(ctx, props, row, classes=f"{props.ground} rich-text rich-text-split")


class CodeProps(Props):
    """Lines to copy as they are; they scroll sideways, also by keyboard."""

    code: Annotated[str, Field(min_length=1, max_length=4000)]
    title: Label | None = None
    """A file name, or the program that the lines are typed into."""


@Component(
    "Code",
    summary="code, title; stands in a Section, or in the slot aside of a Hero",
    example={"code": "pip install loaf\nloaf bake --hours 40", "title": "Terminal"},
    words=("code", "code block", "code sample", "snippet"),
)
def _code(props: CodeProps, ctx: RenderContext) -> Html:
    lines = tag("pre", tag("code", props.code), role="group", tabindex=0, aria_label=props.title or "Code")
    return tag("div", paragraph(props.title, "code-title"), lines, class_="code", id=ctx.id)


class ImageProps(Picture):
    caption: Title | None = None
    width: Literal["text", "wide", "full"] = "wide"


@Component(
    "Image",
    summary="src, alt, caption, width text|wide|full",
    example={"src": "assets/oven.svg", "alt": "The wood oven", "caption": "Built in 1911"},
    words=("image", "picture", "photo"),
)
def _image(props: ImageProps, ctx: RenderContext) -> Html:
    caption = tag("figcaption", props.caption) if props.caption else None
    return tag("figure", image(ctx, props), caption, id=ctx.id, class_=f"figure figure-{props.width}")


_FILM: Final = re.compile(r"[^?#]+\.(?P<kind>mp4|webm)", re.IGNORECASE)


class VideoProps(SectionProps):
    """A film of the site, or a still that leads to one elsewhere or shows it in its place, once a visitor asks."""

    src: LinkUrl | None = None
    """A film of the site, .mp4 or .webm."""
    captions: LinkUrl | None = None
    """A .vtt file of the site with the spoken words."""
    href: LinkUrl | None = None
    """Where the film is, if it is elsewhere."""
    title: Title
    length: Label | None = None
    image: Picture | None = None
    art: ArtName | None = None
    """A drawing for the still, for where there is no image."""
    embed: bool = False
    """Whether the film at `href` plays in the page."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.src is None) == (self.href is None):
            raise ValueError("a video has either src, a film of the site, or href, an address elsewhere")
        if self.src is not None and (is_external(self.src) or not _FILM.fullmatch(self.src)):
            raise ValueError("src is an .mp4 or .webm file of the site; a film elsewhere goes into href")
        if self.captions is not None and (is_external(self.captions) or not self.captions.endswith(".vtt")):
            raise ValueError("captions is a .vtt file of the site")
        return self


def _player(props: VideoProps, ctx: RenderContext, length: Html | None) -> Html:
    """Return the player, which loads nothing before it is asked to."""
    film = _FILM.fullmatch(props.src or "")
    source = tag("source", src=ctx.url(props.src or ""), type=f"video/{film['kind'].lower()}" if film else None)
    track = None
    if props.captions:
        track = tag("track", kind="captions", src=ctx.url(props.captions), label="Captions", default=True)
    video = tag(
        "video",
        source,
        track,
        controls=True,
        preload="none",
        playsinline=True,
        poster=ctx.url(props.image.src) if props.image else None,
        aria_label=props.title,
        class_="video-frame",
    )
    return tag("figure", video, tag("figcaption", props.title, length), class_="video-figure")


def _still_picture(props: VideoProps, ctx: RenderContext) -> Html:
    return image(ctx, props.image.model_copy(update={"alt": ""})) if props.image else art(props.art or "waves")


def _framed_film(props: VideoProps, ctx: RenderContext, length: Html | None) -> Html:
    href = props.href or ""
    title = f"{props.title} ({props.length})" if length else props.title
    still = _still_picture(props, ctx)
    return framed(ctx, frame_of(href), title=title, call=ctx.say("Watch"), still=still, href=ctx.url(href))


def _still(props: VideoProps, ctx: RenderContext, length: Html | None) -> Html:
    picture = _still_picture(props, ctx)
    words = tag(
        "span",
        tag("span", f"{ctx.say('Watch')}: ", class_="visually-hidden"),
        props.title,
        length,
        class_="video-title",
    )
    play = tag("span", icon("play"), class_="video-play")
    return tag("a", picture, play, words, class_="video-frame video-link", href=ctx.url(props.href or ""))


@Component(
    "Video",
    summary="a film: title (its name, on the still; heading is the section's), and href or src (.mp4|.webm file), "
    "captions (.vtt), length (of this film: out when replaced), "
    "image as still, or art, embed true",
    example={"title": "A night at the oven", "href": "https://video.example/oven", "length": "3 min", "art": "hills"},
    words=("video", "film", "video embed", "video section", "clip"),
)
def _video(props: VideoProps, ctx: RenderContext) -> Html:
    length = tag("span", props.length, class_="video-length") if props.length else None
    show = _player if props.src is not None else _framed_film if props.embed else _still
    return section(ctx, props, show(props, ctx, length), kind="video")
