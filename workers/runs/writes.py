"""Who may write where, and whether two steps could ever write the same file (ruling A17, S-047).

The rules are those of routing.path_rules. Parallel steps merge without conflict because no file is covered by rules of
both; that is decided here, on the rules, before anything runs. Names are compared as the strictest file system would:
`src/App/` and `src/app/` are one directory to some.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from routing.path_rules import ARTIFACTS
from sandbox.paths import collision_key

HANDOFFS = "artifacts/handoff/"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,80}")


class Overlap(NamedTuple):
    """Two rules that some file is covered by both of."""

    first: str
    second: str


def narrows(rule: str, wider: str) -> bool:
    """Tell whether `wider` covers every file that `rule` covers."""
    if wider.startswith("*"):
        suffix = wider[1:]
        return not rule.startswith(ARTIFACTS) and not rule.endswith("/") and rule.endswith(suffix)
    if wider.endswith("/"):
        return not rule.startswith("*") and rule.startswith(wider)
    return rule == wider


def find_overlap(one: Sequence[str], other: Sequence[str]) -> Overlap | None:
    """Return the first rule of `one` and of `other` that cover a file both, or None where no file could be."""
    folded = [collision_key(rule) for rule in other]
    for mine in one:
        key = collision_key(mine)
        for its, its_key in zip(other, folded, strict=True):
            if _meet(key, its_key) and not (_spares(mine, its) or _spares(its, mine)):
                return Overlap(mine, its)
    return None


def handoff_path(sender: str, receiver: str) -> str:
    """Return where the handoff document of one agent or step to another lies (S-050).

    Raises:
        ValueError: our fault; a name that could lead out of the directory.
    """
    for name in (sender, receiver):
        if not _NAME.fullmatch(name) or "-to-" in name:
            raise ValueError("a handoff is named after two agents or steps: a-z, 0-9, - and _, without -to-")
    return f"{HANDOFFS}{sender}-to-{receiver}.md"


def _spares(suffix: str, rule: str) -> bool:
    """Whether a suffix rule keeps out of where the other lies: documents belong to the agent of their directory."""
    return suffix.startswith("*") and rule.startswith(ARTIFACTS)


def _meet(one: str, other: str) -> bool:
    if one.startswith("*") and other.startswith("*"):
        return one.endswith(other[1:]) or other.endswith(one[1:])
    if one.startswith("*"):
        one, other = other, one
    if other.startswith("*"):
        return one.endswith("/") or one.endswith(other[1:])
    if one.endswith("/"):
        return other.startswith(one) or (other.endswith("/") and one.startswith(other))
    return one.startswith(other) if other.endswith("/") else one == other
