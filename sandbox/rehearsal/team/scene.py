"""What an agent knows at a moment of its step: its order, the files it has seen, and what its command printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from routing.path_rules import is_covered
from sandbox.rehearsal.team.order import Order

SOURCE = (".ts", ".tsx", ".js", ".jsx", ".mjs")
_TEST = re.compile(r"(^|/)(tests?|__tests__|e2e)/|\.(test|spec)\.\w+$")


@dataclass(frozen=True)
class Scene:
    """Nothing in it comes from a clock or a dice: the same conversation leads to the same scene."""

    order: Order
    paths: tuple[str, ...] = ()
    """Files of the project."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Those that were read."""
    printed: str | None = None
    """What the step's command printed."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Source files that are no tests, those that the ticket names first."""
        visible = [path for path in self.paths if not path.startswith((".", "artifacts/"))]
        found = [path for path in visible if path.endswith((*SOURCE, ".css", ".sql")) and not _TEST.search(path)]
        return tuple(sorted(found, key=lambda path: (not self.is_named(path), path)))

    @property
    def suffix(self) -> str:
        """`.ts` in a TypeScript project, otherwise `.mjs`."""
        return ".ts" if any(path.endswith((".ts", ".tsx", "tsconfig.json")) for path in self.paths) else ".mjs"

    @property
    def scripts(self) -> Mapping[str, Any]:
        """The scripts of package.json, as far as it was read."""
        try:
            package = json.loads(self.texts.get("package.json", "{}"))
        except (ValueError, RecursionError):
            return {}
        scripts = package.get("scripts") if isinstance(package, dict) else None
        return scripts if isinstance(scripts, dict) else {}

    def is_named(self, path: str) -> bool:
        """Tell whether the ticket names a file, by its path or its end."""
        return any(path == name or path.endswith(f"/{name}") for name in self.order.files)

    def may_write(self, path: str) -> bool:
        """Tell whether the order covers a path."""
        return is_covered(path, self.order.writes)

    def count(self, pattern: str) -> int:
        """Return how many files there are whose path matches a regular expression as a whole."""
        return sum(re.fullmatch(pattern, path) is not None for path in self.paths)


Result = dict[str, Any]


class Role(NamedTuple):
    """How one agent is played: what it reads, then writes, then runs, then reports."""

    wants: Callable[[Scene], Sequence[str]]
    writes: Callable[[Scene], Mapping[str, str]]
    result: Callable[[Scene], Result]
    command: Callable[[Scene], str | None] = lambda scene: None


def complete(summary: str, **fields: Any) -> Result:
    """Return the result of an agent that has done its task."""
    return {"status": "complete", "summary": summary, **fields}
