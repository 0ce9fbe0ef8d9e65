"""What several processes share out, and in which order: they are done together only if no long file comes last."""

from collections.abc import Iterable

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
        "test_replay",
        "test_rolling_restart",
    )
)
CHAINS = (ENGINE, BOXES, INSTALLATION)
"""The longest, which begin together, a process each: boxes on two engines, and the installation."""
_LONG = ("chaos", "acceptance", "conformance", "integration/workers", "integration")
WAITING = tuple(f"tests/{folder}/" for folder in _LONG)
"""The longest first, as measured. Much of what their tests do is wait for servers and programs."""
FILLING = "tests/unit/"
"""Take the processor for all of their time: they are spread over the whole, and fill what the others leave of it."""
LAST_OF_WAITING = 0.6
"""Where in the whole the last file that waits begins: what is done beside and after it lets no processor wait."""


def in_order(files: Iterable[str]) -> list[str]:
    """Return different files in the order in which they are shared out."""
    kinds = {file: _kind(file) for file in files}
    rest = sorted(kinds, key=kinds.__getitem__)
    chains = [file for file in rest if kinds[file] < len(CHAINS)]
    filling = [file for file in rest if file.startswith(FILLING)]
    waiting = [file for file in rest if kinds[file] >= len(CHAINS) and not file.startswith(FILLING)]
    place = {file: number / len(filling) for number, file in enumerate(filling)}
    place |= {file: number / len(waiting) * LAST_OF_WAITING for number, file in enumerate(waiting)}
    return [*chains, *sorted([*waiting, *filling], key=place.__getitem__)]


def _kind(file: str) -> int:
    order = (*CHAINS, *WAITING)
    return next((kind for kind, start in enumerate(order) if servers_of(file).startswith(start)), len(order))


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
