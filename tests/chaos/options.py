"""How much fire, how long and from which seed: read from arguments, and from variables of the same names."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FIRE_SHARE = 0.55
RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True, kw_only=True)
class Options:
    """One run of the suite. The same seed gives the same jobs and order of kills; the rest is the machine's."""

    jobs: int = 2_000
    seed: int = 1
    minutes: float = 15.0
    """When the fleet must be done: submitting, fire and draining together."""
    fire_seconds: float = 0.0
    """How long jobs are submitted and things go wrong; 0 for a little more than half of the time."""
    kill_seconds: float = 5.0
    """A process dies so often."""
    tokens_per_second: float = 400.0
    """How fast the model writes. The real 150 of Haiku, and its second to the first token, would take hours here."""
    first_token_seconds: float = 0.2
    concurrency: int = 2
    """Pool children of each worker process."""
    is_short: bool = False
    """One flush and one restart of the database, no full disk, no skewed clocks: what CI has a minute for."""
    out: Path = field(default=RESULTS)

    @property
    def burns_seconds(self) -> float:
        """How long jobs are submitted and things go wrong. The rest of the time is for what waits then."""
        return self.fire_seconds or self.minutes * 60 * FIRE_SHARE

    def facts(self) -> dict[str, object]:
        """Return what two runs have in common that can be compared."""
        return {name: value for name, value in vars(self).items() if name != "out"}


def read_options(argv: Sequence[str] | None = None) -> tuple[str | None, Options]:
    """Return which part is wanted (None for all of them), and how."""
    parser = argparse.ArgumentParser(prog="make chaos", description="What is accepted ends once, whatever dies.")
    parser.add_argument("only", nargs="?", default=os.environ.get("ONLY") or None, help="one part; all, if left out")
    for name, kind in {"jobs": int, "seed": int, "minutes": float, "kill_seconds": float}.items():
        given = os.environ.get(name.upper()) or getattr(Options, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=kind(given))
    parser.add_argument("--tokens-per-second", type=float, default=Options.tokens_per_second)
    parser.add_argument("--concurrency", type=int, default=Options.concurrency)
    parser.add_argument("--short", dest="is_short", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = vars(parser.parse_args(argv))
    return given.pop("only"), Options(**given)
