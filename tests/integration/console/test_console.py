"""The console, page by page, as a browser without scripts would use it; `test_console_browser` uses a real one."""

import hashlib
import re
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import func, select
from sqlalchemy import update as sql_update
from sqlmodel import col
from sse_starlette import ServerSentEvent

from ledger import audit
from ledger.attempts import lock_owned_job
from ledger.audit import seal
from ledger.dispatch_window import release_due
from ledger.events import EventKind, record
from ledger.jobs import close_attempt, end, find_job
from ledger.operations.workers import WorkerStatus, record_heartbeat
from ledger.record_tables import ApiKey, AuditRow, AuditSeal, LoginSession
from ledger.store import Ledger, now
from ledger.tables import Attempt, Job, Site, Tenant
from producers.api.event_streams import HOLDER_SECONDS, EventStreams
from producers.console import operations
from producers.console.job_page import facts_of
from producers.console.jobs import UNDO_SECONDS
from producers.use_cases.people import end_session
from producers.use_cases.tenants import keys_of, revoke
from routing.jobs import Reason, State
from routing.policy.platform import Streams
from routing.queues import QUEUES
from tests.integration.api.http_world import (
    AUDIT_KEY,
    CONSOLE_URL,
    HOME,
    PAGES,
    STYLE,
    World,
    open_world,
    shared_ledger,
)

__all__ = ["shared_ledger"]

TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')
REDDER = {**PAGES, "style.css": STYLE.replace(b"123456", b"aa0000")}


class Browser:
    """A person with a key, who follows redirects and sends the forms of the pages they got."""

    def __init__(self, world: World, *scopes: str, tenant: str | None = None) -> None:
        self.world = world
        self.client = world.client
        self.client.cookies.clear()
        self.secret = world.headers(*scopes, tenant=tenant)["Authorization"].removeprefix("Bearer ")
        self.page = self.post("/login", key=self.secret)

    def get(self, path: str, **headers: str) -> Response:
        self.page = self.client.get(f"/console{path}", headers=headers, follow_redirects=True)
        return self.page

    def post(self, path: str, **form: str) -> Response:
        token = TOKEN.search(self.page.text) if hasattr(self, "page") else None
        if token is not None:
            form.setdefault("form_token", token.group(1))
        self.page = self.client.post(f"/console{path}", data=form, follow_redirects=True)
        return self.page

    @property
    def text(self) -> str:
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.page.text)).split())


