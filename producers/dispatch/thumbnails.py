"""Take a picture of each published release, once, for the console (issue 21).

The page is a stranger's, so Chromium runs in its own sandbox, without the dispatcher's rights or environment, and its
only way out is a proxy that serves this release and nothing else.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from ledger.operations.leaders import lead
from ledger.releases import next_unpictured, set_thumbnail
from ledger.store import Ledger
from ledger.tables import Release
from producers.chromium import LEAN
from producers.dispatch.containment import surviving
from producers.errors import PictureError
from sites.content_store import ContentStore, Entry, Manifest
from sites.errors import SiteError
from sites.files import content_type_of
from sites.preview import NO_CSP, live_headers
from sites.releases import manifest_of

ROLE = "thumbnails"
WIDTH, HEIGHT = 720, 450
"""Pixels of a picture: half of a window of 1440 by 900."""
MAX_BYTES = 2 * 1024 * 1024
PICTURE_SECONDS = 20.0
"""The longest that one picture may take."""
_LEASE_SECONDS = 3 * PICTURE_SECONDS
_TICK_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_LOOK_SECONDS = 0.2
_HOST = "site.invalid"
_NOBODY = 65534
_REACHABLE = "/tmp"
"""For temporary files of `nobody`, whom what TMPDIR names may keep out."""
_PREFIX = "pointsman-picture-"
_NICE = 19
_SHOWN_CHARS = 300
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + WIDTH.to_bytes(4, "big") + HEIGHT.to_bytes(4, "big")
_ARGUMENTS = (
    "--headless",
    "--disable-gpu",
    LEAN,
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--mute-audio",
    "--force-prefers-reduced-motion",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-device-scale-factor=0.5",
    f"--window-size={2 * WIDTH},{2 * HEIGHT}",
    "--virtual-time-budget=3000",
    "--proxy-bypass-list=<-loopback>",
)


class ThumbnailMaker:
    """Makes the missing thumbnails of a ledger's releases, one at a time, in one process at a time.

    Args:
        ledger: knows the published releases.
        content_store: has their files, and keeps the pictures.
        program: Chromium, as a path or a name on the path; where there is none, none are made.
        holder: names this process.
    """

    def __init__(self, ledger: Ledger, content_store: ContentStore, *, program: str, holder: str) -> None:
        self._ledger = ledger
        self._content_store = content_store
        self._program = shutil.which(program) if program else None
        self._holder = holder
        self._failed: set[UUID] = set()
        """Releases of which this process could make no picture; the next one tries again."""

    def run(self, stopping: threading.Event) -> None:
        """Make what is missing until stopped; after failures in a row ever less often."""
        if self._program is None:
            return
        _clear_left()
        pause = _TICK_SECONDS
        while not stopping.wait(pause):
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            with surviving(ROLE):
                while not stopping.is_set() and self.make_next(stopping):
                    pass
                pause = _TICK_SECONDS

    def make_next(self, stopping: threading.Event | None = None) -> bool:
        """Make one thumbnail; False when none is missing, there is no browser, or another process makes them.

        When it is to stop meanwhile, it gives the thumbnail up.

        Raises:
            PictureError: the page's fault, or the browser's.
            SiteError, OSError: the content store's fault.
        """
        if self._program is None:
            return False
        with self._ledger.look() as connection:
            release_id = next_unpictured(connection, besides=self._failed)
        if release_id is None:
            return False
        with self._ledger.begin() as session:
            if not lead(session, ROLE, self._holder, seconds=_LEASE_SECONDS):
                return False
            release = session.get_one(Release, release_id)
        manifest, csp = manifest_of(release).served, str(release.scan.get("csp") or NO_CSP)
        try:
            picture = take_picture(self._program, manifest, csp=csp, read=self._content_store.get, stopping=stopping)
        except (PictureError, SiteError, OSError):
            self._failed.add(release_id)
            raise
        sha256 = self._content_store.put(picture)
        with self._ledger.begin() as session:
            set_thumbnail(session, release_id, sha256)
        return True


def take_picture(
    program: str,
    manifest: Manifest,
    *,
    csp: str,
    read: Callable[[str], bytes],
    seconds: float = PICTURE_SECONDS,
    stopping: threading.Event | None = None,
) -> bytes:
    """Return a PNG of a release's first page.

    Args:
        program: the path of Chromium.
        manifest: the served files.
        csp: the policy from the scan report.
        read: returns a stored file by its digest.
        seconds: the longest that it may take.
        stopping: ends it at once when it is set.

    Raises:
        PictureError: the page's fault, or the browser's.
        SiteError, OSError: the content store's fault.
    """
    with (
        _serving(manifest, csp, read) as proxy,
        tempfile.TemporaryFile() as log,
        tempfile.TemporaryDirectory(dir=_place(), prefix=_PREFIX, ignore_cleanup_errors=True) as directory,
    ):
        home = Path(directory)
        command = [
            program,
            *_ARGUMENTS,
            f"--proxy-server=http://127.0.0.1:{proxy.server_port}",
            f"--user-data-dir={home / 'profile'}",
            f"--screenshot={home / 'picture.png'}",
            f"http://{_HOST}/",
        ]
        try:
            status = _run(command, home, log.fileno(), seconds, stopping or threading.Event())
        except OSError as error:
            raise PictureError(f"the browser does not start: {os.strerror(error.errno or 0)}") from None
        if proxy.failure is not None:
            raise proxy.failure
        if status is None:
            raise PictureError(f"the browser took over {seconds:g} s")
        png = _read_picture(home / "picture.png")
        if not png.startswith(_PNG):
            log.seek(max(0, log.seek(0, os.SEEK_END) - _SHOWN_CHARS))
            said = ascii(log.read(_SHOWN_CHARS).decode(errors="replace").strip())
            raise PictureError(f"the browser ended with {status} and left no picture of {WIDTH} by {HEIGHT}: {said}")
        if not proxy.has_first_page:
            raise PictureError("the release has no first page")
        return png


def _place() -> str:
    return _REACHABLE if os.geteuid() == 0 else tempfile.gettempdir()


def _clear_left() -> None:
    """Remove what a process left that was killed while it made a picture."""
    for left in Path(_place()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > _LEASE_SECONDS:
                shutil.rmtree(left)


def _read_picture(path: Path) -> bytes:
    """Return a file that the browser's user wrote, and could have replaced by anything; empty if it is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        png = file.read(MAX_BYTES + 1)
    return png if len(png) <= MAX_BYTES else b""


