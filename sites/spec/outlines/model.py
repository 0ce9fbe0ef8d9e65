"""What a model writes for a new site: the words, in as few tokens as they take."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from sites.spec.catalog import Email, ImageUrl, Phone
from sites.spec.components.contact import Hours
from sites.spec.components.page import SiteUrl
from sites.spec.fonts.families import NewFont
from sites.spec.html import ArtName
from sites.spec.outlines.links import addressed, way_of
from sites.spec.outlines.looks import Ground
from sites.spec.theme import CardStyle, Colour, PresetName, Radius, Style, TextSize

MAX_SECTIONS: Final = 14
MAX_FURTHER: Final = 2
"""Languages beside the first: the translations of more do not fit the tier's limits."""


class _Outlined(BaseModel, frozen=True, extra="forbid"):
    """Base of all that a model writes of a new site: a field that nobody knows is an error."""


class OutlinedItem(_Outlined):
    """One entry of a section; what `detail` means depends on the kind."""

    title: Annotated[str, Field(max_length=140)] | None = None
    text: Annotated[str, Field(max_length=600)] | None = None
    detail: Annotated[str, Field(max_length=200), AfterValidator(addressed)] | None = None


class OutlinedSection(_Outlined):
    """One section."""

    kind: str
    heading: Annotated[str, Field(max_length=140)] | None = None
    menu: Annotated[str, Field(max_length=40)] | None = None
    text: Annotated[str, Field(max_length=2000)] | None = None
    items: Annotated[tuple[OutlinedItem, ...], Field(max_length=12)] = ()
    image: ImageUrl | None = None
    drawing: Annotated[str, Field(max_length=200)] | None = None
    page: Annotated[str, Field(max_length=40)] | None = None
    """Name of the page it stands on; null, "Home" or the name of the first section's is the front page."""


class OutlinedTheme(_Outlined):
    """The look, as far as it is not the trade's."""

    preset: PresetName | None = None
    primary: Colour | None = None
    accent: Colour | None = None
    background: Colour | None = None
    deep: Colour | None = None
    ink: Colour | None = None
    font: NewFont | None = None
    headings: NewFont | None = None
    style: Style | None = None
    size: TextSize | None = None
    contrast: Literal["strong"] | None = None
    spacing: Literal["compact", "airy"] | None = None
    radius: Radius | None = None
    cards: CardStyle | None = None
    icons: Literal["none"] | None = None
    ground: Ground | None = None
    art: Literal[ArtName, "none"] | None = None
    """A stock drawing in the opening; with `none` words alone open each page, and the mark, as a logo would, stays."""


class OutlinedWay(_Outlined):
    """A further way to reach the business."""

    title: Annotated[str, Field(min_length=1, max_length=36)]
    detail: Annotated[str, Field(max_length=200)]
    """A number as people read it, or an address."""

    @model_validator(mode="after")
    def _check_link(self) -> Self:
        way_of(self.title, self.detail)
        return self


class OutlinedContact(_Outlined):
    """How to reach the business, as far as the request says."""

    email: Email | None = None
    phone: Phone | None = None
    address: Annotated[str, Field(max_length=300)] | None = None
    area: Annotated[str, Field(max_length=200)] | None = None
    """Where it works, as a town or `30 km around`: no map shows that."""
    ways: Annotated[tuple[OutlinedWay, ...], Field(max_length=4)] = ()
    hours: Annotated[tuple[Hours, ...], Field(max_length=8)] = ()


class Outline(_Outlined):
    """A whole site in few words."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    tagline: Annotated[str, Field(max_length=60)] | None = None
    description: Annotated[str, Field(max_length=300)] | None = None
    lang: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] = "en"
    also: Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z]{2,3}$")], ...], Field(max_length=MAX_FURTHER)] = ()
    """Further languages, in which the finished site is translated."""
    url: SiteUrl | None = None
    """The public address, as far as the request says."""
    trade: Annotated[str, Field(max_length=40)] | None = None
    """A name of `TRADES`, which sets the look and the drawing; any other is none."""
    theme: OutlinedTheme = OutlinedTheme()
    drawing: Annotated[str, Field(max_length=200)] | None = None
    """What the drawing in the opening shows; a call of its own draws it."""
    mark: Annotated[str, Field(max_length=80)] | None = None
    """The one thing that stands for the business beside its name; drawn likewise."""
    contact: OutlinedContact = OutlinedContact()
    sections: Annotated[tuple[OutlinedSection, ...], Field(min_length=1, max_length=MAX_SECTIONS)]
