"""The clients, each against a server that answers as a test says."""

import asyncio
import hmac
import json
import shutil
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints
from uuid import UUID, uuid4

import pytest
from pointsman_client import (
    AsyncClient,
    Client,
    ConflictError,
    InvalidRequestError,
    NoRoomError,
    UnexpectedAnswerError,
    UnreachableError,
    WebhookRefusedError,
    models,
    verify_webhook,
)
from pointsman_client.models import JobRequest, JobWaits, State
from standardwebhooks.webhooks import Webhook

from docs.generate_clients import CLIENTS, files
from producers.api.app import create_app
from producers.api.requests import Resources
from tests.http_server import Handler, served

JOB = {"id": str(uuid4()), "state": "queued", "mode": None, "tier": None, "queue": "spec", "rule": None, "why": None}
ACCEPTED = JOB | {"is_new": True, "url": "/v1/jobs/1", "events_url": "/v1/jobs/1/events"}
NO_ROOM = {"type": "urn:pointsman:problem:queue_full", "title": "", "status": 429, "detail": "the queue is full"}
INVALID = {"type": "x", "title": "", "status": 422, "detail": "no", "errors": [{"field": "site", "rule": "is unknown"}]}
CUT = object()
"""An answer that never comes: the connection is closed."""


class Asked(NamedTuple):
    """A request that the server got."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


@contextmanager
def answering(*answers: Any) -> Iterator[tuple[str, list[Asked]]]:
    """Serve these answers, each `(status, body, headers)` or CUT, one a request; gives URL and what was asked."""
    asked: list[Asked] = []
    left = list(answers)

    class Answering(Handler):
        def answer(self) -> None:
            raw = self.read_body()
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked.append(Asked(self.command, self.path, json.loads(raw) if raw else None, headers))
            if (answer := left.pop(0)) is CUT:
                self.close_connection = True
                return
            status, body, given = answer
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **given}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    with served(Answering) as url:
        yield url, asked


def sync(url: str, call: Callable[[Any], Any]) -> Any:
    with Client(url, "pmk_x", longest_pause=1) as client:
        return call(client)


def aio(url: str, call: Callable[[Any], Any]) -> Any:
    async def run() -> Any:
        async with AsyncClient(url, "pmk_x", longest_pause=1) as client:
            return await call(client)

    return asyncio.run(run())


both = pytest.mark.parametrize("run", [sync, aio])
Run = Callable[[str, Callable[[Any], Any]], Any]


def test_both_clients_offer_what_the_api_does() -> None:
    for path, text in files(create_app(cast(Resources, None)).openapi()).items():
        assert (CLIENTS / path).read_text() == text, f"{path}: `make docs` writes it anew"


def test_what_a_mapping_holds_has_its_type() -> None:
    types = (CLIENTS / "typescript" / "types.d.ts").read_text()
    assert get_type_hints(models.QueueView)["held"] == dict[str, int]
    assert get_type_hints(models.CostView)["by_agent"] == dict[str, models.TotalView]
    assert "  held: Record<string, number>;" in types
    assert "  by_agent: Record<string, TotalView>;" in types


@both
def test_a_job_is_submitted_once_however_often_it_is_sent(run: Run) -> None:
    with answering(CUT, (503, {}, {"Retry-After": "0"}), (202, ACCEPTED, {})) as (url, asked):
        accepted = run(
            url, lambda client: client.submit_job("Bigger, please", site="bakery", start_at=datetime.now(UTC))
        )
    assert (accepted.id, accepted.state) == (UUID(JOB["id"]), State.QUEUED)
    assert [(one.method, one.path) for one in asked] == [("POST", "/v1/jobs")] * 3
    assert asked[0].headers["authorization"] == "Bearer pmk_x"
    assert asked[0].body == asked[2].body
    assert set(asked[0].body) == {"prompt", "site", "start_at", "idempotency_key"}


@both
def test_jobs_of_a_batch_have_a_key_each_which_begins_with_the_time(run: Run) -> None:
    began = time.time()
    jobs = [JobRequest(prompt="One"), JobRequest(prompt="Two", idempotency_key="mine")]
    with answering(CUT, (200, {"accepted": 2, "refused": 0, "jobs": []}, {})) as (url, asked):
        assert run(url, lambda client: client.submit_jobs(jobs)).accepted == 2
    assert asked[0].body == asked[1].body
    first, second = asked[0].body["jobs"]
    made, _, own = first["idempotency_key"].partition("-")
    assert (len(made), UUID(own).version, second["idempotency_key"]) == (12, 4, "mine")
    assert began - 0.001 <= int(made, 16) / 1000 <= time.time()


@both
def test_a_key_given_as_none_is_none_given(run: Run) -> None:
    jobs: list[Any] = [{"prompt": "One", "idempotency_key": None, "site": None}]
    with answering(CUT, (200, {"accepted": 1, "refused": 0, "jobs": []}, {})) as (url, asked):
        run(url, lambda client: client.submit_jobs(jobs))
    assert asked[0].body == asked[1].body
    assert asked[0].body["jobs"][0]["idempotency_key"]


@both
def test_what_cannot_be_known_to_have_failed_is_not_sent_again(run: Run) -> None:
    with answering(CUT) as (url, asked), pytest.raises(UnreachableError, match=r"^http://127\.0\.0\.1:\d+: "):
        run(url, lambda client: client.approve_job(uuid4()))
    assert len(asked) == 1


@both
def test_a_full_queue_is_asked_again_when_it_says_so_and_no_later_than_the_caller_wants(run: Run) -> None:
    again = (429, NO_ROOM, {"Retry-After": "0"})
    with answering(again, (202, ACCEPTED, {})) as (url, _):
        assert run(url, lambda client: client.submit_job("x")).is_new
    with answering((429, NO_ROOM, {"Retry-After": "60"})) as (url, _), pytest.raises(NoRoomError) as caught:
        run(url, lambda client: client.submit_job("x"))
    assert caught.value.retry_after == 60
    with answering(*[again] * 5) as (url, asked), pytest.raises(NoRoomError):
        run(url, lambda client: client.submit_job("x"))
    assert len(asked) == 5


@both
def test_an_error_names_field_and_rule_and_a_proxy_s_page_is_one_too(run: Run) -> None:
    with answering((422, INVALID, {})) as (url, _), pytest.raises(InvalidRequestError, match="site: is unknown"):
        run(url, lambda client: client.submit_job("x", site="nowhere"))
    plain = INVALID | {"detail": "site: is unknown"}
    with answering((422, plain, {})) as (url, _), pytest.raises(InvalidRequestError, match=r"^422 site: is unknown$"):
        run(url, lambda client: client.get_job(uuid4()))
    with answering((409, "<h1>Conflict</h1>", {})) as (url, _), pytest.raises(ConflictError, match="<h1>Conflict"):
        run(url, lambda client: client.cancel_job(uuid4()))


@both
def test_a_query_is_sent_as_the_api_reads_it(run: Run) -> None:
    page = {"jobs": [], "next_cursor": None}
    with answering((200, page, {})) as (url, asked):
        run(url, lambda client: client.list_jobs(state=[State.QUEUED, State.RUNNING], text="a&b", limit=5))
    assert asked[0].path == "/v1/jobs?state=queued&state=running&text=a%26b&limit=5"


@both
def test_pages_are_asked_for_until_the_last(run: Run) -> None:
    async def read(client: AsyncClient) -> list[str]:
        return [job.prompt async for job in client.iterate_jobs(site="bakery")]

    job = {name: None for name in ("reason", "tier", "site", "project", "ended_at")}
    job |= {"id": JOB["id"], "state": "queued", "source": "http", "queue": "spec", "spent_usd": "0.00"}
    job |= {"created_at": "2026-11-25T09:30:00Z"}
    pages = [{"jobs": [job | {"prompt": words}], "next_cursor": cursor} for words, cursor in (("a", "x"), ("b", None))]
    with answering(*((200, page, {}) for page in pages)) as (url, asked):
        found = run(
            url, read if run is aio else lambda client: [one.prompt for one in client.iterate_jobs(site="bakery")]
        )
    assert found == ["a", "b"]
    assert [one.path for one in asked] == ["/v1/jobs?site=bakery&limit=200", "/v1/jobs?site=bakery&cursor=x&limit=200"]


def test_a_name_is_never_a_part_of_the_path() -> None:
    with answering((200, [], {})) as (url, asked):
        sync(url, lambda client: client.list_releases("../../v1/gates?x"))
    assert asked[0].path == "/v1/sites/..%2F..%2Fv1%2Fgates%3Fx/releases"


def _sent(*ids: int) -> str:
    facts = {"at": "2026-11-25T09:30:00Z", "kind": "state", "data": {}}
    return "".join(f"id: {one}\nevent: state\ndata: {json.dumps(facts | {'id': one})}\n\n: ping\n\n" for one in ids)


STREAM = {"Content-Type": "text/event-stream"}
STREAMS: Sequence[Any] = (
    (200, _sent(3, 4), STREAM),
    CUT,
    (429, NO_ROOM, {"Retry-After": "0"}),
    (200, _sent(7), STREAM),
    (204, "", {}),
)


def test_events_go_on_where_a_stream_was_cut() -> None:
    with answering(*STREAMS) as (url, asked):
        assert sync(url, lambda client: [one.id for one in client.follow_job(uuid4())]) == [3, 4, 7]
    assert [one.headers["last-event-id"] for one in asked] == ["0", "4", "4", "4", "7"]

    async def read(client: AsyncClient) -> list[int]:
        return [one.id async for one in client.follow_job(uuid4(), after=2)]

    with answering(*STREAMS) as (url, asked):
        assert aio(url, read) == [3, 4, 7]
    assert asked[0].headers["last-event-id"] == "2"


SILENT = {**STREAM, "Content-Length": "9999"}
"""Of an answer that never ends."""


def test_a_stream_that_falls_silent_is_cut_and_one_that_says_nothing_is_not_asked_again_at_once(
    tmp_path: Path,
) -> None:
    streams = (200, _sent(3), SILENT), (200, "", STREAM), (204, "", {})

    def follow(client: Client) -> list[int]:
        return [one.id for one in client.follow_job(uuid4())]

    with answering(*streams) as (url, _), Client(url, "pmk_x", timeout=0.2) as client:
        started = time.monotonic()
        assert follow(client) == [3]
        assert time.monotonic() - started > 1
    if node := shutil.which("node"):
        (tmp_path / "silent.mjs").write_text(SILENT_TRIAL % (CLIENTS / "typescript"))
        with answering(*streams) as (url, _):
            assert subprocess.check_output([node, "silent.mjs", url], cwd=tmp_path, text=True, timeout=30) == "3\n"


QUIET = (200, ": ping\n\n", SILENT)


def test_a_job_that_is_quiet_for_longer_than_a_call_may_take_is_followed_on(tmp_path: Path) -> None:
    streams = *[QUIET] * 3, (200, _sent(3), STREAM), (204, "", {})
    with answering(*streams) as (url, _), Client(url, "pmk_x", timeout=0.2, tries=2) as client:
        assert [one.id for one in client.follow_job(uuid4())] == [3]
    if node := shutil.which("node"):
        (tmp_path / "quiet.mjs").write_text(SILENT_TRIAL % (CLIENTS / "typescript"))
        with answering(*streams) as (url, _):
            assert subprocess.check_output([node, "quiet.mjs", url], cwd=tmp_path, text=True, timeout=30) == "3\n"


def test_a_state_that_only_a_newer_server_knows_is_kept() -> None:
    with answering((202, ACCEPTED | {"state": "resting", "more": 1}, {})) as (url, _):
        assert sync(url, lambda client: client.submit_job("x")).state == "resting"


@both
def test_an_answer_of_another_version_is_told_from_a_stranger_s_with_the_field_that_is_at_fault(run: Run) -> None:
    with (
        answering((202, ACCEPTED | {"is_new": {"no": 1}}, {})) as (url, _),
        pytest.raises(UnexpectedAnswerError, match=r"^[^\n]*\(is_new: [^\n]*versions differ$"),
    ):
        run(url, lambda client: client.submit_job("x"))
    with answering((200, "<h1>Hello</h1>", {})) as (url, _), pytest.raises(UnexpectedAnswerError, match="is no JSON"):
        run(url, lambda client: client.list_jobs())


def test_an_event_of_another_version_is_told_too() -> None:
    with (
        answering((200, 'id: 1\ndata: {"id": 1}\n\n', STREAM)) as (url, _),
        pytest.raises(UnexpectedAnswerError, match=r"\(at: Field required\)"),
    ):
        sync(url, lambda client: list(client.follow_job(uuid4())))


SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
MESSAGE = json.dumps({"type": "job.ended", "job_id": JOB["id"], "state": "published", "reason": "done"})


def signed(*, at: datetime | None = None, body: str = MESSAGE) -> dict[str, str]:
    at = at or datetime.now(UTC)
    return {
        "Webhook-Id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": f"v1,AAAA {Webhook(SECRET).sign('msg_1', at, body)}",
    }


def test_a_webhook_is_read_if_the_installation_has_signed_it_just_now() -> None:
    assert verify_webhook(SECRET, signed(), MESSAGE.encode()).state is State.PUBLISHED
    for state in ("awaiting_approval", "clarifying"):
        waits = json.dumps({"type": f"job.{state}", "job_id": JOB["id"], "state": state})
        assert isinstance(verify_webhook(SECRET, signed(body=waits), waits.encode()), JobWaits)
    old = datetime.fromtimestamp(1_700_000_000, UTC)
    for headers, body in (
        (signed(), MESSAGE.replace("published", "answered")),
        (signed(at=old), MESSAGE),
        (signed() | {"webhook-signature": "v1,"}, MESSAGE),
        (signed(body="{}"), "{}"),
        ({}, MESSAGE),
    ):
        with pytest.raises(WebhookRefusedError):
            verify_webhook(SECRET, headers, body.encode())


def test_no_webhook_is_believed_by_whoever_has_no_secret() -> None:
    forged = signed()
    text = f"msg_1.{forged['webhook-timestamp']}.{MESSAGE}".encode()
    forged["webhook-signature"] = f"v1,{b64encode(hmac.digest(b'', text, 'sha256')).decode()}"
    for secret in ("", "whsec_", "whsec_?"):
        with pytest.raises(ValueError, match="pointsman webhook secret"):
            verify_webhook(secret, forged, MESSAGE.encode())


SILENT_TRIAL = """
import { Client } from "%s/index.js";
const client = new Client({ url: process.argv[2], key: "pmk_x", timeoutSeconds: 0.5, tries: 2 });
for await (const event of client.followJob("1")) console.log(event.id);
"""
TRIAL = """
import { Client, ApiError, UnreachableError, WebhookRefusedError, verifyWebhook } from "%s/index.js";
const [url, secret, headers, message] = JSON.parse(process.argv[2]);
const client = new Client({ url, key: "pmk_x", longestPauseSeconds: 1 });
const name = (call) => call.then(() => "no error", (error) => error.constructor.name);
const said = [];
said.push((await client.submitJob({ prompt: "Bigger", site: "bakery" })).state);
said.push((await client.submitJobs({ jobs: [{ prompt: "One" }] })).accepted);
said.push(await name(client.approveJob("1", { release_id: null })));
said.push(await name(client.submitJob({ prompt: "x" })));
said.push(await name(client.submitJob({ prompt: "x" })));
await client.submitJob({ prompt: "x", idempotency_key: undefined });
await client.submitJobs({ jobs: [{ prompt: "One", idempotency_key: null }] });
said.push(await client.getJob("1").catch((error) => error.message));
await client.listJobs({ state: ["queued", "running"], text: "a&b", limit: 5 });
await client.listReleases("../x");
for await (const event of client.followJob("1")) said.push(event.id);
said.push(verifyWebhook(secret, headers, message).state);
said.push(verifyWebhook(secret, new Headers(headers), message).state);
try { verifyWebhook(secret, headers, message + " "); } catch (error) { said.push(error.constructor.name); }
for (const none of ["", "whsec_", "whsec_?"])
  try { verifyWebhook(none, headers, message); } catch (error) { said.push(error.message.includes("webhook secret")); }
