"""`pointsman project`, `run`, `gate`: what a person at a terminal does with runs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from uuid import UUID

import pytest
import yaml
from typer.testing import CliRunner

from ledger.runs.tables import Run
from producers.cli import app
from producers.use_cases.run_work import describe_file
from routing.jobs import Reason, State
from tests.factories import Shop
from tests.integration.runs.run_world import MAKERS, PROJECT, SMALL, Yard


class Terminal:
    def __init__(self, yard: Yard, url: str) -> None:
        self.yard = yard
        policy = yard.home / "policy.yaml"
        policy.write_text(yaml.safe_dump(yard.policy.model_dump(mode="json")))
        self.environment = {
            "POINTSMAN_LEDGER__URL": url,
            "POINTSMAN_BROKER__URL": "redis://127.0.0.1:1/0",
            "POINTSMAN_POLICY__PATH": str(policy),
            "POINTSMAN_RUNS__ROOT": str(yard.resources.runs.root),
        }

    def run(self, *arguments: str, code: int = 0, tenant: str = "acme") -> str:
        found = CliRunner().invoke(app, [*arguments, "--tenant", tenant], env=self.environment)
        assert found.exit_code == code, found.output
        return found.output

    def submit(self, ticket: str) -> str:
        """Submit a ticket, work on it as far as it goes, and return its run's id."""
        run_id = json.loads(self.run("run", "submit", "--project", "shop", "--ticket", ticket, "--json"))["id"]
        self.yard.settle()
        return str(run_id)


@pytest.fixture
def terminal(shop: Shop, tmp_path: Path) -> Terminal:
    shop.tenant("other", provider="fake")
    return Terminal(Yard(shop, tmp_path), shop.url)


def ticket(tmp_path: Path, *, priority: str = "P0") -> str:
    path = tmp_path / "ticket.md"
    path.write_text(f"---\npriority: {priority}\n---\n# Fix the broken header\n\nIt is stretched.\n")
    return str(path)


@pytest.mark.slow
def test_a_ticket_goes_from_its_file_over_a_gate_to_its_branch(terminal: Terminal, tmp_path: Path) -> None:
    run_id = terminal.submit(ticket(tmp_path))
    shown = terminal.run("run", "show", run_id[-8:])  # ids may be cut short
    assert "awaiting_approval  Fix the broken header" in shown
    assert "✓ qa (qa) completed" in shown
    assert "estimate: $2.00 to $4.00" in shown
    watched = terminal.run("run", "show", run_id, "--wait")
    assert re.search(r"\d\d:\d\d:\d\d  qa: attempt 1 on queue steps", watched)
    gate = json.loads(terminal.run("gate", "list", "--json"))[0]
    assert f"pointsman gate pass {gate['id']}" in shown
    seen = terminal.run("gate", "show", gate["id"][-8:])
    assert "+// " in seen
    assert "  qa: $" in seen
    terminal.run("gate", "show", gate["id"], tenant="other", code=1)
    assert terminal.run("gate", "pass", gate["id"][-8:], "--reason", "fine").strip() == "passed"
    terminal.run("gate", "pass", gate["id"], code=1)
    terminal.yard.settle()
    view = json.loads(terminal.run("run", "show", run_id, "--json"))
    assert (view["state"], view["gates"][0]["note"]) == (State.PUBLISHED, "fine")
    assert view["result"]["branch"] == f"pointsman/fix-the-broken-header-{run_id[-8:]}"


def test_a_gate_that_is_failed_ends_the_run(terminal: Terminal, tmp_path: Path) -> None:
    run_id = terminal.submit(ticket(tmp_path))
    gate = json.loads(terminal.run("gate", "list", "--json"))[0]
    terminal.run("gate", "fail", gate["id"], "--reason", "not like this")
    terminal.yard.settle()
    assert "rejected" in terminal.run("run", "show", run_id)


