"""Video: a film of the site, or a still that leads to one elsewhere.

A frame of another site would run that site's scripts in the page and watch the visitor before anything is played, and
the scan refuses frames. So a film from elsewhere opens there when the visitor asks for it.
"""

from __future__ import annotations

import re
from typing import Final, Self

from pydantic import model_validator

from sandbox.spec.catalog import Component, Label, LinkUrl, Picture, RenderContext, SectionProps, Title
from sandbox.spec.components.drawings import ArtName, art, icon
from sandbox.spec.html import Html, image, is_external, section, tag

_FILM: Final = re.compile(r"[^?#]+\.(?P<kind>mp4|webm)", re.IGNORECASE)


class VideoProps(SectionProps):
    """Props of Video."""

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


def render(props: VideoProps, ctx: RenderContext) -> Html:
    """Render the player, which loads nothing before it is asked to, or the still with its link."""
    return section(ctx, props, _player(props, ctx) if props.src else _still(props, ctx), kind="video")


def _player(props: VideoProps, ctx: RenderContext) -> Html:
    source = tag("source", src=ctx.url(props.src or ""), type=_type(props.src or ""))
    track = None
    if props.captions:
        track = tag("track", kind="captions", src=ctx.url(props.captions), label="Captions", default=True)
    poster = ctx.url(props.image.src) if props.image else None
    film = tag(
        "video", source, track, controls=True, preload="none", playsinline=True, poster=poster,
        aria_label=props.title, class_="video-frame",
    )  # fmt: skip
    caption = tag("figcaption", props.title, tag("span", props.length, class_="video-length") if props.length else None)
    return tag("figure", film, caption, class_="video-figure")


def _still(props: VideoProps, ctx: RenderContext) -> Html:
    picture = image(ctx, props.image.model_copy(update={"alt": ""})) if props.image else art(props.art or "waves")
    length = tag("span", props.length, class_="video-length") if props.length else None
    words = tag("span", tag("span", "Watch: ", class_="visually-hidden"), props.title, length, class_="video-title")
    play = tag("span", icon("play"), class_="video-play")
    return tag("a", picture, play, words, class_="video-frame video-link", href=ctx.url(props.href or ""))


def _type(source: str) -> str | None:
    match = _FILM.fullmatch(source)
    return f"video/{match['kind'].lower()}" if match else None


COMPONENT = Component(
    name="Video",
    summary="a film: title, and href (address of the film elsewhere) or src (.mp4|.webm file), captions (.vtt), "
    "length, image {src, alt} as still, or art (see Hero)",
    props=VideoProps,
    example={"title": "A night at the oven", "href": "https://video.example/oven", "length": "3 min", "art": "hills"},
    render=render,
    words=("video", "film", "video embed", "video section", "clip"),
    css="""
.video-figure { margin: 0; }
.video-figure figcaption {
  display: flex;
  justify-content: space-between;
  gap: 1rem;
  margin-top: .7rem;
  font-size: .95rem;
  color: var(--muted);
}
.video-frame {
  position: relative;
  display: block;
  width: 100%;
  aspect-ratio: 16 / 9;
  border-radius: calc(var(--radius) * 1.25);
  background: var(--deep);
  object-fit: cover;
  overflow: hidden;
}
.video-link img, .video-link .art { position: absolute; inset: 0; width: 100%; height: 100%; object-fit: cover; }
.video-link::before {
  content: "";
  position: absolute;
  inset: 0;
  z-index: 1;
  background: linear-gradient(to top, var(--deep), transparent 40%);
}
.video-play {
  position: absolute;
  z-index: 2;
  inset: 0;
  width: clamp(4rem, 8vw, 5.5rem);
  height: clamp(4rem, 8vw, 5.5rem);
  margin: auto;
  display: grid;
  place-items: center;
  border-radius: 50%;
  background: var(--deep);
  color: var(--on-deep);
  transition: transform .15s;
}
.video-play .icon { width: 45%; height: 45%; fill: currentColor; }
.video-link:hover .video-play { transform: scale(1.06); }
.video-title {
  position: absolute;
  z-index: 2;
  inset: auto clamp(1.1rem, 3vw, 2rem) clamp(1rem, 2.5vw, 1.6rem);
  display: flex;
  flex-wrap: wrap;
  justify-content: space-between;
  gap: .2rem 1rem;
  font-weight: 600;
  line-height: 1.35;
  color: var(--on-deep);
}
.video-link { text-decoration: none; }
@media (max-width: 40rem) { .video-link { aspect-ratio: 4 / 3; } }
""",
)
