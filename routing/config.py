"""Wiring and secrets come from the environment as `POINTSMAN_<SECTION>__<FIELD>`; this reads them, strictly.

A misspelt name would silently leave a default in force, so every `POINTSMAN_` name has to be known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, SecretStr, ValidationError

from routing.errors import PolicyError

PREFIX = "POINTSMAN_"
SECTIONS = frozenset(
    {"api", "audit", "box", "broker", "den", "dispatcher", "exporter", "gateway", "ledger", "logs", "pages", "policy"}
    | {"mirror", "preview"}
    | {"rehearsal", "runs", "webhook", "worker"}
)
"""Every section of the product. A program reads those that it needs."""


InOrder = PlainSerializer(sorted, return_type=list[str], when_used="json")
"""For sets of words: they are written in one order, or every process would have another version of the same policy."""


class Section(BaseModel):
    """Base of all configuration sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class BrokerConfig(Section):
    """Where the broker is."""

    url: str = "redis://127.0.0.1:6379/0"
    """A Redis or Valkey URL. Its `maxmemory-policy` has to be `noeviction`."""


OptionalPath = Annotated[Path | None, BeforeValidator(lambda value: value or None)]
"""A path, or nothing when the variable is empty."""


class PolicyConfig(Section):
    """Which policy holds."""

    path: OptionalPath = None
    """An installation's own copy of routing/platform.yaml; empty for the shipped one."""
    vocabulary: OptionalPath = None
    """A YAML file of words for the groups of routing/vocabulary.yaml, read over the shipped one; or a directory of such
    files, `all.yaml` for every project and `PROJECT.yaml` for one. Empty for none."""


SettingsT = TypeVar("SettingsT", bound=BaseModel)


def read_settings(model: type[SettingsT], environ: Mapping[str, str]) -> SettingsT:
    """Build a program's settings from environment variables.

    Args:
        model: a frozen model whose fields are sections.
        environ: the environment.

    Raises:
        PolicyError: the operator's fault; it names the variable and the rule, and repeats no value.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX):
            continue
        section, _, field = name.removeprefix(PREFIX).lower().partition("__")
        if section not in SECTIONS or not field:
            raise PolicyError(f"{name} is no setting of Pointsman; the form is {PREFIX}<SECTION>__<FIELD>")
        if section in model.model_fields and not _put(found.setdefault(section, {}), field.split("__"), value):
            raise PolicyError(f"{name} and another variable contradict each other: one is a part of the other")
    try:
        return model.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise PolicyError(f"{PREFIX}{'__'.join(str(p) for p in first['loc']).upper()}: {first['msg']}") from None


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a program of others: without Pointsman's own variables, secrets among them."""
    return {name: value for name, value in environ.items() if not name.startswith(PREFIX)}


def secrets_of(settings: BaseModel) -> tuple[str, ...]:
    """Return the secrets that a program holds: secret settings, and of those that are URLs the password alone.

    The scan looks for them in what would be published (notes: threat C9).
    """
    found: set[str] = set()
    for _, value in settings:
        if isinstance(value, BaseModel):
            found.update(secrets_of(value))
        for item in _parts(value):
            if isinstance(item, BaseModel) and item is not value:
                found.update(secrets_of(item))
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
    try:
        password = urlsplit(url).password
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()


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
    """Lists and mappings are given as JSON; everything else is taken as it stands."""
    if not value.startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
