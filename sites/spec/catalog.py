"""The component catalog: the definition of a component, the prop types, the registry, and the prompts made from it.

The registry collects every `Component` of the modules in `components/` (H-125), so prompt, validation, render and
stylesheet cannot drift apart. Props use one name for one thing (`heading`, `text`, `items`, `actions`, `image`): the
model has less to learn, and direct edits work on components that are added later.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import date
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError

from routing.model_call import filled
from sites.spec import components as package
from sites.spec.expressions import Node, walk
from sites.spec.fonts.families import called
from sites.spec.html import (
    ART_NAMES,
    EMPTY,
    MAX_URL_CHARS,
    ArtName,
    Html,
    complaint_about_image,
    complaint_about_link,
    join,
    relative_to,
    say,
)
from sites.spec.languages.versions import Languages
from sites.spec.model import JsonObject
from sites.spec.theme import PRESETS


def _address(complaint_about: Callable[[str], str | None]) -> Any:
    """Return the type of addresses without a complaint."""

    def check(value: str) -> str:
        if complaint := complaint_about(value):
            raise PydanticCustomError("bad_url", "{complaint}", {"complaint": complaint})
        return value

    return AfterValidator(check)


def _day(value: str) -> str:
    date.fromisoformat(value)  # says itself what is wrong
    return value


LANG: Final = r"^[a-zA-Z]{2,3}(-[a-zA-Z0-9]{2,8})?$"
"""A language, as `pt-BR`."""
Label = Annotated[str, Field(min_length=1, max_length=60)]
Title = Annotated[str, Field(min_length=1, max_length=140)]
_MOST_WORDS: Final = 700
Text = Annotated[str, Field(min_length=1, max_length=_MOST_WORDS)]
Tag = Annotated[str, Field(min_length=1, max_length=24)]
"""A word such as "vegan"."""
LongText = Annotated[str, Field(min_length=1, max_length=6000)]
LinkUrl = Annotated[str, _address(complaint_about_link), Field(max_length=MAX_URL_CHARS)]
ImageUrl = Annotated[str, _address(complaint_about_image), Field(max_length=MAX_URL_CHARS)]
Email = Annotated[str, Field(max_length=120, pattern=r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$")]
Phone = Annotated[str, Field(max_length=40, pattern=r"^\+?[0-9(][0-9 ()./-]{2,}$")]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$"), AfterValidator(_day)]
"""ISO 8601."""
Tone = Literal["plain", "tinted", "deep", "filled", "accent"]
"""The ground of a section: the page's, a shade of it, the dark one, or one of the two colours of the theme."""
Hue = Literal["red", "orange", "yellow", "green", "teal", "blue", "purple", "pink", "brown", "black"]
"""A colour of one small thing, with words on it that are readable in both schemes."""
Accent = bool | Hue | Literal["primary"]
"""Whether a button has the accent colour, to stand out from the others, or which one of its own."""
HeroLayout = Literal["split", "mirrored", "framed", "centered", "cover", "statement", "masthead", "wide"]
IconName = Literal[
    "bed",
    "book",
    "bread",
    "calendar",
    "camera",
    "car",
    "card",
    "chart",
    "check",
    "clock",
    "code",
    "cup",
    "drop",
    "facebook",
    "flame",
    "gift",
    "globe",
    "hand",
    "heart",
    "home",
    "instagram",
    "key",
    "leaf",
    "mail",
    "mountain",
    "music",
    "paw",
    "people",
    "phone",
    "pin",
    "scissors",
    "shield",
    "spark",
    "star",
    "sun",
    "tools",
    "truck",
    "youtube",
]


class Props(BaseModel, frozen=True, extra="forbid"):
    """Base of all props: a prop that a component does not know is an error, never ignored."""


class Link(Props):
    """A link with its words."""

    label: Label
    href: LinkUrl
    accent: Accent = False
    """Of its button."""


class Picture(Props):
    """An image; `alt` says what it shows, and is empty for decoration."""

    src: ImageUrl
    alt: Annotated[str, Field(max_length=300)]


