"""What `make native` compiles passes the tests of its Python, in a copy of the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "docs", "node_modules", "__pycache__", "*.egg-info", "*.so")


@pytest.mark.slow
@pytest.mark.timeout(400)  # twenty seconds of a processor compile it
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_compiled_diff_engine_passes_its_own_tests(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)

    def run(*argv: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [sys.executable, *argv], cwd=copy, env=environment | {"NATIVE": "1"}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{argv}: {done.stdout[-3000:]}{done.stderr[-3000:]}"

    run("setup.py", "--quiet", "build_ext", "--inplace")
    run("-c", "import sites.diff.apply as engine; assert engine.__file__.endswith('.so'), engine.__file__")
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "tests/unit/sites/diff")
