"""What several processes share out, and in which order: they are done together only if no long file comes last."""

from xdist.scheduler import LoadFileScheduling

BOXES = "tests/box/"
INSTALLATION = "tests/acceptance/installation.py"
"""Stands for the files of tests that drive one installation: a dozen processes, half a minute to start."""
ON_INSTALLATION = frozenset(
    f"tests/acceptance/{name}.py"
    for name in (
        "test_recovery",
        "test_hard_limit",
        "test_main_job",
        "test_browser",
        "test_console_browser",
        "test_guides",
        "test_panels",
        "test_backup",
        "test_eval",
        "test_rolling_restart",
    )
)
ORDER = (BOXES, INSTALLATION, "tests/chaos/", "tests/acceptance/", "tests/integration/", "tests/unit/")
"""The longest first, as measured: boxes, the installation and fire begin together, each in a process of its own."""


def place_of(nodeid: str) -> int:
    """Return where a test comes in the whole: every kind of test in its own order."""
    file = nodeid.partition("::")[0]
    name = INSTALLATION if file in ON_INSTALLATION else file
    return next((place for place, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


class ByFileAndServers(LoadFileScheduling):
    """A file's tests stay together, and so do those that share an engine with its image, or an installation."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(BOXES):
            return BOXES
        file = str(super()._split_scope(nodeid))
        return INSTALLATION if file in ON_INSTALLATION else file