class SectionProps(Props):
    """What every section of a page may have."""

    eyebrow: Label | None = None
    heading: Title | None = None
    text: Text | None = None
    tone: Tone | Hue = "plain"
    lang: Annotated[str, Field(pattern=LANG)] | None = None
    """Its language, where it is not that of the page."""

    @property
    def ground(self) -> str:
        """The classes of its ground."""
        return f"tone-{self.tone}" if self.tone in get_args(Tone) else f"tone-accent hue-{self.tone}"


@dataclass(frozen=True)
class SiteFacts:
    """What a page may show of the others."""

    languages: Languages
    trees: Mapping[str, Node]
    """The resolved pages by path."""
    url: str
    """The public address of the site; empty where it is not known."""


@dataclass(slots=True)
class RenderContext:
    """What a component can use while it renders."""

    node: Node
    id: str
    """The element's id in the page."""
    level: int
    """The level of this element's own heading."""
    page: str
    """The path of the page."""
    lang: str
    render: Callable[[tuple[Node, ...], int], list[Html]]
    """Renders elements whose own headings have a level."""
    theme_class: str | None
    """Of a page with a theme of its own."""
    site: SiteFacts

    def children(self, *, deeper: bool) -> Html:
        """Render the children; `deeper` if the element's own heading is above theirs."""
        return self._joined(self.node.children, deeper) if self.node.children else EMPTY

    def slot(self, name: str, *, deeper: bool) -> Html:
        """Render the content of a named slot."""
        return self._joined(self.node.slots[name], deeper) if name in self.node.slots else EMPTY

    def url(self, address: str) -> str:
        """Return an accepted address relative to this page; a page of the site in this page's language.

        A section that only the page has to which a shared element belongs is that page's, and so is one that its
        version lacks.
        """
        if address[:1] == "#" != address and self.node.page != self.page and not self._has(self.page, address[1:]):
            address = self.node.page + address
        languages = self.site.languages
        if languages.groups and (there := languages.towards(address, self.page)) != address:
            path, _, section = there.partition("#")
            address = there if not section or self._has(path, section) else address
        return relative_to(self.page, address)

    def say(self, phrase: str, **values: str | int) -> str:
        """Return one of the builder's own phrases in the page's language, with values in place of their names in {}."""
        return say(phrase, self.lang, **values)

    def _has(self, path: str, id: str) -> bool:
        page = self.site.trees.get(path)
        return page is not None and any(id in node.anchors for node in walk(page))

    def _joined(self, nodes: tuple[Node, ...], deeper: bool) -> Html:
        return join(*self.render(nodes, self.level + 1 if deeper else self.level))


@dataclass(frozen=True)
class OutlineSection:
    """One section of a model's outline: few words, no structure."""

    kind: str
    heading: str | None
    text: str | None
    items: tuple[Mapping[str, str], ...]
    """Each with `title`, `text` and `detail`, all optional."""
    image: str | None = None
    drawing: str | None = None
    """What a drawing of its own shows."""


@dataclass(frozen=True)
class Business:
    """The business of the site, shared by all sections of an outline and read back from a site for direct edits."""

    name: str
    tagline: str | None = None
    email: str | None = None
    phone: str | None = None
    address: str | None = None
    area: str | None = None
    """Where it works, which no map shows."""
    ways: tuple[Link, ...] = ()
    """Further ways to reach it: a second number, a messenger."""
    hours: tuple[Mapping[str, str], ...] = ()
    """When it is open, each with `days` and `time`."""
    links: tuple[Link, ...] = ()
    """The site's navigation."""
    contact_href: str | None = None
    """Where visitors get in touch: a page, a section, or an address of the business."""
    action: Link | None = None
    """The button of a new site's header: what its visitors are to do."""
    lang: str = "en"
    art: ArtName | None = None
    """The drawing that opens a new site."""
    drawing: str | None = None
    """What a drawing of the new site's own shows."""
    mark: str | None = None
    """What its mark shows."""
    opening: HeroLayout = "split"
    """How a new site opens."""
    familiar: bool | Literal["several"] = False
    """Whether the words of a new site say `tú`, `du`, or `tu` to visitors."""

    def say(self, phrase: str) -> str:
        """Return one of the builder's own phrases in the business's language."""
        return say(phrase, self.lang)

    def contact_props(self) -> JsonObject:
        """Return email, phone, address with the area served, and hours as props, as far as known."""
        where = " · ".join(filter(None, (self.address, self.area)))
        contact = {"email": self.email, "phone": self.phone, "address": where, "hours": [*self.hours]}
        return {name: value for name, value in contact.items() if value}

    def further(self, name: str) -> JsonObject:
        """Return the further ways to reach it as the prop of a name, if there are any."""
        return {name: [link.model_dump() for link in self.ways]} if self.ways else {}

    def marked(self) -> JsonObject:
        """Return the mark as a prop, as far as there is one."""
        return {"drawing": {"of": self.mark}} if self.mark else {}


