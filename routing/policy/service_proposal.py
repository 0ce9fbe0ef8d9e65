"""Proposes services and install scripts from what lies in a repository, as comments in the project's file.

None of it counts until a person removes the mark. A pure function, which runs and reads nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import yaml
from pydantic import TypeAdapter, ValidationError

from routing.policy.project import NpmPackage
from routing.policy.services import MAX_SERVICES, OfferedService, ServiceName, Variables

COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
VARIABLE_FILES = (".env.example", ".env.sample", ".env.template")
OPTIONAL_FILES = (*COMPOSE_FILES, *VARIABLE_FILES, "package-lock.json")
"""They are read beside `READ_FILES`, and passed over where they are too large or cannot be parsed."""

_BY_VARIABLE = {
    "postgresql": re.compile(r"^(?:export )?(?:POSTGRES_\w+|PGHOST)=|=\s*[\"']?postgres(?:ql)?(?:\+\w+)?://", re.M),
    "redis": re.compile(r"^(?:export )?REDIS_\w+=|=\s*[\"']?rediss?://", re.M),
}
"""By offer as shipped: what shows in a file of variables that it is needed. Values are not looked at further."""
_HOSTS = {"postgresql": "db", "redis": "cache"}
_PLAIN_VARIABLE = re.compile(r"\w+_(?:DB|DATABASE|USER)")
"""Variables of a compose file whose values are proposed, too; all others may be secrets."""
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_-]{1,63}")
_NATIVE_TEXT = """
@parcel/watcher @prisma/client @prisma/engines @swc/core argon2 bcrypt better-sqlite3 canvas cypress electron esbuild
node-sass playwright prisma puppeteer re2 sharp sqlite3
"""
_NATIVE = frozenset(_NATIVE_TEXT.split())
"""Packages that are known to need their install scripts, for a project without npm's lock."""
_MAX_SCRIPTS = 50
_MAX_NOTES = 5
_NAME, _PACKAGE, _ENV = TypeAdapter[str](ServiceName), TypeAdapter[str](NpmPackage), TypeAdapter[Any](Variables)


class Found(NamedTuple):
    """What a project may need beside its stack and commands; nothing of it counts by itself."""

    services: Mapping[str, Mapping[str, Any]]
    """By host name, as in the project's file."""
    scripts: tuple[str, ...]
    """npm packages with install scripts."""
    notes: tuple[str, ...]


def find_needs(files: Mapping[str, str], offered: Mapping[str, OfferedService]) -> Found:
    """Return what files of a repository show that its tests and packages need, as far as it is offered.

    Args:
        files: contents of those of `OPTIONAL_FILES`, and of package.json, that are there.
        offered: the operator's services.
    """
    services: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    for name, service in _compose_services(files):
        image = _image_name(str(service.get("image", "")))
        offer = next((key for key, one in offered.items() if image and _image_name(one.image) == image), None)
        if offer is not None and _fits(_NAME, name):
            services[name] = {"image": offer, **_plain_env(service)}
        elif image:
            notes.append(f"service {name!a} of the compose file ({image!a}) is not offered here by that name")
    if not services:
        text = "\n".join(files.get(name, "") for name in VARIABLE_FILES)
        shown = (offer for offer, pattern in _BY_VARIABLE.items() if offer in offered and pattern.search(text))
        services = {_HOSTS[offer]: {"image": offer} for offer in shown}
    if len(services) > MAX_SERVICES:
        notes.append(f"of its {len(services)} services a box gets {MAX_SERVICES} at most")
    return Found(services, _scripts(files), tuple(notes[:_MAX_NOTES]))


def needs_text(services: Mapping[str, Mapping[str, Any]]) -> str:
    """Return lines that propose services, as comments."""
    if not services:
        return ""
    shown = yaml.safe_dump(dict(services), default_flow_style=None, sort_keys=False, width=1000)
    lines = "".join(f"#   {line}\n" for line in shown.splitlines())
    return f"# Its tests seem to need these; remove the # and each box gets its own, empty ones.\n# services:\n{lines}"


def scripts_text(scripts: Collection[str]) -> str:
    """Return the line that proposes install scripts, as a comment within `commands`."""
    if not scripts:
        return ""
    names = yaml.safe_dump(list(scripts), default_flow_style=True, width=10_000).strip()
    return f"  # scripts: {names}  # have install scripts; none runs in a box unless it is listed here\n"


def _compose_services(files: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    text = next((files[name] for name in COMPOSE_FILES if name in files), "")
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    services = found.get("services") if isinstance(found, dict) else None
    for name, service in services.items() if isinstance(services, dict) else ():
        if isinstance(service, dict):
            yield str(name), service


def _image_name(reference: str) -> str:
    """Return an image's own name: `postgres` of `docker.io/library/postgres:16@sha256:...`."""
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _plain_env(service: Mapping[str, Any]) -> dict[str, Any]:
    given = service.get("environment")
    if isinstance(given, list):
        given = dict(str(entry).partition("=")[::2] for entry in given)
    pairs = {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
    env = {k: v for k, v in pairs.items() if _PLAIN_VARIABLE.fullmatch(k) and _PLAIN_VALUE.fullmatch(v)}
    return {"env": env} if env and _fits(_ENV, env) else {}


def _scripts(files: Mapping[str, str]) -> tuple[str, ...]:
    package, lock = _object(files.get("package.json", "")), _object(files.get("package-lock.json", ""))
    locked = lock.get("packages")
    found = set()
    for path, one in locked.items() if isinstance(locked, dict) else ():
        if isinstance(one, dict) and one.get("hasInstallScript") and "node_modules/" in path:
            found.add(path.rpartition("node_modules/")[2])
    if not isinstance(locked, dict):
        tables = (package.get(name) for name in ("dependencies", "devDependencies"))
        found = {name for table in tables if isinstance(table, dict) for name in table} & _NATIVE
    pnpm = package.get("pnpm")
    lists = (package.get("trustedDependencies"), pnpm.get("onlyBuiltDependencies") if isinstance(pnpm, dict) else None)
    found |= {str(name) for names in lists if isinstance(names, list) for name in names}
    return tuple(sorted(name for name in found if _fits(_PACKAGE, name)))[:_MAX_SCRIPTS]


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _fits(rule: TypeAdapter[Any], value: object) -> bool:
    try:
        rule.validate_python(value)
    except ValidationError:
        return False
    return True
