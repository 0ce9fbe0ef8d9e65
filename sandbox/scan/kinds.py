"""Whether a file may be published at all, and whether its bytes are what its name says (threats D, G8, G11)."""

from __future__ import annotations

import re

from sandbox.media import UNKNOWN, media_type_of
from sandbox.paths import is_planted
from sandbox.public import INSTALLED
from sandbox.scan.packages import check_package, is_package_file
from sandbox.scan.references import Place, References

_HOST_FILES = frozenset(
    {
        "_redirects", "_headers", "_worker.js", "_routes.json", "vercel.json", "now.json", "netlify.toml",
        "firebase.json", "wrangler.toml", "wrangler.json", "wrangler.jsonc", "staticwebapp.config.json",
        "web.config", "nginx.conf", "caddyfile", "apache.conf", "httpd.conf", "php.ini", ".user.ini", ".htaccess",
        ".htpasswd", "cname", "app.yaml", "render.yaml", "fly.toml", "procfile", "dockerfile", "amplify.yml",
        "serve.json", "surge.json", ".surgeignore", ".nojekyll", ".vercelignore", ".netlify", "crossdomain.xml",
        "clientaccesspolicy.xml",
    }
)  # fmt: skip
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
    """Judge a file by its name and its first bytes.

    Returns:
        The media type that it is scanned and served as.
    """
    place = Place(path, 0)
    name = path.rsplit("/", 1)[-1].lower()
    kind = media_type_of(path)
    if INSTALLED in path.split("/"):
        references.find("package-code", place)
    if name in _HOST_FILES or _SERVER_CODE.fullmatch(path) or _PROOF_OF_OWNERSHIP.match(path):
        references.find("host-config-file", place)
    elif is_planted(path):
        references.find("planted-file", place)
    elif any(segment.startswith(".") and segment != ".well-known" for segment in path.split("/")):
        references.find("hidden-file", place)
    elif kind == UNKNOWN and not _is_well_known(path):
        references.find("file-type", place)
    if data and not _is_what_it_says(kind, data):
        references.find("type-mismatch", place, f"named as {kind}")
    if is_package_file(path):
        check_package(path, data, references)
    elif kind == "application/pdf":
        _check_pdf(data, place, references)
    return kind


def check_source(path: str, data: bytes, references: References) -> None:
    """Judge a file that is kept and never served: by what a tool or a package manager would do with it."""
    place = Place(path, 0)
    if INSTALLED in path.split("/"):
        references.find("package-code", place)
    if is_planted(path):
        references.find("planted-file", place)
    if is_package_file(path):
        check_package(path, data, references)


def _check_pdf(data: bytes, place: Place, references: References) -> None:
    found = _PDF_ACTIVE.search(_PDF_ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), data))
    if found:
        references.find("pdf-active", place, found[0].decode("latin-1"))


def _is_well_known(path: str) -> bool:
    return path.startswith(".well-known/")


def _is_what_it_says(kind: str, data: bytes) -> bool:
    magic = _MAGIC.get(kind)
    if magic is not None:
        return magic.match(data) is not None
    if kind == "text/html":
        return not any(other.match(data) for other in _MAGIC.values())
    if kind in _SVG_OR_XML:
        return b"<" in data[:4096] and not re.match(rb"\s*<!doctype html", data, re.IGNORECASE)
    return not _IS_HTML.match(data) and (kind in _MAY_HOLD_MARKUP or not _SNIFFED.match(data))
