"""The command line on a real ledger: what programs read, what a person is told to do next, what the shell completes."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner, Result

from producers.cli import app
from routing.jobs import Reason, State
from tests.factories import Shop


def run(shop: Shop, *arguments: str, **environment: str) -> Result:
    given = {
        "HOME": "/nonexistent",
        "XDG_STATE_HOME": "/nonexistent",
        "POINTSMAN_LEDGER__URL": shop.url,
        "POINTSMAN_BROKER__URL": "redis://127.0.0.1:1/0",
        "POINTSMAN_WEBHOOK__SECRET": "whsec_of-the-tests",
    }
    return CliRunner().invoke(app, arguments, env={**given, **environment}, prog_name="pointsman")


def completed(shop: Shop, words: str) -> list[str]:
    done = run(shop, _POINTSMAN_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    return done.stdout.split()


WRONG: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("job", "{unknown}"), 1, "`pointsman jobs` lists"),
    (("watch", "{unknown}", "--json"), 1, "`pointsman jobs` lists"),
    (("approve", "{waiting}"), 1, "`pointsman job ID` shows"),
    (("submit", "Make it red", "--site", "nowhere"), 2, "site: "),
    (("submit", "pwd", "--tenant", "nobody"), 2, "pointsman key create --tenant nobody"),
    (("site", "releases", "nowhere"), 1, "`pointsman site list` lists"),
    (("gate", "pass", "{unknown}"), 1, "`pointsman gate list` lists"),
    (("gate", "pass", "abcd"), 1, "no open gate's id begins or ends with abcd; `pointsman gate list` lists"),
    (("people", "end", "abcd"), 1, "`pointsman people sessions` lists"),
    (("dismiss", "abcd", "x"), 2, "its first or last 4 characters"),
    (("dead", "--signature", "0123456789"), 1, "`pointsman dead` lists"),
    (("webhook", "replay"), 2, "--undelivered"),
    (("webhook", "replay", "{waiting}", "--undelivered"), 2, "--undelivered"),
    (("webhook", "replay", "{waiting}"), 1, "has not ended"),
    (("key", "revoke", "none"), 1, "no valid key 'none'"),
    (("key", "create", "--scope", "everything"), 2, "scope"),
    (("job", "no-uuid"), 2, "ID"),
    (("tenant", "limit", "demo", "-3"), 2, "must be a positive number"),
)
"""Arguments, the code that they end with, and what is said to do about it."""


def test_an_error_says_what_to_do_and_ends_with_its_code(shop: Shop) -> None:
    shop.tenant("demo")
    waiting = json.loads(run(shop, "submit", "What is bread?", "--json").stdout)["id"]
    for arguments, code, hint in WRONG:
        result = run(shop, *(argument.format(unknown=uuid4(), waiting=waiting) for argument in arguments))
        assert result.exit_code == code, (arguments, result.output)
        assert hint in " ".join(result.output.replace("│", " ").split()), arguments
        assert "Traceback" not in result.output, arguments


@pytest.mark.req("R-094", "H-051")
def test_a_file_of_jobs_is_submitted_line_by_line_and_its_refusals_are_told(shop: Shop, tmp_path: Path) -> None:
    shop.tenant("demo")
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"prompt": "What is bread?"}\n\n{"prompt": "pwd"}\n')
    done = run(shop, "submit", "--batch", str(path))
    assert done.exit_code == 0, done.output
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["state"], one["queue"], one["is_new"]) for one in told] == [
        ("queued", "answer", True),
        ("queued", "tools", True),
    ]
    assert {str(row.id) for row in shop.rows("SELECT id FROM job")} == {one["id"] for one in told}
    path.write_text('{"prompt": ""}\n{"prompt": "whoami"}\n')
    done = run(shop, "submit", "--batch", str(path))
    assert (done.exit_code, len(shop.rows("SELECT id FROM job"))) == (1, 3)
    assert "prompt" in json.loads(done.stdout.splitlines()[0])["refused"]
    path.write_text("[]\n")
    for arguments in (("--batch", str(path)), ("pwd", "--batch", str(path)), ("--batch", str(path), "--wait"), ()):
        assert run(shop, "submit", *arguments).exit_code == 2, arguments


def test_what_commands_print_for_programs_is_json(shop: Shop, tmp_path: Path) -> None:
    shop.tenant("demo")
    made = json.loads(run(shop, "submit", "What is bread?", "--json").stdout)
    for arguments in (
        ("jobs",),
        ("job", made["id"]),
        ("cancel", made["id"]),
        ("queue", "pause", "spec"),
        ("queue", "list"),
        ("tenant", "limit", "demo", "3"),
        ("tenant", "pause", "demo"),
        ("tenant", "list"),
        ("key", "create"),
        ("key", "list"),
        ("key", "revoke", "default"),
        ("circuit", "list"),
        ("webhook", "secret"),
        ("webhook", "list"),
        ("webhook", "show", made["id"]),
        ("migrate",),
        ("dead",),
        ("gate", "list"),
        ("site", "list"),
    ):
        done = run(shop, *arguments, "--json")
        assert done.exit_code == 0, (arguments, done.output)
        json.loads(done.stdout)
    assert json.loads(run(shop, "job", made["id"], "--json").stdout)["state"] == "cancelled"
    assert json.loads(run(shop, "tenant", "show", "demo", "--json").stdout)["max_running"] == 3


def test_a_circuit_that_was_reset_is_told_as_the_list_of_circuits_tells_it(shop: Shop) -> None:
    shop.execute(
        "INSERT INTO provider_circuit (provider, model, failures, requests, tokens, open_until, reason, changed_at)"
        " VALUES ('acme', 'm', 9, 0, 0, now() + interval '1 hour', 'failing', now())"
    )
    done = run(shop, "circuit", "reset", "acme", "m", "--json")
    (circuit,) = json.loads(run(shop, "circuit", "list", "--json").stdout)
    assert json.loads(done.stdout)["state"] == circuit["state"] == "closed"
    assert run(shop, "circuit", "reset", "acme", "n").exit_code == 1


def test_a_notification_that_never_arrived_is_shown_and_sent_again_from_the_command_line(shop: Shop) -> None:
    claimed = shop.running(tier=None, callback_url="https://receiver.example/hook")
    shop.end(claimed, State.ANSWERED, Reason.DONE)
    shop.execute("UPDATE notification SET next_at = NULL")
    job_id = str(claimed.job.id)
    assert job_id in run(shop, "webhook", "list", "--tenant", "acme").stdout
    done = run(shop, "webhook", "replay", "--undelivered", "--tenant", "acme", "--json")
    assert json.loads(done.stdout) == [{"job_id": job_id, "is_done": True, "why_not": None}]
    shown = run(shop, "webhook", "show", job_id[-8:], "--tenant", "acme").stdout
    assert "pending" in shown
    assert "https://receiver.example/hook" in shown
    assert run(shop, "webhook", "list", "--tenant", "acme").stdout.splitlines()[1:] == []


def test_the_shell_completes_sites_and_jobs_of_the_tenant(shop: Shop) -> None:
    shop.site("bakery", tenant="demo")
    shop.site("bookshop", tenant="demo")
    shop.site("secret", tenant="acme")
    job_id = json.loads(run(shop, "submit", "What is bread?", "--json").stdout)["id"]
    assert completed(shop, "pointsman submit x --site b") == ["bakery", "bookshop"]
    assert completed(shop, f"pointsman job {job_id[:4]}") == [str(UUID(job_id))]
    assert completed(shop, "pointsman submit x --site s") == []
