"""A whole site in few words: what a model hands over, before the catalog makes pages of it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from sandbox.spec.component import Email, ImageUrl, Phone
from sandbox.spec.theme import Colour, FontName, PresetName

MAX_SECTIONS: Final = 14


class _Outlined(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OutlinedItem(_Outlined):
    """One entry of a section; what `detail` means depends on the kind."""

    title: Annotated[str, Field(max_length=140)] | None = None
    text: Annotated[str, Field(max_length=600)] | None = None
    detail: Annotated[str, Field(max_length=200)] | None = None


class OutlinedSection(_Outlined):
    """One section."""

    kind: str
    heading: Annotated[str, Field(max_length=140)] | None = None
    text: Annotated[str, Field(max_length=2000)] | None = None
    items: Annotated[tuple[OutlinedItem, ...], Field(max_length=12)] = ()
    image: ImageUrl | None = None
    page: Annotated[str, Field(max_length=40)] | None = None
    """Name of the page it stands on; null or "Home" is the front page."""


class OutlinedTheme(_Outlined):
    """The look."""

    preset: PresetName = "slate"
    primary: Colour | None = None
    accent: Colour | None = None
    font: FontName | None = None


class OutlinedContact(_Outlined):
    """How to reach the business, as far as the request says."""

    email: Email | None = None
    phone: Phone | None = None
    address: Annotated[str, Field(max_length=300)] | None = None


class Outline(_Outlined):
    """A whole site in few words."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    tagline: Annotated[str, Field(max_length=60)] | None = None
    description: Annotated[str, Field(max_length=300)] | None = None
    lang: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] = "en"
    theme: OutlinedTheme = OutlinedTheme()
    contact: OutlinedContact = OutlinedContact()
    sections: Annotated[tuple[OutlinedSection, ...], Field(min_length=1, max_length=MAX_SECTIONS)]
