"""`make test` and `make quick`: how pytest is started."""

import os
import subprocess
import sys

WHOLE = ("-q", "-n", "6", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=30", "--durations-min=5")
"""Six processes keep two processors busy, which is what bounds a run; more only collect the tests once more each.

Each has servers and network of its own, which the tests of a file share. What comes when says tests/order.py: left to
itself xdist begins with the files of most tests, and ends with the longest, files of one test each."""
CORE = (
    "jobs/test_lifecycle.py::test_an_answer_ends_the_job_with_its_text",
    "jobs/test_spec_jobs.py::test_a_direct_edit_makes_no_model_call_and_costs_nothing",
    "jobs/test_patch_jobs.py::test_a_model_s_patch_is_applied_by_rules_and_everything_else_stays",
    "gateway/test_gateway.py::test_cached_input_is_billed_at_its_own_prices",
    "jobs/test_publish.py::test_of_two_approved_jobs_with_one_base_one_is_published_and_the_other_conflicts",
)
"""A job's way through real servers: what `make quick` runs of `tests/integration`."""
QUICK = ("-q", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not slow and not long")
QUICK += ("--durations=5", "--durations-min=3", "tests/unit", *(f"tests/integration/{test}" for test in CORE))
"""What answers in a minute after a change: unit tests of less than a second, and one job of each kind."""


def main(arguments: list[str]) -> int:
    """Run the whole suite, the quick part (`--quick`), or what the arguments say; return pytest's exit status.

    The tests start some hundred programs of this product, which are compiled once and not by each of them.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    chosen = QUICK if arguments == ["--quick"] else arguments or WHOLE
    return subprocess.run([sys.executable, "-m", "pytest", *chosen], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
