"""Previews and live pages: exactly the bytes of one release, for the holder of its link, and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from ledger.tables import Release, Site
from producers.api.app import serve
from producers.bootstrap import Installation, Settings
from producers.config import ApiConfig, PagesConfig
from producers.pages import PageResources, create_pages_app, is_below, is_same_origin
from routing.errors import PolicyError
from routing.jobs import State
from sites.config import PreviewConfig
from sites.preview import OWN_ORIGIN, SANDBOX, PreviewSigner, host_label_of_preview, host_label_of_site
from sites.releases import manifest_of
from sites.scan.rules import csp_hash
from tests.integration.api.http_world import HOME, PAGES, PAGES_URL, STYLE, World, shared_ledger, world

__all__ = ["shared_ledger", "world"]

EDIT = {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}
NEW_PAGES: Mapping[str, bytes] = {**PAGES, "index.html": HOME.replace(b"Bread", b"Fresh bread")}
PATH_TRICKS = [
    "../index.html",
    "..%2findex.html",
    "%2e%2e/index.html",
    "%252e%252e/index.html",
    "a/../index.html",
    "./index.html",
    "index.html%00",
    "index.html%00.png",
    "menu%2findex.html",
    "menu\\index.html",
    "menu%5cindex.html",
    "/index.html",
    "INDEX.HTML",
    "index.html/",
    "index.html.",
    "index.html%20",
    "..;/index.html",
    "%c0%ae%c0%ae/index.html",
    "~root",
    "C:/index.html",
    "menu",
    "..%5c..%5cetc%5cpasswd",
    "....//index.html",
    "%ff",
]


def offered(world: World, tmp_path: Path) -> tuple[UUID, str]:
    """Return a job that waits for approval, and the path of its preview."""
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    world.offer(job_id, NEW_PAGES)
    url: str = world.call("GET", f"/v1/jobs/{job_id}").json()["preview_url"]
    assert url.startswith(f"{PAGES_URL}/preview/")
    assert url.endswith("/")
    return job_id, url.removeprefix(PAGES_URL)


def get(world: World, path: str, method: str = "GET", **headers: str) -> Any:
    return world.pages.request(method, path, follow_redirects=False, headers=headers)


@pytest.mark.parametrize("path", ["/healthz", "/robots.txt", "/favicon.ico"])
def test_head_answers_as_get_where_there_is_no_page(world: World, path: str) -> None:
    assert world.pages.head(path).status_code == world.pages.get(path).status_code < 300


@pytest.mark.req("H-082")
@pytest.mark.threat("H1")
def test_a_preview_shows_exactly_the_scanned_bytes_under_the_scans_policy(world: World, tmp_path: Path) -> None:
    job_id, preview = offered(world, tmp_path)
    release_id = world.job(job_id).release_id
    with world.ledger.begin() as session:
        release = session.get_one(Release, release_id)
    assert release.scan_passed
    for path in manifest_of(release):
        answer = get(world, preview + path)
        assert (answer.status_code, answer.content) == (200, NEW_PAGES[path])
        assert answer.headers["content-security-policy"] == f"{release.scan['csp']}; {SANDBOX}"
    assert get(world, preview + "style.css").headers["content-type"] == "text/css; charset=utf-8"


def test_a_directory_is_its_index_page_and_a_link_without_its_slash_leads_there(world: World, tmp_path: Path) -> None:
    _, preview = offered(world, tmp_path)
    assert get(world, preview).content == NEW_PAGES["index.html"]
    assert get(world, preview + "menu/").content == NEW_PAGES["menu/index.html"]
    answer = get(world, preview.rstrip("/"))
    assert (answer.status_code, answer.headers["location"]) == (307, preview)
    live = get(world, f"/live/{world.tenant}/bakery")
    assert (live.status_code, live.headers["location"]) == (307, f"/live/{world.tenant}/bakery/")


BUILT: Mapping[str, bytes] = {
    "package.json": b'{"scripts": {"build": "make"}}',
    "src/main.ts": b"let a: number = 1",
    "index.html": b"a source",
    "dist/index.html": HOME,
    "dist/style.css": STYLE,
}


@pytest.mark.req("H-082")
@pytest.mark.parametrize("place", ["preview", "live"])
def test_of_a_built_site_only_what_the_build_wrote_is_shown(world: World, tmp_path: Path, place: str) -> None:
    world.site("bakery", BUILT, tmp_path)
    job_id = world.submit(prompt="Convert to a multi-page site with shared nav", site="bakery")
    world.offer(job_id, {**BUILT, "dist/menu/index.html": HOME})
    preview = world.call("GET", f"/v1/jobs/{job_id}").json()["preview_url"].removeprefix(PAGES_URL)
    root = preview if place == "preview" else f"/live/{world.tenant}/bakery/"
    assert get(world, root).content == HOME
    assert get(world, root + "style.css").content == STYLE
    assert get(world, root + "menu/").status_code == (200 if place == "preview" else 404)
    for hidden in ("package.json", "src/main.ts", "dist/index.html", "dist/", "..%2fpackage.json"):
        assert get(world, root + hidden).status_code == 404, hidden
    tree = world.den_root / "sites" / f"{world.tenant}_bakery" / "active"
    assert {path.name for path in tree.resolve().iterdir()} == {"index.html", "style.css"}


@pytest.mark.parametrize("place", ["preview", "live"])
def test_head_answers_as_get_without_the_bytes(world: World, tmp_path: Path, place: str) -> None:
    _, preview = offered(world, tmp_path)
    url = (preview if place == "preview" else f"/live/{world.tenant}/bakery/") + "style.css"
    head, full = get(world, url, "HEAD"), get(world, url)
    assert (head.status_code, head.content, full.content) == (200, b"", STYLE)
    assert head.headers == full.headers
    assert head.headers["content-length"] == str(len(STYLE))


@pytest.mark.req("H-082")
@pytest.mark.threat("H1")
def test_an_altered_token_is_404_and_an_expired_one_410(world: World, tmp_path: Path) -> None:
    _, preview = offered(world, tmp_path)
    token = preview.split("/")[2]
    for place in range(0, len(token) - 1, 7):  # of the last character two bits mean nothing
        altered = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert get(world, f"/preview/{altered}/").status_code == 404
    for nonsense in ("x", "a.b.c", "%00", "x" * 5000):
        assert get(world, f"/preview/{nonsense}/").status_code == 404
    world.clock.ahead = world.policy.approval.preview_hours * 3600 + 2
    answer = get(world, preview)
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:pointsman:problem:preview_gone")


@pytest.mark.threat("H1")
def test_a_token_of_another_installation_audience_or_site_opens_nothing(world: World, tmp_path: Path) -> None:
    job_id, _ = offered(world, tmp_path)
    job = world.job(job_id)
    other_site = world.site("butcher", PAGES, tmp_path)
    mine = {"site": str(job.site_id), "release_id": str(job.release_id), "audience": "reviewer"}
    signer = world.resources.signer
    stranger = PreviewSigner(["another-installations-key-0123456789"], clock=world.clock)
    tokens = [
        stranger.sign(**mine),
        signer.sign(**{**mine, "audience": "public"}),
        signer.sign(**{**mine, "site": str(other_site.site_id)}),
        signer.sign(**{**mine, "release_id": str(other_site.id)}),
        signer.sign(**{**mine, "release_id": str(job.id)}),
        signer.sign(**{**mine, "release_id": "../../etc"}),
    ]
    assert get(world, f"/preview/{signer.sign(**mine)}/").status_code == 200
    assert [get(world, f"/preview/{token}/").status_code for token in tokens] == [404] * len(tokens)


@pytest.mark.parametrize("end", ["reject", "cancel"])
def test_a_preview_that_is_no_longer_offered_is_withdrawn(world: World, tmp_path: Path, end: str) -> None:
    job_id, preview = offered(world, tmp_path)
    assert get(world, preview).status_code == 200
    assert world.call("POST", f"/v1/jobs/{job_id}/{end}", json={"reason": "no"}).status_code == 200
    assert get(world, preview).status_code == 410


def test_a_preview_stays_while_it_is_published_and_after(world: World, tmp_path: Path) -> None:
    job_id, preview = offered(world, tmp_path)
    world.call("POST", f"/v1/jobs/{job_id}/approve")
    assert get(world, preview).status_code == 200
    world.publish(job_id)
    assert world.job(job_id).state == State.PUBLISHED
    assert get(world, preview).content == NEW_PAGES["index.html"]


def test_a_live_page_has_the_bytes_of_the_active_release_until_a_publish_and_after(
    world: World, tmp_path: Path
) -> None:
    job_id, _ = offered(world, tmp_path)
    live = f"/live/{world.tenant}/bakery/"
    assert get(world, live).content == PAGES["index.html"]
    world.call("POST", f"/v1/jobs/{job_id}/approve")
    assert get(world, live).content == PAGES["index.html"]
    world.publish(job_id)
    for path, data in NEW_PAGES.items():
        answer = get(world, live + path)
        assert answer.content == data
        assert answer.headers["content-security-policy"]
        assert "set-cookie" not in answer.headers


def test_a_live_page_that_has_not_changed_is_not_sent_again(world: World, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    url = f"/live/{world.tenant}/bakery/"
    tag = get(world, url).headers["etag"]
    again = get(world, url, **{"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    world.site("bakery", NEW_PAGES, tmp_path)
    assert get(world, url, **{"If-None-Match": tag}).content == NEW_PAGES["index.html"]


def test_every_path_trick_is_404_in_previews_and_live_pages(world: World, tmp_path: Path) -> None:
    _, preview = offered(world, tmp_path)
    (world.den_root / "secret.txt").write_text("secret")
    for base in (preview, f"/live/{world.tenant}/bakery/"):
        assert raw_get(world, base + "menu/index.html")[0] == 200
        for trick in PATH_TRICKS:
            status, body = raw_get(world, base + trick)
            assert status == 404, base + trick
            assert b"secret" not in body


def raw_get(world: World, path: str) -> tuple[int, bytes]:
    """Send a path as it stands, as a server hands it on: every client that we have tidies it up first."""
    sent: list[MutableMapping[str, Any]] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(world.pages_app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize(
    "path", ["no-tenant/bakery/", "{tenant}/nowhere/", "{tenant}/empty/", "{tenant}/BAKERY/", "%00/%00/"]
)
def test_a_site_that_is_not_there_or_empty_is_404(world: World, tmp_path: Path, path: str) -> None:
    world.site("bakery", PAGES, tmp_path)
    assert world.call("POST", "/v1/sites", json={"name": "empty"}).status_code == 201
    answer = get(world, f"/live/{path.format(tenant=world.tenant)}")
    assert answer.status_code == 404
    assert json.loads(answer.content)["status"] == 404


@pytest.mark.req("H-082")
def test_a_release_whose_scan_did_not_pass_is_never_shown(world: World, tmp_path: Path) -> None:
    job_id, preview = offered(world, tmp_path)
    with world.ledger.begin() as session:
        session.get_one(Release, world.job(job_id).release_id).scan_passed = False
    assert get(world, preview).status_code == 410


def test_only_this_tenants_site_of_a_name_is_shown(world: World, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    with world.ledger.begin() as session:
        site = session.get_one(Site, world.job(world.submit(**EDIT)).site_id)
    assert site.tenant == world.tenant
    world.headers(tenant=f"{world.tenant}-b")
    assert get(world, f"/live/{world.tenant}-b/bakery/").status_code == 404


# ---------------------------------------------------------------- an origin of its own


@pytest.mark.threat("H2")
def test_the_api_serves_no_page_and_the_pages_listener_no_api(world: World, tmp_path: Path) -> None:
    _, preview = offered(world, tmp_path)
    live = f"/live/{world.tenant}/bakery/"
    for path in (preview, preview + "style.css", live, live + "index.html"):
        assert get(world, path).status_code == 200
        assert world.client.get(path, headers=world.headers()).status_code == 404, "not on the API's origin"
    for path in ("/v1/jobs", "/v1/sites", "/docs", "/openapi.json", "/metrics", "/readyz"):
        assert world.client.get(path, headers=world.headers()).status_code == 200
        assert world.pages.get(path, headers=world.headers()).status_code == 404, "not on the pages' origin"


@pytest.mark.threat("H1", "H2")
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_whatever_the_pages_listener_answers_no_referrer_carries_a_token_and_nothing_is_kept(
    world: World, tmp_path: Path, method: str
) -> None:
    _, preview = offered(world, tmp_path)
    token = preview.split("/")[2]
    for path in (
        preview,
        f"{preview}style.css",
        f"/preview/{token}",
        f"{preview}nothing",
        "/preview/x/",
        "/nothing",
        "/favicon.ico",
    ):
        answer = get(world, path, method)
        assert answer.headers["referrer-policy"] == "no-referrer", path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert "noindex" in answer.headers["x-robots-tag"]
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-credentials" not in answer.headers
        assert token not in answer.text


@pytest.mark.threat("G11")
def test_a_file_of_a_kind_that_nobody_knows_is_kept_never_shown(world: World, tmp_path: Path) -> None:
    job_id, preview = offered(world, tmp_path)
    with world.ledger.begin() as session:
        release = session.get_one(Release, world.job(job_id).release_id)
        files = dict(release.manifest["files"])
        files["thing.xyz"] = [world.content_store.put(HOME), len(HOME), "application/octet-stream"]
        release.manifest = {**release.manifest, "files": files}
    answer = get(world, preview + "thing.xyz")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert get(world, preview + "index.html").headers["content-disposition"] == "inline"


# ---------------------------------------------------------------- revoked links


@pytest.mark.threat("H1")
def test_a_revoked_link_opens_nothing_and_the_next_one_does(world: World, tmp_path: Path) -> None:
    job_id, leaked = offered(world, tmp_path)
    release_id = str(world.job(job_id).release_id)
    other = world.site("butcher", PAGES, tmp_path)
    answer = world.call("POST", "/v1/sites/bakery/revoke-previews", json={"release_id": release_id})
    assert answer.json() == {"releases": 1}
    assert get(world, leaked).status_code == 410
    fresh = world.call("GET", f"/v1/jobs/{job_id}").json()["preview_url"].removeprefix(PAGES_URL)
    assert get(world, fresh).status_code == 200
    assert world.call("POST", "/v1/sites/bakery/revoke-previews", json={}).json() == {"releases": 2}
    assert get(world, fresh).status_code == 410
    wrong = world.call("POST", "/v1/sites/bakery/revoke-previews", json={"release_id": str(other.id)})
    assert wrong.status_code == 404


@pytest.mark.threat("H2")
@pytest.mark.parametrize(
    ("api", "pages"),
    [("https://a.example", "https://a.example:443/x"), ("http://a.example:80", "http://A.example")],
)
def test_pages_that_would_share_the_apis_origin_are_refused_at_the_start(api: str, pages: str) -> None:
    settings = Settings(
        api=ApiConfig(public_url=api),
        pages=PagesConfig(public_url=pages),
        preview=PreviewConfig(keys=(SecretStr("k" * 32),)),
    )
    with pytest.raises(PolicyError, match="POINTSMAN_PAGES__PUBLIC_URL: must be another origin"):
        serve(Installation(settings))


def test_another_port_or_scheme_is_another_origin() -> None:
    assert not is_same_origin("http://127.0.0.1:8080", "http://127.0.0.1:8081")
    assert not is_same_origin("https://a.example", "http://a.example")


# -- origins of single sites and previews ------------------------------------------------------------------------------
def site_world(world: World) -> TestClient:
    """The pages of a world whose sites have host names of their own."""
    wiring = replace(page_resources(world), site_url="http://{site}.pages.example:8081")
    return TestClient(create_pages_app(wiring), base_url=PAGES_URL, follow_redirects=False)


def page_resources(world: World) -> PageResources:
    found = world.pages_app.state.resources
    assert isinstance(found, PageResources)
    return found


@pytest.mark.threat("H1", "H2")
def test_a_browser_is_sent_to_the_origin_that_is_the_sites_alone(world: World, tmp_path: Path) -> None:
    job_id, preview = offered(world, tmp_path)
    live = f"/live/{world.tenant}/bakery/"
    release = world.job(job_id).release_id
    assert release is not None
    hosts = {
        live: f"{host_label_of_site(world.tenant, 'bakery')}.pages.example:8081",
        preview: f"{host_label_of_preview(release)}.pages.example:8081",
    }
    assert all(len(host.partition(".")[0]) <= 63 for host in hosts.values())
    with site_world(world) as pages:
        for path, own in hosts.items():
            sent = pages.get(f"{path}?a=1", headers={"sec-fetch-mode": "navigate"})
            assert (sent.status_code, sent.headers["location"]) == (307, f"http://{own}{path}?a=1")
            assert sent.headers["cache-control"] == "no-store"
            at_home = pages.get(path, headers={"host": own, "sec-fetch-mode": "navigate"})
            assert at_home.status_code == 200
            assert at_home.headers["content-security-policy"].endswith(OWN_ORIGIN)
            shared = pages.get(path)
            assert shared.content == at_home.content
            assert "allow-same-origin" not in shared.headers["content-security-policy"], "this origin is everybody's"
            for other in {*hosts.values(), "x.pages.example:8081"} - {own}:
                assert pages.get(path, headers={"host": other}).status_code == 404


def test_no_two_sites_share_a_host_name() -> None:
    pairs = [("a", "b-c"), ("a-b", "c"), ("ab", "c"), ("a", "x" * 63), ("a", "x" * 62), ("b", "b-c")]
    labels = [host_label_of_site(*pair) for pair in pairs]
    assert len(set(labels)) == len(pairs)
    assert all(re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", label) for label in labels)


@pytest.mark.parametrize(
    ("api", "site", "is_refused"),
    [
        ("https://api.example.org", "https://{site}.example.org", True),
        ("https://pages.example.org", "https://{site}.pages.example.org", True),
        ("https://api.example.org", "https://{site}.example.net", False),
        ("https://api.example.org", "", False),
    ],
)
def test_the_api_stands_on_no_sites_domain(api: str, site: str, is_refused: bool) -> None:
    assert is_below(api, site) is is_refused


def test_only_the_consoles_own_frames_get_the_probe(world: World, tmp_path: Path) -> None:
    job_id, preview = offered(world, tmp_path)
    release = world.job(job_id).release_id
    assert release is not None
    with world.ledger.begin() as session:
        row = session.get_one(Release, release)
    token = world.resources.signer.sign(
        site=str(row.site_id), release_id=str(release), audience="console", generation=row.preview_generation
    )
    framed, plain = get(world, f"/preview/{token}/"), get(world, preview)
    assert plain.content == NEW_PAGES["index.html"]
    script = framed.text.partition("<script>")[2].partition("</script>")[0]
    assert framed.text.replace(f"<script>{script}</script>", "") == plain.text
    assert int(framed.headers["content-length"]) == len(framed.content)
    assert csp_hash(script) in framed.headers["content-security-policy"]
    assert csp_hash(script) not in plain.headers["content-security-policy"]
    assert get(world, f"/preview/{token}/style.css").content == NEW_PAGES["style.css"]