@dataclass(frozen=True)
class Component:
    """An entry of the catalog; decorates the function that renders it."""

    name: str
    _: KW_ONLY
    summary: str
    """The purpose in one line, for the model."""
    example: JsonObject
    place: Literal["root", "header", "main", "footer"] = "main"
    """The landmark of the page; all but `main` are allowed only as the root or directly below it."""
    has_children: bool = False
    slots: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Its names in lower case, for direct edits ("faq", "questions")."""
    outline: Callable[[OutlineSection, Business], JsonObject] | None = None
    """Makes props from an outlined section; None if outlines do not offer the component."""
    outline_hint: str = ""
    """The meaning of an outline's items, for the model."""
    nav_label: str | None = None
    """The label of its link in the navigation of a new one-page site; None for no link."""
    minimal: Callable[[Business], JsonObject | None] | None = None
    """Makes props from the site's existing words alone; None if the component needs more."""

    render: Callable[[Any, RenderContext], Html] = field(init=False)
    props: type[Props] = field(init=False)
    check: Callable[[JsonObject], Props] = field(init=False)
    """Returns the model of some props, or raises pydantic's error: `props.model_validate` without the way there."""

    def __call__(self, render: Callable[[Any, RenderContext], Html]) -> Component:
        """Register the decorated function as renderer, and the type of its `props` as the schema."""
        object.__setattr__(self, "render", render)
        props = get_type_hints(render)["props"]
        object.__setattr__(self, "props", props)
        object.__setattr__(self, "check", props.__pydantic_validator__.validate_python)
        return self


def section_props(section: OutlineSection) -> JsonObject:
    """Return the props that all sections take from their outline."""
    texts = {"heading": section.heading, "text": section.text}
    return {name: value for name, value in texts.items() if value}


_ADDRESSED = ("https:", "http:", "tel:", "sms:", "mailto:", "#")


def is_link(item: Mapping[str, str]) -> bool:
    """Return whether an outlined item's detail is an address."""
    return item.get("detail", "").startswith(_ADDRESSED)


def outlined_links(section: OutlineSection) -> list[JsonObject]:
    """Return the outlined items that are links."""
    return [
        {"label": item["title"][:60], "href": item["detail"]}
        for item in section.items
        if item.get("title") and is_link(item)
    ]


class ItemField(NamedTuple):
    """The source of a list entry's prop in an outlined item."""

    source: str
    max_chars: int | None = None
    fallback: str = ""
    """The fallback for an empty source."""
    default: str | None = None
    is_required: bool = True
    """Whether items without it are skipped."""

    def read(self, item: Mapping[str, str]) -> str | None:
        """Return the prop's value for an item; None if the item has none."""
        value = item.get(self.source) or item.get(self.fallback)
        return value[: self.max_chars] if value else self.default


ITEM_TEXT: Final = ItemField("text", is_required=False)


def _sentence(item: Mapping[str, str]) -> str:
    said = ": ".join(filter(None, (item["title"].rstrip(" .:"), item.get("text"))))
    return said if said.endswith((".", "!", "?")) else f"{said}."


