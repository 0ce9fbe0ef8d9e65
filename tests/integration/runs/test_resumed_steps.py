"""A step of a run whose agent was cut off: its next attempt or try has its files and its conversation."""

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ledger.dispatch_window import release_due
from ledger.tables import Job
from routing.queues import QueueName
from sandbox.claude_code import CONVERSATION_FILE
from tests.integration.runs.step_world import Done
from tests.integration.runs.test_steps import Office, office, servers
from tests.played_cli import PlayedMaker
from workers.lifecycle import run_attempt
from workers.runs.step import run_step

__all__ = ["office", "servers"]  # fixtures

AGENT = "backend-dev"
HALF = 'init()\nwrite("src/half.js", "// half")\nwrite("outside.md", "x")\nwrite(".agent-result.json", "{")\n'
GOES_ON = """
resumed = [word.partition("=")[2] for word in sys.argv if word.startswith("--resume=")]
given = pathlib.Path(resumed[0]).read_text() if resumed else ""
there = sorted(str(path) for path in pathlib.Path(".").rglob("*") if path.is_file())
init()
write("src/told.json", json.dumps([prompt, given, there]))
write(".agent-result.json", json.dumps({"status": "complete", "summary": "Finished."}))
result()
"""


@pytest.fixture
def maker(office: Office, tmp_path: Path) -> PlayedMaker:
    port = urlsplit(office.yard.resources.gateway_url).port
    assert port is not None
    maker = PlayedMaker(tmp_path / "programs", gateway_port=port, is_walled=True)
    office.yard.resources = replace(office.yard.resources, boxes=maker)
    return maker


def again(office: Office, task: str) -> Done:
    """The next try of the step, once its run has seen how the last one ended."""
    office.yard.shop.execute("UPDATE run_step SET state = 'failed'")
    return office.yard.do(AGENT, task)


def check_went_on(done: Done, *, task: str) -> None:
    assert (done.job.state, done.job.detail) == ("answered", None)
    changes = done.changes()
    assert set(changes) == {"src/half.js", "src/told.json"}
    prompt, given, there = json.loads(changes["src/told.json"] or b"")
    records = [json.loads(line) for line in given.splitlines()]
    assert task in json.dumps(records[0])
    assert "src/half.js" in json.dumps(records[1])
    assert task not in prompt
    assert "Go on where you stopped" in prompt
    assert "replies" in prompt
    assert "src/half.js" in there
    assert not {"outside.md", ".agent-result.json"} & set(there)


def test_a_step_that_left_no_result_goes_on_where_it_was_instead_of_writing_everything_again(
    office: Office, maker: PlayedMaker
) -> None:
    maker.program("claude", f"{HALF}result()")
    first = office.yard.do(AGENT, "Build the total")
    assert (first.job.reason, first.execution.commit) == ("agent_failed", None)
    assert "kept as refs/steps/step/1" in (first.job.detail or "")

    maker.program("claude", GOES_ON)
    done = again(office, "Build the total")
    check_went_on(done, task="Build the total")
    assert done.execution.base_commit == office.yard.base
    assert done.job.result["agent"]["went_on_from"] == first.job.result["agent"]["transcript_sha256"]


def test_a_step_whose_conversation_is_refused_begins_afresh_in_the_files_that_it_had_written(
    office: Office, maker: PlayedMaker
) -> None:
    maker.program("claude", f"{HALF}result()")
    office.yard.do(AGENT, "Build the total")
    refuses = 'if resumed:\n    result("No conv", is_error=True)\n    sys.exit(1)\ninit()'
    maker.program("claude", GOES_ON.replace("init()", refuses))
    done = again(office, "Build the total")
    prompt, given, there = json.loads(done.changes()["src/told.json"] or b"")
    assert given == ""
    assert "Build the total" in prompt
    assert "do not begin anew" in prompt
    assert "src/half.js" in there
    assert any("a new one begins: No conv" in str(event.get("text")) for event in done.events)


def test_a_step_whose_provider_is_busy_waits_and_goes_on_with_what_it_had(office: Office, maker: PlayedMaker) -> None:
    busy = 'status, _ = call(about="x [rehearse:overload]")\nresult(f"API Error: {status}", is_error=True)\nsys.exit(1)'
    maker.program("claude", f"{HALF}{busy}")
    waiting = office.yard.do(AGENT, "Build the total")
    assert (waiting.job.state, waiting.job.held_for) == ("queued", "provider")
    attempts = "SELECT outcome FROM attempt WHERE job_id = :id"
    assert office.yard.shop.scalar(attempts, id=waiting.job.id) == "deferred_kept"

    maker.program("claude", GOES_ON)
    office.yard.shop.execute("DELETE FROM provider_circuit")
    office.yard.shop.execute("UPDATE job SET held_until = clock_timestamp() WHERE held_until IS NOT NULL")
    with office.yard.shop.ledger.begin() as session:
        release_due(session)
    run_attempt(office.yard.shop.message(waiting.job.id), QueueName.STEPS, run_step, office.yard.resources)
    job: Job = office.yard.shop.job(waiting.job.id)
    execution = office.yard.shop.find(type(waiting.execution), job.id)
    check_went_on(replace(waiting, job=job, execution=execution), task="Build the total")
    assert [CONVERSATION_FILE in word for word in maker.boxes[-1].commands[-1]].count(True) == 1
