"""The intent of each sentence of a prompt: question, order, defect, hold, chat or statement.

A question wins only if no order stands beside it; an ambiguous sentence is an order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from routing.prompt.tokens import COMMA, WORD, Kind, Token
from routing.prompt.vocabulary import Hit, Vocabulary, union


class SentenceIntent(StrEnum):
    """Intent of a sentence."""

    QUESTION = "question"
    ORDER = "order"
    DEFECT = "defect"
    HOLD = "hold"
    CHAT = "chat"
    STATEMENT = "statement"


class Sentence(NamedTuple):
    """Tokens `first` to `end` (exclusive); `asks` if it ends with a question mark."""

    first: int
    end: int
    asks: bool


CONJUNCTIONS = frozenset({"and", "then", "so", "but", "or", "also", "plus"})
_OBJECTS = (Kind.QUOTE, Kind.PATH, Kind.CODE, Kind.NUMBER)
_LOOK_BACK = 12
"""Tokens before a coordinated verb that are searched for its subject."""
_GOVERNORS = frozenset({"i", "we", "to", "you", "me", "want"})
"""After `how do I`, a following verb belongs to the question."""
_SELF = frozenset({"myself", "ourselves"})
_YOU = frozenset({"you", "u", "ya"})
_OWN_FUTURE = frozenset({"i'll", "we'll", "ill", "i", "we", "let"})
_STATING_HEADS = frozenset(
    {"is", "are", "was", "were", "does", "do", "did", "can", "could", "has", "have", "will", "would"}
    | {"where", "when", "who", "which", "isn't", "aren't", "doesn't", "don't", "can't"}
)
"""First words of a question that reports a defect; `why is it broken?` only asks (R-017)."""
_ELSE = frozenset({"else", "autre", "d'autre", "sonst", "anderes", "weiteres", "altro", "otra", "otro", "anders"})
_WHOLE_SITE = frozenset({"site", "website", "page", "everything", "it"})
_OURS = frozenset({"the", "our", "my", "this", "these"})
_EXPLAINING = frozenset({"explain", "describe"})
_HOW = frozenset({"how", "why", "what", "when", "whether"})
_SECTION_NAMES = frozenset(
    {"section", "page", "block", "banner", "card", "cards", "heading", "area", "strip", "tab", "row", "button", "list"}
)
_ASKING_GROUPS = frozenset({"cleft", "suggestion", "question_002", "question"})
"""Without these and a question mark a sentence does not ask."""
_TELLING_GROUPS = frozenset({"only_asking", "knowing", "explain", "hold", "wait"})
"""Without these no sentence says itself that nothing is ordered."""
_ORDERING_GROUPS = ("suggestion", "lead", "defect")
"""A sentence with one of these is never only a question or only praise."""
_OPENING_QUESTIONS = ("question_word", "auxiliary", "question_word_abroad")


class IntentReader:
    """Finds orders and intents in the sentences of one prompt."""

    def __init__(
        self,
        tokens: Sequence[Token],
        hits: Mapping[str, Sequence[Hit]],
        *,
        copied: frozenset[int],
        vocabulary: Vocabulary,
    ) -> None:
        self._tokens = tokens
        self._hits = hits
        self._copied = copied
        self._words = vocabulary.words
        self._verbs = union(vocabulary.words["order"], vocabulary.words["read"])
        self._lead_ends = {hit.last for hit in hits.get("lead", ())}
        held = (hit for group in ("hold", "wait") for hit in hits.get(group, ()))
        self._holds = {at for hit in held for at in range(hit.first, hit.last + 1)}
        self._may_tell = not hits.keys().isdisjoint(_TELLING_GROUPS)
        self._may_ask = not hits.keys().isdisjoint(_ASKING_GROUPS)
        self._names = union(vocabulary.words["element"], vocabulary.words["foreign_element"])
        self._starts: dict[str, dict[int, Hit]] = {}

    def read(self, sentence: Sentence) -> tuple[SentenceIntent, tuple[int, ...]]:
        """Return the intent of a sentence and its verbs in imperative position."""
        head = self._head(sentence)
        if self._is_only_filler(sentence, head):
            return SentenceIntent.CHAT, ()
        orders = tuple(self._orders(sentence, head))
        intent = self._question(sentence, head, orders) or self._statement(sentence, head, orders)
        return intent, orders

    # -- looking up

    def _at(self, group: str, index: int) -> Hit | None:
        if group not in self._hits:
            return None
        if group not in self._starts:
            self._starts[group] = {hit.first: hit for hit in reversed(self._hits[group])}
        return self._starts[group].get(index)

    def _inside(self, group: str, sentence: Sentence) -> list[Hit]:
        return [hit for hit in self._hits.get(group, ()) if sentence.first <= hit.first < sentence.end]

    def _word(self, at: int, sentence: Sentence) -> str:
        return self._tokens[at].word if at < sentence.end else ""

    def _head(self, sentence: Sentence) -> int:
        """Return the first token that is not a greeting, filler or punctuation."""
        filler = self._words["filler"]
        at = sentence.first
        while at < sentence.end - 1 and (self._tokens[at].word in filler or self._tokens[at].kind is COMMA):
            at += 1
        return at

    def _is_only_filler(self, sentence: Sentence, head: int) -> bool:
        if self._tokens[head].word in self._words["politeness"] and self._at("question", head):
            return False  # `por qué`, not `por favor`
        said = union(self._words["politeness"], self._words["filler"])
        return all(
            token.kind in (COMMA, Kind.FENCE) or token.word in said for token in self._tokens[head : sentence.end]
        )

    # -- orders

    def _orders(self, sentence: Sentence, head: int) -> list[int]:
        asks = self._may_ask and (self._at("question_002", head) or self._at("question", head)) is not None
        tokens, verbs = self._tokens, self._verbs
        return [
            at
            for at in range(sentence.first, sentence.end)
            if tokens[at].word in verbs
            and tokens[at].kind is WORD
            and at not in self._copied
            and at not in self._holds
            and self._is_imperative(at, sentence, head=head, asks=asks)
        ]

    def _is_imperative(self, at: int, sentence: Sentence, *, head: int, asks: bool) -> bool:
        """Return whether the verb at `at` is in imperative position."""
        if self._at("noun_pair", at):
            return False
        before = at - 1
        while before >= sentence.first and self._tokens[before].word in self._words["adverb"]:
            before -= 1
        if at <= head or before < sentence.first or before in self._lead_ends:
            return True
        previous = self._tokens[before]
        if self._tokens[at - 1].word in self._words["politeness"] and self._has_object(at, sentence):
            return True
        if previous.kind is COMMA or previous.word in CONJUNCTIONS:
            opens = not asks or self._has_object(at, sentence)
            return opens and (previous.kind is COMMA or not self._is_described(before, head))
        return (
            previous.word == "to"
            and before > sentence.first
            and self._tokens[before - 1].word in self._words["wanting"]
        )

    def _has_object(self, at: int, sentence: Sentence) -> bool:
        if at + 1 >= sentence.end:
            return False
        following = self._tokens[at + 1]
        return following.word in self._words["determiner"] or following.kind in _OBJECTS

    def _is_described(self, before: int, head: int) -> bool:
        """Return whether the verb after `before` describes what others do: `users can add and delete items`."""
        subjects = self._words["subject"]
        for at in range(before - 1, max(head, before - _LOOK_BACK), -1):
            is_lead = at in self._lead_ends or at + 1 in self._lead_ends
            if self._tokens[at].word in subjects and not is_lead:
                return True
        return False

    # -- questions

    def _question(self, sentence: Sentence, head: int, orders: tuple[int, ...]) -> SentenceIntent | None:
        """Return the intent of a sentence with the form of a question; None for any other form."""
        if not (self._may_ask or sentence.asks):
            return None
        if self._at("cleft", head) and not sentence.asks:
            return SentenceIntent.ORDER
        if self._at("suggestion", head):
            return self._suggestion(sentence, head, orders)
        hit = self._at("question_002", head) or self._question_hit(sentence, head, orders)
        if hit is None or self._names_section(sentence, head) or self._writes_on_site(sentence, head):
            return None
        if self._has_order_beside(sentence, hit, orders):
            return SentenceIntent.ORDER
        return SentenceIntent.DEFECT if self._reports_defect(sentence, hit) else SentenceIntent.QUESTION

    def _question_hit(self, sentence: Sentence, head: int, orders: tuple[int, ...]) -> Hit | None:
        hit = self._at("question", head)
        if hit and (sentence.asks or hit.last > hit.first):
            return hit
        if not sentence.asks:
            return None
        word = self._tokens[head].word
        is_shaped = not orders and (self._at("asked", head) or self._inside("question_shape", sentence))
        if is_shaped or any(word in self._words[group] for group in _OPENING_QUESTIONS):
            return Hit(head, head)
        return None

    def _suggestion(self, sentence: Sentence, head: int, orders: tuple[int, ...]) -> SentenceIntent:
        """Return the intent of a suggestion: `can you make it bigger?` orders, `can you explain it?` asks."""
        asking = self._inside("asking", sentence)
        if asking and asking[0].first <= head + 5:
            is_order = self._has_order_beside(sentence, asking[0], orders) or self._at(
                "place_on_site", asking[0].last + 1
            )
            return SentenceIntent.ORDER if is_order else SentenceIntent.QUESTION
        by_themselves = any(self._tokens[at].word in _SELF for at in range(sentence.first, sentence.end))
        if by_themselves and self._word(head + 1, sentence) not in _YOU:
            return SentenceIntent.QUESTION
        return SentenceIntent.ORDER

    def _names_section(self, sentence: Sentence, head: int) -> bool:
        """Return whether a question only names a section: `why choose us section with three icons`."""
        if sentence.asks or not self._at("nominal_question", head):
            return False
        return any(self._tokens[at].word in _SECTION_NAMES for at in range(head, sentence.end))

    def _writes_on_site(self, sentence: Sentence, head: int) -> bool:
        """Return whether `explain` orders page text: `explain our refunds in the FAQ`, not `explain how it works`."""
        if sentence.asks or self._tokens[head].word not in _EXPLAINING:
            return False
        places = self._inside("place_on_site", sentence)
        if self._word(head + 1, sentence) not in _HOW:
            return bool(places)
        return any(self._closes_part(hit, sentence) and self._names_ours(hit, sentence) for hit in places)

    def _closes_part(self, hit: Hit, sentence: Sentence) -> bool:
        """Return whether a place ends the sentence or its clause."""
        after = hit.last + 1
        return after == sentence.end or self._tokens[after].kind is COMMA

    def _names_ours(self, hit: Hit, sentence: Sentence) -> bool:
        return any(self._word(at, sentence) in _OURS for at in range(hit.first + 1, hit.last))

    def _has_order_beside(self, sentence: Sentence, question: Hit, orders: tuple[int, ...]) -> bool:
        """Return whether the sentence also holds an order."""
        is_governed = self._tokens[question.last].word in _GOVERNORS or self._tokens[question.first].word in _EXPLAINING
        for at in orders:
            if at <= question.last:
                continue
            previous = self._tokens[at - 1]
            if previous.word in self._words["politeness"]:
                return True
            follows = at - 1 in self._lead_ends or previous.kind is COMMA or previous.word in CONJUNCTIONS
            if follows and not is_governed and self._has_object(at, sentence):
                return True
        return False

    def _reports_defect(self, sentence: Sentence, question: Hit) -> bool:
        if self._tokens[question.first].word not in _STATING_HEADS or not self._inside("defect", sentence):
            return False
        if self._inside("question_shape", sentence):
            return False  # `is it normal that it still shows the old one?`
        return any(self._tokens[at].word in _OURS for at in range(sentence.first, sentence.end))

    # -- statements

    def _statement(self, sentence: Sentence, head: int, orders: tuple[int, ...]) -> SentenceIntent:
        if self._may_tell and not orders and (told := self._told(sentence)):
            return told
        for at in (sentence.first, head) if "chat" in self._hits else ():
            chat = self._at("chat", at)
            if chat and self._is_chat(chat, sentence, orders):
                return SentenceIntent.CHAT
        if orders:
            return SentenceIntent.ORDER
        if self._holds_back(sentence):
            return SentenceIntent.HOLD
        return SentenceIntent.DEFECT if self._inside("defect", sentence) else SentenceIntent.STATEMENT

    def _told(self, sentence: Sentence) -> SentenceIntent | None:
        """Return the intent of a sentence that says itself that it orders nothing; None for any other."""
        if self._names_order_abroad(sentence):
            return None
        if self._inside("only_asking", sentence):
            return SentenceIntent.CHAT
        knowing = self._inside("knowing", sentence)
        asks = knowing or (self._inside("explain", sentence) and not self._names_part(sentence))
        if self._inside("wish", sentence) and not asks:
            return None
        if self._holds_back(sentence):
            return SentenceIntent.HOLD
        told = [hit for hit in knowing if self._word(hit.last + 1, sentence) in _HOW - {"when"}]
        orders = (hit for group in _ORDERING_GROUPS for hit in self._inside(group, sentence))
        if not all(any(each.first <= hit.first and hit.last <= each.last for each in told) for hit in orders):
            return None  # `I want to know when somebody books` does order; `I want to know what it costs` does not
        return SentenceIntent.QUESTION if asks else None

    def _names_order_abroad(self, sentence: Sentence) -> bool:
        """Return whether a sentence has an imperative of another language outside what it says to leave alone."""
        words, polite = self._words["order_abroad"], self._words["politeness"]
        return any(
            (word := self._tokens[at].word) in words
            and at not in self._holds
            and not (word in polite and not self._holds.isdisjoint((at - 1, at + 1)))  # `bitte nichts ändern`
            for at in range(sentence.first, sentence.end)
        )

    def _names_part(self, sentence: Sentence) -> bool:
        return any(self._tokens[at].word in self._names for at in range(sentence.first, sentence.end))

    def _is_chat(self, chat: Hit, sentence: Sentence, orders: tuple[int, ...]) -> bool:
        wishes = [
            hit
            for hit in self._inside("wish", sentence)
            if hit.last > chat.last and self._tokens[hit.first - 1].word != "what"
        ]
        if any(at > chat.last for at in orders) or wishes or self._inside("defect", sentence):
            return False
        if self._tokens[chat.first].word in _OWN_FUTURE:
            return True
        if not sentence.asks and any(hit.last == sentence.end - 1 for hit in self._inside("praise", sentence)):
            return True
        small_talk = union(self._words["small_talk"], self._words["filler"], self._words["politeness"])
        said = self._inside("chat", sentence)
        return all(
            self._tokens[at].kind is COMMA
            or self._tokens[at].word in small_talk
            or any(hit.first <= at <= hit.last for hit in said)
            for at in range(chat.last + 1, sentence.end)
        )

    def _holds_back(self, sentence: Sentence) -> bool:
        """Return whether nothing is to change yet: not in `no need to change the text, just the photo`."""
        wait = self._at("wait", self._head(sentence))
        if not (holds := [wait] if wait else self._inside("hold", sentence)) or self._names_order_abroad(sentence):
            return False
        around = range(max(holds[0].first - 2, sentence.first), min(holds[-1].last + 2, sentence.end))
        if any(self._tokens[at].word in _ELSE for at in around):
            return False  # `change nothing else` says that something is ordered
        named = self._names - _WHOLE_SITE
        told = (self._tokens[at].word for at in range(sentence.first, sentence.end) if at not in self._holds)
        if not wait and not named.isdisjoint(told):
            return False
        goes_on = self._words["contrast"]
        return not any(self._tokens[at].word in goes_on for at in range(holds[-1].last + 1, sentence.end))
