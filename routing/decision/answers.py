"""Whether a prompt is answered and nothing is done: the rules decide, then the second opinion where none is certain."""

from __future__ import annotations

from routing.decision.second_opinion import Opinion, shipped_model
from routing.decision.triggers import Trigger
from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt, Talk, classify_talk

LEAST = 0.72
"""The least probability of a question in which no rule finds one: an order that is answered is not done."""
WISHED = 0.95
"""The same of a suggestion, and of a fact with its new value: `could we have one too`, `her name is Smith now`."""
ALONE = 0.3
"""Below this probability, what one sentence says is no mere talk, whatever stands beside it."""
ORDERING = 0.3
"""Below this probability, what the rules take for a question is work."""
_ABLE = frozenset(
    {"tu", "vous", "kannst", "konnt", "konntest", "konntet", "sollte", "sollten", "podeis", "puedes", "podrias"}
    | {"podriais", "deberia", "potete", "puoi", "dovrebbe", "faudrait"}
)
"""Words that only with others ask for something: `c'est combien chez vous`."""

_OPENING = frozenset({"let's", "lets"})
"""Before a verb, these and `please` begin an order; a comma does where its object follows the verb."""
_UP = frozenset({"up", "down", "it", "them"})
_STAYS = frozenset({"leave", "keep", "say", "check", "look", "compare", "try", "take", "show"})
"""Verbs that order nothing there: `let's leave it there`, `let's go with red` does."""


def classify_answer(
    parsed: ParsedPrompt,
    triggers: tuple[Trigger, ...],
    *,
    is_bound: bool,
    opinion: Opinion | None = None,
) -> Talk | None:
    """Return why the prompt is an ANSWER, or None for an ACTION.

    A request bound to a site or project is an ACTION unless it only asks or chats. An unbound one needs a trigger (A4).
    """
    talk = classify_talk(parsed)
    if opinion is not None and not (parsed.has_reference or parsed.text.cut):
        least = WISHED if parsed.found("suggestion", "told_fact") else LEAST
        if talk is None and opinion.only_asks >= least and not _hides_order(parsed):
            return Talk.OPINION
        if talk is not None and opinion.only_asks < ORDERING and SentenceIntent.HOLD not in parsed.intents:
            return None
    if talk is not None or is_bound:
        return talk
    return None if triggers or parsed.has_reference or parsed.text.cut else Talk.CHAT


def _hides_order(parsed: ParsedPrompt) -> bool:
    """Return whether a sentence begins with an order, orders in another language or is hardly small talk by itself."""
    if parsed.found("hold"):
        return False
    words = parsed.vocabulary.words
    opening, ordering = _OPENING | words["courtesy"], words["order"] - _STAYS
    for at in parsed.orders:
        sentence = parsed.sentences[parsed.sentence_of(at)]
        if sentence.asks or parsed.tokens[at].word not in ordering:
            continue
        before = parsed.tokens[at - 1].word if at > sentence.first else ""
        after = parsed.tokens[at + 1].word if at + 1 < sentence.end else ""
        if not before or before in opening:
            return True
        if before == "," and (after in words["determiner"] or after in _UP):  # not `..., change requests are free`
            return True
    abroad = words["order_abroad"] - words["politeness"] - _ABLE
    for at, (sentence, intent) in enumerate(zip(parsed.sentences, parsed.intents, strict=True)):
        if intent in (SentenceIntent.QUESTION, SentenceIntent.CHAT):
            continue
        spoken = {token.word for token in parsed.tokens[sentence.first : sentence.end]}
        if intent is SentenceIntent.STATEMENT and not sentence.asks and not abroad.isdisjoint(spoken):
            return True
        if shipped_model().read(parsed, None, alone=at).only_asks < ALONE:
            return True
    return False
