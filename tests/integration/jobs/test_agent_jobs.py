"""Tier 3 from claim to publish through the real gateway and ledger; `claude` is a program that each test writes."""

import errno
import gzip
import json
import os
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from ledger.attempts import hash_token
from ledger.tables import Job, Release, Site
from producers.dispatch.housekeeping import collect_garbage
from producers.use_cases.sites import Sites
from routing.policy.platform import Policy
from routing.queues import QueueName, Tier
from sandbox.errors import SandboxStartupError
from sandbox.local_box import LocalBox
from sandbox.pool import Pool
from sites.content_store import ContentStore, review_diff
from sites.diff.apply import SITE, apply_diff
from sites.diff.model import DiffRefusedError
from sites.directories import write_directory
from sites.disk import Disk
from sites.errors import TreeRefusedError
from sites.scan.rules import GATES
from tests.integration.jobs.test_patch_jobs import PAGE, STYLE, plain_site
from tests.integration.jobs.test_spec_jobs import Rig, rig, servers
from tests.played_cli import PlayedMaker
from workers.boxes import PoolOnDemand, standby_session
from workers.handlers.agent import edit_with_agent, session_plan
from workers.handlers.publish import run_control

__all__ = ["rig", "servers"]  # fixtures

BASE = {"index.html": PAGE, "site.css": STYLE}
WORKS = """
init()
write("about.html", pathlib.Path("index.html").read_text().replace("Welcome", "About"))
pathlib.Path("index.html").write_text(pathlib.Path("index.html").read_text().replace("Welcome", "Hello"))
result("I added a page about us.")
"""
TOLD = "Convert to a multi-page site\n\nYou have at most 40 replies, "
THIRTEEN = (
    "lock",
    "snapshot",
    "provision",
    "inject",
    "execute",
    "extract",
    "teardown",
    "build",
    "scan",
    "preview",
    "approval",
    "publish",
    "unlock",
)


