"""What the repository's pages claim, and what they must not say."""

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from docs.generate import configuration_page
from docs.generate_cli import cli_page
from docs.generate_http import http_page
from routing.decision.router import Mode, classify_task
from workers.runs.cli_runners import FALLBACK_FLAG

ROOT = Path(__file__).parents[2]
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)")


@pytest.mark.parametrize(
    ("page", "made"),
    [("configuration", configuration_page), ("reference/http", http_page), ("reference/cli", cli_page)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_references_are_what_the_code_says(page: str, made: Callable[[], str]) -> None:
    assert made() == (ROOT / "docs" / f"{page}.md").read_text(), "run `make docs`"


def test_every_link_between_the_pages_leads_to_a_file_and_a_heading_of_it() -> None:
    headings = {page: set(map(anchor, re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE))) for page in PAGES}
    dead = [
        (page.name, target, section)
        for page in PAGES
        for target, section in _LINK.findall(page.read_text())
        if not (page.parent / target).exists()
        or (section and section not in headings.get((page.parent / target).resolve() if target else page, {section}))
    ]

    assert dead == []


def anchor(heading: str) -> str:
    """Return the fragment by which GitHub finds a heading."""
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_").replace(" ", "-")


def shown_commands() -> Iterator[tuple[str, str]]:
    """Every command line of ours that a page shows in a block of code, with the page's name."""
    for page in PAGES:
        is_code = False
        for line in page.read_text().splitlines():
            is_code = not is_code if line.startswith("```") else is_code
            found = re.match(
                r"(?:[A-Z_]+=\S+ |ID=\$\(|export [A-Z_]+=\$\()*(?:\S+/)?pointsman +([a-z-].*)$", line.strip()
            )
            if found and (is_code or line.startswith("    ")):
                yield page.name, found[1]


def test_every_command_line_that_a_page_shows_is_one_with_these_options() -> None:
    from typer.main import get_command

    from producers.cli import app

    root = get_command(app)
    wrong = [(page, line) for page, line in shown_commands() for part in _parts(line) if not _is_known(part, root)]

    assert wrong == []


def _parts(line: str) -> list[str]:
    """Return the command lines of a shown line: it may name several, and say something after them."""
    said = re.split(r"\s+#|\s{3,}", line)[0]
    return re.split(r" ; pointsman ", said)


def _is_known(line: str, command: Any) -> bool:
    words = re.findall(r"\"[^\"]*\"|'[^']*'|[^\s|()<>]+", line)
    options = set()
    for word in words:
        below = getattr(command, "commands", None)
        if below is not None and word in below:
            command = below[word]
        elif below is not None and not word.startswith("-") and command.name != "route":
            return False
        elif word.startswith("--"):
            options.add(word.strip("[]"))
    below = getattr(command, "commands", {}).values()
    known = {name for each in (command, *below) for p in each.params for name in (*p.opts, *p.secondary_opts)}
    return options <= known | {"--help"}


def test_every_command_and_make_target_that_the_readme_names_exists() -> None:
    from typer.main import get_command

    from producers.cli import app

    readme = (ROOT / "README.md").read_text()
    known = set(getattr(get_command(app), "commands", {}))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?:^ +|`)(?:\S+/)?pointsman ([a-z]+)", readme, re.MULTILINE)) <= known
    assert set(re.findall(r"(?:^ +|`)make ([a-z]+)", readme, re.MULTILINE)) <= targets


@pytest.mark.req("S-136")
def test_the_readme_and_the_project_page_name_the_flag_of_codex_s_guarded_restart() -> None:
    for page in ("README.md", "docs/project.md"):
        assert f"`{FALLBACK_FLAG}=1`" in (ROOT / page).read_text()


# docs/why.md holds the facts of the seeds, and what it names is there.

PAGE = (ROOT / "docs" / "why.md").read_text()
WORDS = " ".join(PAGE.split())
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if line.startswith("| ") and (cells := [cell.strip() for cell in line.strip("|").split("|")])
}


