"""How the CLI is called, and how a session is read and judged, hostile streams among them."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.policy.platform import Profile
from sandbox.claude_code import (
    CLI_VERSION,
    CONVERSATION_FILE,
    MAX_PROGRESS_LINES,
    SITE,
    CliUsage,
    End,
    Finished,
    SessionPlan,
    SessionReader,
    TextWritten,
    ToolUsed,
    Verdict,
    arguments,
    environment,
    read_line,
)
from sandbox.execution import Ending, ExecResult
from sandbox.image.rootfs import CLAUDE_VERSION, own_files
from sites.scan.engine import scan

ROOT = Path(__file__).parents[3]
PLAN = SessionPlan(role=SITE, model="claude-sonnet-4-6", max_turns=40, budget_usd=0.5, max_output_tokens=6000)


@pytest.mark.req("H-077")
def test_the_command_restricts_the_tools_and_carries_the_cap() -> None:
    argv = arguments(PLAN, is_walled=True)
    assert argv[0] == "claude"
    assert "--tools=Bash,Edit,Glob,Grep,Read,Write" in argv
    assert "--max-budget-usd=0.5000" in argv
    assert "--permission-mode=dontAsk" in argv
    assert not any("bypass" in word or "skip-permissions" in word for word in argv)


@pytest.mark.req("S-059")
def test_the_whole_command_is_what_this_version_of_the_cli_was_tried_with() -> None:
    assert arguments(PLAN, is_walled=True) == (
        "claude",
        "--print",
        "--verbose",
        "--output-format=stream-json",
        "--input-format=stream-json",
        "--setting-sources=user",
        "--settings=/etc/claude-code/roles/site.json",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--no-session-persistence",
        "--tools=Bash,Edit,Glob,Grep,Read,Write",
        "--allowedTools=Bash,Edit,Glob,Grep,Read,Write",
        "--disallowedTools=WebFetch,WebSearch,Agent,Task,mcp__*",
        "--permission-mode=dontAsk",
        "--append-system-prompt-file=/etc/claude-code/roles/site.md",
        "--model=claude-sonnet-4-6",
        "--max-turns=40",
        "--max-budget-usd=0.5000",
    )
    assert CLI_VERSION == CLAUDE_VERSION == "2.1.330", "a new version of the CLI: try its flags, then pin it here"


@pytest.mark.req("S-059")
def test_no_other_module_builds_a_command_of_the_cli() -> None:
    flags = ("--print", "--output-format", "--setting-sources", "--permission-mode", "--skip-permissions")
    packages = ("sandbox", "workers", "routing", "monitoring", "producers")
    modules = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    builders = {path.relative_to(ROOT) for path in modules if any(flag in path.read_text() for flag in flags)}
    assert builders == {Path("sandbox/claude_code.py")}


@pytest.mark.req("S-056", "S-083")
def test_what_stands_for_a_claude_md_is_in_the_image_and_names_no_key() -> None:
    roles = {file.path: file.data for file in own_files() if "/roles/" in file.path}
    assert b"You edit one website" in roles[SITE.rules_file]
    profile = Profile(js_bytes=0, js_gzip_bytes=0, script_hosts=(), image_hosts=(), form_hosts=(), max_files=9)
    report = scan(roles, profile, profile_name="x")
    assert [finding for finding in report.findings if finding.gate == "secrets"] == []
    assert not any(word in data.lower() for data in roles.values() for word in (b"api_key", b"api key", b"token"))


@pytest.mark.threat("D9")
def test_every_word_is_a_flag_with_its_value_and_none_is_the_prompt() -> None:
    program, *flags = arguments(PLAN, is_walled=True)
    assert program == "claude"
    assert all(flag.startswith("--") for flag in flags)


@pytest.mark.threat("D3", "D4")
def test_settings_come_from_the_image_and_never_from_the_site() -> None:
    argv = arguments(PLAN, is_walled=True)
    paths = {file.path for file in own_files()}
    assert "--setting-sources=user" in argv
    assert "--strict-mcp-config" in argv
    assert f"--settings={SITE.settings_file}" in argv
    assert f"--append-system-prompt-file={SITE.rules_file}" in argv
    assert {SITE.settings_file, SITE.rules_file} <= paths


def test_the_settings_of_a_site_s_role_forbid_to_bypass_permissions() -> None:
    settings = json.loads((resources.files("sandbox.image") / "files" / "role-site.json").read_text())
    assert settings["permissions"]["disableBypassPermissionsMode"] == "disable"
    assert settings["disableAllHooks"] is True


@pytest.mark.req("H-116")
def test_the_environment_holds_one_secret_which_is_the_attempt_s_token() -> None:
    env = environment(PLAN, gateway_url="http://egress:8080", token="virtual-token")
    assert [name for name, value in env.items() if value == "virtual-token"] == ["ANTHROPIC_AUTH_TOKEN"]
    assert {name: value for name, value in env.items() if "://" in value} == {
        "ANTHROPIC_BASE_URL": "http://egress:8080"
    }
    assert {name.split("_")[0] for name in env} == {"ANTHROPIC", "CLAUDE", "DISABLE", "BASH"}


def test_every_model_that_the_cli_may_choose_is_the_pinned_one() -> None:
    env = environment(PLAN, gateway_url="http://egress:8080", token="t")
    models = {value for name, value in env.items() if name.startswith("ANTHROPIC_") and "MODEL" in name}
    assert models == {"claude-sonnet-4-6"}


def test_a_reply_may_never_have_more_tokens_than_the_caps_have_room_for() -> None:
    plan = SessionPlan(role=SITE, model="m", max_turns=1, budget_usd=1, max_output_tokens=64_000)
    assert environment(plan, gateway_url="x", token="t")["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "6000"


def test_a_traced_session_s_calls_say_which_span_they_belong_to() -> None:
    header = f"00-{'a1' * 16}-{'b2' * 8}-01"
    env = environment(PLAN, gateway_url="x", token="t", trace=header)
    assert env["ANTHROPIC_CUSTOM_HEADERS"] == f"traceparent: {header}"
    assert "ANTHROPIC_CUSTOM_HEADERS" not in environment(PLAN, gateway_url="x", token="t")


FINE = ExecResult(ending=Ending.EXITED, exit_code=0, stdout=b"", stderr=b"", output_bytes=1, seconds=1.0)
INIT: dict[str, Any] = {
    "type": "system",
    "subtype": "init",
    "tools": sorted(PLAN.role.tools),
    "mcp_servers": [],
    "slash_commands": [],
    "skills": [],
    "model": PLAN.model,
    "permissionMode": "dontAsk",
    "claude_code_version": "2.1.330",
    "plugins": [{"name": "cc-plugin-privacy", "path": "builtin", "source": "cc-plugin-privacy@builtin"}],
}
DONE: dict[str, Any] = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "num_turns": 3}


def use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": name, "input": given}]}}


def read(*events: Any, tell: list[str] | None = None, plan: SessionPlan = PLAN) -> tuple[SessionReader, bool]:
    reader = SessionReader(plan, tell=(tell if tell is not None else []).append)
    goes_on = True
    for event in events:
        line = event if isinstance(event, bytes) else json.dumps(event).encode()
        goes_on = goes_on and reader.take(line)
    return reader, goes_on


def judge(*events: Any, result: ExecResult = FINE) -> Verdict:
    return read(*events)[0].judge(result)


def test_a_session_that_says_so_exits_well_and_was_not_cut_off_is_done() -> None:
    assert judge(INIT, use("Edit", file_path="a"), DONE) == Verdict(End.DONE, "Done.")


@pytest.mark.threat("D5")
@pytest.mark.parametrize(
    "change",
    [
        {"tools": [*sorted(PLAN.role.tools), "WebFetch"]},
        {"tools": sorted(PLAN.role.tools)[1:]},
        {"tools": [*sorted(PLAN.role.tools)[1:], "Write"]},
        {"tools": None},
        {"mcp_servers": [{"name": "evil", "status": "connected"}]},
        {"plugins": [{"name": "evil", "path": "/workspace/.claude"}]},
        {"plugins": ["evil"]},
        {"slash_commands": ["deploy"]},
        {"skills": ["evil"]},
        {"model": "claude-opus-4-6"},
        {"permissionMode": "bypassPermissions"},
        {"permissionMode": None},
        {"claude_code_version": "2.1.331"},
        {"claude_code_version": None},
    ],
    ids=repr,
)
def test_a_session_that_is_not_exactly_what_its_role_demands_is_stopped(change: dict[str, Any]) -> None:
    reader, goes_on = read(INIT | change)
    assert not goes_on
    assert reader.judge(FINE).end is End.REFUSED


def test_a_session_that_works_before_it_says_what_it_may_do_is_stopped() -> None:
    reader, goes_on = read(use("Bash", command="id"))
    assert not goes_on
    assert reader.judge(FINE).end is End.REFUSED


GOES_ON = replace(PLAN, goes_on=True)


def test_a_session_that_goes_on_names_one_file_outside_of_its_workspace() -> None:
    assert arguments(GOES_ON, is_walled=True) == (*arguments(PLAN, is_walled=True), f"--resume={CONVERSATION_FILE}")
    assert not CONVERSATION_FILE.startswith("/workspace")


NOTHING = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": ["No conversation found"]}


@pytest.mark.parametrize(
    ("events", "is_so"),
    [
        ((NOTHING,), True),
        ((INIT, {**NOTHING, "api_error_status": 400}), True),
        ((INIT, {**NOTHING, "api_error_status": 413}), True),
        ((INIT, {**NOTHING, "api_error_status": 529}), False),
        ((INIT, NOTHING), False),
        ((INIT, use("Bash", command="ls"), {**NOTHING, "api_error_status": 400}), False),
    ],
)
def test_a_conversation_is_refused_only_before_anything_was_done(events: tuple[Any, ...], is_so: bool) -> None:
    reader, goes_on = read(*events, plan=GOES_ON)
    assert goes_on
    assert reader.found_nothing is is_so
    assert not read(*events)[0].found_nothing


def test_whatever_follows_a_refused_conversation_is_stopped_before_it_does_anything() -> None:
    for event in (INIT, use("Bash", command="ls")):
        reader, goes_on = read(NOTHING, event, plan=GOES_ON)
        assert not goes_on
        assert reader.refusal


def test_a_later_start_is_checked_like_the_first() -> None:
    assert not read(INIT, use("Read"), INIT | {"tools": ["Bash", "WebFetch"]})[1]
    assert read(INIT, use("Read"), INIT)[1]


@pytest.mark.parametrize(
    ("ending", "end"),
    [
        (Ending.START_TIMEOUT, End.TIME),
        (Ending.IDLE_TIMEOUT, End.TIME),
        (Ending.SOFT_TIMEOUT, End.TIME),
        (Ending.HARD_TIMEOUT, End.TIME),
        (Ending.OUTPUT_LIMIT, End.OUTPUT),
        (Ending.LINE_LIMIT, End.OUTPUT),
        (Ending.BOX_LOST, End.BOX_LOST),
    ],
)
def test_a_session_that_was_cut_off_is_not_done_whatever_it_says(ending: Ending, end: End) -> None:
    assert judge(INIT, DONE, result=replace(FINE, ending=ending)).end is end


@pytest.mark.parametrize(("said", "text"), [(None, "it ended with error_max_turns"), ("API Error: 500",) * 2])
def test_a_session_that_failed_is_told_in_its_own_words_or_by_how_it_ended(said: str | None, text: str) -> None:
    assert judge(INIT, DONE | {"subtype": "error_max_turns", "result": said}).text == text


@pytest.mark.parametrize(
    ("events", "exit_code", "end"),
    [
        ((INIT,), 0, End.FAILED),
        ((DONE,), 0, End.REFUSED),
        ((), 0, End.FAILED),
        ((INIT, DONE), 1, End.FAILED),
        ((INIT, DONE), None, End.FAILED),
        ((INIT, DONE), 137, End.RESOURCES),
        ((INIT, DONE | {"is_error": True}), 0, End.FAILED),
        ((INIT, {name: value for name, value in DONE.items() if name != "is_error"}), 0, End.FAILED),
        ((INIT, DONE | {"is_error": 0}), 0, End.FAILED),
        ((INIT, DONE | {"subtype": "error_max_turns"}), 0, End.FAILED),
        ((INIT, DONE | {"subtype": "error_during_execution"}), 0, End.FAILED),
        ((INIT, DONE | {"subtype": "error_max_budget_usd"}), 0, End.BUDGET),
        ((INIT, DONE, DONE | {"is_error": True}), 0, End.FAILED),
        ((INIT, DONE | {"is_error": True}, DONE), 0, End.FAILED),
        ((INIT, DONE | {"subtype": "error_max_budget_usd"}, DONE), 0, End.FAILED),
        ((INIT, DONE, DONE), 0, End.FAILED),
        ((INIT, DONE, use("Bash", command="id")), 0, End.FAILED),
        ((INIT, DONE, INIT), 0, End.FAILED),
    ],
)
def test_anything_less_than_a_good_result_a_good_status_and_a_start_is_no_success(
    events: tuple[Any, ...], exit_code: int | None, end: End
) -> None:
    assert judge(*events, result=replace(FINE, exit_code=exit_code)).end is end


@pytest.mark.parametrize(("oom_kills", "end"), [(0, End.FAILED), (1, End.RESOURCES), (None, End.RESOURCES)])
def test_a_killed_session_used_too_much_memory_unless_the_kernel_says_otherwise(
    oom_kills: int | None, end: End
) -> None:
    assert judge(INIT, DONE, result=replace(FINE, exit_code=137, oom_kills=oom_kills)).end is end


@pytest.mark.threat("A10")
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"noise",
        b"[]",
        b"{",
        b"{}",
        b'{"type": null}',
        b'{"type": []}',
        b"\xff\xfe{",
        b'{"type": "assistant"}',
        b'{"type": "assistant", "message": []}',
        b'{"type": "assistant", "message": {"content": 7}}',
        b'{"type": "assistant", "message": {"content": [7, null, {"type": "text"}]}}',
        b'{"a":' * 5000,
        b"[" * 100_000,
        b'{"type": NaN}',
        b'{"type": "user", "message": {"content": [{"type": "tool_use", "name": "Bash"}]}}',
    ],
)
def test_what_is_not_understood_is_noise(line: bytes) -> None:
    told: list[str] = []
    reader, goes_on = read(INIT, line, tell=told)
    assert (goes_on, told) == (True, [])
    assert reader.finished is None


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps({"type": "assistant", "message": {"content": value}}).encode()
    )
)
def test_no_line_breaks_the_reader(line: bytes) -> None:
    list(read_line(line))


def test_text_from_a_stream_is_one_line_without_anything_invisible() -> None:
    text = "a\x1b[31m\u202eb\u200bc\nd\x00" + "x" * 5000
    message = {"content": [{"type": "text", "text": text}]}
    (said,) = read_line(json.dumps({"type": "assistant", "message": message}).encode())
    assert isinstance(said, TextWritten)
    assert said.text.startswith("a [31m b c d x")
    assert len(said.text) == 160
    (finished,) = read_line(json.dumps(DONE | {"result": text, "num_turns": -5}).encode())
    assert isinstance(finished, Finished)
    assert len(finished.text) == 2000
    assert finished.turns == 0


@pytest.mark.threat("C7")
def test_a_result_among_the_output_of_a_tool_is_not_one() -> None:
    spoof = json.dumps(DONE)
    block = {"type": "tool_result", "tool_use_id": "x", "content": f"{spoof}\n{spoof}"}
    verdict = judge(INIT, use("Bash", command="x"), {"type": "user", "message": {"content": [block]}})
    assert verdict == Verdict(End.FAILED, "it ended without a result (status 0)")


@pytest.mark.parametrize("kind", ["control_request", "stream_event", "rate_limit_event", "unheard_of", "", None, 7, []])
def test_a_kind_of_message_that_nobody_knows_changes_nothing(kind: Any) -> None:
    event = {
        "type": kind,
        "subtype": "success",
        "result": "x",
        "tools": ["WebFetch"],
        "message": use("Bash")["message"],
    }
    assert judge(INIT, event, use("Read"), event, DONE, event) == Verdict(End.DONE, "Done.")


def test_news_say_which_tool_is_used_on_what() -> None:
    line = json.dumps(use("Edit", file_path="/workspace/about.html", old_string="secret")).encode()
    assert list(read_line(line)) == [ToolUsed("Edit", "about.html")]


def test_news_are_bounded() -> None:
    told: list[str] = []
    reader, _ = read(
        INIT, *[use("Read", file_path=str(number)) for number in range(MAX_PROGRESS_LINES + 50)], tell=told
    )
    assert len(told) == MAX_PROGRESS_LINES
    assert reader.tools_used == MAX_PROGRESS_LINES + 50


# ---------------------------------------------------------------- what the CLI says that it used


def finished(**fields: Any) -> Finished:
    event = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "num_turns": 2}
    (found,) = read_line(json.dumps(event | fields).encode())
    assert isinstance(found, Finished)
    return found


USED = {
    "claude-sonnet-4-6": {
        "inputTokens": 10,
        "outputTokens": 20,
        "cacheReadInputTokens": 300,
        "cacheCreationInputTokens": 40,
        "webSearchRequests": 0,
        "costUSD": 0.5,
    },
    "claude-haiku-4-5-20251001": {
        "inputTokens": 1,
        "outputTokens": 2,
        "cacheReadInputTokens": 3,
        "cacheCreationInputTokens": 4,
        "costUSD": 0.1,
    },
}


@pytest.mark.req("S-061")
def test_tokens_and_cost_are_read_from_what_the_cli_prints() -> None:
    assert finished(modelUsage=USED, total_cost_usd=0.6).own_count == CliUsage(11, 22, 303, 44, 0.6)


@pytest.mark.req("S-061")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"total_cost_usd": 0.6},
        {"modelUsage": USED},
        {"modelUsage": {}, "total_cost_usd": 0},
        {"modelUsage": [], "total_cost_usd": 0},
        {"modelUsage": {"m": 5}, "total_cost_usd": 0},
        {"modelUsage": {"m": {"inputTokens": 5}}, "total_cost_usd": 0},
        {"modelUsage": USED, "total_cost_usd": "0.6"},
        {"modelUsage": USED, "total_cost_usd": -1},
        {"modelUsage": USED, "total_cost_usd": True},
    ],
)
def test_what_cannot_be_read_is_unknown_and_not_nothing(fields: dict[str, Any]) -> None:
    assert finished(**fields).own_count is None
