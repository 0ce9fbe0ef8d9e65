"""People sign in by a real identity provider, and nothing that anybody forges on the way lets anybody in."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from pydantic import SecretStr
from sqlalchemy import text
from starlette.routing import Mount

from ledger.store import Ledger
from producers.config import OidcConfig
from producers.console.oidc import OidcProvider, Ticket
from producers.errors import SignInRefusedError
from tests.http_server import Handler, served
from tests.integration.api.http_world import CONSOLE_URL, PAGES, World, open_world, shared_ledger

__all__ = ["shared_ledger"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
BACK = f"{CONSOLE_URL}/console/login/oidc/callback"


def rows(world: World, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    with world.ledger.begin() as session:
        found = session.execute(text(sql), values)
        return [tuple(row) for row in found] if found.returns_rows else []


def config_of(issuer: str, tenant: str, **others: Any) -> OidcConfig:
    grants = {name: f"{tenant}:{name}" for name in ("viewer", "editor", "approver", "admin")}
    return OidcConfig(issuer=issuer, client_id="pointsman", client_secret=SecretStr("s3"), grants=grants, **others)


class Office:
    """An installation whose people sign in at a provider of their own."""

    def __init__(self, world: World, issuer: str) -> None:
        self.world, self.issuer = world, issuer
        mounted = next(each.app for each in world.app.routes if isinstance(each, Mount) and each.path == "/console")
        provider = OidcProvider(config_of(issuer, world.tenant), redirect_uri=BACK)
        console = mounted.state.console  # type: ignore[attr-defined]
        mounted.state.console = type(console)(**{**vars(console), "provider": provider})  # type: ignore[attr-defined]

    def person(self, subject: str, *groups: str, name: str = "") -> None:
        """Say of a person at the provider what belongs to them."""
        claims = {"groups": groups, "preferred_username": name or subject}
        assert requests.put(f"{self.issuer}/users/{subject}", json=claims, timeout=5).status_code == 204

    def browser(self) -> TestClient:
        return TestClient(self.world.app, base_url=CONSOLE_URL, follow_redirects=False)

    def leave(self, browser: TestClient, subject: str) -> str:
        """Leave for the provider and sign in there; return where it sends the browser back to."""
        away = browser.get("/console/login/oidc")
        assert away.status_code == 303, away.text
        answer = requests.post(away.headers["location"], data={"sub": subject}, timeout=5, allow_redirects=False)
        back: str = answer.headers["location"]
        assert back.startswith(BACK)
        return back

    def sign_in(self, subject: str, *groups: str, name: str = "") -> TestClient:
        self.person(subject, *groups, name=name)
        browser = self.browser()
        answer = browser.get(self.leave(browser, subject))
        assert (answer.status_code, answer.headers.get("location")) == (303, "/console/"), answer.text
        return browser


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """It is imported here: that makes keys of RSA, for nearly a second in each process of the suite."""
    with import_module("oidc_provider_mock").run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def office(shared_ledger: Ledger, tmp_path: Path, issuer: str) -> Iterator[Office]:
    with open_world(shared_ledger, tmp_path / "content-store") as world:
        yield Office(world, issuer)


def post(browser: TestClient, path: str, **form: str) -> Any:
    token = re.search(r'name="form_token" value="([0-9a-f]{64})"', browser.get("/console/limits").text)
    assert token is not None
    return browser.post(f"/console{path}", data={**form, "form_token": token.group(1)})


def is_in(browser: TestClient) -> bool:
    return browser.get("/console/limits").status_code == 200


def test_a_person_gets_in_under_their_name_with_their_role_and_no_other_way_round(office: Office) -> None:
    world = office.world
    alice = office.sign_in("a-1", "editor", "viewer", "unknown", name="alice")
    assert f"user:{world.tenant}/alice" in alice.get("/console/limits").text
    assert alice.get("/console/people").status_code == 403
    assert post(alice, "/jobs", prompt="What is rye?").status_code == 303
    asked = rows(world, "SELECT requested_by FROM job ORDER BY created_at DESC LIMIT 1")
    assert asked == [(f"user:{world.tenant}/alice",)]
    cookie = next(each for each in alice.cookies.jar if each.name == "pointsman_console")
    assert (cookie.path, cookie.has_nonstandard_attr("HttpOnly")) == ("/console", True)


def test_who_is_in_no_group_of_this_installation_is_told_so_and_stays_out(office: Office) -> None:
    office.person("x-1", "strangers")
    browser = office.browser()
    answer = browser.get(office.leave(browser, "x-1"))
    assert (answer.status_code, is_in(browser)) == (403, False)
    assert "None of your groups" in answer.text


def test_an_answer_counts_once_in_the_browser_that_asked_and_leads_nowhere_else(office: Office) -> None:
    office.person("m-1", "admin")
    browser, victim = office.browser(), office.browser()
    back = office.leave(browser, "m-1")
    assert victim.get(back).status_code == 403  # a sign-in of somebody else's, sent to a victim
    wrong = back.replace("state=", "state=x")
    assert browser.get(wrong).status_code == 403
    assert browser.get(back).status_code == 403  # the wrong try has used the ticket up
    back = office.leave(browser, "m-1")
    assert browser.get(f"{back}&iss=https%3A%2F%2Fevil.example").status_code == 403
    back = office.leave(browser, "m-1")
    answer = browser.get(f"{back}&next=https%3A%2F%2Fevil.example%2F&iss={office.issuer}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")
    assert browser.get(back).status_code == 403
    assert not is_in(victim)


def test_signing_in_makes_a_new_session_whatever_cookie_the_browser_had(office: Office) -> None:
    mallory = office.sign_in("m-2", "viewer")
    planted = mallory.cookies["pointsman_console"]
    office.person("b-1", "admin", name="bob")
    bob = office.browser()
    bob.cookies.set("pointsman_console", planted, domain=urlsplit(CONSOLE_URL).hostname or "", path="/console")
    back = office.leave(bob, "b-1")
    mine = bob.get(back).cookies["pointsman_console"]
    assert mine != planted
    assert mallory.get("/console/people").status_code == 403


def test_what_is_taken_away_is_gone_at_the_next_request(office: Office) -> None:
    world = office.world
    root = office.sign_in("r-1", "admin", name="root")
    carol, dave, erin = (office.sign_in(f"{name}-9", "approver", name=name) for name in ("carol", "dave", "erin"))
    sessions = {one["actor"].partition("/")[2]: one["id"] for one in world.call("GET", "/v1/access").json()["sessions"]}
    assert set(sessions) == {"root", "carol", "dave", "erin"}
    assert post(root, f"/people/sessions/{sessions['carol']}/revoke").status_code == 303
    assert [is_in(each) for each in (root, carol, dave, erin)] == [True, False, True, True]
    assert post(root, "/people/access", name="dave", is_disabled="true").status_code == 303
    assert not is_in(dave)
    browser = office.browser()
    assert browser.get(office.leave(browser, "dave-9")).status_code == 403
    office.sign_in("erin-9", "viewer", name="erin")  # the provider took the role away; her other session loses it, too
    assert post(erin, "/sites/bakery/rollback", release_id=sessions["erin"]).status_code == 403
    own = post(root, "/people/access", name="root", is_disabled="true")
    assert (own.status_code, is_in(root)) == (303, True)
    refused = world.call("POST", "/v1/access/revoke", json={"session_id": sessions["carol"]})
    assert refused.status_code == 404
    assert world.call("POST", "/v1/access/revoke", json={"session_id": sessions["root"]}).status_code == 200
    assert not is_in(root)


def test_a_session_that_nobody_uses_is_over_and_one_key_s_sessions_end_with_it(office: Office) -> None:
    world = office.world
    idle = office.sign_in("i-1", "viewer", name="idle")
    rows(world, "UPDATE login_session SET seen_at = now() - interval '3 hours'")
    assert not is_in(idle)
    old = office.sign_in("i-1", "viewer", name="idle")
    rows(world, "UPDATE login_session SET expires_at = now() WHERE person_id IS NOT NULL")
    assert not is_in(old)
    keyed = office.browser()
    assert keyed.post("/console/login", data={"key": world.key("read")}).status_code == 303
    (key,) = [each for each in world.call("GET", "/v1/access").json()["keys"] if each["scopes"] == ["read"]]
    assert key["last_used_at"] is not None
    assert is_in(keyed)
    assert world.call("POST", "/v1/access/revoke", json={"key": key["name"]}).status_code == 200
    assert not is_in(keyed)


def test_four_eyes_are_two_people_whatever_they_call_themselves(office: Office, tmp_path: Path) -> None:
    world = office.world
    rows(
        world,
        'UPDATE tenant SET overrides = \'{"approval": {"requester_may_approve": false}}\' WHERE name = :name',
        name=world.tenant,
    )
    world.site("bakery", PAGES, tmp_path)
    alice = office.sign_in("f-1", "approver", name="fred")
    assert post(alice, "/jobs", prompt="Make the headline red", site="bakery").status_code == 303
    ((job_id,),) = rows(world, "SELECT id FROM job ORDER BY created_at DESC LIMIT 1")
    world.offer(job_id, PAGES)
    ((release, digest),) = rows(
        world,
        "SELECT release.id, scan_digest FROM release JOIN job ON job.release_id = release.id WHERE job.id = :id",
        id=job_id,
    )
    seen = {"release_id": str(release), "report_digest": digest}
    renamed = office.sign_in("f-1", "approver", name="frieda")  # the same person, by another name at the provider
    post(renamed, f"/jobs/{job_id}/approve", **seen)
    assert world.job(job_id).state == "awaiting_approval"
    namesake = office.sign_in("f-2", "approver", name="fred")
    post(namesake, f"/jobs/{job_id}/approve", **seen)
    assert world.job(job_id).state == "publishing"
    ((actor,),) = rows(world, "SELECT actor FROM audit WHERE job_id = :id AND action = 'approved'", id=job_id)
    assert re.fullmatch(rf"user:{world.tenant}/fred-[0-9a-f]{{12}}", actor)


SHARED = OctKey.import_key("s3" * 20, {"kid": "k1"})
TICKET = Ticket("state", "nonce", "v" * 64)


@cache
def rsa_key(name: str) -> Any:
    """A key of that name, made when it is used: that takes each process of the suite longer than most tests."""
    return RSAKey.generate_key(2048, {"kid": "k1"})


@contextmanager
def forging(make: Callable[[str], str]) -> Iterator[str]:
    """A provider that gives any token for any code."""

    class Forger(Handler):
        def answer(self) -> None:
            places = {"authorization_endpoint": url, "token_endpoint": f"{url}/t", "jwks_uri": f"{url}/k"}
            said: dict[str, Any] = {"issuer": url, **places}
            if self.path == "/k":
                said = {"keys": [rsa_key("own").as_dict(private=False)]}
            elif self.path == "/t":
                assert parse_qs(self.read_body().decode())["code_verifier"] == [TICKET.verifier]
                said = {"access_token": "a", "token_type": "Bearer", "id_token": make(url)}
            self.say(json.dumps(said).encode())

    with served(Forger) as url:
        yield url


def token(url: str, *, key: Any = None, alg: str = "RS256", **changed: Any) -> str:
    now = int(time.time())
    claims = {
        "iss": url,
        "aud": "pointsman",
        "sub": "1",
        "nonce": "nonce",
        "iat": now,
        "exp": now + 60,
        "groups": "admin",
    }
    claims = {name: value for name, value in (claims | changed).items() if value is not None}
    return jwt.encode({"alg": alg, "kid": "k1"}, claims, key or rsa_key("own"), algorithms=[alg])


def unsigned(url: str) -> str:
    _head, body, _ = token(url).split(".")
    return f"eyJhbGciOiJub25lIn0.{body}."


def test_a_token_that_is_right_is_taken() -> None:
    with forging(token) as url:
        proven = OidcProvider(config_of(url, "acme"), redirect_uri=BACK).finish(TICKET, {"state": "state", "code": "c"})
    assert (proven.identity.subject, proven.grant.role.value) == ("1", "admin")


@pytest.mark.parametrize(
    "make",
    [
        unsigned,
        lambda url: token(url, key=rsa_key("other")),
        lambda url: token(url, key=SHARED, alg="HS256"),
        lambda url: token(url, iss="https://evil.example"),
        lambda url: token(url, aud="another-client"),
        lambda url: token(url, aud=["pointsman", "another"], azp="another"),
        lambda url: token(url, nonce="of another sign-in"),
        lambda url: token(url, nonce=None),
        lambda url: token(url, exp=int(time.time()) - 120),
        lambda url: token(url, exp=None),
        lambda url: token(url, sub=None),
        lambda url: token(url, sub=""),
        lambda url: token(url, sub=7),
        lambda url: token(url)[:-8] + "AAAAAAAA",
        lambda url: "",
        lambda url: "a.b.c",
    ],
)
def test_a_token_that_proves_nothing_lets_nobody_in(make: Callable[[str], str]) -> None:
    with forging(make) as url, pytest.raises(SignInRefusedError):
        OidcProvider(config_of(url, "acme"), redirect_uri=BACK).finish(TICKET, {"state": "state", "code": "c"})


def test_a_provider_that_is_away_or_another_one_signs_nobody_in() -> None:
    with forging(token) as url:
        other = OidcProvider(config_of(f"{url}/tenant", "acme"), redirect_uri=BACK)
        with pytest.raises(SignInRefusedError, match="not the one"):
            other.begin()
    with pytest.raises(SignInRefusedError, match="reached"):
        OidcProvider(config_of(url, "acme"), redirect_uri=BACK).begin()
