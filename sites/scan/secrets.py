"""Search for keys and tokens in every file, also where they are encoded (threat G10).

No comment and no file name can silence it, and its findings never contain the secret.
"""

from __future__ import annotations

import math
import re
import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from sites.scan.rules import SECRET_RULES, Notes, SecretRule

MAX_ESCAPES = 300_000
MAX_RUNS = 100_000
MAX_INFLATED_BYTES = 4 * 1024 * 1024
_DEPTH = 2

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_NAMED = {
    b"lowbar": b"_",
    b"UnderBar": b"_",
    b"period": b".",
    b"sol": b"/",
    b"plus": b"+",
    b"equals": b"=",
    b"colon": b":",
    b"commat": b"@",
    b"shy": b"",
    b"ZeroWidthSpace": b"",
    b"zwnj": b"",
    b"zwj": b"",
    b"NoBreak": b"",
}
_ENTITY = re.compile(rb"&(?:#(?:([0-9]{1,7})|[xX]([0-9A-Fa-f]{1,6}));?|(" + b"|".join(_NAMED) + rb");)")
_BACKSLASH = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|u00([0-9A-Fa-f]{2})|u\{0{0,8}([0-9A-Fa-f]{2})\}|([0-1][0-7]{2})|(/))")
_CSS_ESCAPE = re.compile(rb"\\0{0,4}([2-7][0-9A-Fa-f])[ \t]?")
_UNSEEN = re.compile(rb"\0|\xe2\x80[\x8b-\x8d]|\xe2\x81\xa0|\xef\xbb\xbf|\xc2\xad")
_UNSEEN_CODES = frozenset({0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF})
_PLUS = re.compile(rb"[\"'`]\s{0,200}+\+\s{0,200}+[\"'`]|[\"'`]\s{0,20}+\.\s{0,20}+concat\(\s{0,20}+[\"'`]")
_COMMA = re.compile(rb"[\"'`]\s{0,50}+,\s{0,50}+[\"'`]")
_TAGS = re.compile(rb"(?<=[\w-])(?:</?[A-Za-z][^<>\n]{0,60}+>){1,8}+(?=[\w-])")
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/_-]{40,}+(?:\r?\n[A-Za-z0-9+/_-]++)*+|[A-Za-z0-9+/_-]{24,}+")
_HEX_RUN = re.compile(rb"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){12,}+(?![0-9A-Fa-f])")
_CODE_RUN = re.compile(rb"(?<![\w.])[0-9]{2,3}(?:\s{0,4}+,\s{0,4}+[0-9]{2,3}){11,}+(?![\w.])")
_NUMBER = re.compile(rb"[0-9]+")
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_NEWLINES_TO_SPACES = bytes.maketrans(b"\n", b" ")
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


MAX_TRIES = 200_000
MAX_CANDIDATES = 4_000
_MAX_FINDINGS_PER_RULE = 20
_WINDOW = 2_200
_MIN_KNOWN_KEY_CHARS = 8


@dataclass
class SecretBudget:
    """How much one scan may still decode and try; running out is a finding, never a pass."""

    escapes: int = MAX_ESCAPES
    runs: int = MAX_RUNS
    inflated_bytes: int = MAX_INFLATED_BYTES
    tries: int = MAX_TRIES
    """Places with a keyword."""
    candidates: int = MAX_CANDIDATES
    """Places that match a pattern."""


@dataclass(frozen=True)
class Layer:
    """A file's bytes, or what they decode to; each of its lines maps to a line of the file."""

    data: bytes
    how: str = ""
    """How it was hidden, for the message of a finding."""
    lines: tuple[int, ...] = ()
    """The file's line for each line of decoded runs; empty if the lines are the file's own."""

    def line_of(self, offset: int) -> int:
        """Return the file's line for a position in this layer."""
        return self._line(self.data.count(b"\n", 0, offset))

    def lines_of(self, offsets: list[int]) -> tuple[int, ...]:
        """Return the file's lines for many positions in this layer."""
        ends = list(accumulate(len(line) + 1 for line in self.data.split(b"\n")))
        return tuple(self._line(bisect_right(ends, offset)) for offset in offsets)

    def _line(self, line: int) -> int:
        return self.lines[line] if line < len(self.lines) else line + 1


