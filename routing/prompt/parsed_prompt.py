"""One reading of a prompt for all rules: its phrases, its orders, and what each sentence does.

Mode, tier and debate rest on the same reading, so that a word counts as an order for all of them or for none. Wording
that is to appear on the page (`change the heading to ...`, `titled ...`) is set aside like a quotation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from routing.prompt.intents import CONJUNCTIONS, Act, ActReader, Sentence
from routing.prompt.tokens import Kind, Text, Token, canonicalise, is_reference
from routing.prompt.vocabulary import Hit, Vocabulary, union

# Slips of the keyboard in the words that decide: `chnage`, `delet` and `buton` are read as what they stand for.
#
# Only two letters swapped, one left out, one doubled or one of a pair left out count as slips, and two of them in a
# long
# word. A letter that stands for another never does: `remote` is no `remove`.

_SHORTEST_WITH_A_GAP = 6
"""Letters of a word from which it is still known when one is missing: `tile` is no `title`."""
_SHORTEST_WITH_TWO = 8
"""Letters of a word from which it is still known with two slips: `dissapears`."""


def respelled(
    tokens: tuple[Token, ...], words: frozenset[str], others: frozenset[str], *, twice: frozenset[str] = frozenset()
) -> tuple[Token, ...]:
    """Return the tokens with slips in any of these words put right; places in the text stay as they are.

    Args:
        tokens: of a text.
        words: whose slips are put right.
        others: all other words that are known to be right (`selling` is no `spelling`).
        twice: those of the words whose slips are put right two at a time though they are short.
    """
    meant = _slips(words, others, twice)
    if meant.keys().isdisjoint([token.word for token in tokens]):
        return tokens
    return tuple(
        token._replace(word=meant[token.word]) if token.kind is Kind.WORD and token.word in meant else token
        for token in tokens
    )


@lru_cache(maxsize=8)
def _slips(words: frozenset[str], others: frozenset[str], twice: frozenset[str]) -> dict[str, str]:
    """Return what each slip stands for. One that could stand for two words stands for none."""
    found: dict[str, str] = {}
    doubtful: set[str] = set()
    for word in sorted(words):
        slips = set(_slips_of(word))
        if len(word) >= _SHORTEST_WITH_TWO or word in twice:
            slips.update(*(_slips_of(slip) for slip in tuple(slips)))
        for slip in slips - words - others:
            if found.setdefault(slip, word) != word:
                doubtful.add(slip)
    return {slip: word for slip, word in found.items() if slip not in doubtful}


def _slips_of(word: str) -> Iterator[str]:
    """Yield the slips of one word; its first letter is always right."""
    for at in range(1, len(word)):
        if at + 1 < len(word):
            yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
            if len(word) > 4:
                yield word[: at + 1] + word[at] + word[at + 1 :]
        if len(word) >= _SHORTEST_WITH_A_GAP:
            yield word[:at] + word[at + 1 :]


_SHORT_SENTENCE = 3
"""Tokens of a sentence in which thanks are what it says (`many thanks`)."""
_ENDS = (Kind.STOP, Kind.QUESTION)
_NEW_CONTENT = (Kind.QUOTE, Kind.NUMBER, Kind.CODE, Kind.EMAIL)
_REFERENCES = frozenset({Kind.URL, Kind.DOMAIN, Kind.PATH, Kind.EXTENSION, Kind.FENCE})
_QUOTED = frozenset({Kind.QUOTE, Kind.CODE})
_CLOSING_WORDS = frozenset({"with", "below", "above", "under", "after", "before", "and", "in", "to"})
_WRONGS = ("defect", "repair", "destructive_stated", "copy_fix")
"""Groups of which a statement about oneself that merely explains a question holds nothing."""
_OTHERS = frozenset({"people", "they", "he", "she", "someone", "somebody", "everybody", "everyone", "some", "most"})
_EDITS = (
    *_WRONGS,
    *("package", "structural", "technique", "live_data", "logic", "inline_script", "style_code", "markup"),
    *("destructive", "deployment", "copy_to_stop"),
)
"""The same for any other statement: `I sell cakes online` explains, `cakes sold online` orders."""
_FEWEST_SAID = 3
"""Tokens before `make that the subtitle` that are the wording itself; with fewer it is the sentence before."""
_LABEL_WORDS = 3
"""Words of a mark or of the end of a mail, its writer's name included."""
_PROHIBITING = frozenset({"don't", "dont"})
_RESUMING = frozenset({"please", "then", "also"})
_WITH_EXCEPTIONS = (
    *("defect", "copy_fix", "copy_to_stop", "style_code", "inline_script"),
    *("structural", "package", "technique", "logic", "vague"),
)
"""Groups whose exceptions stand in a group `not_<group>`."""
_FEWEST_BEATS = 3
"""Sentences of one word from which a slogan is made: `Wash. Cut. Go.`"""


