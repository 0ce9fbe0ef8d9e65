"""Posts: the dated pages of a folder as a list, made from what those pages say themselves."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

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


class Post(NamedTuple):
    """A page with a date, as a list shows it."""

    date: str
    """ISO 8601."""
    author: str | None
    path: str
    lang: str
    title: str
    """Its heading."""
    text: str | None
    picture: Picture | None
    """What its opening shows."""


def posts_of(ctx: RenderContext, folder: str) -> list[Post]:
    """Return the posts of a folder, newest first, each in the language of the list where there is such a version."""
    languages, trees = ctx.site.languages, ctx.site.trees
    own = languages.folder(ctx.page)
    folders = (folder, f"{own}/{folder}") if own else (folder,)
    paths = {languages.towards(path, ctx.page) for path in trees if path.startswith(folders)}
    found = [_post(path, trees[path]) for path in sorted(paths) if trees[path].props.get("date")]
    return sorted(found, key=lambda post: post.date, reverse=True)


def _post(path: str, root: Node) -> Post:
    opening = first_heading(root)
    props = opening.props if opening is not None else {}
    picture = props.get("image")
    return Post(
        root.props["date"],
        root.props.get("author"),
        path,
        root.props.get("lang", "en"),
        str(props.get("heading") or props.get("text") or root.props["title"]),
        root.props.get("description") or (props.get("text") if props.get("heading") else None),
        Picture.model_validate(picture) if isinstance(picture, dict) else None,
    )


def _entry(post: Post, ctx: RenderContext, level: int, *, is_card: bool) -> Html:
    lang = None if primary(post.lang) == primary(ctx.lang) else post.lang
    link = tag("a", post.title, href=relative_to(ctx.page, post.path), lang=lang)
    words = heading(level, link), tag("p", post.text, lang=lang) if post.text else None
    day = post_line(post.date, post.author, ctx.lang)
    picture = image(ctx, post.picture.model_copy(update={"alt": ""})) if post.picture else None
    if is_card:
        return tag("li", picture, day, *words, class_="card post")
    return tag("li", day, tag("div", *words), picture, class_="post")


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
    found = posts_of(ctx, props.path)[: props.limit]
    level, is_card = level_inside(ctx, props), props.layout == "cards"
    entries = [_entry(post, ctx, level, is_card=is_card) for post in found]
    columns = f"cards cards-{min(len(entries), 3) if len(entries) != 4 else 2}"
    posts = tag("ul", *entries, class_=columns if is_card else "post-rows")
    body = posts if entries else paragraph(ctx.say("Nothing here yet."), "small")
    more = tag("p", anchor(ctx, props.action, class_="button button-quiet"), class_="actions") if props.action else None
    return section(ctx, props, body, more, kind="posts")
