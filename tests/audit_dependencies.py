"""`make audit`: ask the package index's advisories about everything that constraints.txt pins.

A known advisory fails, and so does a service that cannot be asked or knows none of it: nothing was checked then. Its
own exit status lets `make check` go on where nothing outside is reached.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 120
UNCHECKED = 2
"""The exit status if no dependency was checked."""
IGNORED: dict[str, str] = {}
"""Advisories that do not concern this product, each with the reason; an empty table is the aim."""


def audit(requirements: Path) -> tuple[int, str]:
    """Return the exit status and one paragraph about what was found."""
    argv = [
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        str(requirements),
        "--no-deps",
        "--disable-pip",
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--timeout",
        "10",
        *(part for advisory in IGNORED for part in ("--ignore-vuln", advisory)),
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return UNCHECKED, "audit: the advisory service cannot be reached; no dependency was checked"
    return judge(found)


def judge(found: list[dict[str, object]]) -> tuple[int, str]:
    """Tell what pip-audit's answer means."""
    checked = [item for item in found if "skip_reason" not in item]
    vulnerable = [item for item in checked if item.get("vulns")]
    if vulnerable:
        return 1, "\n".join(_line(item) for item in vulnerable)
    if not checked:
        return (
            UNCHECKED,
            f"audit: the advisory service knows none of the {len(found)} packages; no dependency was checked",
        )
    skipped = len(found) - len(checked)
    return 0, f"audit: no advisory for {len(checked)} packages; {skipped} are not known to the service"


def _line(item: dict[str, object]) -> str:
    vulns = item["vulns"]
    assert isinstance(vulns, list)
    fixes = [f"{vuln['id']} (fixed in {', '.join(vuln['fix_versions']) or 'no version'})" for vuln in vulns]
    return f"audit: {item['name']} {item['version']}: {'; '.join(fixes)}"


if __name__ == "__main__":
    status, text = audit(ROOT / "constraints.txt")
    print(text, flush=True)
    sys.exit(status)
