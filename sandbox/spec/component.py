"""What a component of the catalog is, and the prop types that components share.

Props use the same names for the same things (`heading`, `text`, `items`, `actions`, `image`): the model has less to
learn, and a direct edit finds "the heading of the pricing section" in a component that was written after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from sandbox.spec import urls
from sandbox.spec.html import Html
from sandbox.spec.model import JsonObject


def _check_link(value: str) -> str:
    if complaint := urls.complaint_about_link(value):
        raise PydanticCustomError("bad_url", "{complaint}", {"complaint": complaint})
    return value


def _check_image(value: str) -> str:
    if complaint := urls.complaint_about_image(value):
        raise PydanticCustomError("bad_url", "{complaint}", {"complaint": complaint})
    return value


Label = Annotated[str, Field(min_length=1, max_length=60)]
Title = Annotated[str, Field(min_length=1, max_length=140)]
Text = Annotated[str, Field(min_length=1, max_length=700)]
LongText = Annotated[str, Field(min_length=1, max_length=6000)]
LinkUrl = Annotated[str, AfterValidator(_check_link), Field(max_length=urls.MAX_URL_CHARS)]
ImageUrl = Annotated[str, AfterValidator(_check_image), Field(max_length=urls.MAX_URL_CHARS)]
Email = Annotated[str, Field(max_length=120, pattern=r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$")]
Phone = Annotated[str, Field(max_length=40, pattern=r"^\+?[0-9(][0-9 ()./-]{2,}$")]
Tone = Literal["plain", "tinted", "deep"]
IconName = Literal[
    "bread", "calendar", "chart", "check", "clock", "code", "cup", "gift", "globe", "hand", "heart", "home",
    "leaf", "mail", "people", "phone", "pin", "shield", "spark", "star", "tools", "truck",
]  # fmt: skip


class Props(BaseModel):
    """Base of all props: a prop that a component does not know is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Link(Props):
    """A link with its words."""

    label: Label
    href: LinkUrl


class Picture(Props):
    """An image; `alt` says what it shows, and is empty for decoration."""

    src: ImageUrl
    alt: Annotated[str, Field(max_length=300)]


class SectionProps(Props):
    """What every section of a page may have."""

    eyebrow: Label | None = None
    heading: Title | None = None
    text: Text | None = None
    tone: Tone = "plain"


class RenderContext(Protocol):
    """What a component may ask while it renders."""

    @property
    def id(self) -> str:
        """The element's id in the page."""

    @property
    def level(self) -> int:
        """The level that this element's own heading has."""

    @property
    def page(self) -> str:
        """Path of the page that is rendered."""

    def children(self, *, deeper: bool) -> Html:
        """Render the children; `deeper` when the element's own heading stands above theirs."""

    def slot(self, name: str, *, deeper: bool) -> Html:
        """Render what fills a named slot."""

    def url(self, address: str) -> str:
        """Return an accepted address as this page must write it."""


@dataclass(frozen=True)
class OutlineSection:
    """One section as a model outlines it: few words, no structure. The catalog does the rest."""

    kind: str
    heading: str | None
    text: str | None
    items: tuple[Mapping[str, str], ...]
    """Each with `title`, `text` and `detail`, all optional."""
    tone: Tone
    image: str | None = None


@dataclass(frozen=True)
class Business:
    """Whom the site is about: shared by all sections of an outline, and read back from a site for direct edits."""

    name: str
    tagline: str | None = None
    email: str | None = None
    phone: str | None = None
    address: str | None = None
    links: tuple[Link, ...] = ()
    """The site's navigation."""
    contact_href: str | None = None
    """Where a visitor gets in touch: a page, a section, or an address of the business."""

    def contact_props(self) -> JsonObject:
        """Return what is known of email, phone and address, as props."""
        known = {"email": self.email, "phone": self.phone, "address": self.address}
        return {name: value for name, value in known.items() if value}


@dataclass(frozen=True)
class Component:
    """One entry of the catalog."""

    name: str
    summary: str
    """One line for the model: what it is for."""
    props: type[Props]
    example: JsonObject
    render: Callable[[Any, RenderContext], Html]
    css: str = ""
    place: Literal["root", "header", "main", "footer"] = "main"
    """Which landmark of the page it stands in. All but `main` are legal only as the root or directly below it."""
    has_children: bool = False
    slots: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """What people call it, in lower case, for direct edits ("faq", "questions")."""
    outline: Callable[[OutlineSection, Business], JsonObject] | None = None
    """Props from an outlined section; None for a component that outlines do not offer."""
    outline_hint: str = ""
    """How an outline's items are read, for the model."""
    nav_label: str | None = None
    """What a link to it is called in the navigation of a new one-page site; None for no link."""
    minimal: Callable[[Business], JsonObject | None] | None = None
    """Props for adding it with no words but those the site already has; None when it cannot go without."""


def items_text(section: OutlineSection, *, limit: int) -> list[JsonObject]:
    """Return an outline's items as `{title, text}` props, without those that have no title."""
    pairs = [{"title": item.get("title"), "text": item.get("text") or item.get("detail")} for item in section.items]
    return [{key: value for key, value in pair.items() if value} for pair in pairs if pair["title"]][:limit]


def section_props(section: OutlineSection) -> JsonObject:
    """Return the props that every section takes from its outline."""
    known = {"heading": section.heading, "text": section.text}
    tone = {"tone": section.tone} if section.tone != "plain" else {}
    return {name: value for name, value in known.items() if value} | tone