class Talk(StrEnum):
    """Why a prompt orders nothing."""

    QUESTION = "question"
    CHAT = "chat"


class Reading(NamedTuple):
    """A prompt with the phrases found in it and what its sentences do."""

    text: Text
    """As it was sent."""
    tokens: tuple[Token, ...]
    """Of the text, with slips of the keyboard put right."""
    vocabulary: Vocabulary
    hits: dict[str, list[Hit]]
    """Phrases outside copied wording."""
    copied: frozenset[int]
    """Tokens of wording that is to appear on the page."""
    sentences: tuple[Sentence, ...]
    acts: tuple[Act, ...]
    orders: tuple[int, ...]
    """Tokens of verbs in a position where they order something."""
    kinds: frozenset[Kind]
    """What kinds of token there are: rules about others need not look for them."""

    @property
    def has_reference(self) -> bool:
        """Whether a path, a URL or a code block stands in the prompt, bare or alone in quotes."""
        if not self.kinds.isdisjoint(_REFERENCES):
            return True
        return not self.kinds.isdisjoint(_QUOTED) and any(
            token.kind in _QUOTED and is_reference(token.word) for token in self.tokens
        )

    def found(self, *groups: str) -> bool:
        """Tell whether a phrase of any of these groups was found."""
        return not self.hits.keys().isdisjoint(groups)

    def hits_in(self, group: str, sentence: Sentence) -> list[Hit]:
        """Return the hits of a group inside one sentence."""
        return [hit for hit in self.hits.get(group, ()) if sentence.first <= hit.first < sentence.end]

    def sentence_of(self, index: int) -> int:
        """Return the number of the sentence that holds a token."""
        return _sentence_of(self.sentences, index)


def read(prompt: str, vocabulary: Vocabulary) -> Reading:
    """Read a prompt once, for all rules."""
    text = canonicalise(prompt)
    words = vocabulary.words
    tokens = respelled(text.tokens, words["spelled"], vocabulary.known, twice=words["spelled_twice"])
    return _read(text, tokens, vocabulary)


def read_as_spelled(prompt: str, vocabulary: Vocabulary) -> Reading:
    """Read a prompt and put no spelling right: what is misspelt goes to the model (L-042)."""
    text = canonicalise(prompt)
    return _read(text, text.tokens, vocabulary)


def _read(text: Text, tokens: tuple[Token, ...], vocabulary: Vocabulary) -> Reading:
    sentences = tuple(_trimmed(sentence, tokens, vocabulary.words) for sentence in _split(tokens))
    hits = _without_exceptions(vocabulary.find(tokens, text.shown))
    _take_prohibitions(hits, tokens, sentences, filler=vocabulary.words["filler"])
    copied = _copied(tokens, sentences, hits, vocabulary=vocabulary)
    if copied:
        hits = _without(hits, copied)
    reader = ActReader(tokens, hits, copied=copied, vocabulary=vocabulary)
    results = [reader.read(sentence) for sentence in sentences]
    acts = tuple(act for act, _ in results)
    orders = tuple(at for _, found in results for at in found)
    kinds = frozenset([token.kind for token in tokens])
    return Reading(text, tokens, vocabulary, hits, copied, sentences, acts, orders, kinds)


def mere_talk(reading: Reading) -> Talk | None:
    """Return why nothing is ordered by this prompt, or None when it orders, reports or leaves a doubt."""
    if reading.text.cut or not reading.acts or reading.has_reference:
        return None
    acts = set(reading.acts)
    if Act.ORDER in acts or Act.DEFECT in acts:
        return None
    if Act.QUESTION not in acts:
        return Talk.CHAT if acts <= {Act.CHAT, Act.HOLD} else None
    pairs = zip(reading.sentences, reading.acts, strict=True)
    told = [sentence for sentence, act in pairs if act is Act.STATEMENT]
    if told and reading.found("asks_for_it"):
        return None
    return Talk.QUESTION if all(_is_background(reading, sentence) for sentence in told) else None


