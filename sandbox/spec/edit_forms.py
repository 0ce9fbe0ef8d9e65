"""The forms in which an edit of a site may be written, each read into steps that apply strictly.

They are json-render's: RFC 6902 operations, as a list or as SpecStream lines, and an RFC 7396 merge marked
`"__json_edit": true`. Pointers and merges address the site document; for a site of one page they may also address its
one spec, as json-render's own clients write them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandbox.spec.errors import SpecError, refuse, shown
from sandbox.spec.javascript import trim
from sandbox.spec.model import INDEX, JsonObject, Site, check_json, loads_strict, pointer
from sandbox.spec.stream import MAX_LINES

MERGE_MARK: Final = "__json_edit"
MAX_OPERATIONS: Final = 100
MAX_POINTER_CHARS: Final = 400
OPERATIONS: Final = {
    "add": frozenset({"op", "path", "value"}),
    "replace": frozenset({"op", "path", "value"}),
    "test": frozenset({"op", "path", "value"}),
    "remove": frozenset({"op", "path"}),
    "move": frozenset({"op", "path", "from"}),
    "copy": frozenset({"op", "path", "from"}),
}
_POINTER: Final = re.compile(r"/pages(?:/(?:[^~/]|~[01])*)+")
_SPEC_FIELDS: Final = ("root", "elements", "state")


def read_edit(edit: object, site: Site) -> Sequence[JsonObject]:
    """Return an edit as steps: checked RFC 6902 operations, and merges that carry `MERGE_MARK`.

    Args:
        edit: a list of operations, a marked merge object, or text whose lines are either; other lines are prose.
        site: the site that is edited.

    Raises:
        SpecError: `bad_operation` or `forbidden_key`; the edit's writer is at fault.
    """
    steps = _steps_of_text(edit) if isinstance(edit, str) else [edit] if _is_merge(edit) else edit
    if not isinstance(steps, list) or not steps:
        raise refuse("bad_operation", "", "operations is a list of at least one JSON patch operation")
    if len(steps) > MAX_OPERATIONS:
        raise refuse("bad_operation", "", f"an edit holds at most {MAX_OPERATIONS} operations")
    check_json(steps)
    one_spec = set(site.pages) == {INDEX}
    return [_read_step(step, f"/operations/{index}", one_spec=one_spec) for index, step in enumerate(steps)]


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> JsonObject:
    """Return an object with changes merged in: null deletes, objects merge, everything else is put in place.

    As in upstream's `deepMergeSpec`, and other than in RFC 7396, a null inside an object that is new stays a null.
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


def is_merge_step(step: Mapping[str, Any]) -> bool:
    """Whether a step that was read is a merge."""
    return MERGE_MARK in step


def _is_merge(edit: object) -> bool:
    return isinstance(edit, Mapping) and edit.get(MERGE_MARK) is True


def _steps_of_text(text: str) -> list[JsonObject]:
    """Return the operations and merges in a text; a line that is not JSON is prose, as in a SpecStream."""
    steps: list[JsonObject] = []
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise refuse("too_large", "", f"an edit has at most {MAX_LINES} lines")
    for line in lines:
        trimmed = trim(line)
        if trimmed.startswith("{") and (step := _json_line(trimmed)) is not None:
            steps.append(step)
        elif trimmed.startswith("[") and isinstance(found := _json_line(trimmed), list):
            steps += found
    return steps


def _json_line(line: str) -> Any:
    try:
        return loads_strict(line)
    except SpecError as error:
        if error.code == "not_json":
            return None
        raise


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
