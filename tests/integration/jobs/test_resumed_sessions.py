"""A code agent's session that goes on from an earlier one: what it is given, and when it begins afresh instead."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.tables import Job
from sandbox.claude_code import CONVERSATION_FILE
from sandbox.transcripts import unpack
from tests.integration.jobs.test_agent_jobs import edit, maker
from tests.integration.jobs.test_patch_jobs import plain_site
from tests.integration.jobs.test_rounds import TOO_MUCH, resume, session_that
from tests.integration.jobs.test_spec_jobs import Rig, rig, servers
from tests.played_cli import PlayedMaker
from workers.handlers.agent import edit_with_agent

__all__ = ["maker", "rig", "servers"]  # fixtures

SECRET = "sk-ant-api03-of-the-tests-0123456789abcdef"
RESUME = f"--resume={CONVERSATION_FILE}"
DOES_HALF = f"""
init()
used = use("Write", file_path="half.html")
pathlib.Path("half.html").write_text("<p>half")
done = {{"type": "tool_result", "tool_use_id": used, "content": EXTRA + " {SECRET}"}}
put(type="user", message={{"role": "user", "content": [done]}})
{TOO_MUCH}
"""
KEEPS_THE_CONVERSATION = """
resumed = [word.partition("=")[2] for word in sys.argv if word.startswith("--resume=")]
given = pathlib.Path(resumed[0]).read_text() if resumed else ""
"""


def begin(rig: Rig, maker: PlayedMaker, folder: Path, *, extra: str = "") -> Job:
    maker.program("claude", f"EXTRA = {extra!r}\n{DOES_HALF}")
    job = edit(rig, plain_site(rig, folder), maker, cap_nanousd=150_000_000)
    assert (job.state, job.release_id is not None) == ("budget_exceeded", True)
    return job


def go_on(rig: Rig, maker: PlayedMaker, job: Job, *body: str) -> Job:
    tells = 'write("told.json", json.dumps([prompt, given, resumed]))'
    maker.program("claude", KEEPS_THE_CONVERSATION + "\n".join([*body, session_that(tells)]))
    again = rig.run(resume(rig, job, 0.2).id, edit_with_agent)
    assert (again.state, again.detail) == ("awaiting_approval", None)
    return again


def told(rig: Rig, job: Job) -> tuple[str, list[dict[str, object]]]:
    prompt, given, _ = json.loads(rig.files(job.release_id)["told.json"])
    return prompt, [json.loads(line) for line in given.splitlines()]


def news(rig: Rig, job: Job) -> list[str]:
    rows = rig.shop.rows("SELECT data ->> 'text' FROM event WHERE job_id = :id AND kind = 'progress'", id=job.id)
    return [text for (text,) in rows if "session" in text]


def test_a_resumed_session_has_the_conversation_and_is_told_what_is_left_and_not_the_task_again(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    job = begin(rig, maker, tmp_path)
    again = go_on(rig, maker, job)
    prompt, records = told(rig, again)

    assert "multi-page" not in prompt
    assert "Go on where you stopped" in prompt
    assert f"at most {rig.shop.policy.agent.max_turns} replies" in prompt
    assert "$0.20" in prompt
    assert [record["type"] for record in records] == ["user", "assistant", "user"]
    assert "multi-page" in json.dumps(records[0])
    assert "half.html" in json.dumps(records[1])
    assert again.result["agent"]["went_on_from"] == job.result["agent"]["transcript_sha256"]
    assert again.result["agent"]["transcript_sha256"] != job.result["agent"]["transcript_sha256"]
    assert {"half.html", "told.json"} < set(rig.files(again.release_id))
    assert news(rig, again) == []


@pytest.mark.threat("C9")
def test_no_key_that_an_agent_saw_stands_in_what_is_kept_of_its_session(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    own = "the-operators-own-key"
    rig.resources = replace(rig.resources, known_keys=(own,))
    job = begin(rig, maker, tmp_path, extra=own)
    kept = unpack(rig.resources.content_store.get(job.result["agent"]["transcript_sha256"]))
    assert b"[redacted] [redacted]" in kept
    assert not any(secret.encode() in kept for secret in (SECRET, own))
    given = json.dumps(told(rig, go_on(rig, maker, job)))
    assert not any(secret in given for secret in (SECRET, own))


@pytest.mark.parametrize(
    ("refuses", "why"),
    [
        (
            'result("No conversation found", subtype="error_during_execution", is_error=True)\n    sys.exit(1)',
            "No conv",
        ),
        (
            'init()\n    result("API Error: 400", is_error=True, api_error_status=400)\n    sys.exit(1)',
            "API Error: 400",
        ),
    ],
    ids=["the CLI", "the provider"],
)
def test_a_conversation_that_is_refused_fails_no_job_it_begins_afresh_and_says_so(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, refuses: str, why: str
) -> None:
    job = begin(rig, maker, tmp_path)
    again = go_on(rig, maker, job, f"if resumed:\n    {refuses}")
    prompt, records = told(rig, again)
    assert records == []
    assert "multi-page" in prompt
    assert "do not begin anew" in prompt
    assert "went_on_from" not in again.result["agent"]
    [said] = news(rig, again)
    assert why in said
    assert again.root_id == job.id


@pytest.mark.parametrize("harm", ["too large", "damaged", "no longer there"])
def test_a_transcript_that_is_too_large_damaged_or_gone_is_never_shown_to_the_cli(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, harm: str
) -> None:
    job = begin(rig, maker, tmp_path, extra="x" * 600_000 if harm == "too large" else "")
    digest = job.result["agent"]["transcript_sha256"]
    [blob] = [path for path in rig.resources.content_store.root.rglob(f"*{digest[4:]}*") if path.is_file()]
    if harm == "damaged":
        os.chmod(blob, 0o600)
        blob.write_bytes(b"nothing")
    if harm == "no longer there":
        blob.unlink()
    again = go_on(rig, maker, job)
    assert told(rig, again)[1] == []
    assert not any(RESUME in command for box in maker.boxes for command in box.commands)
    assert len(news(rig, again)) == 1


def test_a_session_that_dies_at_its_start_for_another_reason_is_not_begun_twice(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    job = begin(rig, maker, tmp_path)
    maker.program("claude", f'{session_that()}\nwrite("late.html", "x")')
    again = rig.run(resume(rig, job, 0.2).id, edit_with_agent)
    assert (again.state, again.reason) == ("failed", "agent_failed")
    assert sum(RESUME in command for command in maker.boxes[-1].commands) == 1
