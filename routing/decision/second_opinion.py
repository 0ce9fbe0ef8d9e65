"""A second opinion on prompts that no rule is sure about: the tier of an edit, and whether it is a question (issue 20).

Linear models over hashed words and parts of words, trained from this repository's labelled prompts by
`make routing-model`: in plain Python, with a fixed seed, so that the same labels give the same file. Where a rule finds
an order, a defect or a reference, none is asked whether that is a question; debates and commands are never theirs.
"""

from __future__ import annotations

import json
import math
import random
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt, parse_prompt
from routing.prompt.tokens import COMMA, Kind
from routing.prompt.vocabulary import shipped_vocabulary
from routing.queues import Tier

CONFIDENT = 0.75
"""The least probability of an opinion that replaces the default."""
SURE = 0.93
"""The least probability of one that replaces the rule that only saw words of the page (V1-4)."""
ASKING = 0.85
"""The least probability of a question in what no rule finds an order in: an order that is answered is not done."""
DOUBTFUL = 0.15
"""Below this probability of tier 3, a rule that one phrase makes choose it begins lower: a lower tier that cannot do it
hands it on at the price of one call, where a code agent costs a box and minutes.
"""
_FILE = "second_opinion.bin"
_BUCKETS = 1 << 16
_MASK = _BUCKETS - 1
_TIERS = tuple(Tier)
_BEYOND_SPEC = (Tier.PATCH, Tier.AGENT)
_MODES = ("ACTION", "ANSWER")
_ANSWER = _MODES.index("ANSWER")
_CLASSES = (len(_TIERS), len(_MODES))
"""Of the two models, one after the other in the file: the scale of the weights, the bias of each class, the weights."""
_ZERO = 128
_UNSIGNED = bytes((byte + _ZERO) % 256 for byte in range(256))
"""Turns the signed weights of the file into unsigned ones, which `bytes` holds: `_ZERO` weighs nothing."""
_MOST_SAID = 3
_MOST_WORDS = 150
_MOST_WORD_CHARACTERS = 24
_MARKS = ("?", ".")
"""Before a word that is asked or said."""
_OPENING = 3
"""Words at the beginning of a sentence that count together."""
_FEWEST_BEFORE = 3
"""Tokens before a colon after which a wording comes; with fewer it is a heading (`Bug:`)."""
_CONTENT = frozenset({Kind.QUOTE, Kind.CODE, Kind.FENCE, Kind.EMAIL, Kind.URL, Kind.COMMA, Kind.STOP, Kind.QUESTION})
"""What a page says or shows, and punctuation."""
_EPOCHS = 6
_RATE = 0.2
_CLOSE_ENOUGH = 0.03
"""The error of a probability that is not worth another step."""


_Seen = dict[int, tuple[str, list[int]]]
"""What is seen of a prompt, by token: its word, which is the same wherever it stands, and buckets of how it stands."""


class _Linear:
    """The weights of one model."""

    def __init__(self, data: bytes, classes: int) -> None:
        head = struct.Struct(f"<{1 + classes}f")
        self._scale, *self._biases = head.unpack_from(data)
        weights = data[head.size :].translate(_UNSIGNED)
        self._weights = [weights[at * _BUCKETS : (at + 1) * _BUCKETS] + bytes([_ZERO]) for at in range(classes)]
        self._of_word = lru_cache(maxsize=8192)(self._weigh_word)

    def judge(self, seen: _Seen) -> list[float]:
        """Return the probability of each class of a prompt."""
        places = [_BUCKETS, _BUCKETS]  # `itemgetter` wants two at least
        of_words = []
        for word, here in seen.values():
            of_words.append(self._of_word(word))
            places += here
        pick = itemgetter(*places)
        *sums, count = map(sum, zip(*of_words, strict=True)) if of_words else [0] * (len(self._biases) + 1)
        share = self._scale / math.sqrt(count + len(places) - 2 or 1)
        # All classes have the same number of places, so what `_ZERO` adds to each changes no probability.
        return _softmax(
            [
                bias + share * (sum(pick(weights)) + votes)
                for bias, weights, votes in zip(self._biases, self._weights, sums, strict=True)
            ]
        )

    def weightiest(self, seen: _Seen, which: int) -> tuple[int, ...]:
        """Return the tokens that speak most for a class, the weightiest first."""
        weights = self._weights[which]
        votes = sorted(
            (
                (self._of_word(word)[which] + sum(weights[place] - _ZERO for place in places), at)
                for at, (word, places) in seen.items()
            ),
            reverse=True,
        )
        return tuple(at for vote, at in votes[:_MOST_SAID] if vote > 0)

    def _weigh_word(self, word: str) -> tuple[int, ...]:
        """Return the votes of a word for each class, and the number of its features."""
        parts = _parts_of(word).buckets
        return *(sum(weights[part] - _ZERO for part in parts) for weights in self._weights), len(parts)


