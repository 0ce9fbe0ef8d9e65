"""A site as data: named pages, each one json-render spec.

The reader is stricter than `json.loads`: a duplicate key, NaN or a `__proto__` key means different things to different
JSON readers, so all are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from sites.errors import Finding, SpecError, refuse, shown

if TYPE_CHECKING:
    from sites.spec.expressions import Node


JsonObject = dict[str, Any]

MAX_SITE_BYTES = 512 * 1024
MAX_JSON_DEPTH = 40
MAX_JSON_NODES = 50_000
MAX_PAGES = 100
"""Versions in further languages count too."""
MAX_ELEMENTS = 400
"""The most elements of a page."""

INDEX = "index.html"
_PAGE_PATH = re.compile(r"(?:[a-z0-9][a-z0-9-]{0,40}/){0,4}[a-z0-9][a-z0-9_-]{0,60}\.html")
_NUMBERS = (int, float)
_TOO_DEEP = f"JSON may nest {MAX_JSON_DEPTH} levels deep"
_MAX_FINDINGS = 20
_FORBIDDEN_KEYS = frozenset({"__proto__", "prototype", "constructor"})
_FORBIDDEN_TEXT = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@dataclass(frozen=True)
class Site:
    """A whole site; immutable."""

    pages: Mapping[str, JsonObject]
    """Page specs by the path of the file that they render to."""
    trees: Mapping[str, Node] | None = field(default=None, init=False, compare=False, repr=False)
    """The trees of its pages, once it has been found valid."""

    def to_dict(self) -> JsonObject:
        """Return a copy of the site document that the caller may change."""
        return {"pages": {path: _copy(page) for path, page in sorted(self.pages.items())}}

    def canonical(self) -> str:
        """Return the canonical JSON: sorted keys, no spaces."""
        document = {"pages": dict(self.pages)}
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical text, in hex."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()


def parse_site(source: str | bytes | Mapping[str, Any]) -> Site:
    """Read a site from JSON: one json-render spec, which becomes `index.html`, or `{"pages": {path: spec}}`.

    Raises:
        SpecError: the spec breaks a rule (the spec's fault).
    """
    return site_of(loads_strict(source) if isinstance(source, str | bytes) else deepcopy_checked(source))


def site_of(document: Any) -> Site:
    """Return the site of a JSON value that passed `check_json` and is not shared.

    Raises:
        SpecError: the fault of whoever wrote the spec.
    """
    if not isinstance(document, dict):
        raise refuse("not_a_spec", "", "a site is a JSON object")
    document = document if "pages" in document else {"pages": {INDEX: document}}
    unknown = sorted(set(document) - {"pages"})
    if unknown:
        raise refuse("unknown_field", pointer(unknown[0]), "a site document holds `pages` and nothing else")
    pages = document["pages"]
    if not isinstance(pages, dict) or not pages:
        raise refuse("not_a_spec", "/pages", "`pages` is an object of at least one page")
    if len(pages) > MAX_PAGES:
        raise refuse("too_large", "/pages", f"a site holds at most {MAX_PAGES} pages")
    for path, page in pages.items():
        if not _PAGE_PATH.fullmatch(path):
            rule = "a page path is lower-case letters, digits and hyphens, and ends in .html"
            raise refuse("bad_page_path", pointer("pages", path), rule)
        if not isinstance(page, dict):
            raise refuse("not_a_spec", pointer("pages", path), "a page is one json-render spec object")
    if INDEX not in pages:
        raise refuse("no_index", "/pages", f"a site needs {INDEX}")
    site = Site(pages)
    # pydantic writes the same text faster, but for its floats, which are shorter by less than half
    if len(to_json(pages)) > MAX_SITE_BYTES // 2 and len(site.canonical().encode()) > MAX_SITE_BYTES:
        raise refuse("too_large", "", f"a site spec holds at most {MAX_SITE_BYTES} bytes")
    return site


def deepcopy_checked(source: object) -> Any:
    """Return a copy of a JSON value of plain dicts and lists, within this module's limits.

    Raises:
        SpecError: the value is not plain JSON, or exceeds a limit.
    """
    check_json(source)
    return _copy(source)


def _copy(value: Any) -> Any:
    """Return a copy of a JSON value, in a third of the time of `deepcopy`."""
    if isinstance(value, dict):
        return {name: _copy(each) for name, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value


def loads_strict(text: str | bytes) -> Any:
    """Parse JSON strictly: no duplicate keys, NaN, Infinity or forbidden keys, within the limits.

    Raises:
        SpecError: the text breaks a rule (its writer's fault).
    """
    if len(text) > MAX_SITE_BYTES or (isinstance(text, str) and len(text.encode(errors="replace")) > MAX_SITE_BYTES):
        raise refuse("too_large", "", f"a site spec holds at most {MAX_SITE_BYTES} bytes")
    value = _read_if_plain(text)
    return _read_carefully(text) if value is None else value


def _read_if_plain(text: str | bytes) -> Any:
    """Parse JSON at full speed; None if it may break a rule, which `_read_carefully` then finds."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value = from_json(decoded)  # takes nothing that `json.loads` refuses, and reads the rest alike
    except (ValueError, TypeError):  # the latter for lone surrogates
        return None
    texts = _texts_if_plain(value)
    return value if texts is not None and len(texts) == _count_texts(decoded) else None


def _count_texts(json_text: str) -> int:
    """Count the strings of JSON text by their quotes; parsing yields fewer if a key is duplicated."""
    if "\\" in json_text:
        json_text = json_text.replace("\\\\", "").replace('\\"', "")
    return json_text.count('"') // 2


def _read_carefully(text: str | bytes) -> Any:
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(decoded, object_pairs_hook=_object_of, parse_constant=_refuse_constant)
    except SpecError:
        raise
    except RecursionError:
        raise refuse("too_deep", "", _TOO_DEEP) from None
    except ValueError as error:
        detail = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be decoded"
        raise refuse("not_json", "", f"the text is not JSON: {detail}") from None
    _check_each(value)
    return value


_Steps = tuple[Any, ...]
"""The way to a value: the way to what holds it, and its key there; of the whole, nothing. It is written out as a path
only where something is wrong."""
_Visit = tuple[_Steps, object, int]


def _path_of(steps: _Steps) -> str:
    keys: list[str | int] = []
    while steps:
        steps, key = steps
        keys.append(key)
    return pointer(*reversed(keys))


def check_json(value: object) -> None:
    """Check that a value is plain JSON within the limits on depth, size and text.

    Raises:
        SpecError: the first rule that the value breaks.
    """
    if _texts_if_plain(value) is None:
        _check_each(value)


def _texts_if_plain(value: object) -> list[str] | None:
    """Return all strings in a JSON value, keys included; None if it may break a rule, which `_check_each` locates."""
    texts: list[str] = []
    level: list[Any] = [value]
    depth, nodes = 0, 1
    while level:
        below: list[Any] = []
        for item in level:
            kind = item.__class__
            if kind is str:
                texts.append(item)
            elif kind is dict or kind is list:
                texts += item if kind is dict else ()
                below += item.values() if kind is dict else item
                if len(below) > MAX_JSON_NODES:  # checked here too: one list may occur in many places
                    return None
            elif item is not None and not (isinstance(item, _NUMBERS) and _complaint_about_number(item) is None):
                return None
        level, depth, nodes = below, depth + 1, nodes + len(below)
        if depth > MAX_JSON_DEPTH or nodes > MAX_JSON_NODES:
            return None
    return texts if _are_plain(texts) else None


def _are_plain(texts: list[str]) -> bool:
    try:
        whole = "".join(texts)
    except TypeError:
        return False  # a key is no text
    is_fine = whole.isprintable() or _FORBIDDEN_TEXT.search(whole) is None  # the first says more, and faster
    return is_fine and _FORBIDDEN_KEYS.isdisjoint(texts)


def _check_each(value: object) -> None:
    """Check values one by one, up to the first that breaks a rule."""
    stack: list[_Visit] = [((), value, 0)]
    nodes = 0
    while stack:
        steps, item, depth = stack.pop()
        nodes += 1
        if nodes > MAX_JSON_NODES:
            raise refuse("too_large", "", f"a site spec holds at most {MAX_JSON_NODES} values")
        if depth > MAX_JSON_DEPTH:
            raise refuse("too_deep", _path_of(steps), _TOO_DEEP)
        if isinstance(item, dict):
            for key in item:
                _check_key(key, steps)
            stack.extend([((steps, key), child, depth + 1) for key, child in item.items()])
        elif isinstance(item, list):
            stack.extend([((steps, index), child, depth + 1) for index, child in enumerate(item)])
        else:
            _check_scalar(item, steps)


def pointer(*segments: str | int) -> str:
    """Return the JSON pointer of the given keys and indexes (RFC 6901)."""
    return "".join(["/" + str(segment).replace("~", "~0").replace("/", "~1") for segment in segments])


def strings_in(value: Any, *place: str | int) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the strings in JSON data, other than keys, each with its place: the keys and indexes that lead there."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from strings_in(item, *place, key)


def refused_by(error: ValidationError, code: str, base: str) -> SpecError:
    """Return the error that holds what pydantic found first, each with its place below a path."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_FINDINGS]
    return SpecError(tuple(Finding(code, (base + pointer(*each["loc"]))[:300], each["msg"][:300]) for each in problems))


def _object_of(pairs: Iterable[tuple[str, Any]]) -> JsonObject:
    result: JsonObject = {}
    for key, value in pairs:
        if key in result:
            raise refuse("duplicate_key", "", f"the key {shown(key)} stands twice in one object")
        result[key] = value
    return result


def _refuse_constant(name: str) -> None:
    raise refuse("bad_number", "", f"{name} is not a JSON number")


def _check_key(key: object, steps: _Steps) -> None:
    if not isinstance(key, str):
        raise refuse("not_json", _path_of(steps), "keys of a JSON object are text")
    if key in _FORBIDDEN_KEYS:
        raise refuse("forbidden_key", _path_of(steps), f"the key {key} is refused everywhere")
    _check_text(key, steps)


def _check_scalar(item: object, steps: _Steps) -> None:
    if isinstance(item, str):
        _check_text(item, steps)
    elif isinstance(item, _NUMBERS):
        if complaint := _complaint_about_number(item):
            raise refuse("bad_number", _path_of(steps), complaint)
    elif item is not None:
        raise refuse("not_json", _path_of(steps), f"a {type(item).__name__} is not a JSON value")


def _complaint_about_number(number: float) -> str | None:
    if isinstance(number, float):
        return None if math.isfinite(number) else "a number must be finite"
    return None if abs(number) <= 2**53 else "a whole number must be within 2 to the power of 53"


def _check_text(text: str, steps: _Steps) -> None:
    if match := _FORBIDDEN_TEXT.search(text):
        rule = "control, text-direction and lone surrogate characters are refused"
        raise refuse("bad_text", _path_of(steps), f"{rule} (U+{ord(match.group()):04X})")
