"""Team: the people behind the business."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    Label,
    OutlineSection,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Text,
    section_props,
)
from sandbox.spec.html import Html, below, heading, image, section, tag
from sandbox.spec.model import JsonObject


class Person(Props):
    """One person."""

    name: Label
    role: Label | None = None
    text: Text | None = None
    image: Picture | None = None


class TeamProps(SectionProps):
    """Props of Team."""

    people: Annotated[tuple[Person, ...], Field(min_length=1, max_length=16)]


def render(props: TeamProps, ctx: RenderContext) -> Html:
    """Render the people; who has no picture is shown by initials."""
    people = [_person(person, ctx, below(ctx, props)) for person in props.people]
    columns = 4 if len(people) in (4, 7, 8) else 3 if len(people) > 2 else len(people)
    return section(ctx, props, tag("ul", *people, class_=f"people people-{columns}"), kind="team")


def _person(person: Person, ctx: RenderContext, level: int) -> Html:
    initials = "".join(word[0] for word in person.name.split()[:2]).upper()
    face = (
        image(ctx, person.image, class_="face")
        if person.image
        else tag("div", initials, class_="face", aria_hidden="true")
    )
    role = tag("p", person.role, class_="role") if person.role else None
    text = tag("p", person.text) if person.text else None
    return tag("li", face, tag("div", heading(level, person.name), role, text))


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    people: list[JsonObject] = []
    for item in section.items:
        if item.get("title"):
            extra = {"role": (item.get("detail") or "")[:60], "text": item.get("text")}
            people.append({"name": item["title"][:60]} | {key: value for key, value in extra.items() if value})
    return {**section_props(section), "people": people[:8]}


COMPONENT = Component(
    name="Team",
    summary="people: heading, text, people [{name, role, text, image {src, alt}}]",
    props=TeamProps,
    example={"heading": "Who bakes", "people": [{"name": "Ida Holm", "role": "Baker"}]},
    render=render,
    words=("team", "people", "staff", "our team", "about us"),
    outline=_outline,
    outline_hint="items: title = name, detail = role, text; only people that the request names",
    nav_label="Team",
    css="""
.people { list-style: none; margin: 0; padding: 0; display: grid; gap: 2.25rem clamp(1.5rem, 4vw, 3rem); }
.people li { display: grid; grid-template-columns: 5rem 1fr; gap: 1.1rem; align-content: start; }
.people p:not(.role) { color: var(--muted); }
.face {
  display: grid;
  place-items: center;
  width: 5rem;
  height: 5rem;
  border-radius: 50%;
  object-fit: cover;
  background: var(--fill);
  color: var(--on-fill);
  font-family: var(--font-headings);
  font-size: 1.5rem;
  font-weight: 700;
  letter-spacing: .02em;
}
.people li:nth-child(3n + 2) div.face { background: var(--accent); color: var(--on-accent); }
.people li:nth-child(3n) div.face { background: var(--deep); color: var(--on-deep); }
.people div.face { border: 1px solid var(--line); }
.tone-deep .people div.face { background: var(--deep-line); color: var(--on-deep); }
.role { margin: .15rem 0 .5rem; color: var(--link); font-size: .93rem; font-weight: 600; }
@media (min-width: 50rem) {
  .people-2 { grid-template-columns: repeat(2, 1fr); }
  .people-3 { grid-template-columns: repeat(3, 1fr); }
  .people-4 { grid-template-columns: repeat(4, 1fr); }
  .people-3 li, .people-4 li { grid-template-columns: 1fr; }
}
""",
)