def layers(file: str, data: bytes, *, budget: SecretBudget, give_up: Callable[[str], None]) -> Iterator[Layer]:
    """Yield a file's bytes, then the whole file with one more kind of hiding undone each time.

    Escapes, concatenation, base64, hex and compression are undone; lines stay where they were.

    `give_up` is called with what is not decoded once the budget is spent.
    """
    yield Layer(data)
    layer = _open_compressed(Layer(data), budget)
    if layer.data is not data:
        yield layer
    is_css = file.casefold().endswith(".css")
    for _ in range(_DEPTH + 1):
        plain = _decode_escapes(layer, is_css=is_css, budget=budget, give_up=give_up)
        yield from (step for step in plain if step.data)
        layer = _decode_runs(plain[-1] if plain else layer, budget=budget, give_up=give_up)
        if not layer.data:
            return
        yield layer


def _decode_escapes(
    layer: Layer, *, is_css: bool, budget: SecretBudget, give_up: Callable[[str], None]
) -> tuple[Layer, ...]:
    data = _UNSEEN.sub(b"", layer.data)
    patterns = [(b"%", _PERCENT), (b"&", _ENTITY), (b"\\", _CSS_ESCAPE if is_css else _BACKSLASH)]
    for mark, pattern in patterns:
        escapes = data.count(mark)
        if escapes > budget.escapes:
            give_up(mark.decode())
        elif escapes:
            budget.escapes -= escapes
            data = pattern.sub(_decode_one, data)
    data = _PLUS.sub(b"", data) if b"+" in data or b"concat" in data else data
    data = _TAGS.sub(b"", data) if b"<" in data else data
    plain = Layer(data, f"{layer.how}, escaped or in pieces", layer.lines)
    if b".join(" in data:
        return plain, Layer(_COMMA.sub(b"", data), plain.how, layer.lines)
    return (plain,) if data != layer.data else ()


def _decode_one(match: re.Match[bytes]) -> bytes:
    if match.re is _ENTITY and match[3]:
        return _NAMED[match[3]]
    if match.re is _BACKSLASH and match.lastindex == 5:
        return b"/"
    is_decimal = match.re is _ENTITY and match.lastindex == 1
    is_octal = match.re is _BACKSLASH and match.lastindex == 4
    code = int(match[match.lastindex or 0], 10 if is_decimal else 8 if is_octal else 16)
    if code in _UNSEEN_CODES:
        return b""
    if code > 0x7F:  # keys are ASCII
        return match[0]
    return b" " if code == 0x0A else bytes((code,))  # line numbers must stay


def _decode_runs(layer: Layer, *, budget: SecretBudget, give_up: Callable[[str], None]) -> Layer:
    pieces: list[bytes] = []
    offsets: list[int] = []
    for pattern, decode in ((_BASE64_RUN, _from_base64), (_HEX_RUN, _from_hex), (_CODE_RUN, _from_codes)):
        for match in pattern.finditer(layer.data):
            budget.runs -= 1
            if budget.runs < 0:
                give_up("base64")
                break
            decoded = decode(match[0])
            piece = _inflate(decoded, budget) or decoded
            pieces.append(piece.replace(b"\0", b"").translate(_NEWLINES_TO_SPACES))
            offsets.append(match.start())
    return Layer(b"\n".join(pieces), ", encoded", layer.lines_of(offsets) if offsets else ())


def _from_base64(run: bytes) -> bytes:
    run = run.replace(b"\r", b"").replace(b"\n", b"").translate(_TO_STANDARD)
    run = run[: len(run) - (len(run) % 4 == 1)]
    return b64decode(run + b"=" * (-len(run) % 4))


def _from_hex(run: bytes) -> bytes:
    return bytes.fromhex(run.decode())


def _from_codes(run: bytes) -> bytes:
    return bytes(code for code in map(int, _NUMBER.findall(run)) if code <= 0x7F)


