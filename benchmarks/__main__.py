"""`python -m benchmarks [ONLY]`, which is `make bench`: measure, print, and write what was measured as JSON."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import box, capacity
from benchmarks.answer import Answer

QUESTIONS: dict[str, Callable[[int], Answer]] = {"box": box.measure, "capacity": capacity.measure}
"""By the name that ONLY takes; each is given how often to repeat."""


def main(argv: Sequence[str] | None = None) -> int:
    """Ask; exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure what the product's figures claim.")
    parser.add_argument("only", nargs="?", choices=sorted(QUESTIONS), help="one question; all of them, if left out")
    parser.add_argument("--repetitions", type=int, default=5, help="of each measurement (default 5)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="where the JSON goes")
    wanted = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    is_good = True
    for name in [wanted.only] if wanted.only else sorted(QUESTIONS):
        answer = QUESTIONS[name](max(1, wanted.repetitions))
        print(f"{answer.table()}\n\n{answer.write(wanted.out, name)}")
        is_good = is_good and answer.is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