def _is_background(reading: Reading, sentence: Sentence) -> bool:
    """`I sell candles.` beside a question explains it; `It should be blue.` and `Quiz about tea.` order."""
    if reading.hits_in("wish", sentence):
        return False
    if _is_label(reading, sentence):
        return True
    words = reading.vocabulary.words
    if any(token.kind in _NEW_CONTENT for token in reading.tokens[sentence.first : sentence.end]):
        return False
    teller = reading.tokens[sentence.first].word
    is_own = teller in words["first_person"] and teller not in _OTHERS
    if any(reading.hits_in(group, sentence) for group in (_WRONGS if is_own else _EDITS)):
        return False
    said = {reading.tokens[at].word for at in range(sentence.first, sentence.end)}
    return teller in words["first_person"] or (
        said.isdisjoint(words["element"]) and not said.isdisjoint(words["telling"])
    )


def _is_label(reading: Reading, sentence: Sentence) -> bool:
    """Tell whether a sentence is a mere mark, `[shop-12]`, `(ticket: 4711)`, or how a mail ends: `Best, Tom`."""
    tokens = reading.tokens[sentence.first : sentence.end]
    if any(token.word in reading.vocabulary.words["element"] for token in tokens):
        return False
    if any(reading.hits_in(group, sentence) for group in _EDITS):
        return False
    words = sum(token.kind is Kind.WORD for token in tokens)
    if words > _LABEL_WORDS:
        return False
    if tokens[0].word in ("[", "("):
        last = reading.tokens[sentence.end - 1 : sentence.end + 1]  # the bracket may be trimmed off the sentence
        is_closed = any(token.word in ("]", ")") for token in last)
        return is_closed and any(token.word == ":" or token.kind is Kind.NUMBER for token in tokens)
    kinds = {token.kind for token in tokens}
    return kinds == {Kind.WORD, Kind.COMMA} and tokens[0].word in reading.vocabulary.words["sign_off"]


def _split(tokens: Sequence[Token]) -> Iterator[Sentence]:
    first = 0
    for at, token in enumerate(tokens):
        if token.kind in _ENDS:
            if at > first:
                yield Sentence(first, at, token.kind is Kind.QUESTION)
            first = at + 1
    if first < len(tokens):
        yield Sentence(first, len(tokens), asks=False)


def _trimmed(sentence: Sentence, tokens: Sequence[Token], words: Mapping[str, frozenset[str]]) -> Sentence:
    """Return the sentence without the politeness around it, or whole when nothing else is left."""
    first, end, asks = sentence
    while first < end and tokens[first].word in words["courtesy"]:
        first += 1
    if first == end:
        return sentence
    if end - first > 2 and tokens[first].word in words["greeting"] and tokens[first + 1].kind is Kind.COMMA:
        first += 2
    is_thanks = end - first <= _SHORT_SENTENCE and tokens[first].kind is Kind.WORD
    around = words["courtesy"] if is_thanks else union(words["courtesy"], words["gratitude"])
    while end > first and (tokens[end - 1].word in around or tokens[end - 1].kind is Kind.COMMA):
        end -= 1
    return Sentence(first, end, asks) if first < end else sentence


def _sentence_of(sentences: Sequence[Sentence], index: int) -> int:
    return max(bisect_right(sentences, index, key=lambda sentence: sentence.first) - 1, 0)


# --- wording that is to appear on the page ---------------------------------------------------------------------------


def _copied(
    tokens: Sequence[Token],
    sentences: Sequence[Sentence],
    hits: dict[str, list[Hit]],
    *,
    vocabulary: Vocabulary,
) -> frozenset[int]:
    """Return the tokens of unquoted wording: what follows `change the heading to`, `titled`, `headline:`."""
    copied = _told_before(sentences, hits)
    for group in ("copy_to_stop", "copy_to_comma"):
        for hit in hits.get(group, ()):
            start = hit.last + 1
            end = sentences[_sentence_of(sentences, hit.last)].end
            if start in copied or start >= end or not _begins_copy(tokens, hit, vocabulary):
                continue
            to_stop = group == "copy_to_stop"
            if tokens[hit.last].word == ":":
                end = _slogan_end(sentences, start, end)
            copied.update(range(start, _copy_end(tokens, start, end, to_stop=to_stop, vocabulary=vocabulary)))
    return frozenset(copied)


