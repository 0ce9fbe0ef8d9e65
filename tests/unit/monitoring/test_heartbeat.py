"""What a supervisor's check of a process without a port says."""

import subprocess
import sys
import time
from pathlib import Path

from monitoring.heartbeat import beat, is_well, main

ROOT = Path(__file__).parents[3]


def test_a_process_is_well_from_its_sign_until_it_falls_silent(tmp_path: Path) -> None:
    path = tmp_path / "life"
    assert not is_well(path)
    beat(path)
    assert is_well(path)
    path.write_text(f"{time.monotonic() - 31}\n")
    assert not is_well(path)
    assert is_well(path, silent_seconds=60)
    path.write_text(f"{time.monotonic() + 60}\n")
    assert not is_well(path), "a sign from before the machine's last start"
    path.write_text("nonsense")
    assert not is_well(path)


def test_the_check_is_an_exit_code_and_loads_next_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "life"
    beat(path)
    code = "import sys, monitoring.heartbeat as it; sys.exit(it.main(sys.argv[1:]) or len(sys.modules) > 100)"
    assert subprocess.run([sys.executable, "-S", "-c", code, str(path)], check=False, cwd=ROOT).returncode == 0
    assert main([str(path), "0"]) == 1
    assert main([str(tmp_path / "gone")]) == 1
    assert main([]) == 2
