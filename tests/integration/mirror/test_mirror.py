"""The package mirror as a box meets it: the real npm, a real ledger, and registries that behave and misbehave."""

import asyncio
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from sqlalchemy import select, text

from ledger.attempts import bind_egress
from ledger.record_tables import Event
from ledger.store import Ledger
from ledger.tables import Attempt
from monitoring.event_metrics import fold
from producers.bootstrap import Installation, Settings
from producers.doctor import check_ledger
from routing.config import read_settings
from routing.policy.platform import platform_policy
from sandbox.config import MirrorConfig
from sandbox.package_mirror.packages import file_of
from sandbox.package_mirror.registries import Registries, check_mirror, read_registries
from tests.integration.gateway.gateway_world import World
from tests.integration.mirror.mirror_world import HERE, MirrorWorld, integrity, mirror_world
from tests.mirror_server import running_mirror
from tests.services import wait_until

NPM = shutil.which("npm")
SHORT = "application/vnd.npm.install-v1+json"
needs_npm = pytest.mark.skipif(NPM is None, reason="npm is not installed")


@pytest.fixture
def mirror(ledger: Ledger, ledger_url: str, tmp_path: Path) -> Iterator[MirrorWorld]:
    with mirror_world(ledger, ledger_url, tmp_path) as world:
        yield world


