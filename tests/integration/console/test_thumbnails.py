"""A published release gets one picture, by a browser that reaches nothing else, and keeps it as long as its files."""

import os
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from uuid import UUID, uuid4

import pytest

from ledger.releases import next_unpictured
from ledger.store import Ledger
from ledger.tables import Release
from producers.dispatch.thumbnails import (
    _PNG,
    _PREFIX,
    HEIGHT,
    WIDTH,
    ThumbnailMaker,
    _place,
    _serving,
    take_picture,
)
from producers.errors import PictureError
from sites.content_store import ContentStore, Manifest
from sites.errors import BlobMissingError
from sites.releases import manifest_of
from tests.http_server import Handler, served
from tests.integration.api.http_world import PAGES, World, shared_ledger, world
from tests.integration.console.test_console import Browser
from tests.integration.dispatch.test_garbage import collect, grow_old
from tests.services import wait_until

__all__ = ["shared_ledger", "world"]
CHROMIUM = shutil.which("chromium") or ""
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")


def maker(world: World, program: str = CHROMIUM) -> ThumbnailMaker:
    return ThumbnailMaker(world.ledger, world.content_store, program=program, holder="test")


def thumbnail_of(ledger: Ledger, release_id: UUID) -> str | None:
    with ledger.begin() as session:
        return session.get_one(Release, release_id).thumbnail_sha256


@needs_chromium
def test_a_release_is_pictured_once_shown_to_its_tenant_alone_and_swept_with_its_files(
    world: World, tmp_path: Path
) -> None:
    collect(world)
    old = world.site("bakery", {**PAGES, "index.html": b"<html lang=en><title>x</title><h1>Old</h1></html>"}, tmp_path)
    browser = Browser(world, "read")
    assert "/thumbnails/" not in browser.get("/sites").text
    assert "<iframe" in browser.get("/sites").text
    while maker(world).make_next():
        pass
    assert not maker(world).make_next()
    sha256 = thumbnail_of(world.ledger, old.id)
    assert sha256 is not None
    path = f"/sites/bakery/thumbnails/{old.id}"
    page = browser.get("/sites")
    assert f'src="/console{path}"' in page.text
    assert "<iframe" not in page.text
    assert f'src="/console{path}"' in browser.get("/sites/bakery").text
    shown = browser.get(path)
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/png")
    assert shown.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert shown.content[16:24] == WIDTH.to_bytes(4, "big") + HEIGHT.to_bytes(4, "big")
    assert browser.get(f"/sites/bakery/thumbnails/{uuid4()}").status_code == 404
    assert Browser(world, "read", tenant=f"{world.tenant}-other").get(path).status_code == 404
    for number in range(2):
        world.site("bakery", {**PAGES, "style.css": b"h1 { color: #%06d }\n" % number}, tmp_path)
    grow_old(world)
    collect(world)
    assert sha256 not in {blob.name for blob in world.content_store.blobs.list()}
    browser = Browser(world, "read")
    assert browser.get(path).status_code == 404
    assert path not in browser.get("/sites/bakery").text


def test_without_a_browser_nothing_is_made_and_the_page_itself_is_shown(world: World, tmp_path: Path) -> None:
    release = world.site("bakery", PAGES, tmp_path)
    assert not maker(world, "no-such-program").make_next()
    assert thumbnail_of(world.ledger, release.id) is None
    page = Browser(world, "read").get("/sites/bakery").text
    assert "/thumbnails/" not in page
    assert "<iframe" in page


