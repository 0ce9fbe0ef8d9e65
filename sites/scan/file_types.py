"""Whether a file may be published at all, and whether its bytes are what its name says (threats D, G8, G11)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sites.files import INSTALLED, UNKNOWN, extension_of, is_planted, media_type_of
from sites.scan.references import Place, References

# What a package manager would run or load from elsewhere (threat D8): a release may be exported and then installed.

_MANIFEST = "package.json"
_YARN_LOCK = "yarn.lock"
"""npm reads it where it has no lock file of its own."""
_LOCK_FILES = frozenset({"package-lock.json", "npm-shrinkwrap.json", _YARN_LOCK})
_RUN_BY_INSTALL_NAMES = """
preinstall install postinstall preprepare prepare postprepare prepublish prepublishonly prepack postpack publish
postpublish dependencies preuninstall uninstall postuninstall
"""
_RUN_BY_INSTALL = frozenset(_RUN_BY_INSTALL_NAMES.split())
_DEPENDENCIES = (
    "dependencies",
    "devDependencies",
    "peerDependencies",
    "optionalDependencies",
    "bundleDependencies",
    "overrides",
    "resolutions",
)
_VERSION = re.compile(r"[\w.*^~<>=| +-]{0,100}", re.ASCII)
_RESOLVED = re.compile(r"https://([^/?#@\\]{1,253})/")
_YARN_RESOLVED = re.compile(r"^[ \t]+(?:resolved|resolution):?[ \t]+\"?([^\s\"]+)\"?[ \t\r]*$", re.MULTILINE)
_MAX_BYTES = 8 * 1024 * 1024
_MAX_NAMED = 20


def is_package_file(path: str) -> bool:
    """Whether a package manager reads a file of this name."""
    name = path.rsplit("/", 1)[-1].casefold()
    return name == _MANIFEST or name in _LOCK_FILES


def package_faults(path: str, data: bytes) -> Iterator[str]:
    """Yield the first scripts that installation runs and the first sources outside the registry."""
    if path.rsplit("/", 1)[-1].casefold() == _MANIFEST:
        yield from islice(_in_scripts(data), _MAX_NAMED)
    yield from foreign_sources(path, data)


def foreign_sources(path: str, data: bytes) -> Iterator[str]:
    """Yield the first sources of packages outside the registry in a manifest or lock file."""
    yield from islice(_sources(path, data), _MAX_NAMED)


def _sources(path: str, data: bytes) -> Iterator[str]:
    name = path.rsplit("/", 1)[-1].casefold()
    if len(data) > _MAX_BYTES:
        yield "too large to be read"
    elif name == _YARN_LOCK:
        yield from _elsewhere(_YARN_RESOLVED.findall(data.decode("utf-8", "replace")))
    elif (content := _read(data)) is None:
        yield "not JSON"
    else:
        yield from _in_manifest(content) if name == _MANIFEST else _in_lock_file(content)


def _read(data: bytes) -> dict[str, Any] | None:
    """Return a file's JSON object, empty for any other value; None if it is not JSON."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else {}


def _in_scripts(data: bytes) -> Iterator[str]:
    content = (_read(data) if len(data) <= _MAX_BYTES else None) or {}
    scripts = content.get("scripts")
    for name in scripts if isinstance(scripts, dict) else ():
        if name.casefold() in _RUN_BY_INSTALL:
            yield f"scripts.{name}"
    if "publishConfig" in content:
        yield "publishConfig"


def _in_manifest(content: dict[str, Any]) -> Iterator[str]:
    for section in _DEPENDENCIES:
        for name, version in _versions(content.get(section)):
            if not _VERSION.fullmatch(version):
                yield f"{section}.{name} = {version}"


def _versions(entries: Any) -> Iterator[tuple[str, str]]:
    """Yield names and versions; `overrides` are nested."""
    stack = [entries]
    while stack:
        found = stack.pop()
        for name, value in found.items() if isinstance(found, dict) else ():
            if isinstance(value, str):
                yield name, value
            else:
                stack.append(value)


def _in_lock_file(content: dict[str, Any]) -> Iterator[str]:
    old = list(_entries(content.get("dependencies"), is_nested=True))
    entries = [*_entries(content.get("packages"), is_nested=False), *old]
    for name, entry in old:
        version = entry.get("version")
        if isinstance(version, str) and not _VERSION.fullmatch(version):
            yield f"{name}.version = {version}"
    stated = (entry.get("resolved") for _, entry in entries if not entry.get("link"))
    yield from _elsewhere(resolved for resolved in stated if isinstance(resolved, str))


