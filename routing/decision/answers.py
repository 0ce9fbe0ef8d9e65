"""Whether a prompt is answered and nothing is done: the rules decide, then the second opinion where none is certain."""

from __future__ import annotations

from routing.decision.second_opinion import Opinion, shipped_model
from routing.decision.triggers import Trigger
from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt, Talk, classify_talk

MARKED = 0.6
"""The least probability of a question in which no rule finds one, with a question mark."""
UNMARKED = 0.78
"""The same without one: an order that is answered is not done."""
ORDERLY = 0.85
"""The same beside words of an order, and with a question beside a statement: `When will you? I did ask for it`."""
CERTAIN = 0.9
"""The same beside a defect, and where a site is still to be made."""
HELD = 0.15
"""The same of a prompt that asks and says itself that nothing is to change."""
ALONE = 0.63
"""Below this probability, what one sentence says is no mere talk."""
ORDERING = 0.3
"""Below this probability, what the rules take for a question is work."""
_WANTED = ("suggestion", "wish", "asks_for_it", "vague", "bulk", "destructive", "deployment")
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
    is_new: bool = False,
    opinion: Opinion | None = None,
) -> Talk | None:
    """Return why the prompt is an ANSWER, or None for an ACTION.

    A request bound to a site or project is an ACTION unless it only asks or chats. An unbound one needs a trigger (A4).
    """
    talk = classify_talk(parsed)
    if opinion is not None and not (parsed.has_reference or parsed.text.cut or _orders_plainly(parsed)):
        held = _is_held(parsed)
        least = HELD if held else _least(parsed, is_new=is_new)
        if talk is None and opinion.only_asks >= least and (held or not _hides_order(parsed)):
            return Talk.OPINION
        if talk is not None and opinion.only_asks < ORDERING and SentenceIntent.HOLD not in parsed.intents:
            return None
    if talk is not None or is_bound:
        return talk
    return None if triggers or parsed.has_reference or parsed.text.cut else Talk.CHAT


def _least(parsed: ParsedPrompt, *, is_new: bool) -> float:
    """Return the least probability at which a prompt is answered, though no rule says so."""
    if is_new or SentenceIntent.DEFECT in parsed.intents:
        return CERTAIN
    if parsed.found(*_WANTED):
        return ORDERLY
    if not any(sentence.asks for sentence in parsed.sentences):
        return UNMARKED
    return ORDERLY if SentenceIntent.STATEMENT in parsed.intents and len(parsed.sentences) > 1 else MARKED


def _orders_plainly(parsed: ParsedPrompt) -> bool:
    """Return whether a verb orders in a sentence that asks nothing, whatever stands beside it."""
    words = parsed.vocabulary.words
    abroad = words["order_abroad"] - words["politeness"] - _ABLE
    told = tuple(at for at, token in enumerate(parsed.tokens) if token.word in abroad)
    orders = {SentenceIntent.ORDER: parsed.orders, SentenceIntent.STATEMENT: told}
    return any(
        not sentence.asks and any(sentence.first <= at < sentence.end for at in orders.get(intent, ()))
        for sentence, intent in zip(parsed.sentences, parsed.intents, strict=True)
    )


def _is_held(parsed: ParsedPrompt) -> bool:
    """Return whether a prompt asks, orders nothing and holds back: `Does it? Just tell me, don't edit`."""
    doing = {SentenceIntent.ORDER, SentenceIntent.DEFECT}
    return parsed.found("hold") and SentenceIntent.QUESTION in parsed.intents and doing.isdisjoint(parsed.intents)


def _hides_order(parsed: ParsedPrompt) -> bool:
    """Return whether a statement beside a question wishes, or would alone hardly be taken for mere talk."""
    if len(parsed.sentences) == 1:
        return False
    if parsed.found("asks_for_it") and SentenceIntent.STATEMENT in parsed.intents:
        return True
    model = shipped_model()
    return any(
        parsed.hits_in("wish", sentence) or model.read(parsed, None, alone=at).only_asks < ALONE
        for at, (sentence, intent) in enumerate(zip(parsed.sentences, parsed.intents, strict=True))
        if intent not in (SentenceIntent.QUESTION, SentenceIntent.CHAT)
    )
