"""Reads the operator's registries from npm's and pip's configuration at run time: this repository names no host.

Without npm, as in a container, an npmrc file of the operator's is read instead. npm does not print credentials: they
are read from the two npmrc files that it names, and stay in this process.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sandbox.config import MirrorConfig
from sandbox.errors import RegistryConfigError

_SECONDS = 60
_MAX_NPMRC_BYTES = 256 * 1024
_SCOPE_KEY = re.compile(r"(@[^:/\s]+):registry")
_VARIABLE = re.compile(r"(?<!\\)\$\{([^}]+)\}")


@dataclass(frozen=True)
class Registries:
    """The operator's registries."""

    default: str
    """A URL that ends with a slash."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """Registries of scopes (`@acme`)."""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Authorization headers by `//host/path/`, as npm scopes them."""
    ca_file: Path | None = None
    python: str | None = None
    """The simple index of Python packages: a URL that ends with a slash; None for none."""
    python_ca_file: Path | None = None
    python_files: frozenset[str] = frozenset()
    """Hosts of the index's files that are trusted at a private address, over https."""

    @property
    def npm_urls(self) -> tuple[str, ...]:
        """Every registry of npm packages."""
        return (self.default, *self.scopes.values())

    @property
    def urls(self) -> tuple[str, ...]:
        """Every registry."""
        return self.npm_urls if self.python is None else (*self.npm_urls, self.python)

    @property
    def origins(self) -> frozenset[tuple[str, int]]:
        """Host and port of every registry, which are trusted even at a private address."""
        return frozenset((*(host_of(url) for url in self.urls), *((host, 443) for host in self.python_files)))

    def registry_of(self, name: str) -> str:
        """Return the registry of a package."""
        return self.scopes.get(name.partition("/")[0], self.default) if name.startswith("@") else self.default

    def authorization_of(self, url: str) -> str | None:
        """Return the operator's credential for a URL, by the longest matching path."""
        parts = urlsplit(url)
        path = parts.path.rpartition("/")[0]
        while True:
            credential = self.credentials.get(f"//{parts.netloc}{path}/")
            if credential is not None or not path:
                return credential
            path = path.rpartition("/")[0]


def host_of(url: str) -> tuple[str, int]:
    """Return the host and port of a URL.

    Raises:
        ValueError: it has none.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http or https URL with a host")
    return parts.hostname.rstrip("."), parts.port or (443 if parts.scheme == "https" else 80)


def read_registries(npm: str, environment: Mapping[str, str], *, npmrc: Path | None = None) -> Registries:
    """Read the registries from npm, or from an npmrc.

    Raises:
        RegistryConfigError: the operator's fault.
    """
    if npmrc is not None:
        return _read_npmrc(npmrc, environment)
    try:
        settings = _printed([npm, "config", "list", "--json"], environment)
    except OSError as error:
        raise RegistryConfigError(f"{npm} cannot be run: {error.strerror}; it says which registry to use") from None
    except (subprocess.SubprocessError, ValueError):
        raise RegistryConfigError(f"`{npm} config list --json` failed") from None
    if not isinstance(settings, dict):
        raise RegistryConfigError(f"`{npm} config list --json` printed no object")
    files = [settings.get(name) for name in ("globalconfig", "userconfig")]
    return parse_registries(settings, [_read(Path(file)) for file in files if isinstance(file, str)], environment)


def _read_npmrc(path: Path, environment: Mapping[str, str]) -> Registries:
    text = _read(path)
    settings = _entries(text, environment)
    if "registry" not in settings:
        raise RegistryConfigError(f"{path} cannot be read, or has no line `registry=URL`")
    return parse_registries(settings, [text], environment)


def parse_registries(settings: Mapping[str, Any], npmrcs: Iterable[str], environment: Mapping[str, str]) -> Registries:
    """Parse npm's settings.

    `npmrcs` are texts of npm's files, in order of increasing precedence, with values of `environment` as `${NAME}`.

    Raises:
        RegistryConfigError: the operator's fault.
    """
    scopes = {found[1]: _registry(value) for key, value in settings.items() if (found := _SCOPE_KEY.fullmatch(key))}
    ca_file = settings.get("cafile")
    entries: dict[str, str] = {}
    for text in npmrcs:
        entries |= _entries(text, environment)
    return Registries(
        default=_registry(settings.get("registry")),
        scopes=scopes,
        credentials=_credentials(entries),
        ca_file=Path(ca_file) if isinstance(ca_file, str) and ca_file else None,
    )


def _registry(value: Any) -> str:
    try:
        host_of(value)
    except (ValueError, AttributeError, TypeError):
        raise RegistryConfigError("npm names a registry that is not an http or https URL") from None
    parts = urlsplit(value)
    if parts.username or parts.query or parts.fragment:
        raise RegistryConfigError("npm names a registry with credentials or a query in its URL: use _authToken instead")
    return f"{value.rstrip('/')}/"


def _entries(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if "=" in stripped and not stripped.startswith((";", "#")):
            key, _, value = stripped.partition("=")  # only the value of a credential may hold another `=`
            plain = value.strip().strip("\"'")
            found[key.strip()] = _VARIABLE.sub(lambda match: environment.get(match[1].rstrip("?"), ""), plain)
    return found


def _credentials(entries: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in entries.items():
        place, _, kind = key.rpartition(":")
        if not place.endswith("/") or not value.isprintable():
            continue
        if kind == "_authToken":
            found[place] = f"Bearer {value}"
        elif kind == "_auth":
            found.setdefault(place, f"Basic {value}")
        elif kind == "_password" and (user := entries.get(f"{place}:username")):
            found.setdefault(place, _basic(user, value))
    return found


def _basic(user: str, encoded: str) -> str:
    try:
        password = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise RegistryConfigError("npm's _password must be base64") from None
    return "Basic " + base64.b64encode(user.encode() + b":" + password).decode()


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_NPMRC_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""  # npm ignores a missing file, too


_PIP = """
import json, sys
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI
settings = Configuration(isolated=False)
settings.load()
found = {}
for section in ("global", "download", ":env:"):
    for name in ("index-url", "cert"):
        try:
            found[name] = settings.get_value(f"{section}.{name}")
        except Exception:
            pass