def _open_compressed(layer: Layer, budget: SecretBudget) -> Layer:
    inflated = _inflate(layer.data, budget)
    return Layer(inflated, ", compressed") if inflated else layer


def _inflate(data: bytes, budget: SecretBudget) -> bytes:
    """Decompress data as far as the budget allows; return nothing if it is not compressed."""
    if not data.startswith(_COMPRESSED) or budget.inflated_bytes <= 0:
        return b""
    try:
        inflated = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(data, budget.inflated_bytes)
    except zlib.error:
        return b""
    budget.inflated_bytes -= len(inflated)
    return inflated


_BY_WRITING = ("assigned", "env-line")
"""Rules about how a secret is written, not about whose it is."""


def find_secrets(
    file: str, data: bytes, *, notes: Notes, budget: SecretBudget, known_keys: tuple[str, ...] = ()
) -> None:
    """Record the secrets of a file."""
    needles = [needle for key in known_keys if len(key) >= _MIN_KNOWN_KEY_CHARS for needle in _needles(key)]

    def give_up(what: str) -> None:
        notes.find("too-much-encoding", file, 0, detail=what)

    for layer in layers(file, data, budget=budget, give_up=give_up):
        for needle in needles:
            if (offset := layer.data.find(needle)) >= 0:
                notes.find("known-key", file, layer.line_of(offset))
        lowered = layer.data.lower()
        told: set[bytes] = set()
        for rule in SECRET_RULES:
            _apply(rule, layer, lowered=lowered, file=file, notes=notes, budget=budget, told=told)
    if min(budget.tries, budget.candidates) <= 0:
        notes.find("too-much-encoding", file, 0)


def _needles(key: str) -> Iterator[bytes]:
    """Yield the forms of a key: plain, in hex, and inside base64 at each alignment."""
    raw = key.encode()
    yield raw
    yield raw.hex().encode()
    for shift in range(3):
        encoded = b64encode(b"\0" * shift + raw)
        # The first and the last characters also depend on the bytes around the key.
        inner = encoded[(0, 2, 3)[shift] : len(encoded) - 4 if (len(raw) + shift) % 3 else len(encoded)]
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))


def _apply(
    rule: SecretRule,
    layer: Layer,
    *,
    lowered: bytes,
    file: str,
    notes: Notes,
    budget: SecretBudget,
    told: set[bytes],
) -> None:
    """Record the secrets that a rule finds in a layer, except those that an issuer's own rule has found."""
    count = 0
    for secret, position in _candidates(rule, layer.data, lowered if rule.ignore_case else layer.data, budget=budget):
        if _entropy(secret) < rule.min_entropy or (rule.kind == "assigned" and not _is_mixed(secret)):
            continue
        if rule.kind in _BY_WRITING and any(one in secret for one in told):
            continue
        told.add(secret)
        shown = f"{secret[:4].decode('latin-1')}... ({len(secret)} characters{layer.how})"
        notes.find(f"secret-{rule.kind}", file, layer.line_of(position), detail=shown)
        count += 1
        if count >= _MAX_FINDINGS_PER_RULE:
            return


def _candidates(rule: SecretRule, data: bytes, text: bytes, *, budget: SecretBudget) -> Iterator[tuple[bytes, int]]:
    for keyword in rule.keywords:
        position = text.find(keyword)
        while position >= 0 and budget.tries > 0 and budget.candidates > 0:
            budget.tries -= 1
            match = rule.pattern.match(data, position, position + _WINDOW)
            if match is not None:
                budget.candidates -= 1
                yield match[match.lastindex or 0], position
            position = text.find(keyword, match.end() if match else position + len(keyword))


def _entropy(secret: bytes) -> float:
    counts = Counter(secret).values()
    return -sum(count / len(secret) * math.log2(count / len(secret)) for count in counts)


def _is_mixed(secret: bytes) -> bool:
    """Whether a value looks generated: it has letters and digits."""
    return any(48 <= byte <= 57 for byte in secret) and any(65 <= byte & 0xDF <= 90 for byte in secret)