def outline_items(
    prop: str, limit: int, *, rest: str | None = None, **fields: ItemField
) -> Callable[[OutlineSection, Business], JsonObject]:
    """Return an `outline` for a component with a list: each item becomes an entry of `prop`, at most `limit`.

    The words of those that cannot, as one without a price, stand in the prop `rest`, if the component has one.
    """
    required = [name for name, field in fields.items() if field.is_required]

    def read(section: OutlineSection, business: Business) -> JsonObject:
        entries = [{name: field.read(item) for name, field in fields.items()} for item in section.items]
        complete = [entry for entry in entries if all(entry[name] for name in required)][:limit]
        items = [{name: value for name, value in entry.items() if value} for entry in complete]
        bare = [item for item, entry in zip(section.items, entries, strict=True) if entry not in complete]
        words = " ".join(_sentence(item) for item in bare if item.get("title")) if rest and items else ""
        return {**section_props(section), prop: items, **({rest: words[:_MOST_WORDS]} if rest and words else {})}

    return read


def first_heading(root: Node) -> Node | None:
    """Return the first element of a page's main region with a heading, which becomes the page's h1."""
    catalog = components()
    for child in root.children:
        if catalog[child.type].place == "main":
            for node in walk(child):
                if node.props.get("heading") or node.type == "Heading":
                    return node
    return None


_COMPONENT_COMMENT: Final = re.compile(r"^/\* (\w+) \*/$", re.MULTILINE)


@cache
def components() -> Mapping[str, Component]:
    """Return all components by name, sorted."""
    entries = [entry for module in _modules() for entry in vars(module).values() if isinstance(entry, Component)]
    return MappingProxyType({entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)})


@cache
def component_rules() -> tuple[str, ...]:
    """Return the CSS of the components in the order of the catalog."""
    rules = {name: css for module in _modules() for name, css in _read_rules(module)}
    return tuple(rules[name] for name in components() if name in rules)


def _modules() -> list[ModuleType]:
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def _read_rules(module: ModuleType) -> list[tuple[str, str]]:
    """Return the parts of a module's stylesheet, each headed by a component's name as a comment."""
    try:
        text = (pkgutil.get_data(module.__name__, f"{module.__name__.rpartition('.')[2]}.css") or b"").decode()
    except FileNotFoundError:
        return []
    _, *parts = _COMPONENT_COMMENT.split(text)
    return list(zip(parts[::2], parts[1::2], strict=True))


_LISTS: Final = ("items", "people", "plans", "images")
"""Always required, as the prompt's rules say once."""


def _required(component: Component) -> str:
    fields = component.props.model_fields
    names = [name for name, field in fields.items() if field.is_required() and name not in _LISTS]
    return f"; requires {', '.join(names)}" if names else ""


def catalog_prompt() -> str:
    """Return the system prompt for an edit by the model: the rules of a site document and every component."""
    sections: list[str] = []
    others: list[str] = []
    for component in components().values():
        group = sections if issubclass(component.props, SectionProps) else others
        group.append(f"- {component.name}: {component.summary}{_required(component)}")
    example, families = components()["Features"], " ".join(called())
    element = {"type": example.name, "props": example.example, "children": []}
    return (
        read_prompt("edit.md").replace("EXAMPLE", json.dumps(element, ensure_ascii=False))
        + "\n".join([*sections, "Other components:", *others])
        + f"\nart: {' '.join(ART_NAMES)}\nicon: {' '.join(get_args(IconName))}\nhue: {' '.join(get_args(Hue))}"
        + f"\npreset: {' '.join(PRESETS)}\nfont, headings: {families}, mono or another by name"
    )


def outline_prompt() -> str:
    """Return the system prompt for a new site: the rules of an outline and the kinds of sections it may hold."""
    lines = [
        f"- {component.name}: {component.outline_hint}" for component in components().values() if component.outline
    ]
    return read_prompt("outline.md") + "\n".join(lines)


@cache
def read_prompt(name: str) -> str:
    """Return the text of a file in sites/spec/prompts."""
    return filled((pkgutil.get_data(__name__, f"prompts/{name}") or b"").decode())