console.log(JSON.stringify(said));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js")
def test_the_client_for_node_does_the_same(tmp_path: Path) -> None:
    (tmp_path / "trial.mjs").write_text(TRIAL % (CLIENTS / "typescript"))
    answers = [
        *(CUT, (503, {}, {"Retry-After": "0"}), (202, ACCEPTED, {})),
        *(CUT, (200, {"accepted": 1, "refused": 0, "jobs": []}, {})),
        CUT,
        (429, NO_ROOM, {"Retry-After": "60"}),
        (422, INVALID, {}),
        *(CUT, (202, ACCEPTED, {})),
        *(CUT, (200, {"accepted": 1, "refused": 0, "jobs": []}, {})),
        (403, {"message": "Forbidden"}, {}),
        (200, {"jobs": [], "next_cursor": None}, {}),
        (200, [], {}),
        *STREAMS,
    ]
    with answering(*answers) as (url, asked):
        given = json.dumps([url, SECRET, signed(), MESSAGE])
        done = subprocess.run(
            ["node", "trial.mjs", given], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 0, done.stderr
    errors = ["UnreachableError", "ApiError", "ApiError"]
    webhooks = ["published", "published", "WebhookRefusedError", True, True, True]
    assert json.loads(done.stdout) == ["queued", 1, *errors, '403 {"message": "Forbidden"}', 3, 4, 7, *webhooks]
    assert asked[0].body == asked[2].body
    assert set(asked[0].body) == {"prompt", "site", "idempotency_key"}
    assert asked[3].body == asked[4].body
    assert "idempotency_key" in asked[3].body["jobs"][0]
    assert asked[8].body == asked[9].body
    assert asked[8].body["idempotency_key"]
    assert asked[10].body["jobs"][0]["idempotency_key"]
    paths = [one.path for one in asked]
    assert "/v1/jobs?state=queued&state=running&text=a%26b&limit=5" in paths
    assert "/v1/sites/..%2Fx/releases" in paths
    assert [one.headers["last-event-id"] for one in asked[-5:]] == ["0", "4", "4", "4", "7"]
