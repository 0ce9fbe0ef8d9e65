"""Settings of the content store and of preview links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from routing.config import Section

_SECRET = re.compile("secret|token|password|access_key|customer_key|(^|_)key$|(^|_)sas")
_PLACES = ("_file", "_url", "_uri")
_NAME = re.compile("[a-z0-9_]{1,64}")
_USER = re.compile("//[^/?#]*@")
_SCHEMES = ("s3", "gs", "az")


class ContentStoreConfig(Section):
    """Where site files are."""

    root: Path = Path(".pointsman/content-store")
    """A directory that workers, API and command line share. With `url` it is each host's own: for the cache."""
    url: str = ""
    """Where the files are if not below `root`: `s3://BUCKET/PREFIX`, `gs://...` or `az://...`. Needs the extra `s3`."""
    options: Mapping[str, str] = Field(default={}, repr=False)
    """Of the object store, by obstore's names: `region`, `endpoint`, ... What is in neither `options` nor `secrets` is
    looked for in the provider's usual environment."""
    secrets: Mapping[str, SecretStr] = {}
    """Likewise, what nobody may see: `access_key_id`, `secret_access_key`, ..."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=300)
    """Of one request to the object store, and for trying a failed one again."""
    cache_bytes: int = Field(default=2**30, ge=0)
    """The most that a host keeps of the object store's files below `root`; the least recently used go first."""
    projection: bool | None = None
    """Whether each release is laid out below `root` for web servers; if unset, where there is no `url`. Pages are
    served either way. With `url`, workers of `control`, API and dispatchers must share `root` for it."""

    @property
    def projects(self) -> bool:
        """Whether releases are laid out."""
        return not self.url if self.projection is None else self.projection

    @model_validator(mode="after")
    def _check_place(self) -> ContentStoreConfig:
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in _SCHEMES or not parts.hostname):
            raise ValueError("url: must be s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("url: must name a bucket and a prefix, and nothing else")
        hidden = {name: secret.get_secret_value() for name, secret in self.secrets.items()}
        for name, value in (*self.options.items(), *hidden.items()):
            if not _NAME.fullmatch(name):
                raise ValueError("options, secrets: names are lower-case words with _")
            if not value.isprintable() and not value.startswith("{"):  # a key of Google's is JSON of several lines
                raise ValueError(f"options, secrets: {name} holds a line break or another control character")
        if told := next((name for name, value in self.options.items() if _USER.search(value)), None):
            raise ValueError(f"options: {told} must hold no user or password")
        if told := next((name for name in self.options if _SECRET.search(name) and not name.endswith(_PLACES)), None):
            raise ValueError(f"options: {told} belongs into secrets, which are never shown")
        if not self.url and (self.options or self.secrets):
            raise ValueError("url: must be given where options or secrets are")
        return self


class PreviewConfig(Section):
    """How preview links are signed."""

    keys: tuple[Annotated[SecretStr, Field(min_length=32)], ...] = Field(default=(), max_length=5)
    """Secrets of at least 32 characters, newest first: the first signs, all verify, so that keys can be rotated."""
