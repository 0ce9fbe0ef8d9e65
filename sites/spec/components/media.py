"""Pictures and films."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from sites.spec.catalog import Component, Label, LinkUrl, Picture, RenderContext, SectionProps, Title
from sites.spec.html import ArtName, Html, art, icon, image, is_external, section, tag


class ImageProps(Picture):
    """One picture with a caption."""

    caption: Title | None = None
    width: Literal["text", "wide", "full"] = "wide"


@Component(
    "Image",
    summary="one picture: src, alt, caption, width text|wide|full",
    example={"src": "assets/oven.svg", "alt": "The wood oven", "caption": "Built in 1911"},
    words=("image", "picture", "photo"),
)
def _image(props: ImageProps, ctx: RenderContext) -> Html:
    caption = tag("figcaption", props.caption) if props.caption else None
    return tag("figure", image(ctx, props), caption, id=ctx.id, class_=f"figure figure-{props.width}")


class GalleryImage(Picture):
    """A picture that may have a caption."""

    caption: Title | None = None


class GalleryProps(SectionProps):
    """Pictures in a grid."""

    images: Annotated[tuple[GalleryImage, ...], Field(min_length=1, max_length=24)]
    layout: Literal["grid", "mosaic", "wide", "strip"] = "grid"
    """Squares, a mosaic of large and small pictures, pictures in full width, or a strip to swipe through."""
    enlarge: bool = False
    """Whether a click shows a picture large and alone: a popover, which needs no script and closes on Escape."""


def _figure(picture: GalleryImage, ctx: RenderContext, *, large: str | None) -> Html:
    shown: Html = image(ctx, picture)
    if large is not None:
        shown = tag(
            "button", shown, type="button", class_="enlarge", popovertarget=large, aria_label=_enlarging(picture, ctx)
        )
    return tag("figure", shown, tag("figcaption", picture.caption) if picture.caption else None)


def _enlarging(picture: GalleryImage, ctx: RenderContext) -> str:
    what = picture.caption or picture.alt
    return f"{ctx.say('Enlarge')}: {what}" if what else ctx.say("Enlarge")


def _large(picture: GalleryImage, ctx: RenderContext, *, key: str) -> Html:
    """Return the large picture, which a browser loads when it is shown."""
    closer = tag(
        "button",
        icon("close"),
        tag("span", ctx.say("Close"), class_="visually-hidden"),
        type="button",
        class_="large-close",
        popovertarget=key,
        popovertargetaction="hide",
    )
    caption = tag("p", picture.caption) if picture.caption else None
    return tag("div", image(ctx, picture), caption, closer, id=key, class_="large", popover=True)


@Component(
    "Gallery",
    summary="pictures: heading, images [{src, alt, caption}], layout grid|mosaic|wide|strip (to swipe), enlarge true "
    "(a click shows one large)",
    example={
        "heading": "From the oven",
        "images": [{"src": "assets/rye.svg", "alt": "A dark rye loaf", "caption": "Rye"}],
    },
    words=("gallery", "photo gallery", "photos", "image gallery", "pictures"),
    nav_label="Gallery",
)
def _gallery(props: GalleryProps, ctx: RenderContext) -> Html:
    keys = [f"{ctx.id}.{at}" if props.enlarge else None for at, _ in enumerate(props.images, 1)]
    figures = [_figure(picture, ctx, large=key) for picture, key in zip(props.images, keys, strict=True)]
    larges = [_large(picture, ctx, key=key) for picture, key in zip(props.images, keys, strict=True) if key]
    columns = 2 if len(figures) in (2, 4) else 3
    style = f"gallery-{columns}" if props.layout == "grid" else f"gallery-{props.layout}"
    is_strip = props.layout == "strip"  # which a keyboard scrolls only when it can be focused
    grid = tag(
        "div",
        *figures,
        class_=f"gallery-grid {style}",
        tabindex=0 if is_strip else None,
        role="group" if is_strip else None,
        aria_label=(props.heading or ctx.say("Gallery")) if is_strip else None,
    )
    return section(ctx, props, grid, *larges, kind="gallery")


_FILM: Final = re.compile(r"[^?#]+\.(?P<kind>mp4|webm)", re.IGNORECASE)


class VideoProps(SectionProps):
    """A film of the site, or a still that leads to one elsewhere.

    A frame of another site would run that site's scripts in the page and watch the visitor before anything is played,
    and the scan refuses frames. So a film from elsewhere opens there when the visitor asks for it.
    """

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


def _still(props: VideoProps, ctx: RenderContext, length: Html | None) -> Html:
    picture = image(ctx, props.image.model_copy(update={"alt": ""})) if props.image else art(props.art or "waves")
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
    summary="a film: title, and href (address of the film elsewhere) or src (.mp4|.webm file), captions (.vtt), "
    "length, image {src, alt} as still, or art (see Hero)",
    example={"title": "A night at the oven", "href": "https://video.example/oven", "length": "3 min", "art": "hills"},
    words=("video", "film", "video embed", "video section", "clip"),
)
def _video(props: VideoProps, ctx: RenderContext) -> Html:
    length = tag("span", props.length, class_="video-length") if props.length else None
    show = _still if props.src is None else _player
    return section(ctx, props, show(props, ctx, length), kind="video")