def _entries(section: Any, *, is_nested: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a lock file's entries; those of the first format are nested."""
    stack = [section]
    while stack:
        found = stack.pop()
        for name, entry in found.items() if isinstance(found, dict) else ():
            if isinstance(entry, dict):
                yield name, entry
                if is_nested:
                    stack.append(entry.get("dependencies"))


def _elsewhere(resolved: Iterable[str]) -> Iterator[str]:
    """Yield URLs that are not https or not on the first URL's host."""
    hosts: set[str] = set()
    for url in resolved:
        host = _RESOLVED.match(url)
        hosts.add(host[1].casefold() if host else "")
        if host is None or len(hosts) > 1:
            yield f"resolved = {url}"


_HOST_FILES_TEXT = """
_redirects _headers _worker.js _routes.json vercel.json now.json netlify.toml firebase.json wrangler.toml
wrangler.json wrangler.jsonc staticwebapp.config.json web.config nginx.conf caddyfile apache.conf httpd.conf php.ini
.user.ini .htaccess .htpasswd cname app.yaml render.yaml fly.toml procfile dockerfile amplify.yml serve.json
surge.json .surgeignore .nojekyll .vercelignore .netlify crossdomain.xml clientaccesspolicy.xml
"""
_HOST_FILES = frozenset(_HOST_FILES_TEXT.split())
_SERVER_CODE = re.compile(
    r"(?:api|functions|netlify/(?:edge-)?functions|edge-functions|middleware)(?:/.*)?\.[cm]?[jt]s", re.IGNORECASE
)
_PROOF_OF_OWNERSHIP = re.compile(r"\.well-known/(?:acme-challenge|pki-validation)/", re.IGNORECASE)

_MAGIC: dict[str, re.Pattern[bytes]] = {
    kind: re.compile(pattern, re.DOTALL)
    for kind, pattern in {
        "image/png": rb"\x89PNG\r\n\x1a\n",
        "image/jpeg": rb"\xff\xd8\xff",
        "image/gif": rb"GIF8[79]a",
        "image/webp": rb"RIFF....WEBP",
        "image/avif": rb"....ftyp(avif|avis|mif1|msf1|miaf)",
        "image/x-icon": rb"\x00\x00[\x01\x02]\x00|\x89PNG",
        "font/woff": rb"wOFF",
        "font/woff2": rb"wOF2",
        "font/ttf": rb"\x00\x01\x00\x00|true|ttcf|OTTO",
        "font/otf": rb"OTTO|\x00\x01\x00\x00",
        "application/vnd.ms-fontobject": rb".{34}LP",
        "video/mp4": rb"....ftyp",
        "video/webm": rb"\x1aE\xdf\xa3",
        "audio/mpeg": rb"ID3|\xff[\xe0-\xff]",
        "audio/ogg": rb"OggS",
        "application/pdf": rb"%PDF-",
    }.items()
}
_BLANK = rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*+"
_IS_HTML = re.compile(
    _BLANK + rb"<(?:!doctype html|html|head|script|iframe|body|title|style|svg|meta|\?php)[\t\n\f\r >/]", re.IGNORECASE
)
_SNIFFED = re.compile(
    _BLANK + rb"(?:<(?:(?:h1|div|font|table|a|b|br|p)[\t\n\f\r >/]|!--|\?xml)|%PDF-|%!PS-Adobe-)", re.IGNORECASE
)
_MAY_HOLD_MARKUP = frozenset({"text/markdown", "text/javascript", "text/css"})
_PDF_ACTIVE = re.compile(rb"/(?:JavaScript|JS|Launch|EmbeddedFile|RichMedia|XFA|SubmitForm|ImportData)(?![A-Za-z0-9])")
_PDF_ESCAPE = re.compile(rb"#([0-9A-Fa-f]{2})")
_SVG_OR_XML = frozenset({"image/svg+xml", "application/xml"})


def check_kind(path: str, data: bytes, references: References) -> str:
    """Check a file by its name and first bytes; return the media type that it is scanned and served as."""
    place = Place(path, 0)
    name = path.rsplit("/", 1)[-1].lower()
    kind = media_type_of(path)
    _check_packages(path, data, references)
    if name in _HOST_FILES or _SERVER_CODE.fullmatch(path) or _PROOF_OF_OWNERSHIP.match(path):
        references.find("host-config-file", place)
    elif is_planted(path):
        references.find("planted-file", place)
    elif any(segment.startswith(".") and segment != ".well-known" for segment in path.split("/")):
        references.find("hidden-file", place)
    elif kind == UNKNOWN and (extension_of(path) or not path.startswith(".well-known/")):
        references.find("file-type", place)  # standards put files without an extension there
    if data and not _is_what_it_says(kind, data):
        references.find("type-mismatch", place, f"named as {kind}")
    if kind == "application/pdf":
        _check_pdf(data, place, references)
    return kind


def check_source(path: str, data: bytes, references: References) -> None:
    """Check a file that is never served for what a tool or package manager would do with it."""
    _check_packages(path, data, references)
    if is_planted(path):
        references.find("planted-file", Place(path, 0))


def _check_packages(path: str, data: bytes, references: References) -> None:
    """Refuse installed packages, and what a package manager would run or load from elsewhere."""
    if INSTALLED in path.split("/"):
        references.find("package-code", Place(path, 0))
    if is_package_file(path):
        for detail in package_faults(path, data):
            references.find("package-config", Place(path, 0), detail)


def _check_pdf(data: bytes, place: Place, references: References) -> None:
    match = _PDF_ACTIVE.search(_PDF_ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), data))
    if match:
        references.find("pdf-active", place, match[0].decode("latin-1"))


def _is_what_it_says(kind: str, data: bytes) -> bool:
    magic = _MAGIC.get(kind)
    if magic is not None:
        return magic.match(data) is not None
    if kind == "text/html":
        return not any(other.match(data) for other in _MAGIC.values())
    if kind in _SVG_OR_XML:
        return b"<" in data[:4096] and not re.match(rb"\s*<!doctype html", data, re.IGNORECASE)
    return not _IS_HTML.match(data) and (kind in _MAY_HOLD_MARKUP or not _SNIFFED.match(data))