json.dump({"index-url": PyPI.simple_url, **found}, sys.stdout)
"""
"""Asks pip as pip itself does: its default index is in no file."""


def read_all(config: MirrorConfig, environment: Mapping[str, str]) -> Registries:
    """Read the registries of npm packages, and the index of Python packages from the setting or from pip.

    Raises:
        RegistryConfigError: the operator's fault.
    """
    registries = read_registries(config.npm, environment, npmrc=config.npmrc)
    given = config.python_index.get_secret_value()
    settings = {"index-url": given} if given else _pip_settings(environment)
    return with_python(replace(registries, python_files=config.python_files), settings)


def with_python(registries: Registries, settings: Mapping[str, str]) -> Registries:
    """Return the registries with pip's `index-url` and `cert`; unchanged without an index.

    Raises:
        RegistryConfigError: the operator's fault; does not repeat the URL, which may hold a password.
    """
    url = settings.get("index-url", "").rstrip("/")
    if not url:
        return registries
    try:
        host_of(url)
        parts = urlsplit(url)
    except ValueError:
        raise RegistryConfigError("the index of Python packages is not an http or https URL") from None
    if parts.query or parts.fragment:
        raise RegistryConfigError("the index of Python packages has a query in its URL")
    place = parts.netloc.rpartition("@")[2]
    credentials = dict(registries.credentials)
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials.setdefault(f"//{place}/", "Basic " + base64.b64encode(user.encode()).decode())
    cert = settings.get("cert")
    return replace(
        registries,
        credentials=credentials,
        python=f"{parts.scheme}://{place}{parts.path}/",
        python_ca_file=Path(cert) if cert else None,
    )


def _pip_settings(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return pip's index and certificates; nothing where there is no pip, as in a container."""
    try:
        settings: dict[str, str] = _printed([sys.executable, "-c", _PIP], environment)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return settings


def _printed(command: Sequence[str], environment: Mapping[str, str]) -> Any:
    """Return the JSON that a command prints."""
    done = subprocess.run(
        command, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
    )
    return json.loads(done.stdout)


def check_mirror(npm: str, environment: Mapping[str, str], *, npmrc: Path | None = None) -> Iterator[tuple[str, str]]:
    """Yield the mirror's requirements for `pointsman doctor`, each with what to do, without contacting a registry."""
    try:
        read_registries(npm, environment, npmrc=npmrc)
        yield "package registry", ""
    except RegistryConfigError as error:
        yield "package registry", f"{error}; without it boxes and builds get no packages"