def requirement(row: str, *values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.req(row))


def row(name: str) -> str:
    return " | ".join(ROWS[name])


@pytest.mark.req("S-001")
def test_every_record_of_seed_001_is_cited_by_a_name_of_its_own() -> None:
    assert [name for name in ROWS if name.startswith("S:ADR-")] == [f"S:ADR-{number:03}" for number in range(1, 14)]


@pytest.mark.req("S-001", "H-001", "P-001")
def test_no_page_cites_a_record_by_its_bare_number() -> None:
    bare = re.compile(r"(?<![SPH]:)\bADR-\d{3}\b(?!-[A-Z])")
    assert [(page.name, found) for page in PAGES for found in bare.findall(page.read_text())] == []


@pytest.mark.parametrize(
    ("record", "title", "status"),
    [
        requirement("S-002", "S:ADR-001", "Multi-Agent Orchestration Over Single Agent", "Accepted, 2026-02-10"),
        requirement("S-010", "S:ADR-002", "Hybrid Orchestration (Service Shell + Agent Core)", "Accepted, 2026-02-10"),
        requirement("S-038", "S:ADR-003", "Filesystem as Message Bus", "Accepted, 2026-02-10"),
        requirement("S-053", "S:ADR-004", "Claude Code as Agent Runtime", "Accepted, 2026-02-10"),
        requirement("S-064", "S:ADR-005", "BYOK (Bring Your Own Key) Model", "Accepted, 2026-02-10"),
        requirement("S-070", "S:ADR-006", "Three-Layer Configuration", "Accepted, 2026-02-10"),
        requirement("S-079", "S:ADR-007", "Agents Never See Credentials", "Accepted, 2026-02-10"),
        requirement("S-086", "S:ADR-008", "Scope Limited to Web Applications", "Accepted, 2026-02-10"),
        requirement("S-090", "S:ADR-009", "How This Differs From Existing Products", "Informational, 2026-02-10"),
        requirement("S-098", "S:ADR-010", "Human Review Gates Strategy", "Accepted, 2026-02-10"),
        requirement("S-107", "S:ADR-011", "Rework Loop Design", "Accepted, 2026-02-10"),
        requirement("S-115", "S:ADR-012", "Cost Model and Estimation", "Accepted, 2026-02-10"),
        requirement("S-125", "S:ADR-013", "Keep Guarded Codex CLI 401 Retry for `CODEX_HOME`", "Accepted, 2026-02-20"),
        requirement(
            "H-001",
            "H:ADR-008",
            "Hybrid Routing Policy — Spec Mode vs Code-Agent Mode",
            "Proposed, 2026-02-13",
        ),
        requirement(
            "P-001", "P:ADR-002", "Agent Architecture", "Accepted, superseded by its implementation, 2026-02-18"
        ),
    ],
)
def test_titles_statuses_and_dates_are_those_of_the_records(record: str, title: str, status: str) -> None:
    assert ROWS[record][:2] == [title, status]


@pytest.mark.parametrize(
    ("approach", "stars"),
    [
        requirement("S-013", "orchestration in code only", "5 | 2 | 5 | 2"),
        requirement("S-014", "an orchestrator agent only", "2 | 5 | 3 | 5"),
        requirement("S-015", "a graph engine (Airflow, Prefect)", "4 | 2 | 4 | 3"),
        requirement("S-016", "events on a message queue", "3 | 4 | 3 | 3"),
    ],
)
def test_the_four_approaches_have_their_ratings(approach: str, stars: str) -> None:
    assert row("approach") == "predictability | flexibility | reliability | development speed"
    assert row(approach) == stars