def npm(directory: Path, url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real npm as a box runs it."""
    assert NPM is not None
    flags = [
        f"--registry={url}/",
        "--replace-registry-host=always",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        f"--userconfig={os.devnull}",
        f"--globalconfig={directory / 'none'}",
        f"--cache={directory / '.npm'}",
        "--fetch-retries=0",
        "--no-update-notifier",
    ]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [NPM, *arguments, *flags],
        cwd=directory,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def project(directory: Path, **dependencies: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "package.json").write_text(
        json.dumps({"name": "site", "version": "1.0.0", "dependencies": dependencies})
    )
    return directory


# -- the real npm ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_npm
def test_npm_installs_a_tree_of_packages_through_the_mirror(mirror: MirrorWorld, tmp_path: Path) -> None:
    mirror.registry.add("left", "1.0.0", files={"index.js": "module.exports = 1"})
    mirror.registry.add("@acme/right", "2.1.0", dependencies={"left": "^1.0.0"}, scripts={"install": "touch ran"})
    site = project(tmp_path / "site", **{"@acme/right": "^2.0.0"})
    done = npm(site, mirror.url, "install")
    assert done.returncode == 0, done.stderr
    assert (site / "node_modules/left/index.js").read_text() == "module.exports = 1"
    assert json.loads((site / "node_modules/@acme/right/package.json").read_text())["version"] == "2.1.0"
    assert not list(site.rglob("ran")), "no package's script runs"
    asked = len(mirror.registry.requests)
    shutil.rmtree(site / "node_modules")
    shutil.rmtree(site / ".npm")
    assert npm(site, mirror.url, "ci").returncode == 0
    assert (site / "node_modules/left/index.js").exists()
    assert len(mirror.registry.requests) == asked, "the second install needs no registry"


@needs_npm
def test_npm_says_clearly_what_the_mirror_refuses(mirror: MirrorWorld, tmp_path: Path) -> None:
    done = npm(project(tmp_path / "site", unheard="1"), mirror.url, "install")
    assert done.returncode != 0
    assert "no such package" in done.stderr


@needs_npm
@pytest.mark.node
def test_npm_installs_from_the_registry_that_the_operators_own_npm_uses(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    assert NPM is not None
    registries = read_registries(NPM, dict(os.environ))
    with mirror_world(ledger, ledger_url, tmp_path, registries=registries) as mirror:
        site = project(tmp_path / "site", **{"is-odd": "3.0.1"})
        done = npm(site, mirror.url, "install")
        assert done.returncode == 0, done.stderr
        assert (site / "node_modules/is-number/package.json").exists()
        locked = json.loads((site / "package-lock.json").read_text())
        assert registries.default not in json.dumps(locked)
        assert len(mirror.kept()) == 2


# -- what is served ----------------------------------------------------------------------------------------------------


def test_a_description_leads_back_to_the_mirror_and_nowhere_else(mirror: MirrorWorld) -> None:
    mirror.registry.add("left", "1.0.0")
    answer = mirror.request("/left", accept=SHORT)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == SHORT
    assert answer.json()["versions"]["1.0.0"]["dist"]["tarball"] == "http://egress:8081/left/-/left-1.0.0.tgz"
    assert mirror.registry.url not in answer.text
    again = mirror.request("/left", accept=SHORT, if_none_match=answer.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    head = mirror.request("/left", method="HEAD")
    assert (head.status_code, head.content) == (200, b"")
    full = mirror.request("/left", accept="application/json")
    assert full.headers["content-type"] == "application/json"


def test_a_file_is_kept_by_its_content_and_served_again_without_the_registry(mirror: MirrorWorld) -> None:
    content = mirror.registry.add("left", "1.0.0", files={"a": "x" * 300_000})
    for _ in range(3):
        assert mirror.request("/left/-/left-1.0.0.tgz").content == content
    assert mirror.registry.paths().count("/left/-/left-1.0.0.tgz") == 1
    assert [path.name for path in mirror.kept()] == [hashlib.sha512(content).hexdigest()]


def test_a_registry_below_a_path_is_served_at_the_mirrors_root(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    with mirror_world(ledger, ledger_url, tmp_path, prefix="api/npm/main/") as mirror:
        content = mirror.registry.add("@acme/left", "1.0.0")
        tarball = mirror.request("/@acme%2fleft").json()["versions"]["1.0.0"]["dist"]["tarball"]
        assert tarball == "http://egress:8081/@acme/left/-/left-1.0.0.tgz"
        assert mirror.request("/@acme/left/-/left-1.0.0.tgz").content == content
        assert mirror.request("/api/npm/main/@acme/left/-/left-1.0.0.tgz").content == content, "as in lock files"


def test_a_description_is_fresh_for_a_while_and_served_stale_when_the_registry_is_away(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    with mirror_world(ledger, ledger_url, tmp_path, fresh_seconds=0.2) as mirror:
        mirror.registry.add("left", "1.0.0")
        first = mirror.request("/left")
        assert mirror.request("/left").content == first.content
        assert mirror.registry.paths() == ["/left"]
        time.sleep(0.25)
        assert mirror.request("/left").content == first.content
        assert "If-None-Match" in mirror.registry.requests[-1][2]
        mirror.registry.overrides["left"] = lambda _: web.Response(status=503)
        time.sleep(0.25)
        assert mirror.request("/left").content == first.content


def test_what_the_mirror_did_is_counted(mirror: MirrorWorld, ledger: Ledger) -> None:
    mirror.registry.add("left", "1.0.0")
    for path in ("/left", "/left/-/left-1.0.0.tgz", "/left/-/left-1.0.0.tgz", "/unheard", "/a/b/c"):
        mirror.request(path)

    def told() -> dict[Any, float]:
        with ledger.begin() as session:
            folded = fold(session.scalars(select(Event)).all())
        return {key.labels: value for key, value in folded.items() if "mirror" in key.name}

    expected = {'{"result":"fetched"}': 2, '{"result":"hit"}': 1, '{"result":"refused"}': 2}
    wait_until(lambda: expected.items() <= told().items(), seconds=5, what="the counts are in the ledger")
    assert told()["{}"] > 300


# -- who may fetch -----------------------------------------------------------------------------------------------------


@pytest.mark.threat("B9")
def test_packages_are_for_the_boxes_of_live_attempts_alone(mirror: MirrorWorld) -> None:
    mirror.registry.add("left", "1.0.0")
    token = {"authorization": f"Bearer {mirror.held.token}"}
    assert mirror.request("/left").status_code == 200
    assert mirror.request("/left", **token).status_code == 200
    for address, headers in (("127.0.0.9", {}), ("127.0.0.9", token), (HERE, {"authorization": "Bearer pma_x"})):
        answer = mirror.request("/left", address=address, x_forwarded_for=HERE, **headers)
        assert answer.status_code == 401
        assert set(answer.json()) == {"error"}
    mirror.world.execute("UPDATE attempt SET ended_at = now()")
    time.sleep(0.06)
    assert mirror.request("/left").status_code == 401
    assert mirror.request("/left", **token).status_code == 401
    assert mirror.registry.paths() == ["/left"]


@pytest.mark.threat("B9", "C2")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE attempt SET deadline = now() - interval '1 second'",
        "UPDATE job SET fence = fence + 1",
        "UPDATE job SET cancel_requested_at = now()",
        "UPDATE attempt SET egress_address = NULL",
    ],
)
def test_an_egress_address_ends_with_its_attempt(mirror: MirrorWorld, change: str) -> None:
    mirror.world.execute(change)
    assert mirror.request("/left").status_code == 401
    assert mirror.registry.requests == []


@pytest.mark.threat("C8")
def test_without_the_ledger_no_package_is_served(mirror: MirrorWorld) -> None:
    mirror.registry.add("left", "1.0.0")
    mirror.world.execute("ALTER TABLE attempt RENAME TO attempt_away")
    assert mirror.request("/left").status_code == 503
    mirror.world.execute("ALTER TABLE attempt_away RENAME TO attempt")
    assert mirror.request("/left").status_code == 200


@pytest.mark.threat("B4")
def test_nothing_can_be_written(mirror: MirrorWorld) -> None:
    mirror.registry.add("left", "1.0.0")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = mirror.request("/left", method=method, body=b'{"secret":"x"}')
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), method
    assert mirror.registry.requests == []


_WRONG_PATHS = (
    "/",
    "/-/all",
    "/-/v1/search?text=secret",
    "/-/npm/v1/security/advisories/bulk",
    "/left?secret=1",
    "/left/1.0.0",
    "/left/-/../../etc/passwd",
    "/..%2f..%2fetc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "//evil.example/left",
    "/.hidden",
    "/left/-/left-1.0.0.zip",
    "/left/-/left%00.tgz",
    "/@acme",
    "/@acme/a/b",
    "/http:%2f%2f127.0.0.1%2fx",
    "/left%0d%0ax",
    f"/{'x' * 215}",
    "/left/-/a/left-1.0.0.tgz",
    "/_users",
    "/left/",
    "/%6ceft%252f..",
)


@pytest.mark.threat("B5", "B8")
@pytest.mark.req("H-092", "H-093")
def test_a_path_of_another_shape_reaches_no_registry(mirror: MirrorWorld, subtests: pytest.Subtests) -> None:
    mirror.registry.add("left", "1.0.0")
    for path in _WRONG_PATHS:
        with subtests.test(path=path):
            assert mirror.request(path).status_code == 404
    assert mirror.registry.requests == []


@pytest.mark.threat("B8")
def test_names_that_do_not_exist_are_no_way_out_for_data(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    with mirror_world(ledger, ledger_url, tmp_path, unknown_per_box=3) as mirror:
        mirror.registry.add("left", "1.0.0")
        assert [mirror.request(f"/secret-{number}").status_code for number in range(5)] == [404, 404, 404, 429, 429]
        assert mirror.request("/left").status_code == 429
        assert len(mirror.registry.requests) == 3
        later = mirror.world.attempt()
        with ledger.begin() as session:
            bind_egress(session, session.get_one(Attempt, mirror.held.attempt_id), address=None)
            bind_egress(session, session.get_one(Attempt, later.attempt_id), address=HERE)
        wait_until(lambda: mirror.request("/left").status_code == 200, seconds=2, what="the next box is another one")


# -- credentials -------------------------------------------------------------------------------------------------------


@pytest.mark.threat("C1", "C9")
def test_the_operators_credentials_go_to_the_registry_alone_and_the_boxs_to_nobody(
    ledger: Ledger, ledger_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with mirror_world(ledger, ledger_url, tmp_path, registries=Registries(default="http://127.0.0.1:9/")) as played:
        place = played.registry.url.removeprefix("http:")
        registries = Registries(default=played.registry.url, credentials={place: "Bearer canary-of-the-operator"})
        played.registry.add("left", "1.0.0")
        played.registry.overrides["echo"] = lambda request: web.Response(
            status=403, text=str(request.headers), headers={"x-echo": request.headers["authorization"]}
        )
        config = MirrorConfig(cache=tmp_path / "other")
        with running_mirror(config, ledger_url, platform_policy(), registries) as url:
            mirror = MirrorWorld(url, played.registry, played.world, played.held, config.cache)
            token = {"authorization": f"Bearer {played.held.token}", "cookie": "c=secret-of-the-box"}
            answers = [mirror.request(path, **token) for path in ("/left", "/left/-/left-1.0.0.tgz", "/echo")]
    assert [answer.status_code for answer in answers] == [200, 200, 502]
    for _, _, headers in played.registry.requests:
        assert headers["authorization" if "authorization" in headers else "Authorization"].endswith(
            "canary-of-the-operator"
        )
        assert played.held.token not in str(headers)
        assert "secret-of-the-box" not in str(headers)
        assert "127.0.0.1:" in headers["Host"]
    shown = "".join(answer.text + str(answer.headers) for answer in answers)
    with ledger.begin() as session:
        stored = "".join(str(row) for row in session.connection().execute(text("SELECT * FROM event")))
    ours = "".join(str(record.__dict__) for record in caplog.records if record.name.startswith("sandbox"))
    assert "canary-of-the-operator" not in shown + stored + ours
    assert "canary-of-the-operator" not in repr(registries)


# -- a registry that misbehaves ----------------------------------------------------------------------------------------


_BEHIND_THE_WALL = (
    "http://169.254.169.254/latest/meta-data",
    "https://10.0.0.1/x.tgz",
    "https://[::1]/x.tgz",
    "https://localhost/x.tgz",
    "https://[::ffff:169.254.169.254]/x.tgz",
    "https://0x7f.1/x.tgz",
    "https://2130706433/x.tgz",
    "ftp://example.org/x",
    "http://127.0.0.1:1/x.tgz",
    "https://[64:ff9b::a00:1]/x.tgz",
    "https://[64:ff9b:1::a00:1]/x.tgz",
    "https://[fec0::1]/x.tgz",
    "file:///etc/passwd",
    "https://example.org:22/x.tgz",
)


@pytest.mark.threat("B6")
@pytest.mark.req("H-092", "H-093")
def test_a_registry_cannot_send_the_mirror_to_places_behind_the_wall(
    mirror: MirrorWorld, subtests: pytest.Subtests
) -> None:
    for number, target in enumerate(_BEHIND_THE_WALL):
        with subtests.test(target=target):
            left, right = f"left{number}", f"right{number}"
            mirror.registry.add(left, "1.0.0")
            away = web.Response(status=302, headers={"location": target})
            mirror.registry.overrides[f"{left}/-/{left}-1.0.0.tgz"] = lambda _, away=away: away
            answer = mirror.request(f"/{left}/-/{left}-1.0.0.tgz")
            assert answer.status_code == 502
            assert "leads to" in answer.json()["error"]
            mirror.registry.add(right, "1.0.0")
            mirror.registry.packages[right]["versions"]["1.0.0"]["dist"]["tarball"] = target
            file = file_of(target) or f"{right}-1.0.0.tgz"
            assert mirror.request(f"/{right}/-/{file}").status_code == 502


def test_a_redirect_within_the_registry_is_followed_and_a_circle_is_not(mirror: MirrorWorld) -> None:
    content = mirror.registry.add("left", "1.0.0")
    mirror.registry.files["elsewhere"] = content
    mirror.registry.overrides["left/-/left-1.0.0.tgz"] = lambda _: web.Response(
        status=307, headers={"location": "/elsewhere"}
    )
    assert mirror.request("/left/-/left-1.0.0.tgz").content == content
    mirror.registry.add("round", "1.0.0")
    mirror.registry.overrides["round/-/round-1.0.0.tgz"] = lambda request: web.Response(
        status=301, headers={"location": request.path}
    )
    answer = mirror.request("/round/-/round-1.0.0.tgz")
    assert (answer.status_code, answer.json()["error"]) == (502, "the registry redirects too often")


@pytest.mark.parametrize("size", [100, 400_000])
def test_a_file_that_is_not_what_was_promised_never_arrives_whole_and_is_not_kept(
    mirror: MirrorWorld, size: int
) -> None:
    mirror.registry.add("left", "1.0.0")
    mirror.registry.files["left/-/left-1.0.0.tgz"] = b"x" * size
    try:
        answer = mirror.request("/left/-/left-1.0.0.tgz")
        assert answer.status_code == 502
    except httpx2.RemoteProtocolError:
        assert size > 100, "an answer that has not begun says why"
    assert mirror.kept() == []


def test_a_file_that_was_damaged_on_disk_is_fetched_again(mirror: MirrorWorld) -> None:
    content = mirror.registry.add("left", "1.0.0")
    mirror.request("/left/-/left-1.0.0.tgz")
    [kept] = mirror.kept()
    kept.write_bytes(b"damaged")
    assert mirror.request("/left/-/left-1.0.0.tgz").content == content
    assert kept.read_bytes() == content
    kept.unlink()
    kept.symlink_to("/proc/self/mem")  # the kernel says EIO to whoever reads its beginning, as of a bad sector
    assert mirror.request("/left/-/left-1.0.0.tgz").content == content
    assert (kept.is_symlink(), kept.read_bytes()) == (False, content)


def test_a_file_without_a_digest_is_not_served(mirror: MirrorWorld) -> None:
    mirror.registry.add("left", "1.0.0")
    del mirror.registry.packages["left"]["versions"]["1.0.0"]["dist"]["integrity"]
    assert mirror.request("/left").json()["versions"] == {}
    assert mirror.request("/left/-/left-1.0.0.tgz").status_code == 404


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_file_above_the_limit_is_refused(ledger: Ledger, ledger_url: str, tmp_path: Path, is_announced: bool) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "1000000"} if is_announced else {})
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x" * 10_000)
        return response

    with mirror_world(ledger, ledger_url, tmp_path, package_bytes=200_000) as mirror:
        mirror.registry.add("left", "1.0.0")
        mirror.registry.overrides["left/-/left-1.0.0.tgz"] = endless
        try:
            answer = mirror.request("/left/-/left-1.0.0.tgz")
            assert (answer.status_code, answer.json()["error"]) == (502, "the file is longer than 200000 bytes")
        except httpx2.RemoteProtocolError:
            assert not is_announced
        assert mirror.kept() == []


def test_a_box_that_does_not_read_makes_the_mirror_wait_and_not_swell(mirror: MirrorWorld) -> None:
    written = 0

    async def large(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x" * 1_000_000)
            written += 1
        return response

    mirror.registry.add("left", "1.0.0")
    mirror.registry.overrides["left/-/left-1.0.0.tgz"] = large
    host, port = mirror.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET /left/-/left-1.0.0.tgz HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until(lambda: written > 1, seconds=5, what="the file has begun")
        time.sleep(0.7)
        before = written
        time.sleep(0.3)
        assert written == before < 60, "what stands in socket buffers, and no more"


def test_a_description_above_the_limit_is_refused(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    with mirror_world(ledger, ledger_url, tmp_path, metadata_bytes=10_000) as mirror:
        mirror.registry.overrides["left"] = lambda _: web.Response(body=b"x" * 20_000)
        assert mirror.request("/left").json()["error"] == "the registry's description is longer than 10000 bytes"


_NO_DESCRIPTIONS: tuple[Any, ...] = (
    lambda _: web.Response(text="<html>"),
    lambda _: web.json_response([]),
    lambda _: web.json_response({"name": "left"}),
    lambda _: web.json_response({"name": "other", "versions": {}}),
    lambda _: web.Response(status=500),
    lambda _: web.Response(status=401),
)


def test_what_is_no_description_is_a_registrys_fault(mirror: MirrorWorld, subtests: pytest.Subtests) -> None:
    for number, answer in enumerate(_NO_DESCRIPTIONS):
        with subtests.test(number=number):
            mirror.registry.overrides["left"] = answer
            assert mirror.request("/left").status_code == 502


def test_a_registry_that_is_silent_is_given_up(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(3)
        return web.Response()

    with mirror_world(ledger, ledger_url, tmp_path, silence_seconds=0.2) as mirror:
        mirror.registry.overrides["left"] = silent
        assert mirror.request("/left").status_code == 504


def test_the_cache_is_bounded_and_forgets_what_was_used_longest_ago(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    with mirror_world(ledger, ledger_url, tmp_path, cache_bytes=1 << 20) as mirror:
        for name in ("a", "b", "c"):
            noise = "".join(hashlib.sha256(f"{name}{n}".encode()).hexdigest() for n in range(12_000))
            mirror.registry.add(name, "1.0.0", files={"noise": noise})
            mirror.request(f"/{name}/-/{name}-1.0.0.tgz")
            mirror.request("/a/-/a-1.0.0.tgz")
        kept = {path.name for path in mirror.kept()}
        digests = {
            name: hashlib.sha512(mirror.registry.files[f"{name}/-/{name}-1.0.0.tgz"]).hexdigest() for name in "abc"
        }
        assert kept == {digests["a"], digests["c"]}
        assert sum(path.stat().st_size for path in mirror.kept()) <= 1 << 20
        assert integrity(b"").startswith("sha512-")


@pytest.mark.req("S-065")
def test_the_doctor_says_whose_calls_nobody_pays_for_and_whether_packages_can_be_had(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    World(ledger, "").tenant("poor")
    installation = Installation(read_settings(Settings, {"POINTSMAN_LEDGER__URL": ledger_url}))
    found = {finding.name: finding for finding in check_ledger(installation)}
    installation.close()
    assert found["ledger"].hint == ""
    assert found["tenants have a model provider"].seen.startswith("poor have none")
    [(name, hint)] = check_mirror(str(tmp_path / "npm"), {})
    assert name == "package registry"
    assert "cannot be run" in hint
