"""Posts: the dated pages of a folder as a list, made from what those pages say themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from sites.spec.catalog import (
    Business,
    Component,
    Link,
    OutlineSection,
    Picture,
    RenderContext,
    SectionProps,
    first_heading,
    section_props,
)
from sites.spec.drawings.shapes import Drawing
from sites.spec.expressions import Node
from sites.spec.html import Html, anchor, heading, image, level_inside, paragraph, post_line, relative_to, section, tag
from sites.spec.languages.versions import primary
from sites.spec.model import JsonObject

NEWS: Final = "news/"
"""Where the posts of a new site are."""


class PostsProps(SectionProps):
    """News or a blog: each post is a page, so a new one stands in every list."""

    path: Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9-]{0,40}/){1,3}$")]
    """The folder of the posts: `news/`."""
    limit: Annotated[int, Field(ge=1, le=100)] | None = None
    layout: Literal["rows", "cards"] = "rows"
    action: Link | None = None
    """Such as the way to all posts."""


def _listed(ctx: RenderContext, folder: str) -> list[tuple[str, Node]]:
    """Return the posts of a folder with their paths, newest first, in the language of the list where it has them."""
    languages, trees = ctx.site.languages, ctx.site.trees
    own = languages.folder(ctx.page)
    folders = (folder, f"{own}/{folder}") if own else (folder,)
    paths = {languages.towards(path, ctx.page) for path in trees if path.startswith(folders)}
    found = [(path, trees[path]) for path in sorted(paths) if trees[path].props.get("date")]
    return sorted(found, key=lambda post: str(post[1].props["date"]), reverse=True)


def _entry(path: str, page: Node, ctx: RenderContext, level: int, *, is_card: bool) -> Html:
    opening = first_heading(page)
    props = opening.props if opening is not None else {}
    title = str(props.get("heading") or props.get("text") or page.props["title"])
    text = page.props.get("description") or (props.get("text") if props.get("heading") else None)
    own = page.props.get("lang", "en")
    lang = None if primary(own) == primary(ctx.lang) else own
    link = tag("a", title, href=relative_to(ctx.page, path), lang=lang)
    words = heading(level, link), tag("p", text, lang=lang) if text else None
    day = post_line(page.props["date"], page.props.get("author"), ctx.lang)
    picture = _picture(props, ctx)
    if is_card:
        return tag("li", picture, day, *words, class_="card post")
    return tag("li", day, tag("div", *words), picture, class_="post")


def _picture(opening: Mapping[str, Any], ctx: RenderContext) -> Html | None:
    """Return what the opening of a post shows, but not the site's mark."""
    if shown := opening.get("image"):
        return image(ctx, Picture.model_validate(shown).model_copy(update={"alt": ""}))
    shown = opening.get("drawing") or {}
    return Drawing.model_validate(shown).html() if shown.get("shapes") and not opening.get("marked") else None


def _outline_posts(section: OutlineSection, business: Business) -> JsonObject:
    return {"heading": business.say("News"), **section_props(section), "path": NEWS}


@Component(
    "Posts",
    summary="news or blog: the pages of a folder whose Page has a date, newest first: path (news/), "
    "limit, layout rows|cards, action. A post (news/new-oven.html) opens with PageIntro, "
    "which, as the list, shows date and author",
    example={"heading": "News", "path": "news/", "limit": 3, "action": {"label": "All news", "href": "news.html"}},
    words=("posts", "news", "blog", "latest news", "news list"),
    outline=_outline_posts,
    outline_hint="news or blog; items: title, detail = its date as 2026-05-31, text; only what the request gives, "
    "else none. On a page of its own, and without items where the latest are to stand",
    nav_label="News",
)
def _posts(props: PostsProps, ctx: RenderContext) -> Html:
    level, is_card = level_inside(ctx, props), props.layout == "cards"
    entries = [_entry(*post, ctx, level, is_card=is_card) for post in _listed(ctx, props.path)[: props.limit]]
    columns = f"cards cards-{min(len(entries), 3) if len(entries) != 4 else 2}"
    posts = tag("ul", *entries, class_=columns if is_card else "post-rows")
    body = posts if entries else paragraph(ctx.say("Nothing here yet."), "small")
    more = tag("p", anchor(ctx, props.action, class_="button button-quiet"), class_="actions") if props.action else None
    return section(ctx, props, body, more, kind="posts")
