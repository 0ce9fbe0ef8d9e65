"""A trained second opinion on a prompt: whether it only asks, mends, is debated, and what an edit needs (issue 20).

Six yes/no questions, each a linear model over hashed words, parts and pairs of words, topics, and what the rules found,
trained by `make routing-model` from those of this repository's labelled prompts that are not held out to measure it: in
plain Python, with a fixed seed, so that the same labels give the same file.
"""

from __future__ import annotations

import json
import math
import random
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from enum import IntEnum
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from routing.decision.topics import topics_of
from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt, parse_prompt
from routing.prompt.tokens import Kind
from routing.prompt.vocabulary import shipped_vocabulary
from routing.queues import Tier


class Asked(IntEnum):
    """What the model is asked of a prompt, in the order of its file."""

    ONLY_ASKS = 0
    BEYOND_SPEC = 1
    """Whether an edit needs more than the page spec."""
    AGENT = 2
    """Whether what the page spec does not do needs a code agent."""
    DEBATED = 3
    HIGH_STAKES = 4
    """Whether the stakes of a debate are high."""
    MENDS = 5
    """Whether something is wrong and shall be put right."""


class Opinion(NamedTuple):
    """How probable each is, from 0 to 1, in the order of `Asked`."""

    only_asks: float
    beyond_spec: float
    agent: float
    debated: float
    high_stakes: float
    mends: float

    def of_tier(self, tier: Tier) -> float:
        """Return how probable it is that an edit needs this tier."""
        if tier is Tier.SPEC:
            return 1 - self.beyond_spec
        return self.beyond_spec * (self.agent if tier is Tier.AGENT else 1 - self.agent)

    @property
    def tier(self) -> Tier:
        """The lowest tier that more probably suffices than not: work that is too much for it is handed up."""
        if self.beyond_spec <= 0.5:
            return Tier.SPEC
        return Tier.AGENT if self.of_tier(Tier.AGENT) > 0.5 else Tier.PATCH


_FILE = "second_opinion.bin"
_BUCKETS = 1 << 18
"""So many that few features share one; most hold nothing, and the file is compressed."""
_MASK = _BUCKETS - 1
_HEAD = struct.Struct("<2f")
"""Of each model, before its weights: their scale, and its bias."""
_SIZE = len(Asked) * (_HEAD.size + _BUCKETS)
_ZERO = 128
_UNSIGNED = bytes((byte + _ZERO) % 256 for byte in range(256))
"""Turns the signed weights of the file into unsigned ones, which `bytes` holds: `_ZERO` weighs nothing."""
_MOST_SAID = 3
_MOST_WORDS = 150
_MOST_WORD_CHARACTERS = 24
_OPENING = 3
_CLOSING = 2
"""Words at the beginning and at the end of a sentence that count together."""
_WHOLE = -1
"""The place of what is seen of the prompt as a whole."""
_CONTENT = frozenset(Kind) - {Kind.WORD, Kind.COMMA, Kind.STOP, Kind.QUESTION}
"""What counts by its kind and not by its letters."""
_MANY_FILES = (1, 15, 40)
"""Bounds of the sizes of a site, in files: none yet, a small business's, a project's."""
_ALIKE = frozenset({"spelled", "spelled_twice", "no_slip", "small_talk", "tongue", "filler"})
"""Word lists whose words have nothing else in common."""
_TOPIC_COUNTS = 2
"""Times that a topic of the prompt counts: there are few, and they say more than any word."""
_EPOCHS = 12
_RATE = 0.25
_CLOSE_ENOUGH = 0.03
"""The error of a probability that is not worth another step."""


class Site(NamedTuple):
    """What counts of a site."""

    files: int
    has_build: bool


_Seen = dict[int, tuple[str, list[int]]]
"""What is seen of a prompt, by token: its word with the mark of its sentence, and buckets of how it stands."""


