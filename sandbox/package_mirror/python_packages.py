"""Python projects: a simple index (PEP 503, PEP 691) read, bound to sha256 digests, and served with the mirror's URLs.

A wheel installs without running anything of its own; a source distribution is a program. So only wheels are served, and
the source distributions of projects that the operator names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from html import escape
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

from pydantic_core import from_json, to_json

from sandbox.errors import MirrorRefusedError
from sandbox.package_mirror.packages import Digest, Origin, Packument

SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
SIMPLE_HTML = "application/vnd.pypi.simple.v1+html"
ACCEPTED = f"{SIMPLE_JSON}, {SIMPLE_HTML};q=0.2, text/html;q=0.1"

_NAME = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,254}")
_PATH = re.compile(rf"/simple/(?P<name>{_NAME})/(?P<file>{_FILE_NAME.pattern})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RUNS = re.compile(r"[-_.]+")
_SDISTS = (".tar.gz", ".zip")
_MAX_NAME_CHARS = 100
_MAX_FIELD_CHARS = 300


class Project(NamedTuple):
    """A request for a project's page."""

    name: str
    """Normalised, as PEP 503 says."""


class Distribution(NamedTuple):
    """A request for one of its files."""

    name: str
    file: str


def parse_python_path(path: str) -> Project | Distribution | None:
    """Parse the path of a request, percent-decoded once; None for any other path."""
    found = _PATH.fullmatch(path)
    if found is None or len(found["name"]) > _MAX_NAME_CHARS:
        return None
    return Distribution(found["name"], found["file"]) if found["file"] else Project(found["name"])


class _Link(NamedTuple):
    url: str
    sha256: str
    facts: Mapping[str, Any]
    """What an installer needs: `requires-python`, `yanked`."""


def read_index(raw: bytes, *, kind: str, name: str, page_url: str, sdists: Collection[str]) -> Packument:
    """Parse a project's page and drop files that cannot or may not be served.

    `page_url` is where it was found, for relative links; of the projects in `sdists` source distributions are served.

    Raises:
        MirrorRefusedError: the registry's fault.
    """
    links = _json_links(raw, name=name) if kind.endswith("json") else _html_links(raw)
    files: dict[str, Origin] = {}
    shown: list[dict[str, Any]] = []
    for link in links:
        try:
            url = urljoin(page_url, link.url)
            file = unquote(urlsplit(url).path).rpartition("/")[2]
        except ValueError:
            continue
        if not is_served(file, name=name, sdists=sdists) or not _SHA256.fullmatch(link.sha256):
            continue
        origin = Origin(url, Digest("sha256", link.sha256))
        if files.setdefault(file, origin) is not origin:
            continue
        facts = {"filename": file, "url": quote(file), "hashes": {"sha256": link.sha256}}
        shown.append(facts | dict(link.facts))
    body = to_json({"meta": {"api-version": "1.0"}, "name": name, "files": shown})
    return Packument(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', files)


def is_served(file: str, *, name: str, sdists: Collection[str]) -> bool:
    """Return whether a file belongs to the project and is a wheel, or one of the source distributions let in."""
    if not _FILE_NAME.fullmatch(file):
        return False
    if file.endswith(".whl"):
        return _normalise(file.partition("-")[0]) == name
    if name not in sdists or not file.endswith(_SDISTS):
        return False
    return _normalise(file).startswith(f"{name}-")


def as_html(body: bytes) -> bytes:
    """Return a page in the form of PEP 503, for installers that do not read JSON."""
    page = from_json(body)
    lines = ["<!DOCTYPE html><html><body>"]
    for file in page["files"]:
        href = escape(f"{file['url']}#sha256={file['hashes']['sha256']}")
        facts = "".join(
            f' data-{fact}="{escape(value if isinstance(value, str) else "")}"'
            for fact in ("requires-python", "yanked")
            if (value := file.get(fact))
        )
        lines.append(f'<a href="{href}"{facts}>{escape(file["filename"])}</a><br>')
    return "\n".join([*lines, "</body></html>"]).encode()


def _normalise(name: str) -> str:
    return _RUNS.sub("-", name).lower()


def _facts(requires: Any, yanked: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if isinstance(requires, str):
        facts["requires-python"] = requires[:_MAX_FIELD_CHARS]
    if yanked is True or isinstance(yanked, str):
        facts["yanked"] = yanked[:_MAX_FIELD_CHARS] if isinstance(yanked, str) and yanked else True
    return facts


def _json_links(raw: bytes, *, name: str) -> Iterator[_Link]:
    try:
        page = from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise MirrorRefusedError(502, "the registry's page of this project is not JSON") from None
    listed = page.get("files") if isinstance(page, dict) else None
    if not isinstance(listed, list) or _normalise(str(page.get("name", ""))) != name:
        raise MirrorRefusedError(502, "the registry's answer is not the page of this project")
    for file in listed:
        hashes = file.get("hashes") if isinstance(file, dict) else None
        if isinstance(hashes, dict) and isinstance(file.get("url"), str):
            facts = _facts(file.get("requires-python"), file.get("yanked") or None)
            yield _Link(file["url"], str(hashes.get("sha256", "")).lower(), facts)


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[_Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a link with its digest; called for each element."""
        named = dict(attrs)
        if tag != "a" or not named.get("href"):
            return
        url, fragment = urldefrag(named["href"] or "")
        algorithm, _, digest = fragment.partition("=")
        yanked = (named["data-yanked"] or True) if "data-yanked" in named else None
        facts = _facts(named.get("data-requires-python"), yanked)
        self.links.append(_Link(url, digest.lower() if algorithm == "sha256" else "", facts))


def _html_links(raw: bytes) -> list[_Link]:
    anchors = _Anchors()
    try:
        anchors.feed(raw.decode("utf-8", "replace"))
    except (ValueError, AssertionError):
        raise MirrorRefusedError(502, "the registry's page of this project is not HTML") from None
    return anchors.links