@pytest.fixture
def program() -> Iterator[Path]:
    """A program that every user may start."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        path = Path(directory) / "browser"
        path.touch(0o755)
        yield path


def test_a_browser_that_leaves_no_picture_gets_no_setting_of_ours_and_is_not_asked_again(
    world: World, tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = world.site("bakery", PAGES, tmp_path)
    monkeypatch.setenv("POINTSMAN_SECRET", "hidden")
    program.write_text('#!/bin/sh\necho "broken:$POINTSMAN_SECRET:$(id -u)" >&2\nexit 3\n')
    failing = maker(world, str(program))
    with pytest.raises(PictureError, match=r"ended with 3 .*broken::[1-9]"):
        failing.make_next()
    with suppress(PictureError):
        while failing.make_next():  # releases of other tests
            pass
    assert thumbnail_of(world.ledger, release.id) is None
    with world.ledger.look() as connection:
        assert next_unpictured(connection, besides=failing._failed) != release.id


def test_a_browser_that_takes_too_long_or_cannot_start_is_no_more_than_a_missing_picture(
    world: World, tmp_path: Path, program: Path
) -> None:
    manifest = manifest_of(world.site("bakery", PAGES, tmp_path)).served
    program.write_text("#!/bin/sh\nsleep 60\n")
    with pytest.raises(PictureError, match=r"over 0\.2 s"):
        take_picture(str(program), manifest, csp="", read=world.content_store.get, seconds=0.2)
    program.chmod(0o600)
    with pytest.raises(PictureError, match="does not start"):
        take_picture(str(program), manifest, csp="", read=world.content_store.get)


def test_a_picture_is_ended_at_once_when_the_dispatcher_stops(world: World, tmp_path: Path, program: Path) -> None:
    manifest = manifest_of(world.site("bakery", PAGES, tmp_path)).served
    program.write_text("#!/bin/sh\nsleep 60\n")
    stopping, began = Event(), time.monotonic()
    stopping.set()
    with pytest.raises(PictureError):
        take_picture(str(program), manifest, csp="", read=world.content_store.get, stopping=stopping)
    assert time.monotonic() - began < 5


def test_what_stands_where_the_picture_belongs_is_read_only_if_it_is_a_small_file(
    world: World, tmp_path: Path, program: Path
) -> None:
    manifest = manifest_of(world.site("bakery", PAGES, tmp_path)).served
    target = program.with_name("target.png")
    target.write_bytes(_PNG)
    for make in (f"ln -s {target}", "mkfifo"):
        program.write_text(f'#!/bin/sh\n{make} "$HOME/picture.png"\n')
        with pytest.raises(PictureError, match="left no picture"):
            take_picture(str(program), manifest, csp="", read=world.content_store.get)


LOOKS = """#!/bin/bash
for word; do case $word in --proxy-server=*) port=${word##*:};; esac; done
exec 3<>/dev/tcp/127.0.0.1/$port
printf 'GET http://site.invalid/ HTTP/1.0\\r\\n\\r\\n' >&3
cat <&3 >/dev/null
"""
"""Asks for the first page, as a browser does."""


def test_a_page_whose_files_cannot_be_read_now_gets_no_picture(world: World, tmp_path: Path, program: Path) -> None:
    manifest = manifest_of(world.site("bakery", PAGES, tmp_path)).served
    picture = program.with_name("ready.png")
    picture.write_bytes(_PNG)
    program.write_text(f'{LOOKS}cp {picture} "$HOME/picture.png"\n')

    def fail(sha256: str) -> bytes:
        raise BlobMissingError(sha256)

    assert take_picture(str(program), manifest, csp="", read=world.content_store.get) == _PNG
    with pytest.raises(BlobMissingError):
        take_picture(str(program), manifest, csp="", read=fail)
    without = Manifest({"about.html": manifest["index.html"]})
    with pytest.raises(PictureError, match="no first page"):
        take_picture(str(program), without, csp="", read=world.content_store.get)


def test_a_browser_that_has_gone_before_its_answer_leaves_no_word_behind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = ContentStore(tmp_path / "store").put_tree({"index.html": b"x"})
    asked, gone, threads = Event(), Event(), threading.active_count()

    def read(sha256: str) -> bytes:
        asked.set()
        gone.wait(20)
        return bytes(20_000_000)

    with _serving(manifest, "", read) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.server_port)) as browser:
            browser.sendall(b"GET http://site.invalid/ HTTP/1.0\r\n\r\n")
            assert asked.wait(20)
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        wait_until(lambda: threading.active_count() <= threads + 1, seconds=20, what="the answer is given up")
    assert capfd.readouterr().err == ""


def test_what_a_killed_maker_left_is_removed_by_the_next(world: World) -> None:
    places = [Path(tempfile.mkdtemp(dir=_place(), prefix=_PREFIX)) for _ in range(2)]
    os.utime(places[0], (0, 0))
    stopping = Event()
    stopping.set()
    maker(world, "true").run(stopping)
    assert [place.exists() for place in places] == [False, True]
    places[1].rmdir()


@needs_chromium
def test_a_page_reaches_neither_this_host_nor_its_files_while_it_is_pictured(tmp_path: Path) -> None:
    asked: list[str] = []

    class Listener(Handler):
        def answer(self) -> None:
            asked.append(self.path)
            self.say()

    with served(Listener) as bait:
        page = f"""<title>x</title><img src={bait}/image><script>fetch("{bait}/fetch", {{mode: "no-cors"}});
            new WebSocket("{bait.replace("http", "ws")}/socket")</script><iframe src={bait}/frame></iframe>
            <iframe src=file://{os.devnull}></iframe><h1 style="background:#f00">Red</h1>"""
        store = ContentStore(tmp_path / "store")
        manifest = store.put_tree({"index.html": page.encode()})
        read: list[str] = []

        def reading(sha256: str) -> bytes:
            read.append(sha256)
            return store.get(sha256)

        csp = "default-src * 'unsafe-inline'"  # the proxy is what holds, not the page's policy
        assert take_picture(CHROMIUM, manifest, csp=csp, read=reading).startswith(b"\x89PNG")
    assert read == [manifest["index.html"].sha256]
    assert asked == []
