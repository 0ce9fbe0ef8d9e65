"""Tools with which a model reads and writes files over the Messages API, without a box: no path reaches a disk.

A tool reports its refusals to the model, which may do better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from routing.policy.agents import CONTEXT_DIRECTORY, is_covered
from sites.errors import PathRefusedError
from sites.files import check_path, is_planted
from workers.errors import ToolRefusedError

_MAX_SHOWN_CHARS = 60_000
_MAX_LISTED = 1_000
_MAX_FOUND_LINES = 100
_MAX_LINE_CHARS = 400
_MAX_FILE_BYTES = 1_048_576
_BINARY_BYTES = 8_192


class _Input(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _List(_Input):
    """List the files, with their sizes in bytes."""

    directory: str = Field(default="", max_length=500, description="Only below this directory; empty for all.")


class _Read(_Input):
    """Read a text file, or its lines from `from_line` on."""

    path: str = Field(max_length=4096)
    from_line: int = Field(default=1, ge=1)
    lines: int = Field(default=2000, ge=1, le=20_000)
    offset: int = Field(default=0, ge=0, description="How many characters of the first line to skip.")


class _Search(_Input):
    """Find lines that contain a text, whatever their case, and the lines beside them."""

    text: str = Field(min_length=1, max_length=200)
    beside: int = Field(default=0, ge=0, le=10, description="How many lines to show before and after each.")
    directory: str = Field(default="", max_length=4096, description="Only below this directory, or this file.")


class _Write(_Input):
    """Write a whole text file, within the paths that your order names."""

    path: str = Field(max_length=4096)
    content: str = Field(max_length=_MAX_FILE_BYTES)


class FileTools:
    """Files in memory and the tools that work in them.

    `writes` are the paths that may be written, `most_bytes` limits all written files together, and `most_shown` the
    characters of a file that one call shows.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        *,
        writes: Sequence[str] = (),
        most_bytes: int = 0,
        most_shown: int = _MAX_SHOWN_CHARS,
    ) -> None:
        self.files = dict(files)
        self.refused: list[str] = []
        """Paths that the agent tried to write and may not."""
        self._writes = writes
        self._left = most_bytes
        self._most_shown = most_shown
        self._tools: dict[str, tuple[type[_Input], Callable[[Any], str]]] = {
            "list_files": (_List, self._list),
            "read_file": (_Read, self._read),
            "search_files": (_Search, self._search),
            "write_file": (_Write, self._write),
        }

    def definitions(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return tools for the model API, always in the same order, so that they can be cached."""
        return [_definition(name, self._tools[name][0]) for name in sorted(set(names) & self._tools.keys())]

    def use(self, name: str, given: object, *, allowed: Iterable[str]) -> str:
        """Run one tool call.

        Raises:
            ToolRefusedError: it cannot be done (the agent's fault).
        """
        if name not in self._tools or name not in allowed:
            raise ToolRefusedError(f"there is no tool {name[:60]!a} here")
        model, do = self._tools[name]
        try:
            arguments = model.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])[:100]
            raise ToolRefusedError(f"{name}: {place}: {first['msg']}") from None
        return do(arguments)

    def _list(self, arguments: _List) -> str:
        found = sorted(self._below(arguments.directory))
        lines = [f"{len(self.files[path]):>9} {path}" for path in found[:_MAX_LISTED]]
        rest = len(found) - len(lines)
        more = [f"and {rest} more: name a directory"] if rest > 0 else []
        return "\n".join([*lines, *more]) or "no files"

    def _read(self, arguments: _Read) -> str:
        data = self.files.get(arguments.path)
        if data is None:
            raise ToolRefusedError(f"there is no file {arguments.path!a}; list_files names those that there are")
        if b"\0" in data[:_BINARY_BYTES]:
            raise ToolRefusedError(f"{arguments.path!a} is no text file ({len(data)} bytes)")
        first, *further = data.decode("utf-8", "replace").split("\n")[arguments.from_line - 1 :] or [""]
        whole = "\n".join([first[arguments.offset :], *further])
        text = "\n".join(whole.split("\n", arguments.lines)[: arguments.lines])[: self._most_shown]
        left = whole[len(text) :]
        if left and (left != "\n" or len(text) == self._most_shown):
            passed, offset = text.count("\n"), len(text) - text.rfind("\n") - 1
            offset += 0 if passed else arguments.offset
            line = arguments.from_line + passed
            return f"{text}\n[{len(left)} more characters: go on with from_line={line} and offset={offset}]"
        return text or "[no lines there]"

    def _search(self, arguments: _Search) -> str:
        wanted, found = arguments.text.casefold(), list[str]()
        for path in sorted(self._below(arguments.directory)):
            data = self.files[path]
            if b"\0" in data[:_BINARY_BYTES]:
                continue
            lines = data.decode("utf-8", "replace").split("\n")
            hits = [at for at, line in enumerate(lines) if wanted in line.casefold()]
            near = {at for hit in hits for at in range(hit - arguments.beside, hit + arguments.beside + 1)}
            shown = sorted(near & set(range(len(lines))))
            found += (f"{path}:{at + 1}: {_around(wanted, lines[at])}" for at in shown)
            if len(found) > _MAX_FOUND_LINES:
                break
        text = "\n".join(found[:_MAX_FOUND_LINES])
        if len(found) > _MAX_FOUND_LINES or len(text) > self._most_shown:
            text = f"{text[: self._most_shown]}\n[there is more: search for something rarer, or in a directory]"
        return text or "nothing found"

    def _write(self, arguments: _Write) -> str:
        path = self._writable(arguments.path)
        data = arguments.content.encode("utf-8", "replace")
        if len(data) > self._left:
            raise ToolRefusedError("what you have written is more than a step may write")
        self._left -= len(data)
        self.files[path] = data
        return f"wrote {len(data)} bytes"

    def _writable(self, raw: str) -> str:
        try:
            path = check_path(raw)
        except PathRefusedError as error:
            self.refused.append(f"{ascii(raw[:200])[1:-1]}: {error.reason}")
            raise ToolRefusedError(str(error)) from None
        if not is_covered(path, self._writes) or is_planted(path) or path.startswith(CONTEXT_DIRECTORY):
            self.refused.append(f"{ascii(path)[1:-1]}: not_allowed")
            allowed = ", ".join(self._writes) or "nothing"
            raise ToolRefusedError(f"you may not write {path!a}; you may write {allowed}")
        parts = path.split("/")
        if any("/".join(parts[:depth]) in self.files for depth in range(1, len(parts))):
            raise ToolRefusedError(f"{path!a} would lie below a file")
        if any(other.startswith(f"{path}/") for other in self.files):
            raise ToolRefusedError(f"{path!a} is a directory")
        return path

    def _below(self, directory: str) -> Iterable[str]:
        prefix = directory.strip("/")
        return (path for path in self.files if not prefix or path == prefix or path.startswith(f"{prefix}/"))


def _around(wanted: str, line: str) -> str:
    """Return what of a line is shown: all of a short one, else what stands around the words."""
    at = max(line.casefold().find(wanted) - _MAX_LINE_CHARS // 2, 0) if len(line) > _MAX_LINE_CHARS else 0
    return line[at : at + _MAX_LINE_CHARS].strip()


def _definition(name: str, model: type[_Input]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {
        "name": name,
        "description": schema.pop("description"),
        "input_schema": {key: value for key, value in schema.items() if key != "title"},
    }
