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
from sites.spec.outlines.looks import GROUNDS, STYLES, Ground
from sites.spec.theme import CardStyle, Colour, PresetName, Radius, Style, TextSize

MAX_SECTIONS: Final = 14
MAX_FURTHER: Final = 2
"""Languages beside the first: the translations of more do not fit the tier's limits."""


class _Outlined(BaseModel, frozen=True, extra="forbid"):
    """Base of what a model writes for a new site. The descriptions of fields are part of its tool's schema."""


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
    image: ImageUrl | None = Field(None, description="address of one picture, only if the request gives it")
    drawing: Annotated[str, Field(max_length=200)] | None = None
    page: Annotated[str, Field(max_length=40)] | None = None
    """Name of the page it stands on; null, "Home" or the name of the first section's is the front page."""


class OutlinedTheme(_Outlined):
    """The look, as far as it is not the trade's."""

    preset: PresetName | None = None
    primary: Colour | None = None
    accent: Colour | None = None
    background: Colour | None = Field(None, description="a dark one, as preset noir has, makes a dark site")
    deep: Colour | None = None
    ink: Colour | None = Field(None, description="of words, only where the request names it")
    font: NewFont | None = None
    headings: NewFont | None = None
    style: Style | None = Field(None, description=STYLES)
    size: TextSize | None = Field(None, description="of all letters, where the request or its readers need them larger")
    contrast: Literal["strong"] | None = Field(
        None,
        description="where the request wants no grey or faint words, or only dark ones on light ground: then no band "
        "is dark",
    )
    spacing: Literal["compact", "airy"] | None = None
    radius: Radius | None = Field(None, description="of corners, only where the request speaks of them")
    cards: CardStyle | None = Field(
        None, description="only where the request speaks of frames or shadows, which only raised has"
    )
    icons: Literal["none"] | None = Field(None, description="only where the request wants no icons or symbols")
    ground: Ground | None = Field(None, description=GROUNDS)
    art: Literal[ArtName, "none"] | None = Field(None, description="none: words alone open the site, beside the mark")
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
    address: Annotated[str, Field(max_length=300)] | None = Field(None, description="postal")
    area: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="a town or region alone, such as 30 km around: shown without a map"
    )
    ways: tuple[OutlinedWay, ...] = Field(
        (),
        max_length=4,
        description="a second number, WhatsApp; detail = number, sms:NUMBER (texts alone) or https:",
    )
    hours: Annotated[tuple[Hours, ...], Field(max_length=8)] = ()


class Outline(_Outlined):
    """A whole site in few words."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    tagline: Annotated[str, Field(max_length=60)] | None = Field(
        None, description="stands above the opening's heading and below the name in the footer"
    )
    description: Annotated[str, Field(max_length=300)] | None = None
    lang: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] = "en"
    also: tuple[Annotated[str, Field(pattern=r"^[a-z]{2,3}$")], ...] = Field(
        (),
        max_length=MAX_FURTHER,
        description="further languages of the whole site, only if the request asks for them",
    )
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
