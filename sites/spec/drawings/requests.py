"""The drawings that a site asks for: a page describes each in words, and a separate call draws it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from sites.spec.drawings.shapes import MAX_LETTERS, MAX_SHAPES, TONES, WIDE, Shape
from sites.spec.languages.versions import root_props
from sites.spec.model import INDEX, JsonObject, Site, refused_by, site_of
from sites.spec.theme import Theme, palette

_MIN_SHAPES: Final = 3
"""Of a mark; a picture has many more."""
_SHAPES: Final[TypeAdapter[tuple[str, ...]]] = TypeAdapter(
    Annotated[tuple[Shape, ...], Field(min_length=_MIN_SHAPES, max_length=MAX_SHAPES)]
)


def wanted(site: Site) -> tuple[str, ...]:
    """Return the descriptions of the drawings still to be made, each once, without those that an image hides.

    That of the opening comes first.
    """
    elements = [
        (path != INDEX, element["type"] != "Hero", element)
        for path, page in site.pages.items()
        for element in page["elements"].values()
        if "image" not in element.get("props", {})
    ]
    shown = [_drawing_of(element) for *_, element in sorted(elements, key=lambda each: each[:2])]
    return tuple(dict.fromkeys(each["of"] for each in shown if each and not each.get("shapes")))


def with_shapes_of(before: Site, site: Site) -> Site:
    """Return an edited site whose drawings have the shapes of the same ones before; a new one has none yet."""
    return _with_shapes(site, _shapes(before))


def without_shapes(site: Site) -> Site:
    """Return a site for a model to read, to which a drawing is what it shows."""
    return _with_shapes(site, {})


def drawn(site: Site, shapes: Mapping[str, Sequence[str]], *, before: Site | None = None) -> Site:
    """Return a site with the shapes of what it wanted, by what they show; a drawing that has none is what it was."""
    document = _with_shapes(site, {**_shapes(site), **shapes}).to_dict()
    for path, page in document["pages"].items():
        was = before.pages.get(path, {}).get("elements", {}) if before else {}
        for key, element in page["elements"].items():
            drawing = _drawing_of(element)
            if drawing is None or drawing.get("shapes"):
                continue
            if old := _drawing_of(was.get(key, {})):
                element["props"]["drawing"] = old
            else:
                del element["props"]["drawing"]
    return site_of(document)


def _shapes(site: Site) -> dict[str, Sequence[str]]:
    return {each["of"]: each["shapes"] for each in _drawings(site.pages) if each.get("shapes")}


def _with_shapes(site: Site, shapes: Mapping[str, Sequence[str]]) -> Site:
    if next(_drawings(site.pages), None) is None:
        return site
    document = site.to_dict()
    for each in _drawings(document["pages"]):
        each.pop("shapes", None)
        if found := shapes.get(each["of"]):
            each["shapes"] = list(found)
    return site_of(document)


def _drawings(pages: Mapping[str, JsonObject]) -> Iterator[JsonObject]:
    for page in pages.values():
        yield from filter(None, map(_drawing_of, page["elements"].values()))


def _drawing_of(element: JsonObject) -> JsonObject | None:
    drawing = element.get("props", {}).get("drawing")
    return drawing if isinstance(drawing, dict) and isinstance(drawing.get("of"), str) else None


def brief(site: Site, of: str) -> str:
    """Return what a model is told of a drawing and its site."""
    props = root_props(site.pages[INDEX])
    theme = Theme.model_validate(props.get("theme", {}))
    colours = palette(theme, dark=theme.mode == "dark")
    tones = ", ".join(f"{tone} {colours.get(f'art-{tone}', colours[name])}" for tone, name in TONES.items())
    about = " ".join(str(props[name]) for name in ("title", "description") if props.get(name))
    others = "; ".join(dict.fromkeys(each["of"] for each in _drawings(site.pages) if each["of"] != of))
    beside = f"\nOther drawings of the site, which this one does not repeat: {others}" if others else ""
    is_mark = any(
        element["type"] == "Header" and (_drawing_of(element) or {}).get("of") == of
        for element in site.pages[INDEX]["elements"].values()
    )
    kind = "The drawing is the website's mark, and" if is_mark else "The drawing"
    return f"The website: {about}\nIts tones: {tones}{beside}{_field(site, of)}\n{kind} shows: {of}"


def _field(site: Site, of: str) -> str:
    """Return what to know of the field of a picture that goes across the page."""
    openings = (element for page in site.pages.values() for element in page["elements"].values())
    if not any(
        each["props"].get("layout") == "wide" and (_drawing_of(each) or {}).get("of") == of for each in openings
    ):
        return ""
    size = " ".join(WIDE.split()[2:])
    return (
        "\nThis one goes across the whole page, below the words, on a field of its own: begin with "
        f"`ground rect 0 0 {size}`. The subject is 250 to 320 high and stands between x 300 and 700; its place goes on "
        "to both edges and has things of its own left and right, which a phone cuts off."
    )


def draw_tool() -> JsonObject:
    """Return the tool that a model is forced to call for a drawing."""
    shapes = {
        "type": "array",
        "minItems": _MIN_SHAPES,
        "maxItems": MAX_SHAPES,
        "items": {"type": "string", "maxLength": MAX_LETTERS},
    }
    return {
        "name": "draw",
        "description": "Hand over the shapes of the drawing, from the back to the front.",
        "input_schema": {"type": "object", "properties": {"shapes": shapes}, "required": ["shapes"]},
    }


def shapes_of(reply: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the shapes of a reply.

    Raises:
        SpecError: `bad_drawing` for each shape that breaks a rule (the model's fault).
    """
    try:
        return _SHAPES.validate_python(reply.get("shapes"))
    except ValidationError as error:
        raise refused_by(error, "bad_drawing", "/shapes") from None
