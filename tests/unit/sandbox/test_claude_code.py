"""How the CLI is called."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from routing.policy.platform import Profile
from sandbox.claude_code import CLI_VERSION, CONVERSATION_FILE, SITE, SessionPlan, arguments, environment
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


GOES_ON = replace(PLAN, goes_on=True)


def test_a_session_that_goes_on_names_one_file_outside_of_its_workspace() -> None:
    assert arguments(GOES_ON, is_walled=True) == (*arguments(PLAN, is_walled=True), f"--resume={CONVERSATION_FILE}")
    assert not CONVERSATION_FILE.startswith("/workspace")
