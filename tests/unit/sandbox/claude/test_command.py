"""How the CLI is called."""

import json
from importlib import resources
from uuid import UUID

import pytest

from sandbox.claude.command import SITE, SessionPlan, arguments, environment
from sandbox.image.parts import own_files

PLAN = SessionPlan(
    id=UUID(int=7), role=SITE, model="claude-sonnet-4-6", max_turns=40, budget_usd=0.5, max_output_tokens=6000
)


@pytest.mark.req("H-077")
def test_the_command_restricts_the_tools_and_carries_the_cap() -> None:
    argv = arguments(PLAN, is_walled=True)
    assert "--tools=Bash,Edit,Glob,Grep,Read,Write" in argv
    assert "--max-budget-usd=0.5000" in argv
    assert "--permission-mode=dontAsk" in argv
    assert not any("bypass" in word or "skip-permissions" in word for word in argv)


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
    env = environment(PLAN, gateway_url="http://door:8080", token="virtual-token")
    assert [name for name, value in env.items() if value == "virtual-token"] == ["ANTHROPIC_AUTH_TOKEN"]
    assert env["ANTHROPIC_BASE_URL"] == "http://door:8080"
    assert not {name for name in env if name.startswith(("POINTSMAN", "PG", "REDIS"))}


def test_every_model_that_the_cli_may_choose_is_the_pinned_one() -> None:
    env = environment(PLAN, gateway_url="http://door:8080", token="t")
    models = {value for name, value in env.items() if name.startswith("ANTHROPIC_") and "MODEL" in name}
    assert models == {"claude-sonnet-4-6"}


def test_a_reply_may_never_have_more_tokens_than_the_caps_have_room_for() -> None:
    plan = SessionPlan(id=UUID(int=7), role=SITE, model="m", max_turns=1, budget_usd=1, max_output_tokens=64_000)
    assert environment(plan, gateway_url="x", token="t")["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "6000"
