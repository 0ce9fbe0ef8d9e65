"""A trained second opinion on a prompt: whether it only asks, mends, is debated, and what an edit needs (issue 20).

Six yes/no questions, each a linear model over hashed words, parts and pairs of words, topics, and what the rules found.
A seventh decides what an edit needs: it weighs two of them with the rule that matched and the size of the site.
`routing.decision.training` makes them all.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

from routing.decision.topics import topics_of
from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt
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


FILE = "second_opinion.bin"
BUCKETS = 1 << 19
"""So many that few features share one; most hold nothing, and the file is compressed."""
_MASK = BUCKETS - 1
HEAD = struct.Struct("<2f")
"""Of each model, before its weights: their scale, and its bias."""
SIZE = len(Asked) * (HEAD.size + BUCKETS)
"""Bytes of the six models; the weights of the seventh follow as JSON, beside the digest of the labels."""
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


class Site(NamedTuple):
    """What counts of a site."""

    files: int
    has_build: bool


_Seen = dict[int, tuple[str, list[int]]]
"""What is seen of a prompt, by token: its word with the mark of its sentence, and buckets of how it stands."""


class Model:
    """The weights that `train` returns."""

    def __init__(self, data: bytes) -> None:
        if len(data) <= SIZE:
            raise ValueError(f"a model has more than {SIZE} bytes, this one {len(data)}")
        parts = [data[at : at + HEAD.size + BUCKETS] for at in range(0, SIZE, HEAD.size + BUCKETS)]
        self._tiers: Mapping[str, Sequence[float]] = json.loads(data[SIZE:])["tiers"]
        self._heads = [HEAD.unpack_from(part) for part in parts]
        self._weights = [part[HEAD.size :].translate(_UNSIGNED) + bytes([_ZERO]) for part in parts]
        self._of_word = lru_cache(maxsize=8192)(self._weigh_word)
        self.version = sha256(data).hexdigest()[:12]

    def read(self, parsed: ParsedPrompt, site: Site | None, *, alone: int | None = None) -> Opinion:
        """Return the opinion on a prompt, or on one sentence of it as if it stood alone."""
        places = [BUCKETS, BUCKETS]  # `itemgetter` wants two at least
        words = []
        for word, here in see(parsed, site, alone=alone).values():
            places += here
            words.append(self._of_word(word))
        *votes, count = map(sum, zip(*words, strict=True))
        share, nothing = 1 / math.sqrt(count + len(places) - 2), _ZERO * len(places)
        pick = itemgetter(*places)
        return Opinion(
            *(
                chance(bias + scale * share * (sum(pick(weights)) - nothing + vote))
                for (scale, bias), weights, vote in zip(self._heads, self._weights, votes, strict=True)
            )
        )

    def chances(self, opinion: Opinion, *, rule: str, site: Site) -> dict[Tier, float]:
        """Return how probable it is that an edit needs each tier, where this rule matched."""
        given = seen_of_tier(opinion.beyond_spec, opinion.agent, rule=rule, site=site)
        return dict(zip(Tier, softmax(given, self._tiers), strict=True))

    def evidence(
        self, parsed: ParsedPrompt, site: Site | None, asked: Asked, *, against: bool = False
    ) -> tuple[int, ...]:
        """Return the tokens that speak most for a yes, or against it, the weightiest first."""
        weights, sign = self._weights[asked], -1 if against else 1
        votes = sorted(
            (
                (sign * (self._of_word(word)[asked] + sum(weights[place] - _ZERO for place in places)), at)
                for at, (word, places) in see(parsed, site).items()
                if at != _WHOLE
            ),
            reverse=True,
        )
        return tuple(at for vote, at in votes[:_MOST_SAID] if vote > 0)

    def _weigh_word(self, word: str) -> tuple[int, ...]:
        """Return the votes of a word on each question, and the number of its features."""
        parts = parts_of(word).buckets
        return *(sum(weights[part] - _ZERO for part in parts) for weights in self._weights), len(parts)


@cache
def shipped_model() -> Model:
    """Return the model that comes with the package."""
    return Model(zlib.decompress((resources.files("routing.decision") / FILE).read_bytes()))


# --- what is seen of a prompt ----------------------------------------------------------------------------------------


def see(parsed: ParsedPrompt, site: Site | None, *, alone: int | None = None) -> _Seen:
    """Return what the models see of a prompt, without courtesies, small talk and text meant for the page."""
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
            found = parts_of(word)
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
def parts_of(marked: str) -> _Parts:
    """Return what is seen of a word, which begins with the mark of its sentence."""
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


def chance(logit: float) -> float:
    """Return a probability."""
    return 1 / (1 + math.exp(-max(min(logit, 30.0), -30.0)))


def seen_of_tier(beyond_spec: float, agent: float, *, rule: str, site: Site) -> dict[str, float]:
    """Return what the seventh model weighs: probabilities as logits, the group of the rule that matched, the site."""
    return {
        "always": 1.0,
        "beyond_spec": _logit(beyond_spec),
        "agent": _logit(agent),
        f"rule {rule}": 1.0,
        "is_new": float(site.files == 0),
        "has_build": float(site.has_build),
        "files": math.log1p(site.files),
    }


def softmax(given: Mapping[str, float], weights: Mapping[str, Sequence[float]]) -> list[float]:
    """Return how probable each class is."""
    rows = [(value, weights[name]) for name, value in given.items() if name in weights]
    powers = [math.exp(sum(value * each[at] for value, each in rows)) for at in range(len(Tier))]
    return [power / sum(powers) for power in powers]


def _logit(probability: float) -> float:
    bounded = min(max(probability, 1e-4), 1 - 1e-4)
    return math.log(bounded / (1 - bounded))
