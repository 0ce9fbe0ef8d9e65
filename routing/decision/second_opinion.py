"""A second opinion on the tier of an edit, for prompts that no rule is sure about (issue 20).

A linear model over hashed words and parts of words, trained from this repository's labelled prompts by
`make routing-model`: in plain Python, with a fixed seed, so that the same labels give the same file. It chooses a tier
and nothing else: whether something is a question, a debate or a command is never its business.
"""

from __future__ import annotations

import json
import math
import random
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt, parse_prompt
from routing.prompt.tokens import Kind
from routing.prompt.vocabulary import shipped_vocabulary
from routing.queues import Tier

CONFIDENT = 0.7
"""The least probability of an opinion that replaces the default."""
SURE = 0.9
"""The least probability of one that replaces the rule that only saw words of the page (V1-4)."""
_FILE = "second_opinion.bin"
_BUCKETS = 1 << 16
_MASK = _BUCKETS - 1
_HEAD = struct.Struct("<4f")
"""The scale of the weights, then the bias of each tier."""
_TIERS = tuple(Tier)
_MOST_WORDS = 150
_MOST_WORD_CHARACTERS = 24
_FEWEST_BEFORE = 3
"""Tokens before a colon after which a wording comes; with fewer it is a heading (`Bug:`)."""
_CONTENT = frozenset({Kind.QUOTE, Kind.CODE, Kind.FENCE, Kind.EMAIL, Kind.URL, Kind.COMMA, Kind.STOP, Kind.QUESTION})
"""What a page says or shows, and punctuation."""
_EPOCHS = 6
_RATE = 0.2
_CLOSE_ENOUGH = 0.01
"""The error of a probability that is not worth another step."""


class Opinion(NamedTuple):
    """What the model thinks."""

    tier: Tier
    probability: float
    said: tuple[int, ...]
    """The tokens that speak most for it, the weightiest first."""


class Model:
    """The weights of a file that `train` wrote."""

    def __init__(self, data: bytes) -> None:
        scale, *self._biases = _HEAD.unpack_from(data)
        weights = array("b", data[_HEAD.size :])
        if len(weights) != _BUCKETS * len(_TIERS):
            raise ValueError(f"a model has {_BUCKETS * len(_TIERS)} weights, this one {len(weights)}")
        self._scale = scale
        self._weights = [weights[at * _BUCKETS : (at + 1) * _BUCKETS] for at in range(len(_TIERS))]
        self.version = sha256(data).hexdigest()[:12]

    def judge(self, parsed: ParsedPrompt) -> Opinion:
        """Return the likeliest tier of a prompt."""
        parts = list(_features(parsed))
        seen = {feature for _, features in parts for feature in features}
        share = self._scale / math.sqrt(len(seen) or 1)
        logits = [
            bias + share * sum(map(weights.__getitem__, seen))
            for bias, weights in zip(self._biases, self._weights, strict=True)
        ]
        chances = _softmax(logits)
        best = max(range(len(_TIERS)), key=chances.__getitem__)
        weights = self._weights[best]
        votes = sorted(((sum(map(weights.__getitem__, features)), at) for at, features in parts), reverse=True)
        return Opinion(_TIERS[best], chances[best], tuple(at for vote, at in votes[:3] if vote > 0))


@cache
def shipped_model() -> Model:
    """Return the model that comes with the package."""
    return Model((resources.files("routing.decision") / _FILE).read_bytes())


def _features(parsed: ParsedPrompt) -> Iterator[tuple[int, list[int]]]:
    """Yield each token that says what is wanted, with the buckets of its word, with those before it, and of its parts.

    Courtesies, small talk, and wording meant for the page say nothing.
    """
    colon = next((at for at, token in enumerate(parsed.tokens) if token.word == ":" and at >= _FEWEST_BEFORE), None)
    words = [
        at
        for sentence, intent in zip(parsed.sentences, parsed.intents, strict=True)
        if intent is not SentenceIntent.CHAT
        for at in range(sentence.first, min(sentence.end, colon or sentence.end))
        if at not in parsed.copied and parsed.tokens[at].kind not in _CONTENT
    ]
    before: tuple[bytes, ...] = ()
    for at in words[:_MOST_WORDS]:
        data, parts = _parts_of(parsed.tokens[at].word[:_MOST_WORD_CHARACTERS])
        features = [crc32(b" ".join((*before[start:], data))) & _MASK for start in range(len(before))]
        yield at, [*parts, *features]
        before = (*before[-1:], data)


@lru_cache(maxsize=4096)
def _parts_of(word: str) -> tuple[bytes, tuple[int, ...]]:
    """Return a word as bytes, and the buckets of itself and of three to five bytes of it."""
    data = word.encode()
    padded = b"^" + data + b"$"
    parts = (crc32(padded[at : at + size], size) for size in (3, 4, 5) for at in range(len(padded) - size + 1))
    return data, (crc32(data) & _MASK, *(part & _MASK for part in parts))


def _softmax(logits: Sequence[float]) -> list[float]:
    highest = max(logits)
    shares = [math.exp(logit - highest) for logit in logits]
    total = sum(shares)
    return [share / total for share in shares]


def train(labelled: Iterable[tuple[ParsedPrompt, Tier]]) -> bytes:
    """Return a model of labelled prompts: stochastic gradient descent with a rate for each weight (AdaGrad)."""
    rows = [
        (sorted({feature for _, features in _features(parsed) for feature in features}), _TIERS.index(tier))
        for parsed, tier in labelled
    ]
    weights = [[0.0] * _BUCKETS for _ in _TIERS]
    squares = [[1e-8] * _BUCKETS for _ in _TIERS]
    biases = [0.0] * len(_TIERS)
    order, dice = list(range(len(rows))), random.Random(7)
    for _ in range(_EPOCHS):
        dice.shuffle(order)
        for at in order:
            seen, wanted = rows[at]
            share = 1 / math.sqrt(len(seen) or 1)
            chances = _softmax(
                [bias + share * sum(map(row.__getitem__, seen)) for bias, row in zip(biases, weights, strict=True)]
            )
            for tier, chance in enumerate(chances):
                error = chance - (tier == wanted)
                if abs(error) < _CLOSE_ENOUGH:
                    continue
                biases[tier] -= 0.05 * error
                _step(weights[tier], squares[tier], seen, error * share)
    return _packed(weights, biases)


def _step(weights: list[float], squares: list[float], seen: Sequence[int], slope: float) -> None:
    for feature in seen:
        squares[feature] += slope * slope
        weights[feature] -= _RATE * slope / math.sqrt(squares[feature])


def _packed(weights: Sequence[Sequence[float]], biases: Sequence[float]) -> bytes:
    scale = max(max(map(abs, row)) for row in weights) / 127 or 1.0
    packed = array("b", (round(weight / scale) for row in weights for weight in row))
    return _HEAD.pack(scale, *biases) + packed.tobytes()


def labelled_tiers(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[ParsedPrompt, Tier]]:
    """Yield the prompts of `route check` samples whose tier the words alone decide."""
    for row in rows:
        expected, site = row["expect"], row.get("site")
        is_chosen = row.get("preference") or row.get("advanced_edit")
        if not is_chosen and expected["mode"] == "ACTION" and expected.get("tier") and site and site["files"]:
            yield parse_prompt(row["prompt"], shipped_vocabulary()), Tier(expected["tier"])


def main(paths: Sequence[str]) -> None:
    """Train the shipped model from files of labelled prompts."""
    rows = (json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines())
    (Path(__file__).parent / _FILE).write_bytes(train(labelled_tiers(rows)))


if __name__ == "__main__":
    main(sys.argv[1:])
