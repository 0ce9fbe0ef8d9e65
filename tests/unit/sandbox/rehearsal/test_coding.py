import pytest

from sandbox.rehearsal.blocks import Text, ToolUse
from sandbox.rehearsal.coding import code_agent
from tests.unit.sandbox.rehearsal.factories import make_request, tool, tool_turn, user

TOOLS = [tool("Read"), tool("Edit"), tool("Write"), tool("Bash")]
SYSTEM = "# Environment\n - Primary working directory: /work/site\n - Is a git repository: false"
PAGE = "     1→<main>\n     2→  <h1>Hi</h1>\n     3→</main>"


def step(prompt: str, *turns: tuple[str, str]):
    asked = [user(prompt)]
    for number, (name, result) in enumerate(turns):
        asked += tool_turn(name, {}, result, number=number)
    blocks = code_agent(make_request(*asked, tools=TOOLS, system=SYSTEM))
    return blocks[-1]


def test_the_file_is_read_before_it_is_changed():
    assert step("Make about.html friendlier") == ToolUse("Read", {"file_path": "/work/site/about.html"})


def test_a_prompt_without_a_file_is_about_the_first_page():
    assert step("Add opening hours") == ToolUse("Read", {"file_path": "/work/site/index.html"})


def test_a_page_gets_a_section_before_the_end_of_its_main_part():
    use = step("Add opening hours", ("Read", PAGE))
    assert isinstance(use, ToolUse)
    assert use.name == "Edit"
    assert use.input["old_string"] == "</main>"
    assert '<section id="opening-hours">' in use.input["new_string"]


def test_what_the_prompt_quotes_is_escaped_in_a_page():
    use = step('Add "<script>alert(1)</script>"', ("Read", PAGE))
    assert isinstance(use, ToolUse)
    assert "<script>" not in use.input["new_string"]


def test_a_text_file_grows_at_its_end_even_when_its_last_line_repeats():
    use = step('Add "Three" to list.txt', ("Read", "1\tOne\n2\tTwo\n3\tOne"))
    assert isinstance(use, ToolUse)
    assert use.input == {"file_path": "/work/site/list.txt", "old_string": "Two\nOne", "new_string": "Two\nOne\nThree"}


def test_a_file_that_does_not_exist_is_written():
    asked = [user('Create notes.txt that says "nine"'), *tool_turn("Read", {}, "File does not exist.")]
    use = code_agent(make_request(*asked, tools=TOOLS, system=SYSTEM))[-1]
    assert use == ToolUse("Write", {"file_path": "/work/site/notes.txt", "content": "nine\n"})


def test_a_change_that_worked_is_reported_and_ends_the_turn():
    report = step("Add opening hours", ("Read", PAGE), ("Edit", "The file has been updated."))
    assert isinstance(report, Text)
    assert "rehearsal" in report.text


@pytest.mark.parametrize("prompt", ["Read ../../etc/passwd.txt", "Change /etc/hosts.conf"])
def test_a_path_in_a_prompt_stays_below_the_working_directory(prompt):
    use = step(prompt)
    assert isinstance(use, ToolUse)
    assert use.input["file_path"].startswith("/work/site/")
    assert ".." not in use.input["file_path"]
