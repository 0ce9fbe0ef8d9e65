"""`make test` and `make quick`: how pytest is started."""

import os
import subprocess
import sys

from tests.order import LONGEST_FIRST

WHOLE = ("-q", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Three processes for two processors, as half of what a test does is wait; each has servers and network of its own.

A file's tests stay together and share them. The longest files come first (tests/order.py): left to itself xdist begins
with the files of most tests, and ends with the longest, files of one test each. It is one run, as tests of boxes wait
for their engine most of the time and leave the processors to the others."""


def quick() -> list[str]:
    """Return the arguments for what is done in a few minutes: unit and integration tests but for the long files."""
    long = (f"--ignore=tests/integration/{name}" for name in LONGEST_FIRST)
    return ["-q", "-n", "4", "--dist", "loadfile", "tests/unit", "tests/integration", *long]


def main(arguments: list[str]) -> int:
    """Run the whole suite, the quick part (`--quick`), or what the arguments say; return pytest's exit status.

    The tests start some hundred programs of this product, which are compiled once and not by each of them.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    chosen = quick() if arguments == ["--quick"] else arguments or list(WHOLE)
    return subprocess.run([sys.executable, "-m", "pytest", *chosen], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