class Model:
    """The weights of a file that `train` wrote."""

    def __init__(self, data: bytes) -> None:
        sizes = [4 * (1 + classes) + classes * _BUCKETS for classes in _CLASSES]
        if len(data) != sum(sizes):
            raise ValueError(f"a model has {sum(sizes)} bytes, this one {len(data)}")
        self._tiers = _Linear(data[: sizes[0]], _CLASSES[0])
        self._modes = _Linear(data[sizes[0] :], _CLASSES[1])
        self.version = sha256(data).hexdigest()[:12]

    def tier(self, parsed: ParsedPrompt) -> tuple[Tier, float]:
        """Return the tier of a prompt if the page spec does not do, and how probable it is that it does not."""
        spec, *others = self._tiers.judge(_features(parsed))
        return _BEYOND_SPEC[others.index(max(others))], 1 - spec

    def doubts_agent(self, parsed: ParsedPrompt) -> bool:
        """Return whether a prompt hardly needs the code agent, whatever phrase is in it."""
        return self._tiers.judge(_features(parsed))[_TIERS.index(Tier.AGENT)] < DOUBTFUL

    def asks(self, parsed: ParsedPrompt) -> float:
        """Return how probable it is that a prompt is only a question."""
        return self._modes.judge(_mode_features(parsed))[_ANSWER]

    def tier_evidence(self, parsed: ParsedPrompt) -> tuple[int, ...]:
        """Return the tokens that speak most for that tier, the weightiest first."""
        return self._tiers.weightiest(_features(parsed), _TIERS.index(self.tier(parsed)[0]))

    def mode_evidence(self, parsed: ParsedPrompt) -> tuple[int, ...]:
        """Return the tokens that speak most for a question, the weightiest first."""
        return self._modes.weightiest(_mode_features(parsed), _ANSWER)


@cache
def shipped_model() -> Model:
    """Return the model that comes with the package."""
    return Model((resources.files("routing.decision") / _FILE).read_bytes())


def _features(parsed: ParsedPrompt) -> _Seen:
    """Return by token its word, and the buckets of that with those before it and of the rules' phrases there.

    Courtesies, small talk, and wording meant for the page say nothing.
    """
    tokens, copied = parsed.tokens, parsed.copied
    end = len(tokens)
    if COMMA in parsed.kinds:
        end = next((at for at, token in enumerate(tokens) if token.word == ":" and at >= _FEWEST_BEFORE), end)
    words = [
        at
        for sentence, intent in zip(parsed.sentences, parsed.intents, strict=True)
        if intent is not SentenceIntent.CHAT
        for at in range(sentence.first, min(sentence.end, end))
        if tokens[at].kind not in _CONTENT and at not in copied
    ]
    found: _Seen = {}
    one = two = None  # checksums of the last word, and of the last two, each with a blank
    for at in words[:_MOST_WORDS]:
        word = tokens[at].word[:_MOST_WORD_CHARACTERS]
        data, checksum, _ = _parts_of(word)
        places: list[int] = []
        found[at] = word, places
        if two is not None:
            places.append(crc32(data, two) & _MASK)
        if one is not None:
            pair = crc32(data, one)
            places.append(pair & _MASK)
            two = crc32(b" ", pair)
        one = checksum
    meant = parsed.vocabulary.because
    for group, hits in parsed.hits.items():
        if meant[group]:
            found.setdefault(hits[0].first, ("", []))[1].append(_bucket_of_group(group))
    return found


def _mode_features(parsed: ParsedPrompt) -> _Seen:
    """Return the features by token, each word with whether it is asked or said, and how its sentence begins."""
    found = _features(parsed)
    for sentence, intent in zip(parsed.sentences, parsed.intents, strict=True):
        words = [at for at in range(sentence.first, sentence.end) if at in found]
        if not words:
            continue
        mark = "?" if sentence.asks else "."
        opening = crc32(mark.encode())
        for at in words[:_OPENING]:
            word, places = found[at]
            opening = crc32(_parts_of(word).data, opening)
            places.append(opening & _MASK)
        form = f"{mark}{intent}#{min(len(words), 12) // 3}"
        found[words[0]][1].append(crc32(form.encode()) & _MASK)
        for at in words:
            word, places = found[at]
            found[at] = mark + word, places
    return found