def _told_before(sentences: Sequence[Sentence], hits: dict[str, list[Hit]]) -> set[int]:
    """Return the wording that stands before its order (`We mend hearts. Use this as the tagline.`)."""
    told: set[int] = set()
    for hit in hits.get("copy_before", ()):
        number = _sentence_of(sentences, hit.first)
        first = sentences[number].first
        if hit.first - first < _FEWEST_SAID and number:
            first = sentences[number - 1].first
        told.update(range(first, hit.first))
    return told


def _begins_copy(tokens: Sequence[Token], hit: Hit, vocabulary: Vocabulary) -> bool:
    """`Change the heading to fade in`, `heading: make it blue` and `it says "x" but` give no wording without quotes."""
    if tokens[hit.last + 1].kind is Kind.QUOTE:
        return False
    opener, following = tokens[hit.last].word, tokens[hit.last + 1].word
    words = vocabulary.words
    if opener == "to":
        return following not in words["behaviour"]
    if opener == ":":
        return following not in words["determiner"] | words["behaviour"] | words["plain_edit"]
    return opener != "on" or following not in words["no_topic"]


def _slogan_end(sentences: Sequence[Sentence], start: int, end: int) -> int:
    """Return where wording ends that goes on over the next stops (`Headline: Wash. Cut. Go.`)."""
    if end - start != 1:
        return end
    number = _sentence_of(sentences, start)
    last = number
    while last + 1 < len(sentences) and sentences[last + 1].end - sentences[last + 1].first == 1:
        last += 1
    return sentences[last].end if last - number + 1 >= _FEWEST_BEATS else end


def _copy_end(tokens: Sequence[Token], start: int, end: int, *, to_stop: bool, vocabulary: Vocabulary) -> int:
    verbs = vocabulary.words["order"]
    for at in range(start + 1, end):
        word = tokens[at].word
        following = tokens[at + 1].word if at + 1 < end else ""
        if word in CONJUNCTIONS and (following in verbs or following in _RESUMING):
            return at
        if not to_stop and (tokens[at].kind is Kind.COMMA or word in _CLOSING_WORDS):
            return at
    return end


def _without_exceptions(hits: dict[str, list[Hit]]) -> dict[str, list[Hit]]:
    """Drop the phrases of a group that `not_<group>` takes back.

    A defect that is a feature or news goes when the two share a word (`make the table scroll sideways`, `we stopped
    doing weddings`), every other phrase when the exception holds the whole of it (`on 6 pages`).
    """
    for group in _WITH_EXCEPTIONS:
        if group not in hits or f"not_{group}" not in hits:
            continue
        told = {at for hit in hits[f"not_{group}"] for at in range(hit.first, hit.last + 1)}
        is_back = told.intersection if group == "defect" else told.issuperset
        kept = [hit for hit in hits[group] if not is_back(range(hit.first, hit.last + 1))]
        hits = {name: found for name, found in hits.items() if name != group} | ({group: kept} if kept else {})
    return hits


def _take_prohibitions(
    hits: dict[str, list[Hit]], tokens: Sequence[Token], sentences: Sequence[Sentence], *, filler: frozenset[str]
) -> None:
    """`Don't let people send it empty` orders; `the form doesn't let people send it` reports a defect."""
    if "defect" not in hits:
        return
    defects = hits.pop("defect")
    starts = {sentence.first for sentence in sentences}
    kept = []
    for hit in defects:
        at = hit.first
        while at not in starts and tokens[at - 1].word in filler:
            at -= 1
        if tokens[hit.first].word not in _PROHIBITING or at not in starts:
            kept.append(hit)
    if kept:
        hits["defect"] = kept


def _without(hits: dict[str, list[Hit]], copied: frozenset[int]) -> dict[str, list[Hit]]:
    kept = {
        group: [hit for hit in found if hit.first not in copied and hit.last not in copied]
        for group, found in hits.items()
    }
    return {group: found for group, found in kept.items() if found}
