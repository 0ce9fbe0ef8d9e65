"""`python -m benchmarks [ONLY]`, which is `make bench`: measure, print, and keep as JSON, pictures and a table.

With `--check` nothing is kept: what was measured is held against what is.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import (
    apply,
    box,
    bulk,
    capacity,
    gateway,
    growth,
    http_submit,
    idle,
    lifecycle,
    memory,
    render,
    routing,
    scan,
    submit,
)
from benchmarks.answer import Answer, read
from benchmarks.guard import regressions
from benchmarks.page import publish
from benchmarks.question import Question

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


_ALL: tuple[Question, ...] = (
    routing.QUESTION, render.QUESTION, apply.QUESTION, scan.QUESTION, capacity.QUESTION,
    gateway.ADDED, gateway.CAPACITY, gateway.MEMORY, memory.QUESTION,
    submit.QUESTION, bulk.QUESTION, http_submit.QUESTION, lifecycle.QUESTION, idle.QUESTION,
    growth.QUESTION, box.QUESTION,
)  # fmt: skip
QUESTIONS = {question.name: question for question in _ALL}


def main(argv: Sequence[str] | None = None) -> int:
    """Ask; exit 1 when a target is missed, or with `--check` when something got worse."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure what the product's figures claim.")
    parser.add_argument("only", nargs="?", choices=QUESTIONS, help="one question; all of them, if left out")
    parser.add_argument("--repetitions", type=int, help="of each measurement (default: what the question needs)")
    parser.add_argument("--jobs", type=int, default=growth.SIZES[-1], help="in growth's largest ledger")
    parser.add_argument("--check", action="store_true", help="keep nothing, and say what got worse")
    wanted = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    questions = QUESTIONS | {growth.QUESTION.name: replace(growth.QUESTION, jobs=wanted.jobs)}
    is_good = True
    names = [wanted.only] if wanted.only else [*questions]
    for number, name in enumerate(names, 1):
        print(f"bench: {name}, {number} of {len(names)}", file=sys.stderr, flush=True)
        began = time.monotonic()
        answer = questions[name].ask(wanted.repetitions)
        print(f"{answer.table()}\n", flush=True)
        print(f"bench: {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        is_good = (_is_kept(name, answer) if wanted.check else answer.is_good) and is_good
        if not wanted.check:
            answer.write(RESULTS, name)
            publish(RESULTS, ROOT / "docs")  # what was answered stays, whatever becomes of the next question
    return 0 if is_good else 1


def _is_kept(name: str, answer: Answer) -> bool:
    path = RESULTS / f"{name}.json"
    worse = list(regressions(read(path), answer)) if path.exists() else []
    for line in worse:
        print(f"WORSE: {name}: {line}\n")
    return not worse


if __name__ == "__main__":
    sys.exit(main())
