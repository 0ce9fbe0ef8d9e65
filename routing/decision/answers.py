"""Whether a prompt is answered and nothing is done: the rules decide, then the second opinion where none is certain."""

from __future__ import annotations

from routing.decision.second_opinion import Opinion, shipped_model
from routing.decision.triggers import Trigger
from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt, Talk, classify_talk

LEAST = 0.75
"""The least probability of a question in which no rule finds one: an order that is answered is not done."""
WISHED = 0.95
"""The same of a wish, and of a fact with its new value: `could we have one too`, `her name is Smith now`."""
_WISHES = ("suggestion", "wish", "asks_for_it", "vague", "told_fact")
ALONE = 0.5
"""Below this probability, what one statement of several sentences says is no mere talk."""
ORDERING = 0.3
"""Below this probability, what the rules take for a question is work."""
_ABLE = frozenset(
    {"tu", "vous", "kannst", "konnt", "konntest", "konntet", "sollte", "sollten", "podeis", "puedes", "podrias"}
    | {"podriais", "deberia", "potete", "puoi", "dovrebbe", "faudrait"}
)
"""Words that only with others ask for something: `c'est combien chez vous`."""


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
    if opinion is not None and not (parsed.has_reference or parsed.text.cut or _orders_plainly(parsed)):
        is_wished = parsed.found(*_WISHES)
        if talk is None and opinion.only_asks >= (WISHED if is_wished else LEAST) and not _hides_order(parsed):
            return Talk.OPINION
        if talk is not None and opinion.only_asks < ORDERING and SentenceIntent.HOLD not in parsed.intents:
            return None
    if talk is not None or is_bound:
        return talk
    return None if triggers or parsed.has_reference or parsed.text.cut else Talk.CHAT


def _orders_plainly(parsed: ParsedPrompt) -> bool:
    """Return whether a verb gives an order in a sentence that asks nothing, whatever the sentences around it say."""
    words = parsed.vocabulary.words
    abroad = words["order_abroad"] - words["politeness"] - _ABLE
    told = tuple(at for at, token in enumerate(parsed.tokens) if token.word in abroad)
    orders = {SentenceIntent.ORDER: parsed.orders, SentenceIntent.STATEMENT: told}
    return any(
        not sentence.asks and any(sentence.first <= at < sentence.end for at in orders.get(intent, ()))
        for sentence, intent in zip(parsed.sentences, parsed.intents, strict=True)
    )


def _hides_order(parsed: ParsedPrompt) -> bool:
    """Return whether a statement or question, read without its neighbours, is unlikely to be small talk."""
    if len(parsed.sentences) == 1 or parsed.found("hold"):
        return False
    return any(
        shipped_model().read(parsed, None, alone=at).only_asks < ALONE
        for at, intent in enumerate(parsed.intents)
        if intent not in (SentenceIntent.QUESTION, SentenceIntent.CHAT)
    )
