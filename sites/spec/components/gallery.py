"""Pictures side by side, or drawings where a new site has none yet."""

from __future__ import annotations

from itertools import cycle
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from sites.spec.catalog import (
    Business,
    Component,
    ImageUrl,
    OutlineSection,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Title,
    section_props,
)
from sites.spec.components.content import ANY_ART
from sites.spec.html import ArtName, Html, art, icon, image, paragraph, section, tag
from sites.spec.model import JsonObject


class GalleryImage(Props):
    """A picture, or a drawing in the site's colours where there is none yet."""

    src: ImageUrl | None = None
    art: ArtName | None = None
    alt: Annotated[str, Field(max_length=300)] = ""
    caption: Title | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.src is None) == (self.art is None):
            raise ValueError("a picture of a gallery has either src or art")
        return self

    @property
    def picture(self) -> Picture | None:
        """The picture that a click can enlarge."""
        return Picture(src=self.src, alt=self.alt) if self.src is not None else None


class GalleryProps(SectionProps):
    images: Annotated[tuple[GalleryImage, ...], Field(min_length=1, max_length=24)]
    layout: Literal["grid", "mosaic", "wide", "strip"] = "grid"
    """Squares, a mosaic of large and small pictures, pictures in full width, or a strip to swipe through."""
    columns: Annotated[int, Field(ge=2, le=4)] | None = None
    """Squares side by side where there is room; by default three, or two if there are two or four pictures."""
    captions: Literal["large"] | None = None
    """A size up from the small letters that captions have."""
    enlarge: bool = False
    """Whether a click shows a picture large and alone: a popover, which needs no script and closes on Escape."""

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if self.columns and self.layout != "grid":
            raise ValueError("columns is of the layout grid alone")
        return self


def _figure(picture: GalleryImage, ctx: RenderContext, *, large: str | None) -> Html:
    if (file := picture.picture) is None:
        shown = tag("div", art(picture.art or "tiles"), class_="gallery-art")
    else:
        shown = image(ctx, file)
    if large is not None:
        shown = tag(
            "button", shown, type="button", class_="enlarge", popovertarget=large, aria_label=_enlarging(picture, ctx)
        )
    return tag("figure", shown, tag("figcaption", picture.caption) if picture.caption else None)


def _enlarging(picture: GalleryImage, ctx: RenderContext) -> str:
    what = picture.caption or picture.alt
    return f"{ctx.say('Enlarge')}: {what}" if what else ctx.say("Enlarge")


def _large(picture: GalleryImage, file: Picture, ctx: RenderContext, *, key: str) -> Html:
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
    return tag("div", image(ctx, file), paragraph(picture.caption), closer, id=key, class_="large", popover=True)


_DRAWN: Final = 3
"""Drawings in the gallery of a new site that names no pictures."""


def _outline_gallery(section: OutlineSection, business: Business) -> JsonObject:
    """Return a gallery of the pictures that items name, and of drawings, which the owner's pictures replace."""
    drawings = cycle(dict.fromkeys([*([business.art] if business.art else []), *ANY_ART]))
    images = []
    for item in section.items or [{}] * _DRAWN:
        about = item.get("text") or item.get("title") or ""
        shown = {"src": item["detail"], "alt": about} if item.get("detail") else {"art": next(drawings)}
        images.append({**shown, "caption": str(item["title"])[:140]} if item.get("title") else shown)
    return {**section_props(section), "images": images}


@Component(
    "Gallery",
    summary="images [{src or art, alt, caption}], layout grid (squares)|mosaic (large and small, no gap)|wide|"
    "strip (to swipe), columns 2 (no gap)|3|4 (of the grid; else 3, or 2 for 2 or 4), "
    "captions large, enlarge true (by a click)",
    example={
        "heading": "From the oven",
        "images": [{"src": "assets/rye.svg", "alt": "A dark rye loaf", "caption": "Rye"}],
    },
    words=("gallery", "photo gallery", "photos", "image gallery", "pictures"),
    nav_label="Gallery",
    outline=_outline_gallery,
    outline_hint="only where the request gives or asks for pictures; items: "
    "title = caption, text = what it shows, detail = address of the picture, else a pattern stands there",
)
def _gallery(props: GalleryProps, ctx: RenderContext) -> Html:
    keys = [f"{ctx.id}.{at}" if props.enlarge and each.src else None for at, each in enumerate(props.images, 1)]
    figures = [_figure(picture, ctx, large=key) for picture, key in zip(props.images, keys, strict=True)]
    larges = [
        _large(each, each.picture, ctx, key=key)
        for each, key in zip(props.images, keys, strict=True)
        if key and each.picture
    ]
    columns = props.columns or (2 if len(figures) in (2, 4) else 3)
    style = f"gallery-{columns}" if props.layout == "grid" else f"gallery-{props.layout}"
    style += " large-captions" if props.captions else ""
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