@pytest.mark.parametrize(
    ("product", "lacked"),
    [
        requirement("S-091", "Devin", ["one AI engineer", "specialised agents", "security review", "product analysis"]),
        requirement("S-092", "Cosine, Genie", ["code generation by several agents", "product, UX and security"]),
        requirement(
            "S-093",
            "OpenHands",
            ["open-source agent SDK", "orchestration of a whole process", "infrastructure toolkit"],
        ),
        requirement("S-094", "Lovable, Bolt, v0", ["prototype, fast", "QA", "security", "architecture decisions"]),
        requirement("S-095", "CrewAI, AutoGen", ["general frameworks", "how software is developed"]),
        requirement("S-096", "Claude Code, Cursor", ["coding assistants", "single agent", "orchestration"]),
    ],
)
def test_what_others_lacked_is_told(product: str, lacked: list[str]) -> None:
    assert all(words in row(product) for words in lacked)


@pytest.mark.parametrize(
    "facts",
    [
        requirement("S-009", ["more complex orchestration", "higher total of tokens", "passed between agents"]),
        requirement("S-062", ["OpenHands SDK", "MIT", "`enterprise/`", "a paid one"]),
        requirement("S-105", ["technical product manager or a small team", "tech lead", "lets the machine execute"]),
        requirement(
            "S-134",
            [
                "Removing the retry would fail steps",
                "triggering it on more would let a model's output",
                "Both were rejected",
            ],
        ),
        requirement(
            "P-008", ["Research, Architect, Frontend Dev, Styling, QA and Security strictly one after the other"]
        ),
        requirement("P-009", ["It was simpler and slower"]),
        requirement(
            "H-126",
            ["`ADR-007-Json-Render-Static-Site-Serving.md`", "`Architecture-Guardrails.md`: outside references, not"],
        ),
        requirement(
            "R-113", ["lazy wrapper around a model", "when that is convenient: inconsistent", "waste of tokens"]
        ),
        requirement(
            "R-118", ["costs one or two seconds", "is catastrophic", "are complex, and direct answers are rare"]
        ),
        requirement(
            "R-119", ["`CSP1.md`, the memory tiers of its phases 1 to 3, and `AGENTS.md` are outside references"]
        ),
        requirement("L-001", ["**Deterministic -> LLM Ladder Enforcement Addendum** (seed 004)"]),
        requirement(
            "L-007",
            [
                "`deterministic-llm-arbitration-fallback-plan.md`, is the global policy",
                "deterministic first, a model only for ambiguity that stays unresolved, and only a safe fallback.",
            ],
        ),
        requirement("L-009", ["Where the two conflict, the parent policy wins"]),
        requirement("L-010", ["where code of an open clarification deviates from the addendum, the addendum wins"]),
        requirement("L-046", ["the addendum wins and the code is changed"]),
        requirement("L-015", ["Out of scope stays how grounding sets rank their sources"]),
        requirement("L-121", ["check against isolation and reactivity anti-patterns does not apply"]),
        requirement(
            "P-059", ["rejects the single monolithic agent", "less specialised, harder to debug and improve in parts"]
        ),
    ],
)
def test_prices_and_rejected_ways_are_told(facts: list[str]) -> None:
    assert all(fact in WORDS for fact in facts)


EDGE_CASES = [(name.strip("`"), cells[0]) for name, cells in ROWS.items() if cells[0] in set(Mode)]


@pytest.mark.req("R-105")
@pytest.mark.parametrize(("message", "mode"), EDGE_CASES)
def test_an_edge_case_of_routing_is_decided_as_the_page_says(message: str, mode: str) -> None:
    assert classify_task(message) == mode


@pytest.mark.req("R-105")
def test_the_edge_cases_of_the_task_router_are_among_those_on_the_page() -> None:
    own = {"How do I find files with grep?", "Find all .ts files in src/", "What is in the src/config.json file?"}
    assert own <= {message for message, _ in EDGE_CASES}


def test_the_modules_that_the_page_names_are_there() -> None:
    named = re.findall(r"`((?:routing|workers|sandbox|producers)/[\w/]+?)(\.py|/)?`", PAGE)
    gone = [path for path, _ in named if find_spec(path.replace("/", ".")) is None and not (ROOT / path).is_dir()]
    assert gone == []
