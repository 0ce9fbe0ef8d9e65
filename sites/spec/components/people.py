"""The people behind a business."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from sites.spec.catalog import (
    ITEM_TEXT,
    Component,
    Email,
    ItemField,
    Label,
    Phone,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Text,
    outline_items,
)
from sites.spec.components.contact import contact_lines
from sites.spec.html import Html, heading, image, level_inside, paragraph, section, tag

_ROLE = ItemField("detail", 60, is_required=False)


class Person(Props):
    name: Label
    role: Label | None = None
    text: Text | None = None
    image: Picture | None = None
    phone: Phone | None = None
    email: Email | None = None
    anchor: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")] | None = None
    """`ida` of the element `team` is where links to #team.ida lead."""


class TeamProps(SectionProps):
    """The people behind the business; who has no picture is shown by initials."""

    people: Annotated[tuple[Person, ...], Field(min_length=1, max_length=16)]

    @model_validator(mode="after")
    def _tell_apart(self) -> Self:
        anchors = [person.anchor for person in self.people if person.anchor]
        if len(set(anchors)) < len(anchors):
            raise ValueError("each anchor is that of one person")
        return self


_TITLE = re.compile(
    r"\w\w+\.\S*|(?:dr|prof|professor|mr|mrs|ms|miss|sir|dame|herr|frau|monsieur|madame|mme|mlle|maître|señora?|signora?)",
    re.IGNORECASE,
)
"""A title, or an abbreviation, which a name of one letter is not."""


def _initials(name: str) -> str:
    """Return the first letters of the first and the last name, without titles and degrees behind a comma."""
    words = [word for word in name.partition(",")[0].split() if word[0].isalpha()] or name.split()
    names = [word for word in words if not _TITLE.fullmatch(word)] or words
    return "".join(word[0] for word in (*names[:1], *names[1:][-1:])).upper()


def _person(person: Person, ctx: RenderContext, level: int) -> Html:
    initials = tag("div", _initials(person.name), class_="face", aria_hidden="true")
    face = image(ctx, person.image, class_="face") if person.image else initials
    role, text = paragraph(person.role, "role"), paragraph(person.text)
    ways = contact_lines(email=person.email, phone=person.phone, address=None)
    words = tag("div", heading(level, person.name), role, text, ways)
    return tag("li", face, words, id=f"{ctx.id}.{person.anchor}" if person.anchor else None)


@Component(
    "Team",
    summary="people [{name, role, text, image, phone, email, anchor (ida: #KEY.ida leads there)}]",
    example={
        "heading": "Who bakes",
        "people": [{"name": "Ida Holm", "role": "Baker", "phone": "+44 20 7946 0018", "email": "ida@bakery.example"}],
    },
    words=("team", "people", "staff", "our team", "about us"),
    outline=outline_items("people", 8, name=ItemField("title", 60), role=_ROLE, text=ITEM_TEXT),
    outline_hint="items: title = name, detail = role, text",
    nav_label="Team",
)
def _team(props: TeamProps, ctx: RenderContext) -> Html:
    people = [_person(person, ctx, level_inside(ctx, props)) for person in props.people]
    columns = 4 if len(people) in (4, 7, 8) else min(len(people), 3)
    return section(ctx, props, tag("ul", *people, class_=f"people people-{columns}"), kind="team")