@lru_cache(maxsize=512)
def _bucket_of_group(name: str) -> int:
    return crc32(b"@" + name.encode()) & _MASK


class _Parts(NamedTuple):
    """A word as bytes, its checksum with a blank, and the buckets of itself and of three to five bytes of it."""

    data: bytes
    checksum: int
    buckets: tuple[int, ...]


@lru_cache(maxsize=8192)
def _parts_of(word: str) -> _Parts:
    mark = word[:1] if word[:1] in _MARKS else ""
    data = word[len(mark) :].encode()
    if not data:
        return _Parts(data, 0, ())
    padded = b"^" + data + b"$"
    parts = {crc32(padded[at : at + size], size) for size in (3, 4, 5) for at in range(len(padded) - size + 1)}
    marked = (crc32(word.encode()) & _MASK,) if mark else ()
    return _Parts(data, crc32(data + b" "), (crc32(data) & _MASK, *marked, *sorted(part & _MASK for part in parts)))


def _softmax(logits: Sequence[float]) -> list[float]:
    highest = max(logits)
    shares = [math.exp(logit - highest) for logit in logits]
    total = sum(shares)
    return [share / total for share in shares]


def train(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the models of labelled prompts (`route check` samples)."""
    tiers: list[_Row] = []
    modes: list[_Row] = []
    for row in rows:
        parsed, expected = parse_prompt(row["prompt"], shipped_vocabulary()), row["expect"]
        modes.append((_buckets(_mode_features(parsed)), _MODES.index(expected["mode"])))
        if (tier := _tier_that_words_decide(row)) is not None:
            tiers.append((_buckets(_features(parsed)), _TIERS.index(tier)))
    return b"".join(_fit(labelled, classes) for labelled, classes in zip((tiers, modes), _CLASSES, strict=True))


def _buckets(seen: _Seen) -> list[int]:
    return [bucket for word, places in seen.values() for bucket in (*_parts_of(word).buckets, *places)]


_Row = tuple[list[int], int]
"""The features of a prompt and its class."""


def _fit(rows: Sequence[_Row], classes: int) -> bytes:
    """Fit a model by stochastic gradient descent with a rate for each weight (AdaGrad)."""
    weights = [[0.0] * _BUCKETS for _ in range(classes)]
    squares = [[1e-8] * _BUCKETS for _ in range(classes)]
    biases = [0.0] * classes
    order, dice = list(range(len(rows))), random.Random(7)
    for _ in range(_EPOCHS):
        dice.shuffle(order)
        for at in order:
            seen, wanted = rows[at]
            share = 1 / math.sqrt(len(seen) or 1)
            chances = _softmax(
                [bias + share * sum(map(row.__getitem__, seen)) for bias, row in zip(biases, weights, strict=True)]
            )
            for which, chance in enumerate(chances):
                error = chance - (which == wanted)
                if abs(error) < _CLOSE_ENOUGH:
                    continue
                biases[which] -= 0.05 * error
                _step(weights[which], squares[which], seen, error * share)
    return _packed(weights, biases)


def _step(weights: list[float], squares: list[float], seen: Sequence[int], slope: float) -> None:
    square, step, root = slope * slope, _RATE * slope, math.sqrt
    for feature in seen:
        squares[feature] = summed = squares[feature] + square
        weights[feature] -= step / root(summed)


def _packed(weights: Sequence[Sequence[float]], biases: Sequence[float]) -> bytes:
    scale = max(max(map(abs, row)) for row in weights) / 127 or 1.0
    packed = array("b", (round(weight / scale) for row in weights for weight in row))
    return struct.pack(f"<{1 + len(biases)}f", scale, *biases) + packed.tobytes()


def _tier_that_words_decide(row: Mapping[str, Any]) -> Tier | None:
    expected, site = row["expect"], row.get("site")
    is_chosen = row.get("preference") or row.get("advanced_edit")
    if is_chosen or expected["mode"] != "ACTION" or not (expected.get("tier") and site and site["files"]):
        return None
    return Tier(expected["tier"])


def main(paths: Sequence[str]) -> None:
    """Train the shipped models from files of labelled prompts."""
    rows = (json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines())
    (Path(__file__).parent / _FILE).write_bytes(train(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
