"""Every agent's instructions agree with its definition, and hold nothing that an agent must not see."""

import re
from importlib import resources

import pytest

from routing.agents import AgentRole, instruction_file
from routing.errors import PolicyError
from routing.path_rules import RESULT_FILE
from routing.policy import platform_policy
from routing.redaction import REDACTED, redact
from workers.runs.claude_md import claude_md
from workers.runs.results import AgentResult, Status

AGENTS = platform_policy().agents
NAMES = sorted(AGENTS)
FOLDER = resources.files("workers.runs") / "instructions"
KEY_LIKE = re.compile(
    r"(api[_ -]?key|secret|token|password)\s*[:=]\s*\S|[A-Z][A-Z0-9]*_(API_)?(KEY|TOKEN|SECRET)\b|sk-[a-z]"
)


def own_text(name: str) -> str:
    return (FOLDER / instruction_file(name)).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    return re.split(r"^## ", text.split(f"## {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.req("S-005")
def test_for_every_role_there_are_tools_and_instructions_and_an_image_for_whoever_runs_commands() -> None:
    assert {agent.role for agent in AGENTS.values()} > set(AgentRole)
    for name, agent in AGENTS.items():
        assert agent.tools, name
        assert own_text(name), name
        assert agent.image or "Bash" not in agent.tools, name


@pytest.mark.req("S-007")
@pytest.mark.parametrize("name", NAMES)
def test_every_agent_has_focused_instructions_of_its_own(name: str) -> None:
    text = own_text(name)
    assert text.startswith(f"# Agent: {name}\n")
    assert claude_md(name, AGENTS[name]).count(text.strip()) == 1
    others = [own_text(other) for other in NAMES if other != name]
    lines = {line for line in text.splitlines() if len(line) > 60}
    assert all(len(lines & set(other.splitlines())) <= 1 for other in others)
    assert len(text) < 6000


@pytest.mark.req("S-049")
@pytest.mark.parametrize("name", NAMES)
def test_the_paths_that_instructions_name_are_those_of_the_definition(name: str) -> None:
    named = re.findall(r"^- `([^`]+)`$", section(own_text(name), "Where you may write"), re.MULTILINE)
    assert named == list(AGENTS[name].writes)


@pytest.mark.req("S-083")
@pytest.mark.parametrize("name", NAMES)
def test_no_instructions_hold_or_name_a_key(name: str) -> None:
    text = claude_md(name, AGENTS[name])
    assert redact(text) == text
    assert REDACTED not in text
    assert KEY_LIKE.search(text) is None


def test_the_search_for_keys_finds_what_it_is_for() -> None:
    assert KEY_LIKE.search("use ANTHROPIC_API_KEY")
    assert KEY_LIKE.search("api_key: abc")


@pytest.mark.parametrize("name", NAMES)
def test_the_ending_fits_what_runs_the_agent_and_follows_it_to_another_runtime(name: str) -> None:
    agent = AGENTS[name]
    moved = agent.model_copy(update={"runtime": "api" if agent.needs_box else "claude_code"})
    by_tool, by_file = "call the tool `finish`", "Your last act is to write the file"
    assert (by_file if agent.needs_box else by_tool) in claude_md(name, agent)
    assert (by_tool if agent.needs_box else by_file) in claude_md(name, moved)
    assert (by_tool in claude_md(name, agent)) != (by_file in claude_md(name, agent))


@pytest.mark.parametrize("name", NAMES)
def test_every_agent_is_told_where_results_and_handoffs_go(name: str) -> None:
    text = claude_md(name, AGENTS[name])
    assert f"`{RESULT_FILE}`" in text
    assert "`artifacts/handoff/{from}-to-{to}.md`" in text
    assert "`.agent-context/`" in text


def test_the_fields_of_a_result_are_told_as_the_schema_has_them() -> None:
    text = claude_md("orchestrator", AGENTS["orchestrator"])
    told = set(re.findall(r"^- `(\w+)`:", section(text, "How your step ends"), re.MULTILINE))
    special = {"plan", "intent", "answer"}
    assert told == set(AgentResult.model_fields) - special
    assert all(f"`{status.value}`" in text for status in Status)
    assert "`plan`" in own_text("orchestrator")
    assert "`intent`" in own_text("orchestrator:classify")
    assert "`answer`" in own_text("orchestrator:question")


@pytest.mark.req("S-087", "S-088")
def test_the_instructions_are_for_the_declared_stack() -> None:
    whole = " ".join(own_text(name) for name in NAMES)
    assert all(word in whole for word in ("TypeScript", "React", "Next.js", "Node.js", "PostgreSQL"))
    assert not any(word in whole for word in ("Kotlin", "Swift", "Django", "Rails", "Airflow"))


@pytest.mark.req("S-089")
def test_an_agent_of_an_installation_brings_its_own_text() -> None:
    agent = AGENTS["qa"].model_copy(update={"instructions": "# Agent: accessibility\n\nLook for labels."})
    assert "Look for labels." in claude_md("accessibility", agent)
    with pytest.raises(PolicyError, match=r"agents\.accessibility: instructions"):
        claude_md("accessibility", AGENTS["qa"])


def test_no_file_lies_there_that_no_agent_has() -> None:
    files = {entry.name for entry in FOLDER.iterdir() if not entry.name.startswith("_")}
    assert files == {instruction_file(name) for name in NAMES}