class Model:
    """The weights that `train` returns."""

    def __init__(self, data: bytes) -> None:
        if len(data) != _SIZE:
            raise ValueError(f"a model has {_SIZE} bytes, this one {len(data)}")
        parts = [data[at : at + _HEAD.size + _BUCKETS] for at in range(0, _SIZE, _HEAD.size + _BUCKETS)]
        self._heads = [_HEAD.unpack_from(part) for part in parts]
        self._weights = [part[_HEAD.size :].translate(_UNSIGNED) + bytes([_ZERO]) for part in parts]
        self._of_word = lru_cache(maxsize=8192)(self._weigh_word)
        self.version = sha256(data).hexdigest()[:12]

    def read(self, parsed: ParsedPrompt, site: Site | None, *, alone: int | None = None) -> Opinion:
        """Return the opinion on a prompt, or on one sentence of it as if it stood alone."""
        places = [_BUCKETS, _BUCKETS]  # `itemgetter` wants two at least
        words = []
        for word, here in _see(parsed, site, alone=alone).values():
            places += here
            words.append(self._of_word(word))
        *votes, count = map(sum, zip(*words, strict=True))
        share, nothing = 1 / math.sqrt(count + len(places) - 2), _ZERO * len(places)
        pick = itemgetter(*places)
        return Opinion(
            *(
                _chance(bias + scale * share * (sum(pick(weights)) - nothing + vote))
                for (scale, bias), weights, vote in zip(self._heads, self._weights, votes, strict=True)
            )
        )

    def evidence(
        self, parsed: ParsedPrompt, site: Site | None, asked: Asked, *, against: bool = False
    ) -> tuple[int, ...]:
        """Return the tokens that speak most for a yes, or against it, the weightiest first."""
        weights, sign = self._weights[asked], -1 if against else 1
        votes = sorted(
            (
                (sign * (self._of_word(word)[asked] + sum(weights[place] - _ZERO for place in places)), at)
                for at, (word, places) in _see(parsed, site).items()
                if at != _WHOLE
            ),
            reverse=True,
        )
        return tuple(at for vote, at in votes[:_MOST_SAID] if vote > 0)

    def _weigh_word(self, word: str) -> tuple[int, ...]:
        """Return the votes of a word on each question, and the number of its features."""
        parts = _parts_of(word).buckets
        return *(sum(weights[part] - _ZERO for part in parts) for weights in self._weights), len(parts)


@cache
def shipped_model() -> Model:
    """Return the model that comes with the package."""
    return Model(zlib.decompress((resources.files("routing.decision") / _FILE).read_bytes()))


# --- what is seen of a prompt ----------------------------------------------------------------------------------------


