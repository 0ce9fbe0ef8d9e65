"""Edits of a site document, applied strictly: a model's operations and merges.

Operations come in json-render's forms: RFC 6902, as a list or as SpecStream lines, and an RFC 7396 merge marked
`"__json_edit": true`. Pointers and merges address the site document; for a site of one page they may also address its
one spec, as json-render's own clients write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jsonpatch

from routing.model_call import SUMMARY, WAYS_OUT
from sites.errors import refuse, shown
from sites.spec.catalog import components
from sites.spec.drawings.requests import with_shapes_of, without_shapes
from sites.spec.expressions import SHARED_TYPE
from sites.spec.fonts.families import shipped_name
from sites.spec.model import INDEX, JsonObject, Site, check_json, parse_site, pointer
from sites.spec.stream import json_lines
from sites.spec.structure import children_of
from sites.spec.validate import auto_fix, require_valid

MERGE_MARK: Final = "__json_edit"
MAX_OPERATIONS: Final = 100
MAX_POINTER_CHARS: Final = 400
_WITH: Final = {"add": "value", "replace": "value", "test": "value", "remove": "path", "move": "from", "copy": "from"}
OPERATIONS: Final = {op: frozenset({"op", "path", field}) for op, field in _WITH.items()}
_POINTER: Final = re.compile(r"/pages(?:/(?:[^~/]|~[01])*)+")
_SPEC_FIELDS: Final = ("root", "elements", "state")


def read_edit(edit: object, site: Site) -> Sequence[JsonObject]:
    """Return an edit as steps: checked RFC 6902 operations, and merges that carry `MERGE_MARK`.

    The edit is a list of operations, a marked merge object, or text whose lines are either; other lines are prose.

    Raises:
        SpecError: `bad_operation` or `forbidden_key` (the edit's fault).
    """
    steps = [edit] if _is_merge(edit) else edit
    if isinstance(edit, str):
        found = json_lines(edit, begin=("{", "["), of="an edit")
        steps = [step for value in found for step in (value if isinstance(value, list) else [value])]
    if not isinstance(steps, list) or not steps:
        raise refuse("bad_operation", "", "operations is a list of at least one JSON patch operation")
    if len(steps) > MAX_OPERATIONS:
        raise refuse("bad_operation", "", f"an edit holds at most {MAX_OPERATIONS} operations")
    check_json(steps)
    one_spec = set(site.pages) == {INDEX}
    return [_read_step(step, f"/operations/{index}", one_spec=one_spec) for index, step in enumerate(steps)]


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> JsonObject:
    """Merge changes into an object: null deletes, objects merge, everything else replaces.

    As in upstream's `deepMergeSpec`, and unlike RFC 7396, a null inside a new object stays null.
    """
    result = dict(base)
    for key, change in changes.items():
        if change is None:
            result.pop(key, None)
        elif isinstance(change, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merge(result[key], change)
        else:
            result[key] = change
    return result


def _is_merge(edit: object) -> bool:
    return isinstance(edit, Mapping) and edit.get(MERGE_MARK) is True


def _read_step(step: Any, place: str, *, one_spec: bool) -> JsonObject:
    if _is_merge(step):
        changes = {key: value for key, value in step.items() if key != MERGE_MARK}
        if one_spec and changes and set(changes) <= set(_SPEC_FIELDS):
            changes = {"pages": {INDEX: changes}}
        if not isinstance(changes.get("pages"), dict) or set(changes) != {"pages"}:
            raise refuse("bad_operation", place, "a merge changes `pages` of the site document and nothing else")
        return {MERGE_MARK: True, **changes}
    op = step.get("op") if isinstance(step, dict) else None
    fields = OPERATIONS.get(op) if isinstance(op, str) else None
    if fields is None or not fields <= set(step):
        raise refuse("bad_operation", place, "an operation has an op of RFC 6902 and the fields that this op needs")
    read = {name: step[name] for name in sorted(fields)}
    for name in {"path", "from"} & fields:
        read[name] = _read_pointer(step[name], f"{place}/{name}", one_spec=one_spec)
    return read


def _read_pointer(value: object, place: str, *, one_spec: bool) -> str:
    if one_spec and isinstance(value, str) and value.split("/")[1:2] and value.split("/")[1] in _SPEC_FIELDS:
        value = pointer("pages", INDEX) + value
    if not isinstance(value, str) or len(value) > MAX_POINTER_CHARS or not _POINTER.fullmatch(value):
        raise refuse("bad_operation", place, f"{shown(value)} is no pointer that starts with /pages/")
    if {"__proto__", "prototype", "constructor"} & set(value.split("/")):
        raise refuse("forbidden_key", place, "a pointer may not name a prototype")
    return value


MAX_PART_CHARS: Final = 16_000
"""The most characters of JSON for a model; with the catalog's text they fit the policy's input estimate."""
_MAX_OMITTED_CHARS: Final = 6000
_MAX_LINE_CHARS: Final = 200
_WHOLE_SITE: Final = re.compile(
    r"\b(all|every|everywhere|each|whole|entire|throughout|translate|tone of voice|rewrite the (?:site|page))\b", re.I
)
_WORD: Final = re.compile(r"[a-z0-9]{3,}")
_COMMON: Final = (
    "the and for with our you your that this into from make change add remove move replace update set use please "
    "should can could would page site website section text more less new like want need have has are but not all its "
    "put about them"
)
_COMMON_WORDS: Final = frozenset(_COMMON.split())


def edit_tool() -> JsonObject:
    """Return the tool that a model is forced to call for an edit."""
    pointer_schema = {"type": "string", "maxLength": MAX_POINTER_CHARS}
    operation = {
        "type": "object",
        "properties": {
            "op": {"type": "string", "enum": sorted(OPERATIONS)},
            "path": pointer_schema,
            "from": pointer_schema,
            "value": {"description": "any JSON value; required for add, replace and test"},
        },
        "required": ["op", "path"],
    }
    return {
        "name": "edit_site",
        "description": "Hand over the JSON patch (RFC 6902) that does what the request asks.",
        "input_schema": {
            "type": "object",
            "properties": {
                "operations": {"type": "array", "maxItems": MAX_OPERATIONS, "items": operation},
                "summary": SUMMARY,
                **WAYS_OUT,
                "withdraw": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "files of the site (assets/...) that nobody may open any more: only where the thing "
                    "itself has to go, as when a person wants a picture of them down; the edit takes it off all pages",
                },
            },
            "required": ["operations", "summary"],
        },
    }


def edit_of(reply: Mapping[str, Any]) -> object:
    """Return the edit in a model's reply: its operations, or the reply itself if it is a merge."""
    if reply.get(MERGE_MARK) is True:
        return {name: value for name, value in reply.items() if name not in {"summary", "withdraw", *WAYS_OUT}}
    return reply.get("operations")


def apply_edit(site: Site, edit: object) -> Site:
    """Return the site after an edit in any form of `read_edit`, repaired losslessly and valid; all or nothing.

    Raises:
        SpecError: `bad_operation`, `patch_failed` or what is invalid afterwards (the edit's fault).
    """
    document = site.to_dict()
    for index, step in enumerate(read_edit(edit, site)):
        if MERGE_MARK in step:
            document = {"pages": merge(document["pages"], step["pages"])}
        else:
            apply_operation(document, step, f"/operations/{index}")
    _ship_fonts(document, site)
    edited = parse_site(document)
    auto_fix(edited.pages)
    require_valid(edited)
    return with_shapes_of(site, edited)


def _ship_fonts(document: JsonObject, before: Site) -> None:
    """Give families that an edit names for the first time the names under which they are shipped."""
    for path, page in document["pages"].items():
        theme, was = _theme_of(page), _theme_of(before.pages.get(path))
        for role in ("font", "headings", "text"):
            if role in theme and theme[role] != was.get(role):
                theme[role] = shipped_name(theme[role])


def _theme_of(page: Any) -> JsonObject:
    """Return the theme of a page that may be malformed; empty if it has none."""
    for step in ("elements", page.get("root") if isinstance(page, dict) else None, "props", "theme"):
        page = page.get(step) if isinstance(page, dict) and isinstance(step, str) else None
    return page if isinstance(page, dict) else {}


def apply_operation(document: JsonObject, operation: JsonObject, place: str) -> None:
    """Change a document by an operation of RFC 6902.

    Raises:
        SpecError: `patch_failed` at the operation's place (the author's fault), or too much was copied.
    """
    try:
        jsonpatch.JsonPatch([operation]).apply(document, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError, IndexError) as error:
        reason = f"{operation['op']} at {shown(operation['path'])} does not apply: {shown(str(error))}"
        raise refuse("patch_failed", place, reason) from None
    if operation["op"] == "copy":
        check_json(document)


def undoing(site: Site, live: Site) -> list[JsonObject]:
    """Return the operations that make an edited site the live one again.

    A list is replaced whole: operations on its items would hold in their order alone.
    """
    return list(_differences(dict(site.pages), dict(live.pages), "pages"))


def _differences(now: JsonObject, live: JsonObject, *place: str) -> Iterator[JsonObject]:
    for name in dict.fromkeys((*now, *live)):
        path = pointer(*place, name)
        if name not in live:
            yield {"op": "remove", "path": path}
        elif name not in now:
            yield {"op": "add", "path": path, "value": live[name]}
        elif isinstance(now[name], dict) and isinstance(live[name], dict):
            yield from _differences(now[name], live[name], *place, name)
        elif now[name] != live[name]:
            yield {"op": "replace", "path": path, "value": live[name]}


@dataclass(frozen=True)
class Part:
    """The part of a site that a request concerns."""

    document: JsonObject
    """A site document with the original keys, so that patches of it apply to the whole site."""
    omitted: tuple[str, ...]
    """One line for each omitted element: page, key, type and heading."""

    def to_text(self) -> str:
        """Return the part as text for the model."""
        text = json.dumps(self.document, separators=(",", ":"), ensure_ascii=False)
        return text if not self.omitted else text + "\n\nAlso on the site, not shown:\n" + "\n".join(self.omitted)


def relevant_part(site: Site, prompt: str) -> Part:
    """Select the elements that a request names or quotes, their parents, and the pages' roots.

    A request that names nothing on the site, or everything, gets as much of the site as fits.
    """
    site = without_shapes(site)
    scores = {
        (path, key): _score(prompt, key, element)
        for path, page in sorted(site.pages.items())
        for key, element in page["elements"].items()
    }
    named = {place: score for place, score in scores.items() if score > 0}
    wanted = named if named and not _WHOLE_SITE.search(prompt) else scores
    if _chars(site, scores) <= MAX_PART_CHARS:
        wanted = scores  # the same text whatever is asked, so that the next job reads it from the provider's cache
    chosen = _roots(site, prompt)
    room = MAX_PART_CHARS - min(_chars(site, chosen), MAX_PART_CHARS // 2)
    for place in sorted(wanted, key=lambda place: (-wanted[place], place)):
        added = {place, *_ancestors(site, place)} - chosen
        room -= _chars(site, added)
        if room < 0:
            break
        chosen |= added
    return _part_of(site, chosen, room=room)


def _roots(site: Site, prompt: str) -> set[tuple[str, str]]:
    """Return the roots of all pages; on a large site, of the index and the pages that a request names."""
    roots = {(path, page["root"]) for path, page in site.pages.items()}
    if _chars(site, roots) <= MAX_PART_CHARS // 4:
        return roots
    words = set(_WORD.findall(prompt.lower()))
    return {(path, key) for path, key in roots if path == INDEX or words & set(_WORD.findall(path)) - {"html"}}


def _chars(site: Site, places: Iterable[tuple[str, str]]) -> int:
    return sum(len(json.dumps(site.pages[path]["elements"][key], ensure_ascii=False)) for path, key in places)


def _score(prompt: str, key: str, element: JsonObject) -> int:
    """Score how strongly a request points at an element, by its kind, key or words."""
    lowered = prompt.lower()
    component = components().get(element["type"])
    if component is None or element["type"] == SHARED_TYPE:
        return 0
    named = any(re.search(rf"\b{re.escape(word)}s?\b", lowered) for word in (*component.words, key.lower()))
    prompt_words = set(_WORD.findall(lowered)) - _COMMON_WORDS
    element_words = set(_WORD.findall(json.dumps(element.get("props", {}), ensure_ascii=False).lower()))
    return 10 * named + len(prompt_words & element_words)


def _ancestors(site: Site, place: tuple[str, str]) -> set[tuple[str, str]]:
    path, key = place
    elements = site.pages[path]["elements"]
    parents = {child: parent for parent, element in elements.items() for child, _ in children_of(element)}
    found = set()
    while (key := parents.get(key, "")) and (path, key) not in found:
        found.add((path, key))
    return found


def _part_of(site: Site, chosen: set[tuple[str, str]], *, room: int) -> Part:
    pages: JsonObject = {}
    omitted: list[str] = []
    for path, page in sorted(site.pages.items()):
        elements = {key: element for key, element in page["elements"].items() if (path, key) in chosen}
        omitted += [_line(path, key, element) for key, element in page["elements"].items() if (path, key) not in chosen]
        if elements:
            pages[path] = {"root": page["root"], "elements": elements}
        if elements and "state" in page:
            state, used = json.dumps(page["state"], ensure_ascii=False), json.dumps(elements, ensure_ascii=False)
            room -= len(state)
            if room >= 0 and ('"$' in used or '"repeat"' in used):
                pages[path]["state"] = page["state"]
            else:
                omitted.append(f"{path}: state with {', '.join(sorted(page['state'])[:20])}"[:_MAX_LINE_CHARS])
    return Part(Site(pages).to_dict(), tuple(_shortened(omitted)))


def _shortened(lines: list[str]) -> Iterator[str]:
    room = _MAX_OMITTED_CHARS
    for index, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            yield f"and {len(lines) - index} more"
            return
        yield line


def _line(path: str, key: str, element: Mapping[str, Any]) -> str:
    props = element.get("props", {})
    heading = props.get("heading") or props.get("brand") or props.get("of")
    return (f"{path}: {key} ({element['type']})" + (f" {heading}" if isinstance(heading, str) else ""))[
        :_MAX_LINE_CHARS
    ]
