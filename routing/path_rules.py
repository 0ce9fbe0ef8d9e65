"""Rules over the paths of a project: which files an agent may write, and which changes a gate is about.

A rule is one of three forms, all relative to the project's root: `src/` (everything in a directory), `package.json`
(exactly this file) and `*.test.ts` (every file whose name ends so, wherever it lies, but nothing under `artifacts/`,
which belongs to the agent that its directory names).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

ARTIFACTS = "artifacts/"
RESULT_FILE = ".agent-result.json"
CONTEXT_DIRECTORY = ".agent-context/"

_SUFFIX = re.compile(r"\*(\.[A-Za-z0-9_-]{1,40}){1,4}")
_SEGMENT = re.compile(r"[A-Za-z0-9_.@()\[\]-]{1,100}")
_SERVICE_OWNED = (".git", ".agent-context", RESULT_FILE)


def check_path_rule(rule: str) -> str:
    """Return a rule that is well formed.

    Raises:
        ValueError: its author's fault; says which form a rule may have.
    """
    if _SUFFIX.fullmatch(rule):
        return rule
    segments = rule.removesuffix("/").split("/")
    if not all(_SEGMENT.fullmatch(segment) and segment.strip(".") for segment in segments):
        raise ValueError("must be a directory with a final /, a file, or *.suffix, relative to the project's root")
    if segments[0] in _SERVICE_OWNED:
        raise ValueError(f"{segments[0]} belongs to the service")
    return rule


PathRule = Annotated[str, Field(max_length=300), AfterValidator(check_path_rule)]


def is_covered(path: str, rules: Iterable[str]) -> bool:
    """Tell whether one of `rules` covers a normalised path relative to the project's root."""
    return any(_covers(rule, path) for rule in rules)


def _covers(rule: str, path: str) -> bool:
    if rule.startswith("*"):
        return path.endswith(rule[1:]) and not path.startswith(ARTIFACTS)
    return path.startswith(rule) if rule.endswith("/") else path == rule