def _see(parsed: ParsedPrompt, site: Site | None, *, alone: int | None = None) -> _Seen:
    """Return what counts of a prompt; courtesies, small talk and wording meant for the page do not."""
    if alone is not None:
        parsed = _only(parsed, alone)
    seen: _Seen = {_WHOLE: ("", [*_of_whole(frozenset(parsed.intents), parsed.kinds, site)])}
    tokens, copied, polite = parsed.tokens, parsed.copied, _polite()
    told = [pair for pair in zip(parsed.sentences, parsed.intents, strict=True) if pair[1] is not SentenceIntent.CHAT]
    last = len(told) - 1
    topics: set[str] = set()
    for number, (sentence, intent) in enumerate(told):
        said = [at for at in range(sentence.first, sentence.end) if at not in copied and tokens[at].word not in polite]
        if not said:
            continue
        if len(seen) > _MOST_WORDS:
            break
        mark = "?" if sentence.asks else "."
        parts = []
        for at in said:
            token = tokens[at]
            word = mark + (token.word[:_MOST_WORD_CHARACTERS] if token.kind not in _CONTENT else f"<{token.kind}>")
            found = _parts_of(word)
            parts.append(found)
            topics |= found.topics
            seen[at] = word, []
        _add_pairs(seen, said, parts)
        _add_ends(seen, said, parts, mark)
        where = "last" if number == last else "first" if number == 0 else "inside"
        seen[said[0]][1].extend(_of_sentence(mark, where, intent, min(len(said), 20) // 4))
    for group, hits in parsed.hits.items():
        here = next((hit.first for hit in hits if hit.first in seen), None)
        if here is not None:
            seen[here][1].append(_bucket_of_group(group))
    for topic in sorted(topics):
        seen[_WHOLE][1].extend(_of_topic(topic, parsed.kinds & _CONTENT, site is not None and site.has_build))
    return seen


def _only(parsed: ParsedPrompt, number: int) -> ParsedPrompt:
    """Return a prompt without its other sentences."""
    sentence = parsed.sentences[number]
    hits = {group: found for group in parsed.hits if (found := parsed.hits_in(group, sentence))}
    kinds = frozenset(token.kind for token in parsed.tokens[sentence.first : sentence.end])
    return replace(parsed, sentences=(sentence,), intents=(parsed.intents[number],), hits=hits, kinds=kinds)


def _add_pairs(seen: _Seen, said: Sequence[int], parts: Sequence[_Parts]) -> None:
    """Add each word with the one and the two before it, and the end of the sentence."""
    one, two = _BEGINNING, 0
    for at, (data, checksum, *_) in zip(said, parts, strict=True):
        pair = crc32(data, one)
        places = seen[at][1]
        places.append(pair & _MASK)
        if two:
            places.append(crc32(data, two) & _MASK)
        one, two = checksum, crc32(b" ", pair)
    seen[said[-1]][1].extend((crc32(b"$", one) & _MASK, crc32(b"$", two) & _MASK))


def _add_ends(seen: _Seen, said: Sequence[int], parts: Sequence[_Parts], mark: str) -> None:
    """Add the first and the last words of a sentence together."""
    opening, closing = _OPENED[mark], _CLOSED[mark]
    for at, part in zip(said[:_OPENING], parts, strict=False):
        opening = crc32(part.data, opening)
        seen[at][1].append(opening & _MASK)
    for back in range(1, min(_CLOSING, len(said)) + 1):
        closing = crc32(parts[-back].data, closing)
        seen[said[-back]][1].append(closing & _MASK)


_BEGINNING = crc32(b"^ ")
_OPENED = {mark: crc32(f"{mark}^".encode()) for mark in "?."}
_CLOSED = {mark: crc32(f"{mark}$".encode()) for mark in "?."}


@lru_cache(maxsize=512)
def _of_sentence(mark: str, where: str, intent: str, length: int) -> tuple[int, ...]:
    forms = (where + mark, f"{mark}{length}", f"{mark}{intent}#{length}", f"{intent}#{where}")
    return tuple(crc32(form.encode()) & _MASK for form in forms)


@lru_cache(maxsize=2048)
def _of_whole(intents: frozenset[SentenceIntent], kinds: frozenset[Kind], site: Site | None) -> tuple[int, ...]:
    letters = "".join(sorted({intent[0] for intent in intents if intent is not SentenceIntent.CHAT}))
    found = [f"intents {letters}", *(f"kind {kind}" for kind in kinds & _CONTENT)]
    if site is not None:
        found += (f"size {sum(site.files >= bound for bound in _MANY_FILES)}", f"build {site.has_build}")
    return tuple(map(_bucket, found))


@lru_cache(maxsize=2048)
def _of_topic(topic: str, kinds: frozenset[Kind], has_build: bool) -> tuple[int, ...]:
    beside = (f"about {topic} {kind}" for kind in sorted(kinds))
    return (*map(_bucket, (f"about {topic}", f"about {topic} {has_build}", *beside)),) * _TOPIC_COUNTS


@cache
def _polite() -> frozenset[str]:
    words = shipped_vocabulary().words
    return words["courtesy"] | words["politeness"] | words["gratitude"] | words["greeting"] | {","}


@lru_cache(maxsize=1024)
def _bucket(name: str) -> int:
    return crc32(name.encode()) & _MASK


@lru_cache(maxsize=512)
def _bucket_of_group(name: str) -> int:
    return _bucket(f"@{name}")


class _Parts(NamedTuple):
    """A word as bytes, its checksum with a blank, its topics, and the buckets of all that is seen of it."""

    data: bytes
    checksum: int
    topics: frozenset[str]
    buckets: tuple[int, ...]


@lru_cache(maxsize=8192)
def _parts_of(marked: str) -> _Parts:
    word = marked[1:]
    data = word.encode()
    if not data:
        return _Parts(data, 0, frozenset(), ())
    found = [crc32(data), crc32(marked.encode())]
    if not word.startswith("<"):
        padded = b"^" + data + b"$"
        found += {crc32(padded[at : at + size], size) for size in (3, 4, 5) for at in range(len(padded) - size + 1)}
    lists = shipped_vocabulary().words
    found += [crc32(f"list {name}".encode()) for name, words in lists.items() if word in words and name not in _ALIKE]
    topics = topics_of(word)
    found += [crc32(f"about {marked[0]}{topic}".encode()) for topic in topics]
    return _Parts(data, crc32(data + b" "), topics, tuple(sorted(bucket & _MASK for bucket in found)))


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-max(min(logit, 30.0), -30.0)))


