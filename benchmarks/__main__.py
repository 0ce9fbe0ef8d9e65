"""`python -m benchmarks [ONLY]`, which is `make bench`: measure, print, and keep as JSON, pictures and tables.

With `--check` nothing is kept: what was measured is held against what is.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.answer import Answer, read
from benchmarks.guard import regressions
from benchmarks.page import publish
from benchmarks.question import Question, UnavailableError, say
from benchmarks.registry import BY_NAME, IN_ONE_RUN
from benchmarks.summary import Outcome, summary, verdict

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LIMITS = ROOT / "monitoring" / "capacity" / "limits.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Ask; exit 1 when a target is missed or a question ended early, or with `--check` when something got worse."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure what the product's figures claim.")
    parser.add_argument("only", nargs="?", choices=BY_NAME, help="one question; if left out, all that fit into one run")
    parser.add_argument("--repetitions", type=int, help="of each measurement (default: what the question needs)")
    parser.add_argument("--check", action="store_true", help="keep nothing, and say what got worse")
    wanted = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    questions = [BY_NAME[wanted.only]] if wanted.only else [*IN_ONE_RUN.values()]
    run = Run(repetitions=wanted.repetitions, is_check=wanted.check)
    outcomes = []
    for number, question in enumerate(questions, 1):
        say(f"{question.name}, question {number} of {len(questions)}")
        outcomes.append(run.ask(question))
    print(summary(outcomes), flush=True)
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


@dataclass(frozen=True)
class Run:
    """Asks one question after the other; none ends those that follow."""

    repetitions: int | None = None
    is_check: bool = False
    results: Path = RESULTS
    docs: Path = ROOT / "docs"
    limits: Path = LIMITS

    def ask(self, question: Question) -> Outcome:
        """Ask one, print its answer, and keep it or hold it against what is kept."""
        began = time.monotonic()
        try:
            answer = question.ask(self.repetitions)
        except UnavailableError as why:
            return Outcome(question.name, time.monotonic() - began, f"skipped: {why}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the other questions do not depend on it
            traceback.print_exc()
            told = f"ended early: {type(error).__name__}: {error}"
            return Outcome(question.name, time.monotonic() - began, told[:300], is_good=False)
        print(f"{answer.table()}\n", flush=True)
        seconds = time.monotonic() - began
        if self.is_check:
            return self._held(question.name, answer, seconds)
        if answer.skipped:
            return Outcome(question.name, seconds, f"{verdict(answer)}; not kept", answer.is_good)
        self._keep(question.name, answer)
        return Outcome(question.name, seconds, verdict(answer), answer.is_good)

    def _keep(self, name: str, answer: Answer) -> None:
        answer.write(self.results, name)
        if answer.limits is not None:
            answer.write_limits(self.limits)
        publish(self.results, self.docs, order=[*BY_NAME])  # whatever becomes of the next question

    def _held(self, name: str, answer: Answer, seconds: float) -> Outcome:
        path = self.results / f"{name}.json"
        worse = list(regressions(read(path), answer)) if path.exists() else ["nothing is kept to hold it against"]
        told = f"{verdict(answer)}; WORSE: {'; '.join(worse)}" if worse else f"{verdict(answer)}; no worse"
        return Outcome(name, seconds, told, is_good=not worse)


if __name__ == "__main__":
    sys.exit(main())
