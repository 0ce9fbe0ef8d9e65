"""Every agent can be run alone against a directory, with a model that plays (P-061)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.fake_provider.config import FakeProviderConfig
from gateway.fake_provider.server import running_fake_provider
from routing.errors import PolicyError
from routing.policy.agents import is_covered
from routing.policy.platform import platform_policy
from sites.content_store import ContentStore
from sites.directories import Worktree
from sites.repository.trees import Snapshot, TreeLimits
from tests.played_cli import PlayedMaker
from workers.attempt import Attempt, HandlerResources
from workers.runs.alone import attempt_alone, read_project, run_alone

FILES = {"README.md": b"# Shop\n", "package.json": b"{}\n", "src/app.js": b"export const a = 1;\n"}
AGENTS = platform_policy().agents


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with running_fake_provider(FakeProviderConfig(speed="max")) as address:
        yield address.url


def place_in(home: Path, model: str) -> Attempt:
    maker = PlayedMaker(home / "programs", is_walled=True)
    maker.program(
        "claude",
        "init(tools=sorted(next(w for w in sys.argv if w.startswith('--tools=')).partition('=')[2].split(',')))\n"
        "write('artifacts/everywhere.md', 'x')\n"
        'write(".agent-result.json", json.dumps({"status": "complete", "summary": "Played."}))\nresult()',
    )
    return attempt_alone(
        platform_policy(),
        HandlerResources(gateway_url=model, boxes=maker),  # type: ignore[arg-type]
        token="t",
        content_store=ContentStore(home / "content-store"),
        tell=lambda news: None,
    )


@pytest.mark.req("P-061")
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_runs_alone_and_leaves_a_valid_result(name: str, model: str, tmp_path: Path) -> None:
    attempt = place_in(tmp_path, model)
    alone = run_alone(name, task="Add a header", project=Snapshot(FILES), attempt=attempt)

    assert alone.failure is None
    assert alone.result is not None
    assert alone.result["status"] == "complete"
    assert all(is_covered(path, AGENTS[name].writes) for path in alone.changes)
    assert [line for line in alone.dropped if not line.startswith("artifacts/everywhere.md")] == []
    assert len(attempt.resources.boxes.boxes) == AGENTS[name].needs_box  # type: ignore[attr-defined]


def test_an_agent_that_nobody_defined_is_named_with_those_that_are_there(model: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="frontend-dev"):
        run_alone("painter", task="t", project=Snapshot({}), attempt=place_in(tmp_path, model))


def test_a_directory_is_read_under_the_rules_of_a_repository(tmp_path: Path) -> None:
    for path, data in {**FILES, ".env": b"K=1\n", "node_modules/x/y.js": b"y\n", "con.txt": b"c\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "big.bin").write_bytes(b"x" * 2000)

    shown = read_project(Worktree(tmp_path), TreeLimits(max_file_bytes=1000))

    assert shown.files == FILES
    assert {left.path: left.reason for left in shown.left_out} == {
        ".env": "planted",
        "node_modules/x/y.js": "node_modules",
        "con.txt": "device_name",
        "link": "symlink",
        "big.bin": "file_too_large",
    }
