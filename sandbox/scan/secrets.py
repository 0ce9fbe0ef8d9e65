"""Finds keys and tokens in every file, also where they are encoded (threat G10).

No comment in a file can silence it, and no file name: a scanner that an author can switch off is a suggestion. What it
says about a secret never holds the secret.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from sandbox.scan.notes import Notes
from sandbox.scan.secret_rules import SECRET_RULES, SecretRule

MAX_ESCAPES = 300_000
MAX_BASE64_RUNS = 100_000
MAX_TRIES = 200_000
MAX_CANDIDATES = 4_000
_MAX_FINDINGS_PER_RULE = 20
_WINDOW = 2_200
_MIN_KNOWN_KEY_CHARS = 8
_BASE64_DEPTH = 2

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_ENTITY = re.compile(rb"&#(?:([0-9]{1,7})|[xX]([0-9A-Fa-f]{1,6}));?")
_BACKSLASH = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|u00([0-9A-Fa-f]{2})|u\{0{0,8}([0-9A-Fa-f]{2})\})")
_JOIN = re.compile(rb"[\"'`]\s{0,200}+\+\s{0,200}+[\"'`]")
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/_-]{24,}")
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_NEWLINES_TO_SPACES = bytes.maketrans(b"\n", b" ")


@dataclass
class SecretBudget:
    """How much one scan still decodes and tries; what is left over is a finding, never a pass."""

    escapes: int = MAX_ESCAPES
    base64_runs: int = MAX_BASE64_RUNS
    tries: int = MAX_TRIES
    """Places where a keyword stands."""
    candidates: int = MAX_CANDIDATES
    """Places where a pattern matches."""


@dataclass(frozen=True)
class _Layer:
    """A file's bytes, or what they decode to; every line of it leads to a line of the file."""

    data: bytes
    how: str = ""
    lines: tuple[int, ...] = ()
    """For decoded base64, the file's line of each line; empty when lines are the file's own."""

    def line_of(self, offset: int) -> int:
        line = self.data.count(b"\n", 0, offset)
        return self.lines[line] if line < len(self.lines) else line + 1


def find_secrets(
    file: str, data: bytes, *, notes: Notes, budget: SecretBudget, known_keys: tuple[str, ...] = ()
) -> None:
    """Record every secret of a file."""
    needles = [needle for key in known_keys if len(key) >= _MIN_KNOWN_KEY_CHARS for needle in _needles(key)]
    for layer in _layers(file, data, notes=notes, budget=budget):
        for needle in needles:
            if (offset := layer.data.find(needle)) >= 0:
                notes.find("known-key", file, layer.line_of(offset))
        lowered = layer.data.lower()
        for rule in SECRET_RULES:
            _apply(rule, layer, lowered=lowered, file=file, notes=notes, budget=budget)
    if min(budget.tries, budget.candidates) <= 0:
        notes.find("too-much-encoding", file, 0)


def _needles(key: str) -> Iterator[bytes]:
    """Return what a key looks like plain, in hex, and inside any base64 text."""
    raw = key.encode()
    yield raw
    yield raw.hex().encode()
    for shift in range(3):
        encoded = b64encode(b"\0" * shift + raw)
        # The first and the last characters also depend on the bytes around the key.
        inner = encoded[(0, 2, 3)[shift] : len(encoded) - 4 if (len(raw) + shift) % 3 else len(encoded)]
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))


def _apply(rule: SecretRule, layer: _Layer, *, lowered: bytes, file: str, notes: Notes, budget: SecretBudget) -> None:
    count = 0
    for secret, position in _candidates(rule, layer.data, lowered if rule.ignore_case else layer.data, budget=budget):
        if _entropy(secret) < rule.min_entropy or (rule.kind == "assigned" and not _is_mixed(secret)):
            continue
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
            found = rule.pattern.match(data, position, position + _WINDOW)
            if found is not None:
                budget.candidates -= 1
                yield found[found.lastindex or 0], position
            position = text.find(keyword, found.end() if found else position + len(keyword))


def _entropy(secret: bytes) -> float:
    counts = Counter(secret).values()
    return -sum(count / len(secret) * math.log2(count / len(secret)) for count in counts)


def _is_mixed(secret: bytes) -> bool:
    """Return whether a value looks made by a machine: it has both letters and digits."""
    return any(48 <= byte <= 57 for byte in secret) and any(65 <= byte & 0xDF <= 90 for byte in secret)


def _layers(file: str, data: bytes, *, notes: Notes, budget: SecretBudget) -> Iterator[_Layer]:
    plain = data.replace(b"\0", b"") if b"\0" in data else data  # UTF-16, among others
    yield _Layer(data)
    if plain is not data:
        yield _Layer(plain, ", spread out")
    decoded = _decode_escapes(file, plain, notes=notes, budget=budget)
    if decoded != plain:
        yield _Layer(decoded, ", escaped")
    layer: _Layer | None = _Layer(decoded)
    for _ in range(_BASE64_DEPTH):
        layer = layer and _decode_base64(file, layer, notes=notes, budget=budget)
        if layer:
            yield layer


def _decode_escapes(file: str, data: bytes, *, notes: Notes, budget: SecretBudget) -> bytes:
    for mark, pattern in ((b"%", _PERCENT), (b"&#", _ENTITY), (b"\\", _BACKSLASH)):
        escapes = data.count(mark)
        if not escapes:
            continue
        if escapes > budget.escapes:
            notes.find("too-much-encoding", file, 0, detail=mark.decode())
            continue
        budget.escapes -= escapes
        data = pattern.sub(_decode_one, data)
    return _JOIN.sub(b"", data) if b"+" in data else data


def _decode_one(match: re.Match[bytes]) -> bytes:
    is_decimal = match.re is _ENTITY and match.lastindex == 1
    code = int(match[match.lastindex or 0], 10 if is_decimal else 16)
    if code > 0x7F:  # keys are ASCII
        return match[0]
    return b" " if code == 0x0A else bytes((code,))  # line numbers must stay


def _decode_base64(file: str, layer: _Layer, *, notes: Notes, budget: SecretBudget) -> _Layer | None:
    pieces: list[bytes] = []
    offsets: list[int] = []
    for match in _BASE64_RUN.finditer(layer.data):
        budget.base64_runs -= 1
        if budget.base64_runs < 0:
            notes.find("too-much-encoding", file, 0, detail="base64")
            break
        run = match[0].translate(_TO_STANDARD)
        run = run[: len(run) - (len(run) % 4 == 1)]
        pieces.append(b64decode(run + b"=" * (-len(run) % 4)).translate(_NEWLINES_TO_SPACES))
        offsets.append(match.start())
    if not pieces:
        return None
    ends = list(accumulate(len(line) + 1 for line in layer.data.split(b"\n")))
    lines = (bisect_right(ends, offset) for offset in offsets)
    return _Layer(
        b"\n".join(pieces),
        ", in base64",
        tuple(layer.lines[line] if line < len(layer.lines) else line + 1 for line in lines),
    )
