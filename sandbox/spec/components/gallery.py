"""Gallery: pictures in a grid."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandbox.spec.catalog import Component, Picture, RenderContext, SectionProps, Title
from sandbox.spec.html import Html, image, section, tag


class GalleryImage(Picture):
    """A picture that may have a caption."""

    caption: Title | None = None


class GalleryProps(SectionProps):
    """Props of Gallery."""

    images: Annotated[tuple[GalleryImage, ...], Field(min_length=1, max_length=24)]
    layout: Literal["grid", "mosaic", "wide"] = "grid"
    """Squares, a mosaic of large and small pictures, or pictures in full width."""


def render(props: GalleryProps, ctx: RenderContext) -> Html:
    """Render the pictures, each in a figure."""
    figures = [_figure(picture, ctx) for picture in props.images]
    columns = 2 if len(figures) in (2, 4) else 3
    style = f"gallery-{columns}" if props.layout == "grid" else f"gallery-{props.layout}"
    return section(ctx, props, tag("div", *figures, class_=f"gallery-grid {style}"), kind="gallery")


def _figure(picture: GalleryImage, ctx: RenderContext) -> Html:
    caption = tag("figcaption", picture.caption) if picture.caption else None
    return tag("figure", image(ctx, picture), caption)


COMPONENT = Component(
    name="Gallery",
    summary="pictures: heading, images [{src, alt, caption}], layout grid|mosaic|wide",
    props=GalleryProps,
    example={
        "heading": "From the oven",
        "images": [{"src": "assets/rye.svg", "alt": "A dark rye loaf", "caption": "Rye"}],
    },
    render=render,
    words=("gallery", "photo gallery", "photos", "image gallery", "pictures"),
    nav_label="Gallery",
    css="""
.gallery-grid { display: grid; grid-template-columns: 1fr 1fr; gap: clamp(.8rem, 2vw, 1.5rem); }
.gallery-grid figure { margin: 0; }
.gallery-grid img { width: 100%; aspect-ratio: 1; object-fit: cover; border-radius: var(--radius); }
.gallery-grid figcaption { margin-top: .55rem; font-size: .93rem; color: var(--muted); }
.gallery-wide { grid-template-columns: 1fr; gap: clamp(1.5rem, 4vw, 3.5rem); }
.gallery-wide img { aspect-ratio: 21 / 10; }
.gallery-mosaic figure:first-child { grid-column: 1 / -1; }
.gallery-mosaic figure:first-child img { aspect-ratio: 16 / 9; }
@media (max-width: 50rem) {
  .gallery-3 figure:last-child:nth-child(odd) { grid-column: 1 / -1; }
  .gallery-3 figure:last-child:nth-child(odd) img { aspect-ratio: 16 / 9; }
}
@media (min-width: 50rem) {
  .gallery-3 { grid-template-columns: repeat(3, 1fr); }
  .gallery-mosaic { grid-template-columns: repeat(6, 1fr); }
  .gallery-mosaic figure { grid-column: span 2; }
  .gallery-mosaic img { aspect-ratio: 4 / 5; }
  .gallery-mosaic :is(figure:nth-child(5n + 1), figure:nth-child(5n + 2)) { grid-column: span 3; }
  .gallery-mosaic :is(figure:nth-child(5n + 1), figure:nth-child(5n + 2)) img { aspect-ratio: 4 / 3; }
}
""",
)
