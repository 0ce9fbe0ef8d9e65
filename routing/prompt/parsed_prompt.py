"""Parse a prompt once for all rules: its phrases, its orders, and the intent of each sentence.

Mode, tier and debate share the result, so a word is an order for all of them or for none. Text meant for the page
(`change the heading to ...`, `titled ...`) is excluded like a quotation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from routing.prompt.intents import CONJUNCTIONS, IntentReader, Sentence, SentenceIntent
from routing.prompt.tokens import Kind, Text, Token, canonicalise, is_reference
from routing.prompt.vocabulary import Hit, Vocabulary, union

# Typos in the words that decide (`chnage`, `delet`, `buton`) are corrected: two letters swapped, or one missing or
# doubled; in a long word two such slips. A substituted letter is never corrected: `remote` is not `remove`.

_SHORTEST_WITH_A_GAP = 6
"""A shorter word with a missing letter may be another word: `tile` is not `title`."""
_SHORTEST_WITH_TWO = 8
"""Shortest word in which two slips are corrected: `dissapears`."""


def correct_typos(
    tokens: tuple[Token, ...], words: frozenset[str], others: frozenset[str], *, twice: frozenset[str] = frozenset()
) -> tuple[Token, ...]:
    """Return the tokens with typos corrected; offsets stay.

    Args:
        tokens: the tokens of a text.
        words: the words to correct to.
        others: further words that are correct as they stand (`selling` is not `spelling`).
        twice: short words in which two slips are corrected as well.
    """
    meant = _slips(words, others, twice)
    if meant.keys().isdisjoint([token.word for token in tokens]):
        return tokens
    return tuple(
        replace(token, word=meant[token.word]) if token.kind is Kind.WORD and token.word in meant else token
        for token in tokens
    )


@lru_cache(maxsize=8)
def _slips(words: frozenset[str], others: frozenset[str], twice: frozenset[str]) -> dict[str, str]:
    """Return the word for each typo; an ambiguous typo has none."""
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
    """Yield the typos of a word, whose first letter is always right."""
    for at in range(1, len(word)):
        if at + 1 < len(word):
            yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
            if len(word) > 4:
                yield word[: at + 1] + word[at] + word[at + 1 :]
        if len(word) >= _SHORTEST_WITH_A_GAP:
            yield word[:at] + word[at + 1 :]


_SHORT_SENTENCE = 3
"""Tokens up to which thanks are the whole sentence (`many thanks`)."""
_ENDS = (Kind.STOP, Kind.QUESTION)
_NEW_CONTENT = (Kind.QUOTE, Kind.NUMBER, Kind.CODE, Kind.EMAIL)
_REFERENCES = frozenset({Kind.URL, Kind.DOMAIN, Kind.PATH, Kind.EXTENSION, Kind.FENCE})
_QUOTED = frozenset({Kind.QUOTE, Kind.CODE})
_CLOSING_WORDS = frozenset({"with", "below", "above", "under", "after", "before", "and", "in", "to"})
_WRONGS = ("defect", "repair", "destructive_stated", "copy_fix")
"""Groups that a statement about oneself must avoid to be mere background of a question."""
_OTHERS = frozenset({"people", "they", "he", "she", "someone", "somebody", "everybody", "everyone", "some", "most"})
_EDITS = (
    *_WRONGS,
    *("package", "structural", "technique", "live_data", "logic", "inline_script", "style_code", "markup"),
    *("destructive", "deployment", "copy_to_stop"),
)
"""The same for other statements: `I sell cakes online` explains, `cakes sold online` orders."""
_LABEL_WORDS = 3
"""Most words of a ticket mark or an email sign-off."""
_PROHIBITING = frozenset({"don't", "dont"})
_RESUMING = frozenset({"please", "then", "also"})
_WITH_EXCEPTIONS = ("defect", "copy_to_stop", "style_code", "inline_script", "logic", "access")
"""Groups with exceptions in a group `not_<group>`."""
_DENIED = frozenset({"package", "technique", "live_data", "logic"})
"""Groups of things that a site may be without; where a login or a password lacks, it may be to come."""
_HERE = ["here", "it", "is"]
_FEWEST_BEATS = 3
"""One-word sentences that make a slogan: `Wash. Cut. Go.`"""


class Talk(StrEnum):
    """Why a prompt orders nothing."""

    QUESTION = "question"
    CHAT = "chat"
    OPINION = "opinion"
    """The second opinion reads a question in it."""


@dataclass(slots=True)
class ParsedPrompt:
    """A prompt with its phrases and the intents of its sentences."""

    text: Text
    """Normalised, with typos."""
    tokens: tuple[Token, ...]
    """Of the text, with typos corrected."""
    vocabulary: Vocabulary
    hits: dict[str, list[Hit]]
    """Phrases outside page text, by group."""
    copied: frozenset[int]
    """Tokens of text meant for the page."""
    sentences: tuple[Sentence, ...]
    intents: tuple[SentenceIntent, ...]
    orders: tuple[int, ...]
    """Tokens of verbs in imperative position."""
    kinds: frozenset[Kind]
    """The kinds of token present, so that rules can skip the others."""

    @property
    def has_reference(self) -> bool:
        """Whether the prompt has a path, a URL or a code block, bare or alone in quotes."""
        if not self.kinds.isdisjoint(_REFERENCES):
            return True
        return not self.kinds.isdisjoint(_QUOTED) and any(
            token.kind in _QUOTED and is_reference(token.word) for token in self.tokens
        )

    def found(self, *groups: str) -> bool:
        """Return whether any of these groups has a hit."""
        return not self.hits.keys().isdisjoint(groups)

    def hits_in(self, group: str, sentence: Sentence) -> list[Hit]:
        """Return the hits of a group inside one sentence."""
        return [hit for hit in self.hits.get(group, ()) if sentence.first <= hit.first < sentence.end]

    def sentence_of(self, index: int) -> int:
        """Return the number of the sentence of a token."""
        return _sentence_of(self.sentences, index)


def parse_prompt(prompt: str, vocabulary: Vocabulary) -> ParsedPrompt:
    """Parse a prompt and correct typos in the words that decide."""
    text = canonicalise(prompt)
    words = vocabulary.words
    tokens = correct_typos(text.tokens, words["spelled"], vocabulary.known, twice=words["spelled_twice"])
    return _parse(text, tokens, vocabulary)


def parse_as_spelled(prompt: str, vocabulary: Vocabulary) -> ParsedPrompt:
    """Parse a prompt without correcting typos: misspelt replies go to the model (L-042)."""
    text = canonicalise(prompt)
    return _parse(text, text.tokens, vocabulary)


def _parse(text: Text, tokens: tuple[Token, ...], vocabulary: Vocabulary) -> ParsedPrompt:
    words = vocabulary.words
    sentences = tuple(_trimmed(sentence, tokens, words) for sentence in _split(tokens))
    hits = _without_exceptions(vocabulary.find(tokens, text.shown), tokens, without=words["without"])
    _drop_ordered(hits, tokens, sentences, filler=words["filler"])
    copied = _copied(tokens, sentences, hits, vocabulary=vocabulary) | _pasted(tokens, sentences, words)
    if copied:
        hits = _without(hits, copied)
    reader = IntentReader(tokens, hits, copied=copied, vocabulary=vocabulary)
    results = [reader.read(sentence) for sentence in sentences]
    intents = tuple(intent for intent, _ in results)
    orders = tuple(at for _, found in results for at in found)
    kinds = frozenset([token.kind for token in tokens])
    return ParsedPrompt(text, tokens, vocabulary, hits, copied, sentences, intents, orders, kinds)


def classify_talk(parsed: ParsedPrompt) -> Talk | None:
    """Return why the prompt orders nothing, or None if it orders, reports a defect or is unclear."""
    if parsed.text.cut or not parsed.intents or parsed.has_reference:
        return None
    intents = set(parsed.intents)
    if SentenceIntent.ORDER in intents or SentenceIntent.DEFECT in intents:
        return None
    pairs = zip(parsed.sentences, parsed.intents, strict=True)
    statements = [sentence for sentence, intent in pairs if intent is SentenceIntent.STATEMENT]
    is_held = SentenceIntent.HOLD in intents
    asks = SentenceIntent.QUESTION in intents
    if not all(
        (asks and _is_background(parsed, each)) or (is_held and _wants_nothing(parsed, each)) for each in statements
    ):
        return None
    return Talk.QUESTION if asks else Talk.CHAT


def _is_background(parsed: ParsedPrompt, sentence: Sentence) -> bool:
    """Return whether a statement only explains a question: `I sell candles.`, not `It should be blue.`."""
    if parsed.hits_in("wish", sentence):
        return False
    if _is_label(parsed, sentence):
        return True
    words = parsed.vocabulary.words
    said = {parsed.tokens[at].word for at in range(sentence.first, sentence.end)}
    content = {token.kind for token in parsed.tokens[sentence.first : sentence.end]}.intersection(_NEW_CONTENT)
    if content:
        return False
    subject = parsed.tokens[sentence.first].word
    is_own = subject in words["first_person"] and subject not in _OTHERS
    if any(parsed.hits_in(group, sentence) for group in (_WRONGS if is_own else _EDITS)):
        return False
    return subject in words["first_person"] or (
        said.isdisjoint(words["element"]) and not said.isdisjoint(words["telling"])
    )


def _wants_nothing(parsed: ParsedPrompt, sentence: Sentence) -> bool:
    """Return whether a statement beside `only answer, change nothing` adds no wish: `I mean trees per euro`."""
    if any(parsed.hits_in(group, sentence) for group in ("wish", *_EDITS)):
        return False
    words = parsed.vocabulary.words
    said = {token.word for token in parsed.tokens[sentence.first : sentence.end]}
    has_content = any(token.kind in _NEW_CONTENT for token in parsed.tokens[sentence.first : sentence.end])
    return not has_content and said.isdisjoint(words["order_abroad"] - words["politeness"])


def _is_label(parsed: ParsedPrompt, sentence: Sentence) -> bool:
    """Return whether a sentence is a ticket mark (`[shop-12]`, `(ticket: 4711)`) or an email sign-off (`Best, Tom`)."""
    tokens = parsed.tokens[sentence.first : sentence.end]
    if any(token.word in parsed.vocabulary.words["element"] for token in tokens):
        return False
    if any(parsed.hits_in(group, sentence) for group in _EDITS):
        return False
    words = sum(token.kind is Kind.WORD for token in tokens)
    if words > _LABEL_WORDS:
        return False
    if tokens[0].word in ("[", "("):
        last = parsed.tokens[sentence.end - 1 : sentence.end + 1]  # the bracket may be trimmed off the sentence
        is_closed = any(token.word in ("]", ")") for token in last)
        return is_closed and any(token.word == ":" or token.kind is Kind.NUMBER for token in tokens)
    kinds = {token.kind for token in tokens}
    return kinds == {Kind.WORD, Kind.COMMA} and tokens[0].word in parsed.vocabulary.words["sign_off"]


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
    """Return the sentence without courtesies at its ends, or whole if nothing else is left."""
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


# --- text meant for the page -----------------------------------------------------------------------------------------


def _copied(
    tokens: Sequence[Token], sentences: Sequence[Sentence], hits: dict[str, list[Hit]], *, vocabulary: Vocabulary
) -> frozenset[int]:
    """Return the tokens of unquoted page text: after `change the heading to`, `titled`, `headline:`."""
    copied: set[int] = set()
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


def _pasted(
    tokens: Sequence[Token], sentences: Sequence[Sentence], words: Mapping[str, frozenset[str]]
) -> frozenset[int]:
    """Return the tokens of a text that is announced, and pasted below an empty line: `Here is the text:`.

    A list or an order below it is none, and a paragraph that begins with `also` or `please` ends it.
    """
    orders = union(words["order"], words["politeness"]) | _RESUMING
    for at in range(len(tokens) - 2):
        if tokens[at].word == ":" and tokens[at + 1].word == "\n":
            said = [token.word for token in tokens[sentences[_sentence_of(sentences, at)].first : at]]
            if said != _HERE and words["pasted"].isdisjoint(said):
                continue
            if tokens[at + 2].word in orders or not tokens[at + 2].word[:1].isalpha():
                return frozenset()
            breaks = (end for end in range(at + 3, len(tokens) - 1) if tokens[end].word == "\n")
            return frozenset(range(at + 2, next((e for e in breaks if tokens[e + 1].word in _RESUMING), len(tokens))))
    return frozenset()


def _begins_copy(tokens: Sequence[Token], hit: Hit, vocabulary: Vocabulary) -> bool:
    """Return whether page text follows: not in `change the heading to fade in` or `heading: make it blue`."""
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
    """Return the end of page text that runs over several sentences (`Headline: Wash. Cut. Go.`)."""
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


def _without_exceptions(
    hits: dict[str, list[Hit]], tokens: Sequence[Token], *, without: frozenset[str]
) -> dict[str, list[Hit]]:
    """Drop the phrases of a group that `not_<group>` excepts, and what there shall not be: `without a login`.

    A defect is excepted if the two share a word (`make the table scroll sideways`, `we stopped doing weddings`), any
    other phrase if the exception covers it (`on 6 pages`).
    """
    for group in _DENIED.intersection(hits):
        left = [
            hit
            for hit in hits[group]
            if without.isdisjoint(token.word for token in tokens[max(hit.first - 2, 0) : hit.first])
        ]
        hits = {name: found for name, found in hits.items() if name != group} | ({group: left} if left else {})
    for group in _WITH_EXCEPTIONS:
        if group not in hits or f"not_{group}" not in hits:
            continue
        excepted = {at for hit in hits[f"not_{group}"] for at in range(hit.first, hit.last + 1)}
        is_excepted = excepted.intersection if group == "defect" else excepted.issuperset
        left = [hit for hit in hits[group] if not is_excepted(range(hit.first, hit.last + 1))]
        hits = {name: found for name, found in hits.items() if name != group} | ({group: left} if left else {})
    return hits


def _drop_ordered(
    hits: dict[str, list[Hit]], tokens: Sequence[Token], sentences: Sequence[Sentence], *, filler: frozenset[str]
) -> None:
    """Drop defects that are orders.

    `don't let people send it empty` and `tell me, don't change it` order, `the form doesn't let people send it` does
    not.
    """
    if "defect" not in hits:
        return
    defects = hits.pop("defect")
    starts = {sentence.first for sentence in sentences}
    left = []
    for hit in defects:
        at = hit.first
        while at not in starts and tokens[at - 1].word in filler:
            at -= 1
        is_order = at in starts or tokens[at - 1].kind is Kind.COMMA
        if tokens[hit.first].word not in _PROHIBITING or not is_order:
            left.append(hit)
    if left:
        hits["defect"] = left


def _without(hits: dict[str, list[Hit]], copied: frozenset[int]) -> dict[str, list[Hit]]:
    left = {
        group: [hit for hit in found if hit.first not in copied and hit.last not in copied]
        for group, found in hits.items()
    }
    return {group: found for group, found in left.items() if found}
