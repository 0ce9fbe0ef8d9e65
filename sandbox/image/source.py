"""What an operator may choose to build a project's image from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.errors import SandboxError


class ImageSourceError(SandboxError, ValueError):
    """What was chosen cannot be built from (the operator's fault)."""


@dataclass(frozen=True)
class ImageSource:
    """One of three: a Dockerfile with its context, an image, or packages of this machine's sources."""

    dockerfile: Path | None = None
    """Within `context`."""
    context: Path | None = None
    args: Mapping[str, str] = field(default_factory=dict)
    base: str | None = None
    packages: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.dockerfile is not None:
            return f"dockerfile:{self.dockerfile.name}"
        return f"image:{self.base}" if self.base is not None else f"packages:{','.join(self.packages)}"


def source_of_dockerfile(dockerfile: Path, *, context: Path | None, args: Mapping[str, str]) -> ImageSource:
    """Return a Dockerfile with its context, by default its directory.

    Raises:
        ImageSourceError: one of them is not there, or the Dockerfile is outside of its context.
    """
    file, folder = dockerfile.resolve(), (context or dockerfile.parent).resolve()
    if not file.is_file():
        raise ImageSourceError(f"{dockerfile}: there is no such Dockerfile")
    if not folder.is_dir():
        raise ImageSourceError(f"{folder}: there is no such directory to build in")
    if not file.is_relative_to(folder):
        raise ImageSourceError(f"{dockerfile}: lies outside of the directory to build in, {folder}")
    return ImageSource(dockerfile=file, context=folder, args=dict(args))
