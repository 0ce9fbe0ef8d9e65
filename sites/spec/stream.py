"""SpecStream: a new spec as lines of RFC 6902 operations, applied as leniently as json-render does.

Prose between the lines, a missing parent or the removal of a missing value is harmless in a new spec. Edits of an
existing site are strict (`edit`), because there a forgiven mistake is a lost change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from sites.errors import SpecError, refuse, shown
from sites.spec.model import (
    MAX_JSON_DEPTH,
    MAX_JSON_NODES,
    MAX_SITE_BYTES,
    JsonObject,
    Site,
    check_json,
    loads_strict,
    site_of,
)
from sites.spec.state import MISSING, is_equal, look_up, parse_int, segments_of, trim

MAX_LINES: Final = 10_000


def read_site(text: str | bytes) -> Site:
    """Read a site from JSON, or from a stream of operations that builds it.

    Raises:
        SpecError: it is neither, or breaks a rule (the spec's fault).
    """
    text = text.decode(errors="surrogateescape") if isinstance(text, bytes) else text  # no UTF-8 is refused as text
    try:
        document = loads_strict(text)
    except SpecError as error:
        if error.code != "not_json" or not (patches := _patches(text)):
            raise
        return site_of(_compile(patches))
    return site_of(_compile([document]) if _is_operation(document) else document)


def json_lines(text: str, *, begin: tuple[str, ...], of: str) -> Iterator[Any]:
    """Yield the values of the lines that are JSON; any other line is blank, prose, a fence or damaged.

    Args:
        text: lines.
        begin: with what such a line begins.
        of: what the text is, for who is told that it has too many lines.

    Raises:
        SpecError: a line is JSON, but breaks a rule for all JSON here, such as a prototype key (its writer's fault).
    """
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise refuse("too_large", "", f"{of} has at most {MAX_LINES} lines")
    for line in map(trim, lines):
        if line.startswith(begin):
            try:
                yield loads_strict(line)
            except SpecError as error:
                if error.code != "not_json":
                    raise


def compile_stream(text: str) -> JsonObject:
    """Return the document that the operations in a text build from nothing.

    Raises:
        SpecError: a `test` fails, an operation cannot be applied at all, or a cap is passed (the spec's fault).
    """
    return _compile(_patches(text))


def _patches(text: str) -> list[JsonObject]:
    if len(text.encode(errors="replace")) > MAX_SITE_BYTES:
        raise refuse("too_large", "", f"a site spec holds at most {MAX_SITE_BYTES} bytes")
    return [value for value in json_lines(text, begin=("{",), of="a stream") if _is_operation(value)]


def _is_operation(value: object) -> bool:
    return isinstance(value, dict) and bool(value.get("op")) and "path" in value


def _compile(patches: Iterable[JsonObject]) -> JsonObject:
    compiler = _Compiler()
    for patch in patches:
        compiler.apply(patch)
    document: JsonObject = _plain(compiler.document)
    check_json(document)
    return document


class _Compiler:
    """The document that a stream has built so far; copies are limited, as they double what they copy."""

    def __init__(self) -> None:
        self.document: JsonObject = {}
        self._copied = 0

    def apply(self, patch: JsonObject) -> None:
        """Apply one operation; unknown ones are ignored."""
        op = patch["op"]
        if op in ("add", "replace"):
            _put(self.document, _path_of(patch), patch.get("value", MISSING), is_insert=op == "add")
        elif op == "remove":
            _remove(self.document, _path_of(patch))
        elif op == "test":
            actual = look_up(self.document, _path_of(patch)) if patch["path"] else self.document
            if not is_equal(actual, patch.get("value", MISSING)):
                raise _failed(patch, "the value there is another")
        elif op == "move" and patch.get("from"):
            value = self._taken(patch)
            _remove(self.document, _path_of(patch, "from"))
            if _put(self.document, _path_of(patch), value, is_insert=True) and patch["from"] == "/":
                raise _failed(patch, "the whole document cannot go into itself")
        elif op == "copy" and patch.get("from"):
            value = self._taken(patch)
            source, target = segments_of(_path_of(patch, "from")), segments_of(_path_of(patch))
            is_inside = patch["from"] == "/" or (target[: len(source)] == source and target != source)
            is_put = _put(self.document, _path_of(patch), value, is_insert=True)
            if is_put and is_inside and isinstance(value, dict | list):
                raise _failed(patch, "a value cannot be copied into itself")

    def _taken(self, patch: JsonObject) -> Any:
        value = _plain(look_up(self.document, _path_of(patch, "from")))
        if value is not MISSING:
            check_json(value)
            self._copied += _size(value)
        if self._copied > MAX_JSON_NODES:
            raise refuse("too_large", "", f"moves and copies of a stream take at most {MAX_JSON_NODES} values")
        return value


def _put(document: JsonObject, path: str, value: Any, *, is_insert: bool) -> bool:
    """Set or insert a value, with missing parents; return whether it was set: a list takes none beyond its end."""
    segments = segments_of(path)
    if "__proto__" in segments:
        return False
    current: Any = document
    for segment, following in pairwise(segments):
        key: str | int | None = segment
        if isinstance(current, list):
            key = _dense_index(current, segment)
            if key == len(current):
                current.append(MISSING)
        if key is None:
            return False
        if not _is_object(_child(_opened(current, path), segment)):
            current[key] = [] if _is_index(following) or following == "-" else {}
        current = current[key]
    last = segments[-1]
    if not isinstance(current, list):
        _opened(current, path)[last] = value
        return True
    index = len(current) if last == "-" else _dense_index(current, last)
    if index is not None:
        current[index : index if is_insert else index + 1] = [value]
    return index is not None


def _remove(document: JsonObject, path: str) -> None:
    segments = segments_of(path)
    if "__proto__" in segments:
        return
    current: Any = document
    for segment in segments[:-1]:
        current = _child(_opened(current, path), segment)
        if not _is_object(current):
            return
    last = segments[-1]
    if isinstance(current, list):
        index = parse_int(last)
        if index is not None and 0 <= index < len(current):
            del current[index]
    else:
        _opened(current, path).pop(last, None)


def _path_of(patch: JsonObject, field: str = "path") -> str:
    path = patch[field]
    if patch["op"] == "test" and not path:
        return ""
    if not isinstance(path, str):
        raise _failed(patch, f"{field} is a JSON pointer")
    if path.count("/") > MAX_JSON_DEPTH:
        raise refuse("too_deep", "", f"JSON may nest {MAX_JSON_DEPTH} levels deep")
    return path


def _failed(patch: JsonObject, why: str) -> SpecError:
    return refuse("patch_failed", "", f"{shown(patch['op'])} at {shown(patch['path'])}: {why}")


def _opened(value: Any, path: str) -> Any:
    """Return a container to step into; to JavaScript null is one until it is used."""
    if value is None:
        raise refuse("patch_failed", "", f"{shown(path)} leads through null")
    return value


def _is_object(value: Any) -> bool:
    """Whether `typeof value` is "object", as it is for null."""
    return value is None or isinstance(value, dict | list)


def _is_index(segment: str) -> bool:
    return segment.isascii() and segment.isdigit()


def _dense_index(items: list[Any], segment: str) -> int | None:
    """Return a segment's index in a list, or just beyond its end; None if it would leave a hole."""
    index = parse_int(segment) if _is_index(segment) else None
    return index if index is not None and index <= len(items) else None


def _child(current: Any, segment: str) -> Any:
    if isinstance(current, list):
        index = parse_int(segment)
        return current[index] if index is not None and 0 <= index < len(current) else MISSING
    return current.get(segment, MISSING)


def _plain(value: Any) -> Any:
    """Return a copy without undefined values, which JSON omits from objects and writes as null in lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not MISSING}
    if isinstance(value, list):
        return [None if item is MISSING else _plain(item) for item in value]
    return value


def _size(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + sum(_size(item) for item in (value.values() if isinstance(value, dict) else value))
    return 1
