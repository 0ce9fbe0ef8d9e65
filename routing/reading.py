"""What each sentence of a prompt does: it asks, orders, reports a defect, holds back, chats or states.

Mode, tier and debate all rest on this one reading, so that a word counts as an order for all of them or for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from routing.text import Kind, Text, Token, canonicalise, is_reference
from routing.vocabulary import Hit, Vocabulary


class Act(StrEnum):
    """What a sentence does."""

    QUESTION = "question"
    ORDER = "order"
    DEFECT = "defect"
    HOLD = "hold"
    CHAT = "chat"
    STATEMENT = "statement"


class Sentence(NamedTuple):
    """Tokens `first` to `end` (excluded); `asks` when a question mark closes it."""

    first: int
    end: int
    asks: bool


_ENDS = (Kind.STOP, Kind.QUESTION)
_REFERENCES = frozenset({Kind.URL, Kind.DOMAIN, Kind.PATH, Kind.EXTENSION, Kind.FENCE})
_CONJUNCTIONS = frozenset({"and", "then", "so", "but", "or", "also", "plus"})
_MODALS = frozenset({"can", "could", "would", "will", "should", "must", "shall"})
_NOBODY = Hit(-1, -1)


@dataclass(frozen=True, slots=True)
class Reading:
    """A prompt with the phrases found in it and what its sentences do."""

    text: Text
    vocabulary: Vocabulary
    hits: dict[str, list[Hit]]
    """Phrases outside copied wording."""
    copied: frozenset[int]
    """Tokens of wording that is to appear on the page."""
    sentences: tuple[Sentence, ...]
    acts: tuple[Act, ...]
    orders: tuple[int, ...]
    """Tokens of verbs in a position where they order something."""
    has_reference: bool
    """Whether a path, a URL or a code block stands in it."""

    @property
    def tokens(self) -> tuple[Token, ...]:
        return self.text.tokens

    def found(self, *groups: str) -> bool:
        """Tell whether a phrase of any of these groups was found."""
        return any(group in self.hits for group in groups)

    def hits_in(self, group: str, sentence: Sentence) -> list[Hit]:
        """Return the hits of a group inside one sentence."""
        return [hit for hit in self.hits.get(group, ()) if sentence.first <= hit.first < sentence.end]

    def sentence_of(self, index: int) -> int:
        """Return the number of the sentence that holds a token."""
        for number, sentence in enumerate(self.sentences):
            if index < sentence.end:
                return number
        return len(self.sentences) - 1


def read(prompt: str, vocabulary: Vocabulary) -> Reading:
    """Read a prompt once, for all rules."""
    text = canonicalise(prompt)
    hits = vocabulary.find(text.tokens, text.shown)
    sentences = _split(text.tokens)
    copied = _copied(text.tokens, sentences, hits, vocabulary)
    if copied:
        hits = _without(hits, copied)
    reader = _Reader(text.tokens, sentences, hits, copied, vocabulary)
    orders = tuple(at for sentence in sentences for at in reader.orders_in(sentence))
    acts = tuple(reader.act(sentence) for sentence in sentences)
    return Reading(text, vocabulary, hits, copied, sentences, acts, orders, _refers(text.tokens))


def _split(tokens: tuple[Token, ...]) -> tuple[Sentence, ...]:
    sentences: list[Sentence] = []
    first = 0
    for at, token in enumerate(tokens):
        if token.kind in _ENDS:
            if at > first:
                sentences.append(Sentence(first, at, token.kind is Kind.QUESTION))
            first = at + 1
    if first < len(tokens):
        sentences.append(Sentence(first, len(tokens), False))
    return tuple(sentences)


def _refers(tokens: tuple[Token, ...]) -> bool:
    return any(
        token.kind in _REFERENCES or (token.kind in (Kind.QUOTE, Kind.CODE) and is_reference(token.word))
        for token in tokens
    )


# --- wording that is to appear on the page ---------------------------------------------------------------------------


def _copied(
    tokens: tuple[Token, ...], sentences: tuple[Sentence, ...], hits: dict[str, list[Hit]], vocabulary: Vocabulary
) -> frozenset[int]:
    """Return the tokens of unquoted wording: what follows `change the heading to`, `titled`, `headline:`."""
    copied: set[int] = set()
    for group in ("copy_to_stop", "copy_to_comma"):
        for hit in hits.get(group, ()):
            start = hit.last + 1
            sentence = next((sentence for sentence in sentences if sentence.first <= hit.last < sentence.end), None)
            if sentence is None or start >= sentence.end or not _begins_copy(tokens, hit, vocabulary):
                continue
            copied.update(
                range(
                    start,
                    _copy_end(tokens, start, sentence.end, to_stop=group == "copy_to_stop", vocabulary=vocabulary),
                )
            )
    return frozenset(copied)


def _begins_copy(tokens: tuple[Token, ...], hit: Hit, vocabulary: Vocabulary) -> bool:
    following = tokens[hit.last + 1].word
    words = vocabulary.words
    opener = tokens[hit.last].word
    if opener == "to":
        return following not in words["behaviour"]
    if opener == ":":
        return (
            following not in words["determiner"]
            and following not in words["behaviour"]
            and following not in words["order"]
        )
    if opener in ("about", "on"):
        return (
            following not in ("page", "section", "us", "the", "my", "our", "mobile", "a", "each", "every", "it")
            or opener == "about"
        )
    return True


def _copy_end(tokens: tuple[Token, ...], start: int, end: int, *, to_stop: bool, vocabulary: Vocabulary) -> int:
    order = vocabulary.words["order"]
    for at in range(start, end):
        word = tokens[at].word
        following = tokens[at + 1].word if at + 1 < end else ""
        if word in _CONJUNCTIONS and at > start and (following in order or following in ("please", "then", "also")):
            return at
        if (
            not to_stop
            and (
                tokens[at].kind is Kind.COMMA
                or word in ("with", "below", "above", "under", "after", "before", "and", "in", "to")
            )
            and at > start
        ):
            return at
    return end


def _without(hits: dict[str, list[Hit]], copied: frozenset[int]) -> dict[str, list[Hit]]:
    kept = {
        group: [hit for hit in found if hit.first not in copied and hit.last not in copied]
        for group, found in hits.items()
    }
    return {group: found for group, found in kept.items() if found}


# --- what a sentence does --------------------------------------------------------------------------------------------


class _Reader:
    """Holds the parts of a reading while the acts are worked out."""

    def __init__(
        self,
        tokens: tuple[Token, ...],
        sentences: tuple[Sentence, ...],
        hits: dict[str, list[Hit]],
        copied: frozenset[int],
        vocabulary: Vocabulary,
    ) -> None:
        self.tokens = tokens
        self.sentences = sentences
        self.hits = hits
        self.copied = copied
        self.words = vocabulary.words
        self.lead_ends = {hit.last for hit in hits.get("lead", ())}
        self.holds = {at for hit in hits.get("hold", ()) for at in range(hit.first, hit.last + 1)}

    def at(self, group: str, index: int) -> Hit | None:
        return next((hit for hit in self.hits.get(group, ()) if hit.first == index), None)

    def inside(self, group: str, sentence: Sentence) -> list[Hit]:
        return [hit for hit in self.hits.get(group, ()) if sentence.first <= hit.first < sentence.end]

    # -- orders

    def orders_in(self, sentence: Sentence) -> list[int]:
        """Return the tokens of the sentence that are verbs in imperative position."""
        order = self.words["order"]
        return [
            at
            for at in range(sentence.first, sentence.end)
            if self.tokens[at].word in order
            and self.tokens[at].kind is Kind.WORD
            and at not in self.copied
            and at not in self.holds
            and self.is_imperative(at, sentence)
        ]

    def is_imperative(self, at: int, sentence: Sentence) -> bool:
        """Tell whether the verb at `at` stands where an order stands."""
        before = at - 1
        while before >= sentence.first and self.tokens[before].word in self.words["adverb"]:
            before -= 1
        head = self.head(sentence)
        if at <= head or before < sentence.first:
            return True
        if before in self.lead_ends:
            return True
        previous = self.tokens[before]
        if previous.kind is Kind.COMMA:
            return self.opens_clause(at, sentence)
        if previous.word in _CONJUNCTIONS:
            return not self.is_described(before, sentence) and self.opens_clause(at, sentence)
        if previous.word == "to":
            return before > sentence.first and self.tokens[before - 1].word in self.words["wanting"]
        return (
            before + 1 < at and self.tokens[at - 1].word in self.words["politeness"] and self.has_object(at, sentence)
        )

    def opens_clause(self, at: int, sentence: Sentence) -> bool:
        """A verb in the middle orders something only when an object follows it."""
        return self.has_object(at, sentence) or not self.is_question_head(sentence)

    def has_object(self, at: int, sentence: Sentence) -> bool:
        if at + 1 >= sentence.end:
            return False
        following = self.tokens[at + 1]
        return following.word in self.words["determiner"] or following.kind in (
            Kind.QUOTE,
            Kind.PATH,
            Kind.CODE,
            Kind.NUMBER,
        )

    def is_described(self, before: int, sentence: Sentence) -> bool:
        """Tell whether a verb after `before` continues what somebody else does: `a form to add and delete items`."""
        subject = self.words["subject"]
        for at in range(before - 1, sentence.first - 1, -1):
            word = self.tokens[at].word
            if word in subject and not (at in self.lead_ends or at + 1 in self.lead_ends):
                return True
        return False

    def head(self, sentence: Sentence) -> int:
        """Return the first token that is no greeting, filler or mark."""
        filler = self.words["filler"]
        at = sentence.first
        while at < sentence.end - 1 and (self.tokens[at].word in filler or self.tokens[at].kind is Kind.COMMA):
            at += 1
        return at

    # -- acts

    def is_question_head(self, sentence: Sentence) -> bool:
        at = self.head(sentence)
        return self.at("question_002", at) is not None or self.at("question", at) is not None

    def act(self, sentence: Sentence) -> Act:
        """Return what the sentence does."""
        head = self.head(sentence)
        asked = self.question(sentence, head)
        if asked is not None:
            return asked
        chat = self.at("chat", sentence.first) or self.at("chat", head)
        orders = self.orders_in(sentence)
        if chat and self.is_chat(chat, sentence, orders):
            return Act.CHAT
        if orders:
            return Act.ORDER
        if self.inside("hold", sentence):
            return Act.HOLD
        if self.inside("defect", sentence):
            return Act.DEFECT
        return Act.STATEMENT

    def question(self, sentence: Sentence, head: int) -> Act | None:
        """Return QUESTION, or what a sentence in the form of a question does instead; None when it has not that form."""
        if self.at("suggestion", head):
            return self.suggestion(sentence, head)
        hit = self.at("question_002", head) or self.question_hit(sentence, head)
        if hit is None:
            return None
        if self.is_section_name(sentence, head) or self.writes_on_site(sentence, head):
            return None
        if self.has_order_beside(sentence, hit):
            return Act.ORDER
        if self.reports_defect(sentence, hit):
            return Act.DEFECT
        return Act.QUESTION

    def question_hit(self, sentence: Sentence, head: int) -> Hit | None:
        hit = self.at("question", head)
        if hit and (sentence.asks or hit.last > hit.first):
            return hit
        if not sentence.asks:
            return None
        word = self.tokens[head].word
        if word in self.words["question_word"] or word in self.words["auxiliary"]:
            return Hit(head, head)
        if self.inside("question_shape", sentence) and not self.orders_in(sentence):
            return Hit(head, head)
        return self.late_question(sentence)

    def late_question(self, sentence: Sentence) -> Hit | None:
        """A question after a comma: `for a law firm, should I use a serif?`"""
        if self.orders_in(sentence):
            return None
        for group in ("question_002", "question"):
            for hit in self.inside(group, sentence):
                if hit.first > sentence.first and self.tokens[hit.first - 1].kind is Kind.COMMA:
                    before = Sentence(sentence.first, hit.first, False)
                    if not self.inside("defect", before) and not self.inside("wish", before):
                        return hit
        return None

    def suggestion(self, sentence: Sentence, head: int) -> Act:
        asking = self.inside("asking", sentence)
        if asking and asking[0].first <= head + 5:
            return Act.QUESTION if not self.has_order_beside(sentence, asking[0]) else Act.ORDER
        if any(self.tokens[at].word in ("myself", "ourselves") for at in range(sentence.first, sentence.end)):
            return Act.QUESTION
        return Act.ORDER

    def is_section_name(self, sentence: Sentence, head: int) -> bool:
        """`Why choose us section with three icons` names a section and asks nothing."""
        if sentence.asks or not (self.at("nominal_question", head)):
            return False
        names = (
            "section",
            "page",
            "block",
            "banner",
            "card",
            "cards",
            "heading",
            "area",
            "strip",
            "tab",
            "row",
            "button",
            "list",
        )
        return any(self.tokens[at].word in names for at in range(head, sentence.end)) or self.tokens[head].word in (
            "why",
            "who",
            "how",
        )

    def writes_on_site(self, sentence: Sentence, head: int) -> bool:
        """`Explain our refund policy in the FAQ` orders a text; `explain how grep works` does not."""
        if self.tokens[head].word not in ("explain", "describe"):
            return False
        following = self.tokens[head + 1].word if head + 1 < sentence.end else ""
        if following in ("how", "why", "what", "when", "whether") or sentence.asks:
            return False
        return bool(self.inside("place_on_site", sentence))

    def has_order_beside(self, sentence: Sentence, question: Hit) -> bool:
        """Tell whether an order stands beside the question in the same sentence."""
        governed = (
            self.tokens[question.last].word in ("i", "we", "to", "you", "me")
            or self.tokens[question.first].word == "explain"
        )
        for at in self.orders_in(sentence):
            if at <= question.last:
                continue
            previous = self.tokens[at - 1]
            polite = previous.word in self.words["politeness"] and previous.word not in ("thanks", "thx")
            led = at - 1 in self.lead_ends and not governed and self.has_object(at, sentence)
            if polite or led:
                return True
            if (
                not governed
                and self.has_object(at, sentence)
                and (previous.kind is Kind.COMMA or previous.word in ("and", "then", "so", "but", "also"))
            ):
                return True
        return False

    def reports_defect(self, sentence: Sentence, question: Hit) -> bool:
        first = self.tokens[question.first].word
        if first in (
            "what",
            "why",
            "how",
            "explain",
            "should",
            "what's",
            "whats",
            "any",
            "difference",
            "pros",
            "tell",
            "was",
            "que",
        ):
            return False
        if not self.inside("defect", sentence):
            return False
        return any(
            self.tokens[at].word in ("the", "our", "my", "this", "these") for at in range(sentence.first, sentence.end)
        )

    def is_chat(self, chat: Hit, sentence: Sentence, orders: list[int]) -> bool:
        if any(at > chat.last for at in orders) or self.inside("wish", sentence) or self.inside("defect", sentence):
            return False
        if self.tokens[chat.first].word in ("i'll", "we'll", "ill", "i", "we", "let"):
            return True
        return not any(self.tokens[at].word in self.words["element"] for at in range(chat.last + 1, sentence.end))


# --- is it a mere question? ------------------------------------------------------------------------------------------


class Talk(StrEnum):
    """Why a prompt orders nothing."""

    QUESTION = "question"
    CHAT = "chat"


def mere_talk(reading: Reading) -> Talk | None:
    """Return why nothing is ordered by this prompt, or None when it orders, reports or leaves a doubt."""
    if reading.has_reference or reading.text.cut or not reading.acts:
        return None
    acts = set(reading.acts)
    if acts & {Act.ORDER, Act.DEFECT}:
        return None
    if Act.QUESTION in acts:
        statements = [s for s, act in zip(reading.sentences, reading.acts, strict=True) if act is Act.STATEMENT]
        return Talk.QUESTION if all(_is_background(reading, sentence) for sentence in statements) else None
    return Talk.CHAT if acts <= {Act.CHAT, Act.HOLD} else None


def _is_background(reading: Reading, sentence: Sentence) -> bool:
    """`I sell candles.` beside a question explains it; `It should be blue.` orders."""
    if reading.hits_in("wish", sentence):
        return False
    first = reading.tokens[sentence.first].word
    return first in reading.vocabulary.words["first_person"] or not any(
        reading.tokens[at].word in reading.vocabulary.words["element"] for at in range(sentence.first, sentence.end)
    )