# --- training --------------------------------------------------------------------------------------------------------


def trained_on(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the labelled prompts of files that are not held out."""
    for file in files:
        rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        yield from (row for row in rows if row.get("split") != "held")


def train(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the models of labelled prompts (`route check` samples)."""
    labelled: list[list[_Row]] = [[] for _ in Asked]
    for row in rows:
        site = row.get("site")
        signals = Site(site["files"], site["has_build"]) if site else None
        seen = _see(parse_prompt(row["prompt"], shipped_vocabulary()), signals)
        buckets = [bucket for word, places in seen.values() for bucket in (*_parts_of(word).buckets, *places)]
        for asked, answer in _answers(row):
            labelled[asked].append((buckets, answer, row.get("weight", 1)))
    with ProcessPoolExecutor() as pool:
        return b"".join(pool.map(_fit, labelled))


_Row = tuple[list[int], bool, int]
"""The features of a prompt, whether the answer is yes, and how many times it counts."""


def _answers(row: Mapping[str, Any]) -> Iterator[tuple[Asked, bool]]:
    """Yield what the label of a prompt answers; nothing that more than its words decided, or that it leaves open."""
    expected, site = row["expect"], row.get("site")
    if "also_mode" not in expected:
        yield Asked.ONLY_ASKS, expected["mode"] == "ANSWER"
    if expected["mode"] != "ACTION":
        return
    if "intent" in expected and "also_intent" not in expected:
        yield Asked.MENDS, expected["intent"] == "fix"
    if "debate" in expected:
        debates = (expected, *expected.get("also_debate", ()))
        is_debated = expected["debate"] == "planning"
        if len({each["debate"] for each in debates}) == 1:
            yield Asked.DEBATED, is_debated
        if is_debated and len({each["stakes"] for each in debates}) == 1:
            yield Asked.HIGH_STAKES, expected["stakes"] == "high"
    tier = expected.get("tier")
    if tier and site and not (row.get("preference") or row.get("advanced_edit")):
        yield Asked.BEYOND_SPEC, tier > Tier.SPEC
        if tier > Tier.SPEC:
            yield Asked.AGENT, tier == Tier.AGENT


def _fit(rows: Sequence[_Row]) -> bytes:
    """Fit a model by stochastic gradient descent with a rate for each weight (AdaGrad)."""
    weights, squares, bias = [0.0] * (_BUCKETS + 1), [1e-8] * _BUCKETS, 0.0
    order, dice, root = list(range(len(rows))), random.Random(5), math.sqrt
    picks = [itemgetter(*seen, _BUCKETS) for seen, *_ in rows]  # it wants two at least; the last weight stays 0
    for _ in range(_EPOCHS):
        dice.shuffle(order)
        for at in order:
            seen, answer, weight = rows[at]
            share = 1 / root(len(seen))
            error = _chance(bias + share * sum(picks[at](weights))) - answer
            if abs(error) < _CLOSE_ENOUGH:
                continue
            error *= weight
            bias -= 0.05 * error
            slope = error * share
            square, step = slope * slope, _RATE * slope
            for feature in seen:
                squares[feature] = summed = squares[feature] + square
                weights[feature] -= step / root(summed)
    scale = max(map(abs, weights)) / 127 or 1.0
    return _HEAD.pack(scale, bias) + array("b", (round(weight / scale) for weight in weights[:-1])).tobytes()


def main(paths: Sequence[str]) -> None:
    """Train the shipped models from files of labelled prompts."""
    (Path(__file__).parent / _FILE).write_bytes(zlib.compress(train(trained_on(map(Path, paths))), 9))


if __name__ == "__main__":
    main(sys.argv[1:])
