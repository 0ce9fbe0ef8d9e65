"""Which server a user's commands speak to: profiles, which `pointsman login` writes, and the environment.

It imports little: a command at a terminal reads it at its start.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from producers.errors import ServerChoiceError

URL, KEY, PROFILE = "POINTSMAN_URL", "POINTSMAN_KEY", "POINTSMAN_PROFILE"
VARIABLES = frozenset({URL, KEY, PROFILE})
"""Variables of users' commands; all others that begin with `POINTSMAN_` are settings of an installation."""
DEFAULT_PROFILE = "default"
LOCAL = "local"
"""No profile: the installation of the environment, or the running `pointsman up`."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


PREFIX = "POINTSMAN_"
INHERITED_SETTINGS = tuple(f"{PREFIX}{group}__" for group in ("BOX", "TRACING", "ACCOUNTS", "RUNS"))
"""The only settings that `pointsman up` takes from its environment: these groups."""


class Server(NamedTuple):
    """An API, and the key that names the tenant and who acts."""

    url: str
    key: str
    origin: str
    """What chose it, for messages."""


def checked_server(url: str, key: str, *, origin: str) -> Server:
    """Return a server whose URL and key have the right form.

    Raises:
        ServerChoiceError: the user's fault; the message does not repeat the key.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or parts.username is not None or parts.query or parts.fragment or not _PRINTABLE.fullmatch(url):
        raise ServerChoiceError(f"{origin}: the URL must be like https://pointsman.example.com, without user or query")
    if not _PRINTABLE.fullmatch(key):
        raise ServerChoiceError(f"{origin}: the key must be one printable word without spaces")
    return Server(url.rstrip("/"), key, origin)


def chosen_server(environment: Mapping[str, str]) -> Server | None:
    """Return the server that environment or profile choose; None for an installation of this machine.

    In this order: POINTSMAN_URL with POINTSMAN_KEY, POINTSMAN_PROFILE, an installation's settings, the default profile.

    Raises:
        ServerChoiceError: the user's fault.
    """
    if environment.get(URL) or environment.get(KEY):
        if not (environment.get(URL) and environment.get(KEY)):
            raise ServerChoiceError(f"{URL} and {KEY} are needed together")
        return checked_server(environment[URL], environment[KEY], origin=f"{URL} and {KEY}")
    name = environment.get(PROFILE, "")
    if name == LOCAL or (not name and configures_installation(environment)):
        return None
    path = profile_path(environment, name or DEFAULT_PROFILE)
    try:
        stored = json.loads(path.read_text())
        return checked_server(str(stored["url"]), str(stored["key"]), origin=f"profile {name or DEFAULT_PROFILE}")
    except FileNotFoundError:
        if not name:
            return None
        how = f"`pointsman --profile {name} login URL` makes it"
        raise ServerChoiceError(f"there is no profile {name!r}; {how}") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ServerChoiceError(f"{path} cannot be read as a profile; log in again") from None


def profile_path(environment: Mapping[str, str], name: str) -> Path:
    """Return the file of a profile (XDG base directories).

    Raises:
        ServerChoiceError: the user's fault: the name breaks its rule.
    """
    if name == LOCAL or not _NAME.fullmatch(name):
        raise ServerChoiceError(
            f"a profile's name must be letters, digits, '.', '_' or '-', at most 64, and not {LOCAL!r}"
        )
    base = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "/root")) / ".config"
    return Path(base) / "pointsman" / "profiles" / f"{name}.json"


def write_profile(path: Path, server: Server) -> None:
    """Write a profile that only this account can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, json.dumps({"url": server.url, "key": server.key}))


def write_private(path: Path, text: str) -> None:
    """Write a file that only this account can read, replacing one that is there."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    new.replace(path)


def configures_installation(environment: Mapping[str, str]) -> bool:
    """Whether an environment has settings of an installation.

    What `pointsman up` takes from its own environment does not count: a shell has it for `pointsman up` itself.
    """
    return any(
        name.startswith(PREFIX) and name not in VARIABLES and not name.startswith(INHERITED_SETTINGS)
        for name in environment
    )


def state_home(environment: Mapping[str, str]) -> Path:
    """Return the directory for what programs of one account remember (XDG base directories)."""
    base = environment.get("XDG_STATE_HOME") or Path(environment.get("HOME", "/root")) / ".local" / "state"
    return Path(base) / "pointsman"


def up_path(environment: Mapping[str, str]) -> Path:
    """Return the file by which a running `pointsman up` tells other commands of this account about itself."""
    return state_home(environment) / "up.json"


def running_up(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a running `pointsman up`, and its URL and key; empty if none runs or others are given."""
    if configures_installation(environment):
        return {}
    try:
        settings: dict[str, str] = json.loads(up_path(environment).read_text())
    except (OSError, ValueError):
        return {}
    return settings


def with_up_file(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return an installation's environment, completed from a running `pointsman up` if it configures none."""
    found = {**environment, **running_up(environment)}
    return {name: value for name, value in found.items() if name not in VARIABLES}
