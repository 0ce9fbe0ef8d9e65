"""Compare routes with labels: accuracy of each field, and every miss (R-102, R-103)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from routing.batch import batch_line

FIELDS = ("mode", "tier", "intent", "debate", "trivial")


@dataclass
class Report:
    """How well routes match their labels."""

    total: int = 0
    wrong: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in FIELDS})
    false_answers: list[str] = field(default_factory=list)
    false_actions: list[str] = field(default_factory=list)
    answers_wanted: int = 0
    debates_wanted: int = 0
    debates_made: int = 0
    debates_right: int = 0
    debates_found: int = 0

    def accuracy(self, name: str) -> float:
        return 1 - len(self.wrong[name]) / self.total

    @property
    def debate_precision(self) -> float:
        return self.debates_right / self.debates_made if self.debates_made else 1.0

    @property
    def debate_recall(self) -> float:
        return self.debates_found / self.debates_wanted if self.debates_wanted else 1.0

    def __str__(self) -> str:
        lines = [f"{name}: {self.accuracy(name):.1%}" for name in FIELDS]
        lines.append(f"debate precision {self.debate_precision:.1%} recall {self.debate_recall:.1%}")
        lines.append(f"false ANSWER {len(self.false_answers)} false ACTION {len(self.false_actions)}")
        lines += [f"  {name} {miss}" for name in FIELDS for miss in self.wrong[name]]
        return "\n".join(lines)


def evaluate(path: Path) -> Report:
    report = Report()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            _compare(report, json.loads(line))
    return report


def _compare(report: Report, line: dict[str, Any]) -> None:
    wanted, got = line["expect"], batch_line(line)
    accepted = {
        "mode": [wanted["mode"], *wanted.get("also_mode", [])],
        "tier": [wanted["tier"], *wanted.get("also", [])],
        "intent": [wanted["intent"], *wanted.get("also_intent", [])],
        "trivial": [wanted["trivial"], *wanted.get("also_trivial", [])],
        "debate": [(wanted["debate"], wanted["stakes"])]
        + [(also["debate"], also["stakes"]) for also in wanted.get("also_debate", [])],
    }
    mode_is_right = got["mode"] in accepted["mode"]
    report.total += 1
    report.answers_wanted += wanted["mode"] == "ANSWER"
    for name in FIELDS:
        value = (got["debate"], got["stakes"]) if name == "debate" else got[name]
        other = mode_is_right and got["mode"] != wanted["mode"] and name != "mode"
        if value not in accepted[name] and not other:
            report.wrong[name].append(f"{line['id']} {line['prompt'][:110]!r}: {value}, not {accepted[name]}")
    if not mode_is_right:
        (report.false_answers if got["mode"] == "ANSWER" else report.false_actions).append(line["prompt"])
    _compare_debate(report, {also[0] for also in accepted["debate"]}, wanted["debate"], got["debate"])


def _compare_debate(report: Report, accepted: set[str], wanted: str, got: str) -> None:
    if wanted == "planning":
        report.debates_wanted += 1
        report.debates_found += got in accepted
    if got == "planning":
        report.debates_made += 1
        report.debates_right += "planning" in accepted
