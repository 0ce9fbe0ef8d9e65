"""What an image is built from by a devcontainer.json: four of its settings. The others are named, not followed.

The file lies in a repository, so it may name nothing outside of it and nothing of the account that builds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sandbox.errors import SandboxError
from sandbox.image.source import ImageSource, source_of_dockerfile

_MAX_BYTES = 64 * 1024
_SKIPPED = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_NO_IMAGE = frozenset({"name", "$schema"})
"""Settings without any effect; others that are not followed are named."""


class DevcontainerError(SandboxError, ValueError):
    """A devcontainer.json cannot be built from (the operator's fault, who chose it); names the field and its rule."""


_Text = Annotated[str, Field(min_length=1, max_length=1024)]


class _Build(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    dockerfile: _Text
    context: _Text = "."
    args: dict[str, str] = {}


class _Devcontainer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    image: _Text | None = None
    build: _Build | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.image is None) == (self.build is None):
            raise ValueError("needs `image` or `build.dockerfile`, and not both")
        return self


def read_devcontainer(path: Path) -> tuple[ImageSource, tuple[str, ...]]:
    """Return what to build from a devcontainer.json, and the names of its other settings, which are ignored.

    Raises:
        DevcontainerError: it is unreadable, breaks a rule, or leads out of its repository.
        ImageSourceError: its Dockerfile or context is not there.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DevcontainerError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise DevcontainerError(f"{path}: exceeds {_MAX_BYTES} bytes")
    found = _parse(data.decode("utf-8", "replace"), path)
    ignored = [name for name in found.model_extra or {} if name not in _NO_IMAGE]
    if found.build is None:
        return ImageSource(base=found.image), tuple(ignored)
    ignored += [f"build.{name}" for name in found.build.model_extra or {}]
    return _of_build(found.build, path), tuple(ignored)


def _parse(text: str, path: Path) -> _Devcontainer:
    plain = _TRAILING.sub(lambda found: found[1] or "", _SKIPPED.sub(lambda found: found[1] or " ", text))
    try:
        found = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise DevcontainerError(f"{path}: is no JSON with comments: {error}") from None
    try:
        read = _Devcontainer.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        rule = str(first["msg"]).removeprefix("Value error, ")
        raise DevcontainerError(f"{path}: {place}: {rule}" if place else f"{path}: {rule}") from None
    _refuse_variables(read, path)
    return read


def _refuse_variables(found: _Devcontainer, path: Path) -> None:
    """Refuse `${localEnv:...}` and its like: they would carry what the operator's account has into an image."""
    build: dict[str, Any] = found.build.model_dump(include={"dockerfile", "context", "args"}) if found.build else {}
    args = {f"build.args.{name}": value for name, value in build.pop("args", {}).items()}
    for name, value in {"image": found.image, **{f"build.{name}": build[name] for name in build}, **args}.items():
        if value and (variable := _VARIABLE.search(value)):
            raise DevcontainerError(f"{path}: {name}: variables such as {variable[0]} are not filled in")


def _of_build(build: _Build, path: Path) -> ImageSource:
    folder = path.resolve().parent
    root = folder if path.name.startswith(".") else _root_of(folder)
    for name, value in (("dockerfile", build.dockerfile), ("context", build.context)):
        if not (folder / value).resolve().is_relative_to(root):
            raise DevcontainerError(f"{path}: build.{name}: {value} lies outside of {root}")
    return source_of_dockerfile(folder / build.dockerfile, context=folder / build.context, args=build.args)


def _root_of(folder: Path) -> Path:
    """Return the repository of a devcontainer.json in `.devcontainer/` or a directory below it."""
    for place in (folder, folder.parent):
        if place.name == ".devcontainer":
            return place.parent
    return folder
