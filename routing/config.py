"""Settings from the environment (`POINTSMAN_<SECTION>__<FIELD>`), and secrets removed from text.

Reading is strict: a misspelt name would silently leave a default in force, so an unknown `POINTSMAN_` name is an error.
A secret belongs in a file, because anyone who can inspect a process sees its environment: the same name with `_FILE`
appended names that file.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationError,
    model_validator,
)

from routing.errors import PolicyError


def key_fingerprint(key: str, *, pepper: str) -> str:
    """Return a short keyed hash that identifies a key without revealing it (S-064, P-037)."""
    return hmac.new(pepper.encode(), key.encode(), hashlib.sha256).hexdigest()[:16]


PREFIX = "POINTSMAN_"
IN_FILE = "_FILE"
"""Suffix of a variable that names a file with the value. No field may end so."""
_MAX_FILE_BYTES = 65_536
SECTIONS = frozenset(
    {
        "accounts",
        "api",
        "audit",
        "box",
        "broker",
        "cells",
        "content_store",
        "dispatcher",
        "exporter",
        "gateway",
        "ledger",
        "logs",
    }
    | {"mirror", "oidc", "pages", "policy", "preview", "fake_provider", "runs", "tracing", "webhook", "worker"}
)
"""All sections; each program reads those that it needs."""

InOrder = PlainSerializer(sorted, return_type=list[str], when_used="json")
"""Serializes a set in one order, so that every process computes the same policy version."""


class Section(BaseModel):
    """Base of the configuration sections, and of what people write into files: a misspelt name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


OptionalPath = Annotated[Path | None, BeforeValidator(lambda value: value or None)]
"""A path, or None for an empty variable."""


class BrokerConfig(Section):
    """Where the broker is."""

    url: str = "redis://127.0.0.1:6379/0"
    """A Redis or Valkey URL, `rediss://` for TLS. Its `maxmemory-policy` must be `noeviction`."""
    ca_path: OptionalPath = None
    """A PEM file of the broker's certificate authority; empty for those that the system trusts. The certificate and its
    name are always checked."""
    cert_path: OptionalPath = None
    """A PEM file of the client certificate, if the broker asks for one."""
    key_path: OptionalPath = None
    """The client certificate's key."""
    shared_intake: bool = True
    """Whether messages on the queue `intake` may name their tenant. Otherwise Celery clients can submit only to their
    tenant's queue, `intake.TENANT`, and the broker's users decide who may write there."""

    @property
    def tls(self) -> dict[str, Any]:
        """TLS settings of a broker client; empty without TLS."""
        if not self.url.startswith("rediss:"):
            return {}
        paths = {"ssl_ca_certs": self.ca_path, "ssl_certfile": self.cert_path, "ssl_keyfile": self.key_path}
        given = {name: str(path) for name, path in paths.items() if path is not None}
        return {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True, **given}

    @model_validator(mode="after")
    def _check_tls(self) -> BrokerConfig:
        """Refuse contradictions and missing files here, where the error can name the setting."""
        if not self.url.startswith(("redis://", "rediss://")):
            raise ValueError("url: must begin with redis:// or rediss://")
        if "ssl_" in self.url.partition("?")[2]:
            raise ValueError("url: must not say how TLS is checked; it always is, with ca_path, cert_path and key_path")
        paths = (self.ca_path, self.cert_path, self.key_path)
        if any(paths) and not self.url.startswith("rediss://"):
            raise ValueError("url: must begin with rediss:// where ca_path, cert_path or key_path is given")
        if missing := [str(path) for path in paths if path is not None and not path.is_file()]:
            raise ValueError(f"there is no file {missing[0]}")
        return self


class CellSecrets(Section):
    """What opens another cell's servers: the directory has their addresses without it."""

    ledger: SecretStr = Field(default=SecretStr(""), validate_default=False)
    """Password of its ledger's URL, which who moves tenants needs; empty for libpq's own ways, as a password file."""
    broker: SecretStr = Field(default=SecretStr(""), validate_default=False)
    """Password of its broker's URL, which a dispatcher that forwards Celery messages needs."""
    content_store: dict[str, SecretStr] = Field(default_factory=dict)
    """As `POINTSMAN_CONTENT_STORE__SECRETS` there, for who moves tenants."""


def split_password(url: str) -> tuple[str, str]:
    """Return a server's URL without the password, and that; empty where it has none."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    asked = parse_qsl(parts.query, keep_blank_values=True)
    named = next((value for name, value in asked if name == "password"), "")
    query = urlencode([pair for pair in asked if pair[0] != "password"], safe="/:,") if named else parts.query
    if not password and not named:
        return url, ""
    place = f"{user}{at}{hosts}" if user or hosts else ""
    rest = parts._replace(scheme="", netloc="", query=query).geturl()
    return f"{parts.scheme}://{place}{rest}", unquote(password) or named


def with_password(url: str, password: str) -> str:
    """Return a server's URL with another password, or as it is without one."""
    if not password:
        return url
    parts = urlsplit(split_password(url)[0])
    user, _, hosts = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{hosts}").geturl()