def test_a_project_is_added_from_its_file_and_what_is_wrong_is_named_by_line(
    terminal: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "web.yaml"
    project = PROJECT.replace("HOME", str(terminal.yard.home))
    file.write_text(project)
    assert "project web" in terminal.run("project", "add", str(file))
    assert [item["name"] for item in json.loads(terminal.run("project", "list", "--json"))] == [
        "shop",
        "web",
    ]
    file.write_text(f"{project}budgets: {{run_usd: 1000}}\n")
    assert "line 4" in terminal.run("project", "add", str(file), code=2)


def test_the_file_that_init_proposes_is_one_that_add_takes(terminal: Terminal, tmp_path: Path) -> None:
    root = terminal.yard.home / "bakery"
    root.mkdir()
    git("init", "-q", "-b", "main", root)
    (root / "requirements.txt").write_text("pytest\n")
    (root / "bakery.py").touch()
    file = tmp_path / "bakery.yaml"
    CliRunner().invoke(app, ["project", "init", str(root), "--out", str(file)])
    assert "project bakery" in terminal.run("project", "add", str(file))


def test_what_is_not_there_or_no_ticket_is_said_clearly(terminal: Terminal, tmp_path: Path) -> None:
    nothing = str(tmp_path / "none.yaml")
    terminal.run("run", "submit", "--project", "shop", "--ticket", nothing, code=2)
    unknown = terminal.run("run", "submit", "--project", "x", "--ticket", ticket(tmp_path), code=2)
    assert "no project of this name" in unknown
    terminal.run("run", "show", "00000000-0000-4000-8000-000000000000", code=1)


def paths_of(diff: str) -> set[str]:
    """The files that a printed diff changes."""
    return {line.removeprefix("+++ b/") for line in diff.splitlines() if line.startswith("+++ ")}


@pytest.mark.slow
def test_after_a_rework_the_diff_since_the_last_gate_is_the_rework_alone(terminal: Terminal, tmp_path: Path) -> None:
    yard = terminal.yard
    run_id = terminal.submit(ticket(tmp_path))
    gate = json.loads(terminal.run("gate", "list", "--json"))[0]
    first = terminal.run("run", "diff", run_id)
    assert paths_of(first)
    assert terminal.run("run", "diff", run_id, "--since-last") == first, "nobody has decided anything yet"

    terminal.run("gate", "rework", gate["id"], "--reason", "keep the border")
    assert paths_of(terminal.run("run", "diff", run_id, "--since-last")) == set(), "it is not reworked yet"
    yard.settle()
    made = {key: set(step.changed) for key, step in yard.steps(UUID(run_id)).items() if step.agent in MAKERS}
    [(again, reworked)] = [(key, files) for key, files in made.items() if yard.steps(UUID(run_id))[key].round]
    sources = {path for path in reworked if not path.startswith("artifacts/")}
    since = terminal.run("run", "diff", run_id, "--since-last")
    assert paths_of(since) == sources
    assert not sources & paths_of(first)
    assert terminal.run("run", "diff", run_id, "--step", again) == since
    for key in made.keys() - {again}:
        assert paths_of(terminal.run("run", "diff", run_id, "--step", key)) <= paths_of(first)
    assert paths_of(terminal.run("run", "diff", run_id)) == sources | paths_of(first)

    [second] = json.loads(terminal.run("gate", "list", "--json"))
    terminal.run("gate", "pass", second["id"])
    assert paths_of(terminal.run("run", "diff", run_id, "--since-last")) == set(), "all of it was decided on"


def git(*arguments: str | Path) -> str:
    return subprocess.run(["git", *map(str, arguments)], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.req("S-112")
def test_the_work_of_an_escalated_run_stands_as_a_branch_in_a_clone(terminal: Terminal, tmp_path: Path) -> None:
    yard = terminal.yard
    yard.team.answers["qa"] = {"status": "blocked", "summary": "nobody can go on"}
    yard.team.answers["plan"] = [{"status": "complete", "summary": "done", "plan": SMALL}, Reason.OUTPUT_REFUSED]
    run_id = str(yard.submit())
    yard.settle()
    assert yard.job(UUID(run_id)).state != State.PUBLISHED
    assert yard.job(UUID(run_id)).ended_at is not None
    with yard.shop.ledger.begin() as session:
        session.get_one(Run, UUID(run_id)).ticket = {"title": "Fix the broken header", "key": "ENG-7"}
    diff = terminal.run("run", "diff", run_id)
    assert "+// " in diff
    assert "artifacts/" not in diff
    clone = tmp_path / "clone"
    git("clone", "-q", yard.home / "remotes" / "shop.git", clone)
    made = json.loads(terminal.run("run", "branch", run_id, "--repo", str(clone), "--json"))
    assert made["branch"] == f"pointsman/eng-7-{run_id[-8:]}", "as it would have been pushed"
    assert made == json.loads(terminal.run("run", "branch", run_id, "--repo", str(clone), "--json"))
    assert git("-C", clone, "log", "--format=%H %s", "-1", made["branch"]) == f"{made['commit']} Fix the broken header"
    assert "src/" in git("-C", clone, "diff", "--name-only", f"HEAD..{made['branch']}")
    bundled = json.loads(terminal.run("run", "fetch", run_id, str(tmp_path), "--json"))
    git("clone", "-q", yard.home / "remotes" / "shop.git", tmp_path / "other")
    git("-C", tmp_path / "other", "fetch", "-q", bundled["bundle"], f"{bundled['branch']}:taken")
    assert git("-C", tmp_path / "other", "rev-parse", "taken") == made["commit"]
    assert git("-C", tmp_path / "other", "fsck", "--strict") == ""
    terminal.run("run", "fetch", run_id, str(tmp_path), tenant="other", code=1)
    git("init", "-q", tmp_path / "empty")
    terminal.run("run", "branch", run_id, "--repo", str(tmp_path / "empty"), code=1)


def test_a_file_with_a_secret_is_named_and_its_text_is_not_shown() -> None:
    key = "ghp_" + "a1B2c3D4e5" * 4
    assert describe_file("src/a.ts", b"let a;\n", f"const key = '{key}';\n".encode()).diff == ""
    assert (
        describe_file("src/a.ts", b"let a = 'my-own-known-key';\n", None, known_keys=("my-own-known-key",)).diff == ""
    )
    assert "+let b;" in describe_file("src/a.ts", b"let a;\n", b"let b;\n").diff
