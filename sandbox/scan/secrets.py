"""Finds keys and tokens in every file, also where they are encoded (threat G10).

No comment in a file can silence it, and no file name: a scanner that an author can switch off is a suggestion. What it
says about a secret never holds the secret.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandbox.scan.notes import Notes
from sandbox.scan.secret_layers import Layer, LayerBudget, layers
from sandbox.scan.secret_rules import SECRET_RULES, SecretRule

MAX_TRIES = 200_000
MAX_CANDIDATES = 4_000
_MAX_FINDINGS_PER_RULE = 20
_WINDOW = 2_200
_MIN_KNOWN_KEY_CHARS = 8


@dataclass
class SecretBudget:
    """How much one scan still decodes and tries; what is left over is a finding, never a pass."""

    layers: LayerBudget = field(default_factory=LayerBudget)
    tries: int = MAX_TRIES
    """Places where a keyword stands."""
    candidates: int = MAX_CANDIDATES
    """Places where a pattern matches."""


def find_secrets(
    file: str, data: bytes, *, notes: Notes, budget: SecretBudget, known_keys: tuple[str, ...] = ()
) -> None:
    """Record every secret of a file."""
    needles = [needle for key in known_keys if len(key) >= _MIN_KNOWN_KEY_CHARS for needle in _needles(key)]

    def give_up(what: str) -> None:
        notes.find("too-much-encoding", file, 0, detail=what)

    for layer in layers(file, data, budget=budget.layers, give_up=give_up):
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


def _apply(rule: SecretRule, layer: Layer, *, lowered: bytes, file: str, notes: Notes, budget: SecretBudget) -> None:
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
