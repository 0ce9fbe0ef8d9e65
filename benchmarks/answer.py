"""What a benchmark answers: a table for people, the same figures for programs, and what they are held to."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """A figure that has to stay at or below a limit."""

    name: str
    value: float
    limit: float

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit


@dataclass(frozen=True)
class Answer:
    """One question's answer."""

    question: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()
    limits: Mapping[str, object] | None = None
    """What `pointsman capacity --limits` reads of it."""
    machine: str = field(default_factory=lambda: f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.release()}")
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def is_good(self) -> bool:
        return all(target.is_met for target in self.targets)

    def table(self) -> str:
        """Return the answer as text."""
        cells = [self.heads, *(tuple(map(_shown, row)) for row in self.rows)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.heads))]
        lines = [self.question, self.machine, ""]
        lines += ["  ".join([row[0].ljust(widths[0]), *_right(row[1:], widths[1:])]) for row in cells]
        lines += ["", *self.notes] if self.notes else []
        for target in self.targets:
            verdict = "met" if target.is_met else "MISSED"
            lines.append(f"{verdict}: {target.name}: {target.value:.3f}, at most {target.limit:.3f}")
        return "\n".join(lines)

    def write(self, directory: Path, name: str) -> Path:
        """Write the answer as JSON."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.json"
        path.write_text(json.dumps(asdict(self) | {"is_good": self.is_good}, indent=2) + "\n")
        return path


def _right(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]


def _shown(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:.3f}"
