"""detect-secrets with its default plugins and filters, file by file in one process."""

import atexit
import tempfile
from collections.abc import Callable
from pathlib import Path

from detect_secrets import SecretsCollection
from detect_secrets.settings import default_settings

from benchmarks.inputs import site


def operation() -> Callable[[], object]:
    """Return what scans the site's files."""
    home = tempfile.TemporaryDirectory(prefix="pointsman-bench-")
    atexit.register(home.cleanup)
    for path, data in site().items():
        (Path(home.name) / path).write_bytes(data)
    paths = sorted(map(str, Path(home.name).iterdir()))

    def scan() -> int:
        found = SecretsCollection()
        with default_settings():
            for path in paths:
                found.scan_file(path)
        return len(found.data)

    return scan
