"""Whether a file may be published at all, and whether its bytes are what its name says (threats D, G8, G11)."""

from __future__ import annotations

import re

from sandbox.media import UNKNOWN, media_type_of
from sandbox.paths import is_planted
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
_LOOKS_LIKE_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*"
    rb"<(?:!doctype html|html|head|script|iframe|body|title|style|svg|meta|\?php)[\t\n\f\r >/]",
    re.IGNORECASE,
)
_SVG_OR_XML = frozenset({"image/svg+xml", "application/xml"})


def check_kind(path: str, data: bytes, references: References) -> str:
    """Judge a file by its name and its first bytes.

    Returns:
        The media type that it is scanned and served as.
    """
    place = Place(path, 0)
    name = path.rsplit("/", 1)[-1].lower()
    kind = media_type_of(path)
    if name in _HOST_FILES:
        references.find("host-config-file", place)
    elif is_planted(path):
        references.find("planted-file", place)
    elif any(segment.startswith(".") and segment != ".well-known" for segment in path.split("/")):
        references.find("hidden-file", place)
    elif kind == UNKNOWN and not _is_well_known(path):
        references.find("file-type", place)
    if data and not _is_what_it_says(kind, data):
        references.find("type-mismatch", place, f"named as {kind}")
    return kind


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
    return not _LOOKS_LIKE_HTML.match(data)
