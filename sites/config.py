"""Settings of the content store and of preview links."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from routing.config import Section


class ContentStoreConfig(Section):
    """Where site files are."""

    root: Path = Path(".pointsman/content-store")
    """A directory that workers, API and command line share."""


class PreviewConfig(Section):
    """How preview links are signed."""

    keys: tuple[SecretStr, ...] = Field(default=(), max_length=5)
    """Secrets, newest first: the first signs, all verify, so that keys can be rotated."""
