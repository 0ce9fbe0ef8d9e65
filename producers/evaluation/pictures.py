"""Pictures of pages before and after, taken by Chromium without a network, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from producers.evaluation.checks import changed_places

_WINDOW = "1280,1600"
_SECONDS = 30.0


def take_pictures(before: Mapping[str, bytes], after: Mapping[str, bytes], out: Path) -> Sequence[str]:
    """Write pictures of the first page that changed, and return their file names: before, if it was there, and after.

    Args:
        before: the files that the work started from.
        after: the files of the result.
        out: path of the pictures without their ending.
    """
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    changed = {place.split(" ")[0] for place in changed_places(before, after)}
    pages = [path for path in ("index.html", *sorted(changed)) if path in changed and path.endswith(".html")]
    page = next((path for path in pages if path in after), "index.html")
    sides = {name: files for name, files in (("before", before), ("after", after)) if page in files}
    taken = []
    for name, files in sides.items() if chromium is not None else ():
        picture = out.with_name(f"{out.name}-{name}.png")
        with tempfile.TemporaryDirectory(prefix="pointsman-picture-") as folder:
            for path, data in files.items():
                (place := Path(folder) / "site" / path).parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            argv = [
                str(chromium),
                "--headless",
                "--hide-scrollbars",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={folder}/profile",
                f"--window-size={_WINDOW}",
                f"--screenshot={picture}",
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                f"file://{folder}/site/{page}",
            ]
            try:
                subprocess.run(argv, capture_output=True, timeout=_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                continue
        taken += [picture.name] if picture.exists() else []
    return tuple(taken)
