"""What a run came to: promises with whether they were kept, figures, and both as text and JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

_SHOWN_PROBLEMS = 10


@dataclass(frozen=True)
class Promise:
    """One promise, and what broke it."""

    name: str
    problems: Sequence[str] = ()
    is_late: bool = False
    """Whether it was only not kept in time."""

    @property
    def is_kept(self) -> bool:
        return not self.problems


@dataclass
class Report:
    """One part of the suite."""

    title: str
    promises: list[Promise] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)
    table: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    options: Mapping[str, object] = field(default_factory=dict)
    machine: str = field(default_factory=lambda: f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.release()}")
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def is_good(self) -> bool:
        return all(promise.is_kept for promise in self.promises)

    def promise(self, name: str, problems: Sequence[str], *, is_late: bool = False) -> None:
        self.promises.append(Promise(name, tuple(problems), is_late))

    def text(self) -> str:
        """Return it for people."""
        lines = [self.title, self.machine, ""]
        width = max((len(name) for name in self.figures), default=0)
        lines += [f"  {name.ljust(width)}  {_shown(value)}" for name, value in self.figures.items()]
        lines += _columns(self.table)
        lines += ["", *(f"  note: {note}" for note in self.notes)] if self.notes else []
        lines.append("")
        for promise in self.promises:
            verdict = "kept" if promise.is_kept else "LATE" if promise.is_late else "BROKEN"
            lines.append(f"{verdict:6}  {promise.name}")
            lines += [f"          {problem}" for problem in promise.problems[:_SHOWN_PROBLEMS]]
            if len(promise.problems) > _SHOWN_PROBLEMS:
                lines.append(f"          and {len(promise.problems) - _SHOWN_PROBLEMS} more")
        return "\n".join(lines)

    def write(self, directory: Path, name: str) -> Path:
        """Write it for programs."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.json"
        path.write_text(json.dumps(asdict(self) | {"is_good": self.is_good}, indent=2, default=str) + "\n")
        return path


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["", *("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)]


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{number} {name}" for name, number in sorted(value.items(), key=lambda item: -item[1])) or "none"
        )
    return f"{value:.3f}" if isinstance(value, float) else str(value)
