"""Where a URL in a page leads, by the rules of browsers rather than those of RFC 3986 (threat G8).

Browsers forgive: they strip control characters, take a backslash for a slash, and accept any number of slashes. A check
that is stricter than the browser sees another host than the one that is contacted.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Literal, NamedTuple
from urllib.parse import unquote

import idna

Kind = Literal["local", "external", "data", "code", "contact", "other"]

_STRIPPED = "".join(map(chr, range(0x21)))
_REMOVED = {ord(character): None for character in "\t\n\r"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
UNUSUAL_PORT = "unusual port"
"""The one trick that only counts for what a page loads: a link may lead to any port."""

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
    """What a URL leads to."""

    kind: Kind
    scheme: str = ""
    host: str = ""
    """Punycode, lower case, without a trailing dot and without the port."""
    path: str = ""
    """Of a local URL: without query and fragment, percent-decoded. Of a data: URL: everything after the colon."""
    trick: str = ""
    """Why the URL deceives, empty when it does not."""


def parse_url(url: str) -> Target:
    """Read a URL as a browser on an https page would."""
    if len(url) > _MAX_URL_CHARS:
        is_data = url.lstrip(_STRIPPED)[:5].lower() == "data:"
        return _parse(url) if is_data and len(url) <= _MAX_DATA_URL_CHARS else Target("other", trick="far too long")
    return _parse_cached(url)


def _parse(url: str) -> Target:
    text = url.strip(_STRIPPED).translate(_REMOVED)
    match = _SCHEME.match(text)
    if match is None:
        slashed = text.replace("\\", "/")
        return _network("https", slashed) if slashed.startswith("//") else _local(slashed)
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


def _local(text: str) -> Target:
    path = re.split(r"[?#]", text, maxsplit=1)[0]
    return Target("local", path=unquote(path))


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
    """Return a host in the form in which hosts are compared, and why it deceives, if it does."""
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
