"""What several processes share out, and in which order: they are done together only if no long file comes last."""

from xdist.scheduler import LoadFileScheduling

BOXES = "tests/box/"
ENGINE = "tests/box/test_wall.py"
"""Stands for half of what needs an engine, as measured, so that two work side by side."""
ON_ENGINE = frozenset(
    f"{BOXES}test_{name}.py" for name in ("fleet", "leftovers", "project_image", "services", "tracing", "wall")
)
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
_FOLDERS = ("chaos", "acceptance", "conformance", "integration", "unit")
ORDER = (ENGINE, BOXES, INSTALLATION, *(f"tests/{folder}/" for folder in _FOLDERS))
"""The longest first, as measured: boxes on two engines and the installation begin together, a process each."""


def place_of(nodeid: str) -> int:
    """Return where a test comes in the whole: every kind of test in its own order."""
    name = servers_of(nodeid.partition("::")[0])
    return next((place for place, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


def servers_of(file: str) -> str:
    """Return what stands for the servers that a file's tests share with those of others, or the file."""
    if file in ON_INSTALLATION:
        return INSTALLATION
    if file in ON_ENGINE:
        return ENGINE
    return BOXES if file.startswith(BOXES) else file


class ByFileAndServers(LoadFileScheduling):
    """A file's tests stay together, and so do those that share an engine with its image, or an installation."""

    def _split_scope(self, nodeid: str) -> str:
        return servers_of(str(super()._split_scope(nodeid)))
