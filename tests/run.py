"""`make test` and `make quick`: how pytest is started."""

import os
import subprocess
import sys

WHOLE = ("-q", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Three processes for two processors, as half of what a test does is wait; each has servers and network of its own.

A file's tests stay together and share them. The longest come first (tests/order.py): left to itself xdist begins with
the files of most tests, and ends with the longest, files of one test each. It is one run, as tests of boxes wait for
their engine most of the time and leave the processors to the others."""
QUICK = ("-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--quick", "tests/unit", "tests/integration")


def main(arguments: list[str]) -> int:
    """Run the whole suite, the quick part (`--quick`), or what the arguments say; return pytest's exit status.

    The tests start some hundred programs of this product, which are compiled once and not by each of them.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    chosen = QUICK if arguments == ["--quick"] else arguments or WHOLE
    return subprocess.run([sys.executable, "-m", "pytest", *chosen], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