@pytest.fixture(scope="module")
def shared(shared_ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(shared_ledger, tmp_path_factory.mktemp("content_store")) as opened:
        yield opened


@pytest.fixture
def world(shared: World) -> World:
    """The same source for a tenant of this test's own."""
    made = replace(shared, tenant=f"t-{secrets.token_hex(5)}", keys={})
    made.headers()
    return made


@pytest.fixture
def offered(world: World, tmp_path: Path) -> UUID:
    """A job whose preview waits for a person."""
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(prompt="Make the headline red", site="bakery", tier="patch")
    world.offer(job_id, REDDER)
    return job_id


def test_a_wrong_key_opens_nothing_and_is_not_repeated(world: World) -> None:
    world.client.cookies.clear()
    answer = world.client.post("/console/login", data={"key": "pmk_" + "x" * 43}, follow_redirects=False)
    assert answer.status_code == 401
    assert "x" * 43 not in answer.text
    assert "set-cookie" not in answer.headers


def test_a_form_that_is_too_large_is_not_read(world: World) -> None:
    world.client.cookies.clear()
    assert world.client.post("/console/login", data={"key": "x" * 300_000}).status_code == 413


def do_over(browser: Browser, job_id: UUID, tier: str) -> Job:
    """Override a job's tier and return the job that takes its place."""
    assert "Override the tier" in browser.get(f"/jobs/{job_id}").text
    browser.post(f"/jobs/{job_id}/override", tier=tier)
    assert "replaces the previous one" in browser.text, browser.text
    new = browser.world.job(UUID(str(browser.page.url).rsplit("/", 1)[1]))
    assert (new.parent_id, new.root_id, new.result["verb"]) == (job_id, browser.world.job(job_id).root_id, "override")
    return new


def test_a_revision_is_done_over_from_the_work_that_it_revises_and_nobody_comes_between(
    world: World, offered: UUID
) -> None:
    browser = Browser(world)
    browser.get(f"/jobs/{offered}")
    browser.post(f"/jobs/{offered}/revise", text="Change the headline to blue instead", tier="patch")
    assert "Rounds of this session" in browser.text
    assert world.job(offered).state == State.REJECTED
    revision = UUID(str(browser.page.url).rsplit("/", 1)[1])
    new = do_over(browser, revision, "agent")
    assert new.start_release_id == world.job(offered).release_id
    assert new.result["begun"] == world.job(revision).result["begun"]
    assert (world.job(revision).state, new.state, new.tier) == (State.CANCELLED, State.QUEUED, 3)
    with world.ledger.begin() as session:
        assert session.get_one(Site, new.site_id).lock_job_id == new.id
    assert "Rounds of this session" in browser.text
    assert "Override the tier" not in browser.get(f"/jobs/{revision}").text


def test_what_a_person_has_to_judge_is_done_over_for_a_person_to_judge(world: World, offered: UUID) -> None:
    with world.ledger.begin() as session:
        session.execute(sql_update(Job).where(col(Job.id) == offered).values(result={"needs_person": True}))
    assert do_over(Browser(world), offered, "agent").result["needs_person"] is True


def test_a_site_that_is_being_made_is_made_on_another_tier(world: World) -> None:
    old = world.submit(prompt="Make a page for a bakery", new_site="rolls", tier="spec")
    new = do_over(Browser(world), old, "agent")
    assert (new.site_id, new.request["new_site"]) == (world.job(old).site_id, "rolls")
    assert world.job(old).state == State.CANCELLED


def test_a_job_that_is_worked_on_is_cancelled_at_its_next_step_and_done_over_behind_it(
    world: World, tmp_path: Path
) -> None:
    world.site("bakery", PAGES, tmp_path)
    old = world.submit(prompt="Make the headline red", site="bakery", tier="patch")
    world.claim(old)
    new = do_over(Browser(world), old, "agent")
    assert world.job(old).cancel_requested_at is not None
    with world.ledger.begin() as session:
        assert session.get_one(Site, new.site_id).lock_job_id == old
    again = Browser(world)
    again.get(f"/jobs/{old}")
    again.post(f"/jobs/{old}/override", tier="spec")
    assert 'role="alert"' in again.page.text, "one job takes its place"


def test_a_key_that_may_not_read_opens_nothing(world: World) -> None:
    assert "scope read" in Browser(world, "submit").text


def test_the_cookie_names_the_key_and_never_holds_it(world: World) -> None:
    browser = Browser(world)
    cookie = world.client.cookies["pointsman_console"]
    assert browser.secret not in cookie
    assert "Fleet" in browser.text


def test_a_revoked_key_ends_its_sessions_at_once(world: World) -> None:
    browser = Browser(world, "read")
    assert "Fleet" in browser.text
    with world.ledger.begin() as session:
        for name in (key.name for key in keys_of(session, world.tenant)):
            revoke(session, world.tenant, name=name)
    assert "Log in" in browser.get("/").text


def test_a_session_that_was_logged_out_opens_nothing_for_who_has_kept_its_cookie(world: World) -> None:
    browser = Browser(world, "read")
    kept = world.client.cookies["pointsman_console"]
    browser.post("/logout")
    Browser(world, "read")
    for cookie, status in ((kept, 303), (world.client.cookies["pointsman_console"], 200)):
        answer = world.client.get(
            "/console/", headers={"cookie": f"pointsman_console={cookie}"}, follow_redirects=False
        )
        assert answer.status_code == status


def test_no_page_of_a_neighbouring_host_can_put_a_session_into_a_browser(shared_ledger: Ledger, tmp_path: Path) -> None:
    with open_world(shared_ledger, tmp_path / "store", console_url="https://console.example") as world:
        client = TestClient(world.app, base_url="https://console.example")
        key = world.headers()["Authorization"].removeprefix("Bearer ")
        made = client.post("/console/login", data={"key": key}, follow_redirects=False).headers["set-cookie"]
        assert re.match(r"__Host-pointsman_console=\S+; HttpOnly; Max-Age=43200; Path=/; SameSite=lax; Secure$", made)
        page = client.get("/console/limits")
        assert page.status_code == 200
        planted = {"pointsman_console": client.cookies["__Host-pointsman_console"]}  # as a neighbour could name it
        other = TestClient(world.app, base_url="https://console.example", cookies=planted)
        assert other.get("/console/limits", follow_redirects=False).status_code == 303
        token = TOKEN.search(page.text)
        assert token is not None
        client.post("/console/logout", data={"form_token": token.group(1)}, follow_redirects=False)
        assert "__Host-pointsman_console" not in client.cookies


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://testserver.evil.example", "http://testserver:81"]
)
def test_a_login_that_another_origin_sends_is_refused(world: World, origin: str) -> None:
    world.client.cookies.clear()
    form = {"key": world.key("read")}
    refused = world.client.post("/console/login", data=form, headers={"origin": origin}, follow_redirects=False)
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    own = world.client.post("/console/login", data=form, headers={"origin": CONSOLE_URL}, follow_redirects=False)
    assert (own.status_code, "set-cookie" in own.headers) == (303, True)


