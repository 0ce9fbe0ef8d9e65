"""`python -m tests.chaos [PART]`, which is `make chaos`: each part is a scene of its own and prints what it came to."""

from __future__ import annotations

import importlib
import logging
import sys
import time
from collections.abc import Mapping, Sequence

from tests.chaos.options import read_options
from tests.chaos.suites import SUITES

_SCENES: Mapping[str, str] = {
    "fleet": "tests.chaos.burn",
    "hosts": "tests.chaos.hosts",
    "dense": "tests.chaos.dense",
    "celery": "tests.chaos.plain",
    "leaks": "tests.chaos.leaks",
    "cells": "tests.chaos.cells",
}
"""Modules with `run(options, say) -> Report`, imported when they are wanted."""
PARTS = (*_SCENES, *SUITES)
"""What ONLY takes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is wanted; exit 1 when a promise was broken."""
    only, options = read_options(argv)
    if only is not None and only not in PARTS:
        sys.stderr.write(f"ONLY={only}: must be one of {', '.join(PARTS)}\n")
        return 2
    logging.disable(logging.WARNING)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    is_good = True
    for name in [only] if only else PARTS:
        say(f"{name}:")
        part = SUITES[name] if name in SUITES else importlib.import_module(_SCENES[name])
        report = part.run(options, say)
        report.options = options.facts()
        print(f"\n{report.text()}\n\n{report.write(options.out, name)}\n", flush=True)
        is_good = is_good and report.is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