def _run(command: list[str], home: Path, log: int, seconds: float, stopping: threading.Event) -> int | None:
    """Run a program with nothing of ours, and end all that it has started; returns its status, None when cut off."""
    who: dict[str, Any] = {}
    if os.geteuid() == 0:  # Chromium's sandbox is for ordinary users
        os.chown(home, _NOBODY, _NOBODY)
        who = {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()}
    deadline = time.monotonic() + seconds
    started = subprocess.Popen(
        command,
        cwd=home,
        env={"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        **who,
    )
    try:
        os.setpriority(os.PRIO_PGRP, started.pid, _NICE)
        while time.monotonic() < deadline and not stopping.is_set():
            with suppress(subprocess.TimeoutExpired):
                return started.wait(min(seconds, _LOOK_SECONDS))
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@contextmanager
def _serving(manifest: Manifest, csp: str, read: Callable[[str], bytes]) -> Iterator[_Proxy]:
    """Serve a release to a browser that has no other way out."""
    with _Proxy(manifest, csp, read) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


class _Proxy(ThreadingHTTPServer):
    """Answers for the release's host; every other host, and every tunnel, is refused."""

    def __init__(self, manifest: Manifest, csp: str, read: Callable[[str], bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.manifest, self.headers, self._read = manifest, live_headers(csp), read
        self.has_first_page = False
        self.failure: OSError | SiteError | None = None
        """Of the content store: a picture without what it holds would be kept for good."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that has gone before its answer: what the picture lacks, it lacks."""

    def file_at(self, address: str) -> tuple[Entry, bytes] | None:
        """Return a served file; None for any other address, and for one that cannot be read."""
        url = urlsplit(address)
        path = unquote(url.path).removeprefix("/")
        entry = self.manifest.get(f"{path}index.html" if not path or path.endswith("/") else path)
        if url.scheme != "http" or url.netloc != _HOST or entry is None:
            return None
        try:
            body = self._read(entry.sha256)
        except (OSError, SiteError) as error:
            self.failure = error
            return None
        self.has_first_page |= not path
        return entry, body


class _Answer(BaseHTTPRequestHandler):
    timeout = PICTURE_SECONDS
    server: _Proxy

    def do_GET(self) -> None:
        """Send a file."""
        if (found := self.server.file_at(self.path)) is None:
            self.send_error(403)
            return
        entry, body = found
        self.send_response(200)
        for name, value in {**self.server.headers, "Content-Type": content_type_of(entry.media_type)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: what a page asks for is no news."""
