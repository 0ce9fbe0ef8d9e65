"""Which kinds of file a site may hold, and as what they are served.

One closed table: the host's own MIME tables differ from machine to machine, and a type that nobody thought about is a
type that nobody scanned.
"""

from __future__ import annotations

import posixpath

UNKNOWN = "application/octet-stream"

MEDIA_TYPES: dict[str, str] = {
    "html": "text/html", "htm": "text/html",
    "css": "text/css",
    "js": "text/javascript", "mjs": "text/javascript", "cjs": "text/javascript",
    "json": "application/json", "map": "application/json", "webmanifest": "application/manifest+json",
    "xml": "application/xml", "svg": "image/svg+xml",
    "txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "vtt": "text/vtt",
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "avif": "image/avif", "ico": "image/x-icon",
    "woff": "font/woff", "woff2": "font/woff2", "ttf": "font/ttf", "otf": "font/otf",
    "eot": "application/vnd.ms-fontobject",
    "mp4": "video/mp4", "webm": "video/webm", "mp3": "audio/mpeg", "ogg": "audio/ogg",
    "pdf": "application/pdf",
}  # fmt: skip

SOURCE_EXTENSIONS = frozenset(
    {
        "ts", "mts", "cts", "tsx", "jsx", "vue", "svelte", "astro", "mdx", "scss", "sass", "less", "styl", "pcss",
        "njk", "liquid", "ejs", "hbs", "pug", "yml", "yaml", "toml", "glsl", "vert", "frag", "wgsl",
    }
)  # fmt: skip
"""Text that builds start from and no release serves: without a media type, the scan refuses it where it is served."""

_TEXT_TYPES = frozenset(
    {"application/json", "application/manifest+json", "application/xml", "image/svg+xml", "text/javascript"}
)


def extension_of(path: str) -> str:
    """Return a name's last extension in lower case, without the dot; empty when it has none."""
    return posixpath.splitext(posixpath.basename(path))[1][1:].lower()


def media_type_of(path: str) -> str:
    """Return what a file is served as, by its name alone; `application/octet-stream` for a kind that is not known."""
    return MEDIA_TYPES.get(extension_of(path), UNKNOWN)


def disposition_of(media_type: str) -> str:
    """Return the Content-Disposition header of a file: a kind that nobody knows is kept, never shown."""
    return "attachment" if media_type == UNKNOWN else "inline"


def is_text(media_type: str) -> bool:
    """Return whether files of this type are text."""
    return media_type.startswith("text/") or media_type in _TEXT_TYPES


def is_text_file(path: str) -> bool:
    """Return whether a file of this name is text, to be served or to be built from."""
    return extension_of(path) in SOURCE_EXTENSIONS or is_text(media_type_of(path))


def content_type_of(media_type: str) -> str:
    """Return the Content-Type header of a file; text is UTF-8, because the scan reads it as UTF-8."""
    return f"{media_type}; charset=utf-8" if is_text(media_type) else media_type