class PolicyConfig(Section):
    """The policy in force."""

    path: OptionalPath = None
    """An installation's own copy of routing/policy/platform.yaml; empty for the shipped one."""
    vocabulary: OptionalPath = None
    """A YAML file of words that extends routing/prompt/vocabulary.yaml, or a directory of such files: `all.yaml` for
    every project, `PROJECT.yaml` for one. Empty for none."""


SettingsT = TypeVar("SettingsT", bound=BaseModel)


def read_settings(model: type[SettingsT], environ: Mapping[str, str]) -> SettingsT:
    """Build a program's settings, a model whose fields are sections, from environment variables.

    Raises:
        PolicyError: the operator's fault; names variable and rule, and repeats no value.
    """
    found: dict[str, dict[str, Any]] = {}
    names: dict[tuple[str, ...], str] = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX):
            continue
        section, _, field = name.removeprefix(PREFIX).removesuffix(IN_FILE).lower().partition("__")
        if section not in SECTIONS or not field:
            raise PolicyError(f"{name} is no setting of Pointsman; the form is {PREFIX}<SECTION>__<FIELD>")
        if section not in model.model_fields or not (value or not name.endswith(IN_FILE)):
            continue
        place = (section, *field.split("__"))
        if place in names:
            raise PolicyError(f"{name} and {names[place]} set the same: give one of them")
        names[place] = name
        stated = _read_file(name, Path(value)) if name.endswith(IN_FILE) else value
        if not _put(found.setdefault(section, {}), list(place[1:]), stated):
            raise PolicyError(f"{name} and another variable contradict each other: one is a part of the other")
    try:
        return model.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = tuple(str(part) for part in first["loc"])
        raise PolicyError(f"{_name_of(place, names)}: {first['msg']}") from None


def _name_of(place: tuple[str, ...], names: Mapping[tuple[str, ...], str]) -> str:
    """Return the variable that sets a place."""
    return names.get(place, f"{PREFIX}{'__'.join(place).upper()}")


def _read_file(name: str, path: Path) -> str:
    """Return a file's text without the final line end.

    Raises:
        PolicyError: the operator's fault; repeats neither the value nor the path, which may be a misplaced secret.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode().rstrip("\r\n")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a path, or what it holds is not UTF-8"
        raise PolicyError(f"{name}: the file that it names cannot be read: {why}") from None
    if not text or len(data) > _MAX_FILE_BYTES:
        raise PolicyError(
            f"{name}: the file that it names must hold 1 to {_MAX_FILE_BYTES} bytes, the line end not counted"
        )
    return text


def strip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a third-party program: without Pointsman's variables and their secrets."""
    return {name: value for name, value in environ.items() if not name.startswith(PREFIX)}


def collect_secrets(settings: BaseModel) -> tuple[str, ...]:
    """Return the secrets in a program's settings, of URLs the password alone, for the scan of releases (threat C9)."""
    found: set[str] = set()
    for _, value in settings:
        if isinstance(value, BaseModel):
            found.update(collect_secrets(value))
        for item in _parts(value):
            if isinstance(item, BaseModel) and item is not value:
                found.update(collect_secrets(item))
            text = item.get_secret_value() if isinstance(item, SecretStr) else item
            if isinstance(text, str) and "://" in text:
                found.update(_password_of(text))
            elif isinstance(item, SecretStr) and text:
                found.add(text)
    return tuple(sorted(found))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, tuple) else (value,)


def _password_of(url: str) -> set[str]:
    """Return a URL's password, plain and as it may stand in a URL."""
    try:
        stated, password = urlsplit(url).password, split_password(url)[1]
    except ValueError:
        return set()
    return {form for form in (stated, password, quote(password, safe="")) if form}


def _put(target: dict[str, Any], path: list[str], value: str) -> bool:
    """Put a value in its place; False when another variable gives that place another shape."""
    for part in path[:-1]:
        below = target.setdefault(part, {})
        if not isinstance(below, dict):
            return False
        target = below
    if isinstance(target.get(path[-1]), dict):
        return False
    target[path[-1]] = _decode(value)
    return True


def _decode(value: str) -> Any:
    """Return a JSON list or mapping decoded, any other value as it is."""
    if not value.startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""NUL and lone surrogates, which PostgreSQL cannot store."""


def check_text(text: str) -> str:
    """Return `text` if the ledger can store it.

    Raises:
        ValueError: the caller's fault; the message states the rule.
    """
    if UNSTORABLE.search(text):
        raise ValueError("must be valid Unicode text without NUL")
    return text


Text = Annotated[str, AfterValidator(check_text)]
