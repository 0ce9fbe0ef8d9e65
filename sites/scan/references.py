"""Scan of every URL of a release by the use that a browser makes of it.

URLs are read by the rules of browsers rather than those of RFC 3986 (threat G8): browsers strip control characters,
take a backslash for a slash and accept any number of slashes, so a stricter parser would see another host than the one
that is contacted.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, cast
from urllib.parse import unquote, unquote_to_bytes

import idna

from routing.policy.platform import Profile
from sites.files import media_type_of
from sites.scan import active_content
from sites.scan.rules import Notes

Kind = Literal["local", "external", "data", "code", "contact", "other"]

_STRIPPED = "".join(map(chr, range(0x21)))
_REMOVED = {ord(character): None for character in "\t\n\r"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
UNUSUAL_PORT = "unusual port"
"""A trick only for what a page loads: a link may lead to any port."""

_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}
_NETWORK = frozenset(_PORTS)
_CODE = frozenset({"javascript", "vbscript", "livescript", "mocha", "blob", "filesystem", "view-source"})
_CONTACT = frozenset({"mailto", "tel", "sms", "geo", "whatsapp", "facetime"})
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_PORT = re.compile(r":([0-9]*)$")
_MAX_URL_CHARS = 16_384
_MAX_DATA_URL_CHARS = 1024 * 1024
_MAX_HOST_CHARS = 253


class Target(NamedTuple):
    """The destination of a URL."""

    kind: Kind
    scheme: str = ""
    host: str = ""
    """Punycode in lower case, without trailing dot and port."""
    path: str = ""
    """Of a local URL: percent-decoded, without query and fragment. Of a data: URL: all after the colon."""
    trick: str = ""
    """Why the URL is deceptive; empty if it is not."""


def parse_url(url: str) -> Target:
    """Parse a URL as a browser on an https page does."""
    if len(url) > _MAX_URL_CHARS:
        is_data = url.lstrip(_STRIPPED)[:5].lower() == "data:"
        return _parse(url) if is_data and len(url) <= _MAX_DATA_URL_CHARS else Target("other", trick="far too long")
    return _parse_cached(url)


def _parse(url: str) -> Target:
    text = url.strip(_STRIPPED).translate(_REMOVED)
    match = _SCHEME.match(text)
    if match is None:
        slashed = text.replace("\\", "/")
        if slashed.startswith("//"):
            return _network("https", slashed)
        return Target("local", path=unquote(re.split(r"[?#]", slashed, maxsplit=1)[0]))
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme == "data":
        return Target("data", scheme, path=rest)
    if scheme in _CODE:
        return Target("code", scheme, path=rest)
    if scheme in _CONTACT:
        return Target("contact", scheme, path=rest)
    if scheme in _NETWORK:
        return _network(scheme, rest.replace("\\", "/"))
    return Target("other", scheme)


_parse_cached = lru_cache(maxsize=2048)(_parse)


def _network(scheme: str, rest: str) -> Target:
    slashes = len(rest) - len(rest.lstrip("/"))
    authority = re.split(r"[/?#]", rest.lstrip("/"), maxsplit=1)[0]
    trick = "" if slashes == 2 else "unusual number of slashes"
    userinfo, at, hostport = authority.rpartition("@")
    if at:
        trick = f"{len(userinfo)} characters before @ only look like a host"
    host, host_trick = _host(_PORT.sub("", hostport))
    port = _PORT.search(hostport)
    if port and port[1] not in ("", _PORTS.get(scheme, "")):
        host_trick = host_trick or UNUSUAL_PORT
    return Target("external", scheme, host, trick=trick or host_trick)


def _host(raw: str) -> tuple[str, str]:
    """Return a host in normal form, and why it is deceptive, if it is."""
    name = unquote(raw).replace("。", ".").rstrip(".")
    if raw.startswith("["):
        return name.lower(), "address instead of a name"
    if not name or len(name) > _MAX_HOST_CHARS:
        return "", "no host"
    if not name.isascii():
        if any(_mixes_scripts(label) for label in name.split(".")):
            return "", "letters of several scripts in one name"
        try:
            name = idna.encode(name, uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            return "", "not a host name"
    name = name.lower()
    if not _HOST.fullmatch(name):
        return "", "not a host name"
    if "xn--" in name and any(_mixes_scripts(_shown(label)) for label in name.split(".")):
        return "", "letters of several scripts in one name"
    if _NUMERIC.fullmatch(name.rsplit(".", 1)[-1]):
        return name, "address instead of a name"
    return name, ""


def _shown(label: str) -> str:
    try:
        return idna.decode(label) if label.startswith("xn--") else label
    except (idna.IDNAError, UnicodeError):
        return label


def _mixes_scripts(label: str) -> bool:
    scripts = {unicodedata.name(letter, "?").split(" ")[0] for letter in label if letter.isalpha()}
    east_asian = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"}
    return len(scripts) > 1 and not scripts <= east_asian | {"LATIN"}


Use = Literal["link", "script", "style", "image", "media", "font", "form", "frame", "manifest", "connect"]

_DATA_IMAGES = frozenset(
    {"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/avif", "image/x-icon", "image/svg+xml"}
)
_MAX_SRCSET_ENTRIES = 100
MAX_CSS_REFERENCES = 20_000
EXTRA_JS_CHARS = 1024 * 1024
_SRCSET_URL = re.compile(r"[\t\n\f\r ,]*+([^\t\n\f\r ]++)")
_SUPERSETS_OF_ASCII = frozenset({"", "utf-8", "utf8", "ascii", "us-ascii", "iso-8859-1", "latin1", "windows-1252"})
MAX_SVG_DEPTH = 4


class Place(NamedTuple):
    """A position in a release."""

    file: str
    line: int
    """Where a piece of a file begins; lines within the piece count from here."""

    def below(self, line: int) -> Place:
        """Return the place of a line of the piece that begins here, counted from 1."""
        return Place(self.file, self.line + line - 1)


@dataclass
class References:
    """Checks the URLs, style sheets and scripts of one scan."""

    files: Mapping[str, bytes]
    profile: Profile
    notes: Notes
    check_svg: Callable[[bytes, Place], None] = field(default=lambda data, place: None)
    """Called for each SVG image in a data: URL."""
    js_left: int = 0
    """Characters of JavaScript that may still be checked."""
    css_left: int = MAX_CSS_REFERENCES
    """References of style sheets that may still be checked."""
    svg_depth: int = 0
    """Nesting of data: URLs around the image being checked."""

    def __post_init__(self) -> None:
        self.js_left = self.profile.js_bytes + EXTRA_JS_CHARS

    def find(self, rule: str, place: Place, detail: str = "") -> None:
        """Record a finding."""
        self.notes.find(rule, place.file, place.line, detail=detail)

    def check_url(self, url: str, use: Use, place: Place) -> None:
        """Check one URL."""
        target = parse_url(url)
        if target.trick and not (use == "link" and target.trick == UNUSUAL_PORT):
            self.find("deceptive-url", place, f"{url[:60]} ({target.trick})")
        elif target.kind == "code":
            self.find("script-url", place, url)
            self.notes.add_script(target.path.encode(errors="replace"))
        elif target.kind == "data":
            self._check_data(target, use, place)
        elif target.kind == "external":
            self._check_external(target, use, place, url)
        elif target.kind == "local":
            if use == "script":
                self._count_local_script(target.path, place)
            elif use == "style":
                self._check_local_style(target.path, place)
        elif use == "form" and target.scheme == "mailto":
            return  # opens the mail program and sends nothing by itself
        elif use != "link" or target.kind == "other":
            self.find("form-host" if use == "form" else "deceptive-url", place, url)

    def check_srcset(self, srcset: str, place: Place) -> None:
        """Check every URL of a srcset."""
        if "(" in srcset:  # a comma in brackets does not separate, so check every piece
            srcset = srcset.replace(",", " , ")
        position = 0
        for _ in range(_MAX_SRCSET_ENTRIES):
            match = _SRCSET_URL.match(srcset, position)
            if match is None:
                return
            self.check_url(match[1].rstrip(","), "image", place)
            position = match.end() if match[1].endswith(",") else srcset.find(",", match.end())
            if position < 0:
                return
        self.find("html-too-complex", place, "srcset")

    def check_css(self, text: str, place: Place) -> None:
        """Check a style sheet or the value of a style attribute."""
        for reference in active_content.references(text):
            self.css_left -= 1
            if self.css_left < 0:
                self.find("html-too-complex", place, "style sheets")
                return
            there = place.below(reference.line)
            if reference.kind == "active":
                self.find("css-active", there, reference.text)
            elif reference.kind == "masked":
                self.check_secret_field(there, reference.text)
            else:
                self.check_url(reference.text, cast("Use", reference.kind), there)

    def check_js(self, source: str, place: Place) -> None:
        """Count and check a script; the same script on another page is not checked again."""
        is_new = self.notes.add_script(source.encode(errors="replace"))
        self.js_left -= len(source) if is_new else 0
        if not is_new or self.js_left < 0:  # over the budget whatever it holds
            return
        for construct in active_content.constructs(source):
            there = place.below(construct.line)
            if construct.kind in ("connect", "load", "navigate"):
                self._check_js_url(construct, there)
            else:
                self.find(construct.kind, there, construct.text)

    def check_charset(self, declared: str, place: Place) -> None:
        """Check a declared charset, which applies where a file is served without a header."""
        if declared.strip().lower() not in _SUPERSETS_OF_ASCII:
            self.find("meta-charset", place, declared)

    def check_secret_field(self, place: Place, detail: str = "") -> None:
        """Refuse a field for something secret if the site's forms may not be sent anywhere."""
        if not self.profile.form_hosts:
            self.find("password-field", place, detail)

    def is_known_host(self, url: str) -> bool:
        """Whether a URL leads to a host that the profile allows for any use."""
        profile = self.profile
        return parse_url(url).host in {*profile.script_hosts, *profile.image_hosts, *profile.form_hosts}

    def _check_js_url(self, construct: active_content.Found, place: Place) -> None:
        target = parse_url(construct.text)
        if construct.kind == "navigate" and target.kind == "external":
            self.find("script-navigation", place, construct.text)
        elif construct.kind == "navigate" and target.kind in ("data", "code"):
            self.check_url(construct.text, "link", place)
        elif construct.kind == "load" and target.kind == "external" and self.is_known_host(construct.text):
            return
        elif target.kind == "external" or (target.kind in ("data", "code") and construct.kind == "connect"):
            self.check_url(construct.text, "connect", place)

    def _check_external(self, target: Target, use: Use, place: Place, url: str) -> None:
        if use == "link":
            if target.scheme not in ("http", "https"):
                self.find("deceptive-url", place, url)
            return
        allowed = {
            "script": self.profile.script_hosts,
            "image": self.profile.image_hosts,
            "form": self.profile.form_hosts,
        }.get(use, ())
        if target.host not in allowed:
            self.find(f"{use}-host", place, url)
        elif target.scheme != "https":
            self.find("insecure-url", place, url)

    def _check_data(self, target: Target, use: Use, place: Place) -> None:
        kind, data = decode_data_url(target.path)
        if use in ("script", "connect"):
            self.notes.add_script(data)
            self.find("data-script", place, target.path)
        elif use == "image" and kind in _DATA_IMAGES:
            self.notes.has_data_images = True
            if kind == "image/svg+xml":
                self._check_inner_svg(data, place)
        elif use == "font" and (kind.startswith(("font/", "application/font", "application/x-font"))):
            self.notes.has_data_fonts = True
        elif use == "link":
            self.find("script-url", place, target.path)
        else:
            self.find("data-url", place, kind)

    def _check_inner_svg(self, data: bytes, place: Place) -> None:
        if self.svg_depth >= MAX_SVG_DEPTH:
            self.find("html-too-complex", place, "images within images")
            return
        self.svg_depth += 1
        self.check_svg(data, place)
        self.svg_depth -= 1

    def _check_local_style(self, path: str, place: Place) -> None:
        name = _name_in_release(path, place)
        if name in self.files and media_type_of(name) != "text/css":
            self.find("type-mismatch", place, f"{name} used as a style sheet")

    def _count_local_script(self, path: str, place: Place) -> None:
        name = _name_in_release(path, place)
        if name not in self.files:
            self.find("script-not-in-release", place, path)
        elif media_type_of(name) != "text/javascript":  # .js files are checked on their own
            self.check_js(self.files[name].decode(errors="replace"), Place(name, 1))


def _name_in_release(path: str, place: Place) -> str:
    directory = "" if path.startswith("/") else posixpath.dirname(place.file)
    return posixpath.normpath(posixpath.join("/", directory, path)).lstrip("/")


def decode_data_url(rest: str) -> tuple[str, bytes]:
    """Return media type and bytes of what follows `data:`; malformed base64 is returned as it is."""
    head, comma, body = rest.partition(",")
    kind = head.split(";")[0].strip().lower()
    raw = unquote_to_bytes(body if comma else "")
    if head.rstrip().lower().endswith(";base64"):
        try:
            return kind, b64decode(raw + b"=" * (-len(raw) % 4))
        except (BinasciiError, ValueError):
            return kind, raw
    return kind, raw
