"""Decide labelled samples by the shipped rules, as `pointsman route check` does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from routing.decision.evaluation import Evaluation, batch_line


def samples(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def evaluate(lines: Iterable[dict[str, Any]]) -> Evaluation:
    evaluation = Evaluation()
    for line in lines:
        evaluation.add(line, batch_line(line))
    return evaluation