@pytest.fixture
def maker(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> PlayedMaker:
    port = urlsplit(rig.resources.gateway_url).port
    assert port is not None
    return PlayedMaker(tmp_path_factory.mktemp("programs"), gateway_port=port)


def cut(policy: Policy, **fields: object) -> Policy:
    """The policy with other limits of tier 3."""
    limits = policy.queues[QueueName.AGENT].model_copy(update=fields)
    return policy.model_copy(update={"queues": {**policy.queues, QueueName.AGENT: limits}})


def edit(
    rig: Rig, site: UUID | None, boxes: PoolOnDemand, *, prompt: str = "Convert to a multi-page site", **fields: object
) -> Job:
    rig.resources = replace(rig.resources, boxes=boxes)
    return rig.run(rig.shop.accept(prompt=prompt, site_id=site, tier=Tier.AGENT, **fields), edit_with_agent)


def steps(rig: Rig, job: Job) -> list[str]:
    rows = rig.shop.rows(
        "SELECT data ->> 'step', (data ->> 'seconds')::float FROM event"
        " WHERE job_id = :id AND kind = 'step' ORDER BY id",
        id=job.id,
    )
    assert all(seconds >= 0 for _, seconds in rows)
    return [step for step, _ in rows]


def check_nothing_happened(rig: Rig, site: UUID, maker: PlayedMaker) -> None:
    """The active release is what it was, the lock is free, the boxes are gone, and the end was told once."""
    assert rig.shown(site) == BASE
    row: Site = rig.shop.find(Site, site)
    assert row.lock_job_id is None
    assert all(box.is_closed for box in maker.boxes)
    assert rig.shop.scalar("SELECT count(*) FROM event WHERE kind = 'ended'") == 1


@pytest.mark.req("H-038", "H-039", "H-040", "H-074", "H-076", "H-078", "H-079", "H-080")
def test_a_session_s_files_become_a_candidate_and_its_box_is_gone(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    seen = f"assert {{p: pathlib.Path(p).read_bytes() for p in {list(BASE)!r}}} == {BASE!r}"
    maker.program("claude", f"{seen}\nassert prompt.startswith({TOLD!r}), prompt\n{WORKS}")
    job = edit(rig, site, maker)

    assert (job.state, job.detail) == ("awaiting_approval", None)
    files = rig.files(job.release_id)
    assert files["index.html"] == PAGE.replace(b"Welcome", b"Hello")
    assert files["about.html"] == PAGE.replace(b"Welcome", b"About")
    assert files["site.css"] == STYLE
    assert job.result["summary"] == "I added a page about us."
    assert job.result["changes"] == {"added": ["about.html"], "changed": ["index.html"], "removed": []}
    assert rig.shown(site) == BASE
    (box,) = maker.boxes
    assert box.is_closed


@pytest.mark.req("H-077", "H-102")
def test_the_command_carries_the_tools_and_the_cap_and_the_environment_the_attempt_s_token_alone(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", WORKS)
    edit(rig, plain_site(rig, tmp_path), maker)
    ((argv,),) = [box.commands for box in maker.boxes]
    assert "--tools=Bash,Edit,Glob,Grep,Read,Write" in argv
    assert "--max-budget-usd=0.5000" in argv
    assert not any("multi-page" in word for word in argv)


@pytest.mark.threat("C2")
@pytest.mark.parametrize(("bill", "is_fit"), [({}, True), ({"cap_nanousd": 150_000_000}, False)])
def test_a_cli_that_stood_by_does_a_job_that_it_fits_with_a_token_that_ends_with_the_job(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, bill: dict[str, int], is_fit: bool
) -> None:
    maker.program(
        "claude",
        """
init()
status, _ = call()
token = "".join(reversed(os.environ["ANTHROPIC_AUTH_TOKEN"]))
write("seen.json", json.dumps([prompt, status, token, os.getpid()]))
result("I used " + os.environ["ANTHROPIC_AUTH_TOKEN"])
""",
    )
    pool = Pool(maker, prepare=standby_session(session_plan(rig.resources.policy)))
    pool.fill()
    assert pool.wait_until_filled(seconds=10)
    job = edit(rig, plain_site(rig, tmp_path), pool, **bill)
    pool.close()

    assert (job.state, job.detail) == ("awaiting_approval", None)
    box, seen = maker.boxes[0], json.loads(rig.files(job.release_id)["seen.json"])
    assert box.token is not None
    assert seen[0].startswith(TOLD)
    assert seen[1:3] == [200, box.token[::-1]]
    assert (seen[3] == box.started[0], len(box.started)) == ((True, 1) if is_fit else (False, 2))
    assert job.result["summary"] == "I used [token]"
    (stored,) = rig.shop.rows("SELECT token_hash FROM attempt WHERE job_id = :id", id=job.id)
    assert stored != (hash_token(box.token),)


@pytest.mark.req("H-116")
def test_the_environment_of_a_session_holds_nothing_of_the_installation(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", 'init()\nwrite("seen.txt", json.dumps(dict(os.environ)))\nresult()')
    job = edit(rig, plain_site(rig, tmp_path), maker)
    seen = json.loads(rig.files(job.release_id)["seen.txt"])
    ((env,),) = [box.environments for box in maker.boxes]
    assert set(seen) - {"PATH", "HOME", "LC_CTYPE"} == set(env)
    secret = [value for name, value in env.items() if "TOKEN" in name and "TOKENS" not in name]
    assert len(secret) == 1
    for outside in (rig.shop.url, str(rig.resources.content_store.root), "k" * 32, "p" * 32):
        assert not any(outside in value for value in env.values())


@pytest.mark.req("H-115")
def test_the_token_of_a_session_spends_the_job_s_money_and_no_more(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program(
        "claude",
        'init()\nanswers = [call(), call(about="x" * 400_000)]\n'
        'write("a.txt", json.dumps([[status, body.get("error")] for status, body in answers]))\n'
        'result(is_error=True, text="API Error")',
    )
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    spent = rig.shop.scalar("SELECT sum(cost_nanousd) FROM call WHERE job_id = :id", id=job.id)
    assert 0 < spent <= 150_000_000
    assert (job.state, job.reason) == ("budget_exceeded", "cost_cap")
    (first, second) = json.loads(rig.files(job.release_id)["a.txt"])
    assert first[0] == 200
    assert (second[0], second[1]["type"], second[1]["details"]["error_code"]) == (
        429,
        "billing_error",
        "budget_exceeded",
    )
    check_nothing_happened(rig, site, maker)


def jobs_attempts_and_told(rig: Rig, job: Job) -> tuple[int, int, list[str]]:
    """Return how many jobs and attempts there were, and of which ends the job's owner is told."""
    jobs, attempts = (rig.shop.scalar(f"SELECT count(*) FROM {table}") for table in ("job", "attempt"))
    told = rig.shop.rows("SELECT payload ->> 'state' FROM notification WHERE job_id = :id", id=job.id)
    return jobs, attempts, [state for (state,) in told]


@pytest.mark.req("H-071")
def test_what_was_done_at_the_cap_is_kept_and_told_and_can_never_be_approved(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    too_much = 'call(about="x" * 400_000)\nresult("API Error", is_error=True)\nsys.exit(1)'
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{too_much}')
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker, cap_nanousd=150_000_000)
    assert (job.state, job.reason) == ("budget_exceeded", "cost_cap")
    assert job.detail is not None
    assert "the files as it left them are kept" in job.detail
    assert job.result["is_salvaged"] is True
    assert rig.files(job.release_id)["half.html"] == b"<p>half"
    with pytest.raises(Exception, match="budget_exceeded"):
        rig.shop.approve(job.id)
    assert jobs_attempts_and_told(rig, job) == (1, 1, ["budget_exceeded"])
    check_nothing_happened(rig, site, maker)


@pytest.mark.req("H-070", "H-079")
def test_a_session_out_of_time_ends_its_job_with_its_work_kept(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    endless = "import signal\nsignal.signal(signal.SIGINT, lambda *a: sys.exit(130))\ntime.sleep(60)"
    maker.program("claude", f'init()\nwrite("half.html", "<p>half")\n{endless}')
    site = plain_site(rig, tmp_path)
    rig.shop.policy = cut(rig.shop.policy, soft_seconds=6.0, hard_seconds=30.0)
    rig.resources = replace(rig.resources, policy=rig.shop.policy)
    job = edit(rig, site, maker)
    assert (job.state, job.reason) == ("timed_out", "time_limit")
    assert rig.files(job.release_id)["half.html"] == b"<p>half"
    assert jobs_attempts_and_told(rig, job) == (1, 1, ["timed_out"])
    check_nothing_happened(rig, site, maker)


@pytest.mark.threat("D5")
def test_a_session_that_does_not_start_as_its_role_demands_is_stopped(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", 'init(tools=[*TOOLS, "WebFetch"])\ntime.sleep(30)\nwrite("pwned.html", "x")\nresult()')
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    assert (job.state, job.reason) == ("failed", "box_failed")
    assert "WebFetch" in (job.detail or "")
    check_nothing_happened(rig, site, maker)


@pytest.mark.threat("D2")
def test_configuration_that_a_session_plants_refuses_all_its_files(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", 'init()\nwrite("ok.html", "x")\nwrite(".claude/settings.json", "x")\nresult()')
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    assert (job.state, job.reason, job.release_id) == ("failed", "output_refused", None)
    check_nothing_happened(rig, site, maker)


@pytest.mark.req("H-105")
def test_more_output_than_the_tier_allows_ends_the_job(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("claude", 'init()\nwrite("big.txt", "x" * 70_000)\nresult()')
    site = plain_site(rig, tmp_path)
    rig.shop.policy = cut(rig.shop.policy, output_bytes=65_536)
    rig.resources = replace(rig.resources, policy=rig.shop.policy)
    job = edit(rig, site, maker)
    assert (job.state, job.reason) == ("output_exceeded", "output_cap")
    assert "the agent's files are not accepted" in job.detail, "they were counted as they came out"
    check_nothing_happened(rig, site, maker)


@pytest.mark.threat("A10")
def test_one_endless_line_ends_the_session(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("claude", 'init()\nsys.stdout.write("{" * 2_000_000)\nresult()')
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    assert (job.state, job.reason) == ("output_exceeded", "output_cap")
    check_nothing_happened(rig, site, maker)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("init()\nresult('I found nothing to do.')", "I found nothing to do."),
        ("init()\nwrite('a.html', 'x')\nresult()\nsys.exit(1)", "status 1"),
        ("sys.exit(127)", "status 127"),
    ],
)
@pytest.mark.req("H-079")
def test_what_does_not_end_well_is_no_candidate(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, body: str, why: str
) -> None:
    maker.program("claude", body)
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    assert (job.state, job.reason) == ("failed", "agent_failed")
    assert job.detail is not None
    assert why in job.detail
    check_nothing_happened(rig, site, maker)


def test_a_session_that_finds_nothing_to_change_answers_and_stays_on_record(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", "init()\nresult('Nothing to change: it says Tuesday already.')")
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    assert (job.state, job.reason, job.result["answer"]) == ("answered", "done", "it says Tuesday already.")
    assert job.result["how"] == "a code agent"
    assert job.result["agent"]
    check_nothing_happened(rig, site, maker)


@pytest.mark.threat("C7")
def test_what_a_session_says_it_costs_is_not_what_is_billed(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("claude", f"{WORKS.replace('result(', 'call()' + chr(10) + 'result(total_cost_usd=0, text=')}")
    job = edit(rig, plain_site(rig, tmp_path), maker)
    assert job.state == "awaiting_approval"
    assert rig.shop.scalar("SELECT sum(cost_nanousd) FROM call WHERE job_id = :id", id=job.id) > 0


@pytest.mark.req("H-090")
def test_without_a_box_nothing_is_executed_and_the_answer_says_what_is_missing(rig: Rig, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    job = rig.run(rig.shop.accept(prompt="x", site_id=site, tier=Tier.AGENT), edit_with_agent)
    assert (job.state, job.reason) == ("failed", "not_available")
    assert "execute" not in steps(rig, job)
    assert rig.shop.scalar("SELECT count(*) FROM call") == 0
    assert rig.shown(site) == BASE


def test_a_box_that_does_not_start_as_it_has_to_ends_the_job(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    class Broken:
        def acquire(self) -> LocalBox:
            raise SandboxStartupError("posture", "it is privileged")

    site = plain_site(rig, tmp_path)
    job = edit(rig, site, Broken())
    assert (job.state, job.reason) == ("failed", "box_failed")
    check_nothing_happened(rig, site, maker)


PACKAGE = json.dumps({"name": "x", "private": True, "scripts": {"build": "make"}, "dependencies": {"three": "1"}})
BUILT_SESSION = f'init()\nwrite("package.json", {PACKAGE!r})\nresult()'
SILENT_NPM = """
import pathlib, sys, time
pathlib.Path("node_modules").mkdir(exist_ok=True)
time.sleep(60)
"""


@pytest.mark.parametrize("silent", ["claude", "npm"])
def test_a_cancel_reaches_a_box_in_which_nothing_is_said(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, silent: str
) -> None:
    maker.program("claude", "init()\ntime.sleep(60)\nresult()" if silent == "claude" else BUILT_SESSION)
    maker.program("npm", SILENT_NPM)
    site = plain_site(rig, tmp_path)
    stopping = threading.Event()

    def cancel() -> None:
        while not stopping.wait(0.05):
            if any(argv[0] == silent for box in maker.boxes for argv in box.commands):
                rig.shop.execute("UPDATE job SET cancel_requested_at = now()")
                return

    canceller = threading.Thread(target=cancel)
    canceller.start()
    began = time.monotonic()
    try:
        job = edit(rig, site, maker)
    finally:
        stopping.set()
        canceller.join()
    assert (job.state, job.reason) == ("cancelled", "cancelled")
    assert time.monotonic() - began < 30, "the box is gone within seconds, not when its command has ended"
    check_nothing_happened(rig, site, maker)


NPM = """
import os, pathlib, sys
assert "ANTHROPIC_AUTH_TOKEN" not in os.environ
if sys.argv[1] == "run":
    pathlib.Path("dist").mkdir()
    pathlib.Path("dist/index.html").write_bytes(pathlib.Path("index.html").read_bytes())
    pathlib.Path("dist/built.css").write_text("p { color: red; }")
else:
    pathlib.Path("node_modules").mkdir()
    os.symlink("/etc/passwd", "node_modules/x")
"""


@pytest.mark.req("H-079", "H-080")
def test_a_site_with_a_build_is_built_in_another_box_after_the_agent_s_is_gone(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", BUILT_SESSION)
    maker.program("npm", NPM)
    job = edit(rig, plain_site(rig, tmp_path), maker)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    assert rig.files(job.release_id)["dist/built.css"] == b"p { color: red; }"
    session, build = maker.boxes
    assert session.id != build.id
    assert [command[:2] for command in build.commands] == [("npm", "install"), ("npm", "run"), ("rm", "-rf")]
    done = steps(rig, job)
    assert done.index("teardown") < done.index("build") < done.index("scan")


@pytest.mark.threat("D8")
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("package.json", {"dependencies": {"three": "git+https://evil.example/three.git"}}),
        ("package.json", {"dependencies": {"three": "1"}, "overrides": {"a": {"b": "http://evil.example/b.tgz"}}}),
        ("w/package.json", {"dependencies": {"three": "file:../../etc"}}),
        ("package-lock.json", {"packages": {"node_modules/three": {"resolved": "http://evil.example/three.tgz"}}}),
        ("npm-shrinkwrap.json", {"dependencies": {"three": {"version": "git+ssh://git@evil.example/three"}}}),
    ],
)
def test_packages_from_elsewhere_are_refused_before_npm_sees_them(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, path: str, content: dict[str, object]
) -> None:
    files = {"package.json": json.loads(PACKAGE)}
    files[path] = files.get(path, {}) | content
    writes = "\n".join(f"write({name!r}, {json.dumps(value)!r})" for name, value in files.items())
    maker.program("claude", f"init()\n{writes}\nresult()")
    maker.program("npm", NPM)
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    assert (job.state, job.reason) == ("failed", "output_refused")
    assert job.detail is not None
    assert f"{path} wants a package from outside the registry" in job.detail
    assert [command for box in maker.boxes[1:] for command in box.commands] == []
    assert path in rig.files(job.release_id), "what the agent did is kept"
    check_nothing_happened(rig, site, maker)


@pytest.mark.threat("C2")
def test_a_build_cannot_spend_with_a_token_that_the_agent_left_to_it(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    hidden = '"".join(reversed(os.environ["ANTHROPIC_AUTH_TOKEN"]))'
    maker.program(
        "claude",
        f'init()\nassert call()[0] == 200\nwrite("package.json", {PACKAGE!r})\nwrite("a.txt", {hidden})\nresult()',
    )
    spends = """
url = "GATEWAY/v1/messages"
token = "".join(reversed(pathlib.Path("a.txt").read_text()))
headers = {"authorization": "Bearer " + token, "content-type": "application/json"}
body = {"model": "claude-sonnet-4-6", "max_tokens": 1024, "messages": [{"role": "user", "content": "x"}]}
try:
    status = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).status
except urllib.error.HTTPError as error:
    status = error.code
pathlib.Path("status.txt").write_text(str(status))
pathlib.Path("dist").mkdir(exist_ok=True)
pathlib.Path("dist/index.html").write_text("<!doctype html><html lang=en><title>x</title><h1>x</h1></html>")
"""
    imports = "import json, pathlib, urllib.error, urllib.request"
    maker.program("npm", imports + spends.replace("GATEWAY", rig.resources.gateway_url))
    job = edit(rig, plain_site(rig, tmp_path), maker)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    assert rig.files(job.release_id)["status.txt"] == b"401"
    assert rig.shop.scalar("SELECT count(*) FROM call WHERE job_id = :id", id=job.id) == 1


@pytest.mark.threat("C9")
def test_a_token_that_an_agent_prints_or_writes_is_in_no_record_and_in_no_release(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    spelled = '"".join(f"\\\\u{ord(c):04x}" for c in token)'
    maker.program(
        "claude",
        f"""
init()
token = os.environ["ANTHROPIC_AUTH_TOKEN"]
put(type="assistant", message={{"content": [{{"type": "text", "text": "It is " + token}}]}})
sys.stdout.write('{{"type":"assistant","message":{{"content":[{{"type":"text","text":"' + {spelled} + '"}}]}}}}\\n')
use("Bash", command="echo " + token)
write("seen.txt", token)
sys.stdout.write('{{"type":"result","subtype":"success","is_error":false,"result":"' + {spelled} + '"}}\\n')
""",
    )
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    ((env,),) = [box.environments for box in maker.boxes]
    assert (job.state, job.reason) == ("failed", "scan_refused")
    assert job.detail is not None
    assert "seen.txt" in job.detail
    told = rig.shop.rows(
        "SELECT data ->> 'text' FROM event WHERE job_id = :id AND kind = 'progress' ORDER BY id", id=job.id
    )
    assert [text for (text,) in told[:3]] == ["It is [token]", "[token]", "Bash echo [token]"]
    everything = rig.shop.rows(
        "SELECT to_jsonb(event)::text FROM event UNION ALL SELECT to_jsonb(job)::text FROM job"
        " UNION ALL SELECT to_jsonb(attempt)::text FROM attempt"
        " UNION ALL SELECT to_jsonb(release)::text FROM release"
    )
    assert not any(env["ANTHROPIC_AUTH_TOKEN"] in row for (row,) in everything)
    check_nothing_happened(rig, site, maker)


@pytest.mark.req("H-049")
def test_no_rule_of_the_lower_tiers_vocabulary_holds_a_session_back(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    rest = "<p>New.</p>\\n<!-- ... rest of the file unchanged ... -->\\n"
    maker.program(
        "claude",
        f"""
init()
write("index.html", "<!doctype html><title>New</title>{rest}")
os.remove("site.css")
write("about/team.html", "<!doctype html><my-own-part>Us</my-own-part><canvas></canvas><script src=a.js></script>")
write("about/a.js", "draw();")
result("All is new.")
""",
    )
    job = edit(rig, plain_site(rig, tmp_path), maker)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    files = rig.files(job.release_id)
    assert set(files) == {"index.html", "about/team.html", "about/a.js"}
    diff = review_diff(BASE, files)
    with pytest.raises(DiffRefusedError):  # the same change as a patch of tier 2
        apply_diff(BASE, diff.decode(), policy=SITE)


REFUSED = {
    "js_budget": ("a.js", "x();" * 200_000),
    "secrets": ("a.txt", "sk-ant-api03-" + "aB3_xY9-" * 11 + "QwErTyAA"),
    "csp": ("a.html", "<!doctype html><title>x</title><p onclick='x()'>y"),
    "allowlists": ("a.html", "<!doctype html><title>x</title><script src=https://evil.example/x.js></script>"),
}


@pytest.mark.req("H-050", "H-081")
@pytest.mark.parametrize("gate", REFUSED)
def test_every_gate_of_the_other_tiers_stands_before_a_session_s_files_too(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, gate: str
) -> None:
    path, text = REFUSED[gate]
    maker.program("claude", f"init()\nwrite({path!r}, {text!r})\nresult()")
    site = plain_site(rig, tmp_path)
    rig.shop.tenant(auto_approve=True)
    job = edit(rig, site, maker)
    release: Release = rig.shop.find(Release, job.release_id)
    assert (job.state, job.reason) == ("failed", "scan_refused")
    assert set(release.scan["gates"]) == set(GATES)
    assert release.scan["gates"][gate] is False
    check_nothing_happened(rig, site, maker)


@pytest.mark.req("H-050")
def test_beyond_those_gates_a_person_decides_and_what_a_tool_would_obey_is_refused(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", WORKS)
    site = plain_site(rig, tmp_path)
    rig.shop.tenant(auto_approve=True)
    job = edit(rig, site, maker)
    assert (job.state, job.result["needs_person"]) == ("awaiting_approval", True)
    assert rig.shop.rows("SELECT actor FROM approval") == []


@pytest.mark.threat("D10")
def test_no_git_of_the_host_ever_meets_a_site_s_files(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, marker = tmp_path / "programs", tmp_path / "called"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\necho called >>{marker}\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    folder = tmp_path / "site"
    folder.mkdir()
    site = plain_site(rig, folder)
    planted = {
        ".git/config": f"[core]\n\tfsmonitor = {programs}/git\n",
        ".git/hooks/post-checkout": "x",
        ".gitattributes": "* filter=x",
    }
    for path, text in planted.items():
        maker.program("claude", f"init()\nwrite({path!r}, {text!r})\nresult()")
        assert edit(rig, site, maker).reason == "output_refused"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    sites = Sites(rig.shop.ledger, rig.resources.content_store, rig.shop.policy)
    with pytest.raises(TreeRefusedError, match="planted"):
        sites.import_site("acme", "cafe", folder)
    maker.program("claude", WORKS)
    job = edit(rig, site, maker)
    rig.shop.approve(job.id)
    run_control(rig.shop.message(job.id), rig.resources)
    write_directory(sites.read("acme", "cafe")[1], tmp_path / "out")
    assert not marker.exists()
    subprocess.run(["git", "status"], check=True)
    assert marker.exists(), "the host's git would have been seen"


def test_a_build_that_fails_ends_the_job_with_the_agent_s_work_kept(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", f'init()\nwrite("package.json", {PACKAGE!r})\nresult()')
    maker.program("npm", "import sys\nprint('no such package', file=sys.stderr)\nsys.exit(1)")
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    assert (job.state, job.reason) == ("failed", "build_failed")
    assert job.detail is not None
    assert "no such package" in job.detail
    assert "package.json" in rig.files(job.release_id)
    check_nothing_happened(rig, site, maker)


@pytest.mark.req("H-086")
def test_the_thirteen_steps_are_on_record_in_their_order(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("claude", f"{WORKS}\n".replace("result(", f'write("package.json", {PACKAGE!r})\nresult('))
    maker.program("npm", NPM)
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    rig.shop.approve(job.id)
    run_control(rig.shop.message(job.id), rig.resources)
    job = rig.shop.job(job.id)
    assert job.state == "published"
    assert tuple(steps(rig, job)) == THIRTEEN
    assert rig.shown(site)["index.html"] == PAGE.replace(b"Welcome", b"Hello")


@pytest.mark.req("H-048")
def test_a_session_can_be_explained_by_what_is_kept_of_it(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("claude", WORKS.replace("result(", 'put(type="note", env=dict(os.environ))\nresult('))
    job = edit(rig, plain_site(rig, tmp_path), maker)
    said = gzip.decompress(rig.resources.content_store.get(job.result["agent"]["transcript_sha256"])).decode()
    assert '"subtype": "init"' in said
    assert "I added a page about us." in said
    ((env,),) = [box.environments for box in maker.boxes]
    assert "ANTHROPIC_AUTH_TOKEN" in said
    assert env["ANTHROPIC_AUTH_TOKEN"] not in said
    rig.shop.approve(job.id)
    digests = [rig.shop.find(Release, one).digest for one in (job.base_release_id, job.release_id)]
    written = rig.shop.rows("SELECT input_hash, output_hash FROM audit WHERE job_id = :id ORDER BY seq", id=job.id)
    assert written[-1] == tuple(digests)


class BusyDisk(Disk):
    """Is full for a while, when the session is over."""

    left = 3

    def write_atomically(self, path: Path, data: bytes) -> None:
        if self.left:
            self.left -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_atomically(path, data)


def test_the_work_of_a_session_waits_in_its_box_while_the_content_store_is_full(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker.program("claude", WORKS)
    site = plain_site(rig, tmp_path)
    monkeypatch.setattr("workers.attempt.STORE_PAUSE_SECONDS", 0.01)
    store = ContentStore(rig.resources.content_store.root, disk=(disk := BusyDisk()))
    rig.resources = replace(rig.resources, content_store=store)
    job = edit(rig, site, maker)
    assert (job.state, job.detail, disk.left) == ("awaiting_approval", None, 0)
    (box,) = maker.boxes
    assert len(box.commands) == 1, "nothing is paid for twice"


@pytest.mark.req("H-048")
def test_what_explains_a_session_is_kept_as_long_as_its_release(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("claude", WORKS)
    job = edit(rig, plain_site(rig, tmp_path), maker)
    for path in rig.resources.content_store.root.rglob("*"):
        os.utime(path, (1_000_000, 1_000_000), follow_symlinks=False)
    collect_garbage(rig.shop.ledger, rig.resources.content_store, rig.shop.policy)
    assert rig.resources.content_store.get(job.result["agent"]["transcript_sha256"])


@pytest.mark.req("H-075")
@pytest.mark.parametrize("size", [0, 1])
def test_a_box_that_is_ready_is_used_and_counted_as_warm_and_otherwise_one_is_started(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, size: int
) -> None:
    maker.program("claude", WORKS)
    pool = Pool(maker, size=size)
    pool.fill()
    assert pool.wait_until_filled(seconds=10)
    ready = [box.id for box in maker.boxes]
    job = edit(rig, plain_site(rig, tmp_path), pool)
    pool.close()
    assert job.state == "awaiting_approval"
    used = next(box for box in maker.boxes if box.commands)
    assert ([used.id] == ready, used.is_warm) == (size == 1, size == 1)
    told = rig.shop.scalar("SELECT (data ->> 'warm')::bool FROM event WHERE job_id = :id AND kind = 'box'", id=job.id)
    assert told is (size == 1)