def test_every_page_says_what_it_may_load_and_that_nobody_frames_it(world: World) -> None:
    headers = Browser(world).get("/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["cache-control"] == "no-store"


def test_no_page_has_a_script_or_a_style_of_its_own(world: World, offered: UUID) -> None:
    browser = Browser(world)
    for path in ("/", "/jobs", f"/jobs/{offered}", "/runs", "/sites", "/sites/bakery", "/limits", "/audit"):
        page = browser.get(path)
        assert page.status_code == 200, page.text[:300]
        assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|<style|\son[a-z]+=", page.text), path


def test_a_prompt_is_text_on_every_page_that_shows_it(world: World, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(prompt='Add "<script>alert(1)</script><img src=x onerror=alert(2)>" to it', site="bakery")
    browser = Browser(world)
    for path in ("/", "/jobs", f"/jobs/{job_id}"):
        assert "<script>alert" not in browser.get(path).text
        assert "<img src=x" not in browser.page.text


def test_a_form_of_another_site_does_nothing_with_a_good_token(world: World, offered: UUID) -> None:
    browser = Browser(world)
    browser.get(f"/jobs/{offered}")
    token = TOKEN.search(browser.page.text)
    assert token is not None
    foreign = world.client.post(
        f"/console/jobs/{offered}/cancel", data={"form_token": token.group(1)}, headers={"sec-fetch-site": "cross-site"}
    )
    assert foreign.status_code == 403
    assert world.job(offered).state == State.AWAITING_APPROVAL


def test_a_job_s_page_tells_why_it_went_there_what_it_cost_and_what_it_changes(world: World, offered: UUID) -> None:
    browser = Browser(world)
    page = browser.get(f"/jobs/{offered}")
    assert "Make the headline red" in browser.text
    assert "awaiting approval" in browser.text
    assert "+h1 { color: #aa0000 }" in browser.text
    assert "Why it was routed so" in browser.text
    assert page.text.count("<iframe") == 2


def test_whoever_decides_reads_the_whole_report(world: World, offered: UUID) -> None:
    report = "Please check the hours on the page. " * 10 + "Is 9 right?"
    with world.ledger.begin() as session:
        session.execute(sql_update(Job).where(col(Job.id) == offered).values(result={"summary": report}))
    decision = Browser(world).get(f"/jobs/{offered}").text.partition('aria-label="Your decision"')[2]
    assert report in decision


def test_the_console_s_links_can_be_framed_by_the_console_alone_and_a_reviewer_s_by_nobody(
    world: World, offered: UUID
) -> None:
    links = re.findall(r'<iframe src="([^"]+)"', Browser(world).get(f"/jobs/{offered}").text)
    for link in links:
        shown = world.pages.get(link)
        assert shown.status_code == 200
        assert "frame-ancestors http://testserver;" in shown.headers["content-security-policy"]
        assert "frame-ancestors 'none'" not in shown.headers["content-security-policy"]
        assert "x-frame-options" not in shown.headers
    mailed = world.call("GET", f"/v1/jobs/{offered}").json()["preview_url"]
    assert world.pages.get(mailed).headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in world.pages.get(mailed).headers["content-security-policy"]


def test_an_approval_publishes_exactly_what_the_page_showed(world: World, offered: UUID) -> None:
    browser = Browser(world)
    shown = browser.get(f"/jobs/{offered}").text
    release = re.search(r'name="release_id" value="([^"]+)"', shown)
    digest = re.search(r'name="report_digest" value="([^"]*)"', shown)
    assert release is not None
    assert digest is not None
    wrong = browser.post(f"/jobs/{offered}/approve", release_id=str(uuid4()), report_digest=digest.group(1))
    assert world.job(offered).state == State.AWAITING_APPROVAL
    assert 'role="alert"' in wrong.text
    browser.post(f"/jobs/{offered}/approve", release_id=release.group(1), report_digest=digest.group(1))
    assert "Approved" in browser.text
    before = world.active("bakery")
    world.publish(offered)
    assert world.active("bakery") == before, "for some seconds it can be undone"
    end_hold(world, offered)
    world.publish(offered)
    assert str(world.active("bakery")) == release.group(1)
    back = re.search(r'rollback">.*?name="release_id" value="([^"]+)"', browser.get(f"/jobs/{offered}").text)
    assert back is not None
    assert back.group(1) == str(before)
    browser.post("/sites/bakery/rollback", release_id=back.group(1))
    assert world.active("bakery") == before
    assert "rollback" not in browser.get(f"/jobs/{offered}").text, "what is not live cannot be taken back"


def approve_as_shown(browser: Browser, job_id: UUID) -> None:
    shown = browser.get(f"/jobs/{job_id}").text
    fields = {name: re.search(rf'name="{name}" value="([^"]*)"', shown) for name in ("release_id", "report_digest")}
    browser.post(f"/jobs/{job_id}/approve", **{name: found[1] for name, found in fields.items() if found})


def end_hold(world: World, job_id: UUID) -> None:
    """Let the time in which an approval can be undone be over, and the dispatcher see it."""
    with world.ledger.begin() as session:
        session.execute(sql_update(Job).where(col(Job.id) == job_id).values(held_until=now()))
    with world.ledger.begin() as session:
        assert job_id in release_due(session)


def test_an_approval_is_undone_by_a_form_while_its_publish_waits(world: World, offered: UUID) -> None:
    browser = Browser(world)
    approve_as_shown(browser, offered)
    page = browser.get(f"/jobs/{offered}").text
    left = re.search(r'role="timer" data-left="([0-9.]+)"[^>]*>Publishing in (\d+) s<', page)
    assert left is not None
    assert UNDO_SECONDS - 5 < float(left[1]) <= int(left[2]) <= UNDO_SECONDS
    assert "Approve and publish" not in page
    assert "Undo" not in Browser(world, "read").get(f"/jobs/{offered}").text
    browser = Browser(world)
    browser.post(f"/jobs/{offered}/undo")
    assert "waits for a decision again" in browser.text
    assert "Approve and publish" in browser.text
    again = browser.post(f"/jobs/{offered}/undo")
    assert 'role="alert"' in again.text
    assert "is not undone" in browser.text
    approve_as_shown(browser, offered)
    end_hold(world, offered)
    assert 'role="timer"' not in browser.get(f"/jobs/{offered}").text
    world.publish(offered)
    assert world.job(offered).state == State.PUBLISHED


def test_after_an_approval_the_next_preview_that_waits_is_one_key_away(
    world: World, offered: UUID, tmp_path: Path
) -> None:
    world.site("cafe", PAGES, tmp_path)
    other = world.submit(prompt="Make the headline red", site="cafe", tier="patch")
    world.offer(other, REDDER)
    browser = Browser(world)
    approve_as_shown(browser, other)
    page = browser.get(f"/jobs/{other}").text
    assert re.search(rf'href="/console/jobs/{offered}" data-key="j"', page)
    assert 'data-key="z"' in page


def test_a_rejection_needs_a_reason_and_leaves_the_site_as_it_is(world: World, offered: UUID) -> None:
    before = world.active("bakery")
    browser = Browser(world)
    browser.get(f"/jobs/{offered}")
    browser.post(f"/jobs/{offered}/reject", reason="  ")
    assert "Give a reason" in browser.text
    browser.get(f"/jobs/{offered}")
    browser.post(f"/jobs/{offered}/reject", reason="Too red")
    assert "Rejected" in browser.text
    assert (world.job(offered).state, world.active("bakery")) == (State.REJECTED, before)


def test_a_rejection_that_starts_paid_work_says_so_before_the_click(world: World, offered: UUID) -> None:
    with world.ledger.begin() as session:
        session.get_one(Tenant, world.tenant).provider = "fake"
    browser, warning = Browser(world), "Rejecting starts paid work"
    assert warning not in browser.get(f"/jobs/{offered}").text
    browser.post(f"/jobs/{offered}/reject", reason="Too red")
    again = world.submit(prompt="Make the headline red", site="bakery", tier="patch")
    world.offer(again, REDDER)
    assert warning in browser.get(f"/jobs/{again}").text
    browser.post(f"/jobs/{again}/reject", reason="Still too red")
    assert world.job(again).result["failure_action"] == "DEBATE_FAILURE"


def test_a_key_that_only_reads_is_offered_nothing(world: World, offered: UUID) -> None:
    page = Browser(world, "read").get(f"/jobs/{offered}").text
    assert "Approve and publish" not in page
    assert "Cancel this job" not in page
    assert "With the selected" not in Browser(world, "read").get("/jobs").text


def test_a_page_whose_files_cannot_be_read_says_so_and_a_way_to_nowhere_is_no_fault_of_ours(
    world: World, offered: UUID
) -> None:
    browser = Browser(world)
    blobs = world.content_store.root / "blobs"
    away = blobs.rename(blobs.with_name("away"))
    assert browser.get(f"/jobs/{offered}").status_code == 503
    assert "The files cannot be reached" in browser.text
    away.rename(blobs)
    sha256 = hashlib.sha256(REDDER["style.css"]).hexdigest()
    blob = blobs / sha256[:2] / sha256
    blob.rename(blobs / "kept")
    assert browser.get(f"/jobs/{offered}").status_code == 500
    assert "is missing or damaged" in browser.text
    (blobs / "kept").rename(blob)
    assert browser.get(f"/jobs/{offered}").status_code == 200
    assert browser.get("/login/oidc").status_code == 404


def test_a_question_is_answered_by_a_button(world: World, tmp_path: Path) -> None:
    for name in ("bakery", "bistro"):
        world.site(name, PAGES, tmp_path)
    job_id = world.submit(prompt="Make the headline red")
    browser = Browser(world)
    page = browser.get(f"/jobs/{job_id}").text
    options = re.findall(r'name="option" value="([^"]+)"', page)
    assert {"bakery", "bistro"} <= set(options)
    browser.post(f"/jobs/{job_id}/reply", option="bistro")
    assert world.job(job_id).state != State.CLARIFYING


def test_jobs_are_found_by_what_is_known_of_them_and_the_ends_of_their_id(world: World, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    red = world.submit(prompt="Make the headline red", site="bakery")
    blue = world.submit(prompt="Make the 100% footer blue", site="bakery")
    browser = Browser(world)

    def found(query: str) -> set[str]:
        return set(re.findall(r"/console/jobs/([0-9a-f-]{36})", browser.get(f"/jobs?{query}").text))

    assert found("text=HEADLINE") == {str(red)}
    assert found("text=100%25") == {str(blue)}
    assert found(f"text={str(blue)[-8:]}") == found(f"text={str(blue)[:20]}") == {str(blue)}
    assert found("site=bakery") == {str(red), str(blue)}
    assert found("site=other") == set()
    assert found("state=published") == set()
    assert found("state=&text=&site=&tier=&period=") == {str(red), str(blue)}
    assert found("tier=spec&period=1h") == {str(red), str(blue)}
    assert found("source=http") == found(f"who={world.job(red).requested_by[:6]}") == {str(red), str(blue)}
    for query in ("tier=agent", "source=celery", "who=nobody%25", "cost=cent"):
        assert found(query) == set(), query
    chip = re.search(r'href="/console(/jobs\?[^"]+)"[^>]*>under way <b>2</b>', browser.get("/jobs?text=blue").text)
    assert chip is not None
    assert found(unescape(chip.group(1)).removeprefix("/jobs?")) == {str(blue)}, "a chip keeps the other filters"
    with world.ledger.begin() as session:
        session.execute(
            sql_update(Job).where(col(Job.id) == blue).values(created_at=datetime.now(UTC) - timedelta(hours=2))
        )
    assert found("period=1h") == {str(red)}


def test_the_list_goes_on_where_the_page_before_ended(world: World) -> None:
    for number in range(45):
        world.submit(prompt=f"What does page {number} say?")
    browser = Browser(world)
    first = re.findall(r"/console/jobs/([0-9a-f-]{36})", browser.get("/jobs").text)
    older = re.search(r'href="/console(/jobs\?[^"]+)">Older', browser.page.text)
    assert older is not None
    second = re.findall(r"/console/jobs/([0-9a-f-]{36})", browser.get(unescape(older.group(1))).text)
    assert (len(first), len(second)) == (40, 5)
    assert not set(first) & set(second)


def test_a_rollback_is_one_click_on_the_site_s_page(world: World, tmp_path: Path) -> None:
    first = world.site("bakery", PAGES, tmp_path)
    world.site("bakery", {**PAGES, "index.html": HOME.replace(b"Bread", b"Rolls")}, tmp_path)
    browser = Browser(world)
    assert browser.get("/sites/bakery").text.count(">Roll back<") == 1
    browser.post("/sites/bakery/rollback", release_id=str(first.id))
    assert "live again" in browser.text
    assert world.active("bakery") == first.id
    assert browser.get("/sites/bakery").text.count(">Roll forward<") == 1


def test_only_an_operator_is_offered_to_pause_queues_and_verify_the_audit_trail(world: World) -> None:
    assert "Pause spec" not in Browser(world, "admin").get("/").text
    with world.ledger.begin() as session:
        seal(session, signing_key=AUDIT_KEY)
    operator = Browser(world, "operate", "read")
    assert "Resume spec" in operator.get("/").text
    operator.post("/queues/spec", paused="false")
    assert "Pause spec" in operator.get("/").text
    operator.post("/queues/spec", paused="true")
    operator.post("/audit/verify")
    assert "The chain is whole" in operator.text
    with world.ledger.begin() as session:
        sealed = session.scalar(select(func.max(AuditSeal.last_seq)))
    assert f"Rows after #{sealed} are not sealed yet." in operator.text, "all rows up to it are, not only that one"


def test_everyone_but_an_operator_sees_the_audit_rows_of_their_tenant_alone(world: World) -> None:
    other = f"{world.tenant}-b"
    world.headers(tenant=other)
    world.submit(prompt="What does the page say?")
    browser = Browser(world, "admin")
    browser.get("/audit")
    assert world.tenant in browser.text
    assert other not in browser.text
    assert other in Browser(world, "operate", "read").get("/audit?action=key_created").text


def test_a_submission_that_breaks_a_rule_says_which(world: World) -> None:
    browser = Browser(world)
    browser.get("/jobs")
    browser.post("/jobs", prompt="Make it <red>", site="nowhere", budget="0.20")
    assert "site: no site of this name belongs to the tenant" in browser.text
    for kept in (">Make it &lt;red&gt;</textarea>", 'value="nowhere"', 'value="0.20"'):
        assert kept in browser.page.text, "what was written is not lost"
    browser.get("/jobs")
    browser.post("/jobs", prompt="What does the page say?")
    assert "What does the page say?" in browser.text


def test_a_new_site_is_asked_for_by_the_form_and_a_name_that_breaks_a_rule_stays_in_it(world: World) -> None:
    browser = Browser(world)
    browser.get("/jobs")
    browser.post("/jobs", prompt="A site for Ada's Bikes in Ghent", new_site="No Name")
    assert "new_site" in browser.text
    assert 'name="new_site" maxlength="64" autocomplete="off" value="No Name"' in browser.page.text
    browser.post("/jobs", prompt="A site for Ada's Bikes in Ghent", new_site="adas-bikes")
    job = world.job(UUID(str(browser.page.url).rsplit("/", 1)[1]))
    assert job.request["new_site"] == "adas-bikes"


def test_the_stream_of_a_job_sends_lines_of_its_page(world: World) -> None:
    job_id = world.submit(prompt="What does the page say?")
    browser = Browser(world)
    world.finish(job_id, State.ANSWERED, answer="It says <b>bread</b>.")
    lines = world.client.get(f"/console/jobs/{job_id}/stream").text
    assert lines.count("event: line") >= 3
    assert "event: over" in lines
    assert "<li><time" in lines
    assert "It says &lt;b&gt;bread&lt;/b&gt;." in browser.get(f"/jobs/{job_id}").text


def test_streams_of_the_console_count_like_those_of_the_api(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> AsyncIterator[ServerSentEvent]:
        for never in ():
            yield never

    job_id = world.submit(prompt="What does the page say?")
    Browser(world)
    streams = EventStreams(world.ledger, Streams(per_process=1, retry_seconds=7), poll_seconds=0.02)
    monkeypatch.setitem(vars(world.resources), "streams", streams)
    streams.open(None, nothing())
    refused = world.client.get(f"/console/jobs/{job_id}/stream")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "7")


def test_an_open_stream_of_the_console_ends_soon_after_its_session_or_key_is_revoked(world: World) -> None:
    job_id = world.submit(prompt="What does the page say?")
    for ended in ("session", "key"):
        browser = Browser(world)
        with world.ledger.begin() as session:
            login = session.scalars(select(LoginSession).order_by(col(LoginSession.created_at).desc())).first()
            key = keys_of(session, world.tenant)[0] if ended == "key" else None
        assert login is not None

        def end_it(ended: str = ended, nonce: str = login.nonce, key: ApiKey | None = key) -> None:
            with world.ledger.begin() as session:
                if key is None:
                    end_session(session, nonce)
                else:
                    revoke(session, world.tenant, name=key.name)

        timer = threading.Timer(0.3, end_it)
        timer.start()
        began = time.monotonic()
        text = browser.client.get(f"/console/jobs/{job_id}/stream").text  # returns when the stream ends
        timer.join()
        assert time.monotonic() - began < HOLDER_SECONDS + 3
        assert "event: over" not in text, "the browser asks again, and is led to the login"


@pytest.mark.req("H-072")
def test_the_tier_is_overridden_in_place_of_a_job_and_a_second_click_makes_no_second_one(
    world: World, tmp_path: Path
) -> None:
    world.site("bakery", PAGES, tmp_path)
    old = world.submit(prompt="Make the headline red", site="bakery", tier="patch")
    browser = Browser(world)
    new = do_over(browser, old, "agent")
    assert "replaces the previous one, on tier agent" in browser.text
    browser.post(f"/jobs/{old}/override", tier="agent")
    assert str(browser.page.url).endswith(str(new.id))
    assert (world.job(old).state, new.tier, new.queue) == (State.CANCELLED, 3, "agent")
    with world.ledger.begin() as session:
        told = select(func.count()).where(col(AuditRow.job_id) == old, col(AuditRow.action) == "tier_overridden")
        assert session.scalar(told) == 1
    assert new.route["cause"] == "override"


def test_what_cannot_be_done_over_stays_as_it_is(world: World, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(prompt="Make the headline red", site="bakery", tier="patch")
    question = world.submit(prompt="What does the page say?")
    browser = Browser(world)
    for asked, tier in ((job_id, "patch"), (question, "agent")):
        browser.get(f"/jobs/{asked}")
        browser.post(f"/jobs/{asked}/override", tier=tier)
        assert 'role="alert"' in browser.page.text
    assert (world.job(job_id).state, world.job(question).state) == (State.QUEUED, State.QUEUED)


def test_a_job_that_ran_out_of_money_goes_on_with_what_a_person_adds(world: World, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(prompt="Make the headline red", site="bakery", tier="patch")
    world.finish(job_id, State.BUDGET_EXCEEDED, reason=Reason.COST_CAP, detail="the cap is reached")
    browser = Browser(world)
    browser.get(f"/jobs/{job_id}")
    browser.post(f"/jobs/{job_id}/resume", budget="lots")
    assert "budget_usd" in browser.text
    browser.post(f"/jobs/{job_id}/resume", budget="0.20")
    assert "Resumed with the added budget" in browser.text
    assert "Rounds of this session" in browser.text


def test_the_words_that_decided_are_marked_and_what_would_have_changed_it_is_told(world: World, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(prompt="Rewrite <b>every</b> page with webgl", site="bakery")
    page = Browser(world).get(f"/jobs/{job_id}/why").text
    assert "<mark" in page
    assert "The winning rule" in page
    assert "What would change it" in page
    assert "<b>every</b>" not in page


def test_an_operator_sees_who_works_and_with_how_many_slots_and_a_tenant_only_its_own_work(world: World) -> None:
    with world.ledger.begin() as session:
        record_heartbeat(session, WorkerStatus(id="w-1@host", host="host", pid=1, queues=("spec",), slots=4))
    at_work = world.submit(prompt="What does the page say?")
    world.claim(at_work)
    with world.ledger.begin() as session:
        session.execute(sql_update(Attempt).where(col(Attempt.job_id) == at_work).values(worker="w-1@host"))
    operator = Browser(world, "operate", "read", tenant=f"{world.tenant}-o")
    assert "w-1@host" in operator.get("/").text
    assert "1/4 slots busy" in operator.text.replace(" /", "/")
    assert "What does the page say?" not in operator.text
    for tenant, under_way in ((world.tenant, 1), (f"{world.tenant}-b", 0)):
        browser = Browser(world, "admin", tenant=tenant)
        assert "w-1@host" not in browser.get("/").text
        assert "slots" not in browser.text.lower()
        assert "Saturation" not in browser.text
        assert f"{under_way} under way" in browser.text
        assert browser.text.count("What does the page say?") == under_way
    assert Browser(world, "admin").text.count("no worker") == len(QUEUES) - 1


def test_of_a_long_job_the_newest_events_are_shown_and_a_link_leads_back_to_the_first(world: World) -> None:
    job_id = world.submit(prompt="What does the page say?")
    taken = world.claim(job_id)
    with world.ledger.begin() as session:
        for number in range(450):
            record(session, EventKind.PROGRESS, job=find_job(session, job_id), text=f"step {number}.")
    with world.ledger.begin() as session:
        job = lock_owned_job(session, taken.attempt)
        close_attempt(session, job, outcome=State.FAILED.value, reason=Reason.PROVIDER_ERROR)
        end(session, job, State.FAILED, reason=Reason.PROVIDER_ERROR)
    browser = Browser(world)
    browser.get(f"/jobs/{job_id}")
    timeline = browser.text.partition("Timeline")[2].partition("Bill")[0]
    assert "Attempt 1 on answer failed" in timeline, "what began and ended it is known, whatever lies between"
    assert "step 449." in browser.text
    pages = [browser.page.text]
    while (older := re.search(r'href="/console(/jobs/[^"]+)"[^>]*>Older events', browser.page.text)) is not None:
        part = browser.get(older.group(1), **{"hx-request": "true"}).text
        assert "<html" not in part
        assert "<html" in browser.get(older.group(1)).text
        pages.append(browser.page.text)
    seen = [int(number) for page in pages for number in re.findall(r"<span>step (\d+)\.", page)]
    assert sorted(seen) == list(range(450))
    assert (len(pages), "Accepted" in pages[-1]) == (10, True)


def test_a_job_s_page_is_read_in_one_transaction(world: World, offered: UUID) -> None:
    begun = []

    class Counted:
        def begin(self) -> Any:
            begun.append(1)
            return world.ledger.begin()

    facts = facts_of(replace(world.resources, ledger=Counted()), offered, tenant=world.tenant)  # type: ignore[arg-type]
    assert len(begun) == 1
    assert facts["changes"].changed == 1


def test_the_audit_trail_is_searched_to_its_end_however_far_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_LOOKED_AT", 40)
    with world.ledger.begin() as session:
        audit.append(session, "rare_thing", actor="me", tenant=world.tenant)
        for _ in range(130):
            audit.append(session, "usual_thing", actor="me", tenant=world.tenant)
    browser = Browser(world, "admin")
    path, pages = "/audit?action=rare thing", 0
    while "<td>rare thing" not in browser.get(path).text:
        further = re.search(r'href="/console(/audit\?[^"]+)">Search further back', browser.page.text)
        assert further is not None, browser.text
        assert "may be older ones" in browser.text
        path, pages = unescape(further.group(1)), pages + 1
    assert pages in (3, 4)
    browser.get("/audit?action=usual thing&actor=me")
    found = [browser.page.text.count("<td>usual thing")]
    while (further := re.search(r'href="/console(/audit\?[^"]+)">', browser.page.text)) is not None and len(found) < 9:
        found.append(browser.get(unescape(further.group(1))).text.count("<td>usual thing"))
    assert sum(found) == 130


def test_a_tier_that_the_work_so_far_needs_is_no_change_of_the_rules(world: World, offered: UUID) -> None:
    raised = {"rule": "work-so-far", "cause": "override", "tier": 3, "queue": "agent", "reason": "It has a build."}
    with world.ledger.begin() as session:
        job = find_job(session, offered)
        request = {name: value for name, value in job.request.items() if name != "tier"}
        changed = sql_update(Job).where(col(Job.id) == offered)
        session.execute(changed.values(route={**job.route, **raised}, request=request))
    browser = Browser(world)
    browser.get(f"/jobs/{offered}/why")
    assert "It has a build. The request alone would be ACTION, tier spec." in browser.text
    assert "rules have changed" not in browser.text
    with world.ledger.begin() as session:
        session.execute(sql_update(Job).where(col(Job.id) == offered).values(route={**job.route, **raised, "tier": 1}))
    assert "rules have changed" in browser.get(f"/jobs/{offered}/why").text


def test_a_part_of_a_page_is_sent_to_who_asks_for_one(world: World, offered: UUID) -> None:
    browser = Browser(world)
    for path in ("/", "/charts", "/jobs", f"/jobs/{offered}", f"/jobs/{offered}/why"):
        part = browser.get(path, **{"hx-request": "true"}).text
        assert "<html" not in part, path
        assert part.strip(), path


def test_a_failed_job_says_why_and_what_to_do_and_is_retried_on_its_bill(world: World) -> None:
    job_id = world.submit(prompt="What does the page say?")
    world.finish(job_id, State.FAILED, reason=Reason.PROVIDER_ERROR, detail="it answered 529 for 60 s")
    browser = Browser(world)
    browser.get(f"/jobs/{job_id}")
    for told in ("The model's provider failed", "it answered 529 for 60 s", "Try again once the provider works."):
        assert told in browser.text
    assert re.search(r"Retry does the request again, for at most \$\d", browser.text)
    browser.post(f"/jobs/{job_id}/retry")
    assert "Tried again, on the same bill." in browser.text
    again = world.job(UUID(str(browser.page.url).rsplit("/", 1)[1]))
    assert (again.parent_id, again.root_id, again.result["verb"]) == (job_id, job_id, "replay")
    assert "Retry" not in browser.get(f"/jobs/{job_id}").text, "it is continued already"


def test_what_a_job_waits_for_is_named_and_linked(world: World, offered: UUID) -> None:
    behind = world.submit(prompt="Make the footer green", site="bakery", tier="patch")
    with world.ledger.begin() as session:
        session.execute(sql_update(Job).where(col(Job.id) == behind).values(held_for="site"))
    browser = Browser(world)
    browser.get(f"/jobs/{behind}")
    assert "Waits for the site bakery, which is held by Make the headline red" in browser.text
    assert f'held by <a href="/console/jobs/{offered}"' in browser.page.text
    waiting = world.submit(prompt="What does the page say?")
    browser.get(f"/jobs/{waiting}")
    told = browser.text.partition("Timeline")[0]
    assert re.search(r"Waits (for|because)[a-z ;,]+ (answer|intake)\b", told), told[:900]


def test_selected_jobs_are_approved_as_they_were_shown_each_with_its_own_result(
    world: World, offered: UUID, tmp_path: Path
) -> None:
    world.site("studio", PAGES, tmp_path)
    other = world.submit(prompt="Make the other headline red", site="studio", tier="patch")
    world.offer(other, REDDER)
    with world.ledger.begin() as session:
        session.get_one(Job, other).result = {"summary": "The headline is red now."}
    waiting = world.submit(prompt="What does the page say?")
    browser = Browser(world)
    browser.get("/jobs")
    order = {"action": "approve", "ids": [str(offered), str(other), str(waiting)]}
    browser.post("/jobs/selected", **order)  # type: ignore[arg-type]
    assert "Approve 2 jobs?" in browser.text
    assert "2 of 3 selected" in browser.text
    assert "The headline is red now. style.css · scan passed" in browser.text, "what is approved"
    seen = re.findall(r'name="seen" value="([^"]+)"', browser.page.text)
    assert len(seen) == 2
    stale = [f"{other}:{uuid4()}:x" if one.startswith(str(other)) else one for one in seen]
    browser.post("/jobs/selected/confirmed", action="approve", ids=[str(offered), str(other)], seen=stale)  # type: ignore[arg-type]
    assert "1 of 2 is approved." in browser.text
    assert world.job(offered).state == State.PUBLISHING
    assert world.job(other).state == State.AWAITING_APPROVAL, "another release than the page showed"


def test_what_was_approved_together_waits_and_is_undone_together_while_that_lasts(
    world: World, offered: UUID, tmp_path: Path
) -> None:
    world.site("cafe", PAGES, tmp_path)
    other = world.submit(prompt="Make the headline red", site="cafe", tier="patch")
    world.offer(other, REDDER)
    both = [str(offered), str(other)]
    browser = Browser(world)
    browser.get("/jobs")
    browser.post("/jobs/selected", action="approve", ids=both)  # type: ignore[arg-type]
    seen = re.findall(r'name="seen" value="([^"]+)"', browser.page.text)
    approved = browser.post("/jobs/selected/confirmed", action="approve", ids=both, seen=seen)  # type: ignore[arg-type]
    assert "2 of 2 are approved." in browser.text
    (left,) = re.findall(r'data-left="([\d.]+)"', approved.text)
    assert UNDO_SECONDS - 5 < float(left) <= UNDO_SECONDS
    assert [world.job(one).held_for for one in (offered, other)] == ["time", "time"], "nothing is published yet"
    stranger = Browser(world, tenant=f"{world.tenant}-z")
    stranger.get("/jobs")
    stranger.post("/jobs/selected/undo", ids=both)  # type: ignore[arg-type]
    assert "0 of 2 are undone." in stranger.text
    with world.ledger.begin() as session:  # the time of one is over
        session.execute(sql_update(Job).where(col(Job.id) == other).values(held_until=now()))
    browser = Browser(world)
    browser.get("/jobs")
    browser.post("/jobs/selected/undo", ids=both)  # type: ignore[arg-type]
    assert "1 of 2 is undone." in browser.text
    assert (world.job(offered).state, world.job(other).state) == (State.AWAITING_APPROVAL, State.PUBLISHING)


def test_selected_jobs_are_cancelled_and_retried_and_nobody_else_s(world: World) -> None:
    first, second = (world.submit(prompt="What does the page say?") for _ in range(2))
    failed = world.submit(prompt="What is on the page?")
    world.finish(failed, State.FAILED, reason=Reason.PROVIDER_ERROR, detail="it answered 529")
    browser = Browser(world)
    browser.get("/jobs")
    browser.post("/jobs/selected", action="cancel", ids=[str(first), str(second), str(failed)])  # type: ignore[arg-type]
    assert "Cancel 2 jobs?" in browser.text
    browser.post("/jobs/selected/confirmed", action="cancel", ids=[str(first), str(failed)])  # type: ignore[arg-type]
    assert "1 of 2 is cancelled." in browser.text
    assert (world.job(first).state, world.job(second).state) == (State.CANCELLED, State.QUEUED)
    browser.post("/jobs/selected/confirmed", action="retry", ids=str(failed))
    assert "1 of 1 is tried again." in browser.text
    other = Browser(world, tenant=f"{world.tenant}-x")
    other.get("/jobs")
    other.post("/jobs/selected/confirmed", action="cancel", ids=str(second))
    assert "0 of 1 are cancelled." in other.text
    assert world.job(second).state == State.QUEUED


def test_what_queues_did_over_time_and_what_it_cost_is_shown(world: World) -> None:
    job_id = world.submit(prompt="What does the page say?")
    world.finish(job_id, State.ANSWERED, reason=Reason.DONE)
    browser = Browser(world, "admin")
    for span in ("hour", "day", "week"):
        text = browser.get(f"/charts?span={span}").text
        assert re.search(r'<th scope="row">answer</th>.*Attempts on answer over time, 1 in all', text), span
    assert "Cost by tenant" not in browser.text
    assert "Cost by tenant" in Browser(world, "operate", "read").get("/charts").text
    other = Browser(world, "admin", tenant=f"{world.tenant}-y")
    assert "Nothing ran in this span" in other.get("/charts").text


def test_the_theme_is_the_browser_s_choice_and_stays_on_the_page(world: World) -> None:
    browser = Browser(world)
    assert "data-theme" not in browser.get("/limits").text
    browser.client.headers["referer"] = f"{CONSOLE_URL}/console/limits?a=b"
    browser.post("/theme", theme="dark")
    del browser.client.headers["referer"]
    assert str(browser.page.url).endswith("/console/limits?a=b")
    assert '<html lang="en" data-theme="dark">' in browser.page.text
    browser.post("/theme", theme="")
    assert "data-theme" not in browser.get("/limits").text
    assert browser.post("/theme", theme="pink").status_code == 422
