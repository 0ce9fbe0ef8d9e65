"""`pointsman agent run` as a person types it."""

import json
from pathlib import Path

import pytest

from workers.runs.alone import main


@pytest.mark.req("P-061")
def test_the_command_writes_what_the_agent_may_write_and_prints_what_it_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text("# Shop\n")
    assert main(["research", "--task=Specify a header", f"--dir={tmp_path}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["failure"] is None
    assert "artifacts/research" in {str(Path(path).parent) for path in told["changed"]}
    for path, size in told["changed"].items():
        assert (tmp_path / path).stat().st_size == size
        assert path.startswith("artifacts/")
    assert (tmp_path / "README.md").read_text() == "# Shop\n"


@pytest.mark.parametrize(
    ("given", "says"), [(["painter"], "no agent"), (["research", "--url=http://127.0.0.1:1"], "gateway")]
)
def test_what_cannot_be_run_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], says: str
) -> None:
    assert main([f"--dir={tmp_path}", "--task=t", *given]) in (1, 2)
    said = capsys.readouterr().err
    assert says in said.splitlines()[-1]
    assert "Traceback" not in said
