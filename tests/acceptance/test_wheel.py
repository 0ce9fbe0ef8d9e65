"""The built wheel runs `pointsman up` in an empty environment outside the checkout, data files included."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import httpx
import psutil
import pytest

from tests.acceptance.closure import closure, link
from tests.services import wait_until

ROOT = Path(__file__).parents[2]


def run(*argv: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(part) for part in argv], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed() -> Iterator[Path]:
    """A virtual environment that holds nothing but the wheel and what it declares that it needs."""
    with tempfile.TemporaryDirectory(prefix="pointsman-wheel-", ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        scratch.chmod(0o755)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", scratch / "dist", ROOT, cwd=scratch)
        [wheel] = (scratch / "dist").glob("*.whl")
        venv.create(scratch / "venv")
        pip = (sys.executable, "-m", "pip", "--python", scratch / "venv", "--disable-pip-version-check")
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=scratch, env=alone)
        site_packages = next((scratch / "venv" / "lib").glob("python*/site-packages"))
        for needed in closure(next(distributions(name="pointsman", path=[str(site_packages)]))):
            link(needed, site_packages)
        run(*pip, "check", cwd=scratch, env=alone)
        yield scratch


@pytest.mark.timeout(400)
def test_the_wheel_runs_everything_embedded_and_leaves_nothing_behind(installed: Path) -> None:
    home = installed / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    pointsman = installed / "venv" / "bin" / "pointsman"
    up = subprocess.Popen(
        [str(pointsman), "up", "--port", "0", "--speed", "max"],
        cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert up.stdout is not None
        said = ""
        while "Ctrl-C stops" not in said:
            line = up.stdout.readline()
            assert line, f"it ended: {said}"
            said += line
        api = re.search(r"API\s+(http://\S+)/docs", said)
        assert api is not None, said
        pages = re.search(r"pages\s+(http://\S+)", said)
        assert pages is not None, said
        assert httpx.get(f"{api[1]}/readyz", trust_env=False).status_code == httpx.codes.OK
        assert "<main" in httpx.get(f"{pages[1]}/live/demo/bakery/", trust_env=False).text

        prompt = "Change the hero heading to 'Bread since 1932'"
        job = json.loads(run(pointsman, "submit", prompt, "--site", "bakery", "--wait", "--json", cwd=home,
                             env=environment))  # fmt: skip
        assert job["state"] == "awaiting_approval"
        assert run(pointsman, "doctor", cwd=home, env=environment).count("OK  ") >= 5
        children = psutil.Process(up.pid).children(recursive=True)
        assert len(children) > 8
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(60)
        if up.stdout is not None:
            up.stdout.close()
    wait_until(lambda: not [child for child in children if child.is_running()], seconds=30, what="all have ended")
    assert up.returncode == 0
