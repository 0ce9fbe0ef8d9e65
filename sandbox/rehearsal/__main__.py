"""`python -m sandbox.rehearsal`: the rehearsal model from the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from routing.errors import PolicyError
from sandbox.rehearsal.config import RehearsalConfig
from sandbox.rehearsal.errors import ScenarioError
from sandbox.rehearsal.run import serve


def main() -> int:
    """Parse the arguments and serve. Returns the exit code: 0 ended when told, 1 could not serve."""
    parser = argparse.ArgumentParser(
        prog="python -m sandbox.rehearsal", description="A Messages-API server that plays scenarios."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--log", type=Path, help="append each ended call to this file as a JSON line")
    parser.add_argument("--speed", choices=["real", "max"], default="real")
    parser.add_argument("--scenarios", type=Path, action="append", default=[], help="a file, or a directory of files")
    parser.add_argument("--faults", action="store_true", help="also play the shipped faults, by tags")
    parser.add_argument("--policy", type=Path, help="the installation's own policy (speeds)")
    given = parser.parse_args()
    try:
        serve(RehearsalConfig(**vars(given) | {"scenarios": tuple(given.scenarios)}))
    except (ScenarioError, PolicyError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
