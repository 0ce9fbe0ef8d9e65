"""Sentences that move, add and take away; and how a whole request is read: every form that it fits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sandbox.spec.rules.forms import Add, Form, Move, Put, Remove, Replace, Step, Swap, Wordings
from sandbox.spec.rules.sayings import CHANGE, PLACE, SAYINGS, SHOULD, WANT
from sandbox.spec.rules.wording import Request

_BEFORE: Final = r"(?:above|before|over|ahead of|on top of)"
_AFTER: Final = r"(?:after|below|under|beneath|behind|underneath|following)"
_STAND: Final = r"(?:come|go|be|stand|appear|sit)"
_RIGHT: Final = r"(?:right |directly |just |immediately |straight )?"
_REMOVE: Final = r"(?:remove|delete|drop|get rid of|take out|take away|cut|erase|take off|scrap)"
_MOVE: Final = r"(?:move|put|place|shift|bring|reorder|show|display|position)"

_IN_FRONT: Final = re.compile(
    rf"{PLACE} (?P<where>(?:the |our |my )?[\w&' -]+?)(?:,| please| (?=(?:please )?{CHANGE} |{_REMOVE} ))(?: please)? ?"
    r"(?P<rest>.+)",
    re.I,
)

_ORDERS: Final = Wordings()


def forms_of(request: Request) -> Iterator[Form]:
    """Yield every form that a whole request fits."""
    text = request.text
    for part, where in _with_place(text):
        for form in (*SAYINGS.read(part), *_ORDERS.read(part)):
            yield form if where is None else _placed(form, where)


def _with_place(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield a sentence as it is, and without the place that it begins with ("on the classes page, ...")."""
    yield text, None
    if match := _IN_FRONT.match(text):
        yield match["rest"], match["where"]


def _placed(form: Form, where: str) -> Form:
    if isinstance(form, Put):
        return form._replace(target=f"{form.target} in {where}")
    if isinstance(form, Replace | Remove | Add) and form.where is None:
        return form._replace(where=where)
    return form


@_ORDERS(
    rf"{_REMOVE} (?P<what>.+)",
    r"take (?P<what>.+?) (?:off|away|out)(?: of)?(?: (?:the|our) (?:site|website|page))?",
    r"take (?P<what>.+?) out of (?P<where>.+)",
)
def _remove(match: re.Match[str]) -> Iterator[Form]:
    where = match.groupdict().get("where")
    whole = re.sub(r" from (?:the |our )?(?:site|website|page)$", "", match["what"], flags=re.I)
    yield Remove(whole, where)
    what, found, rest = whole.rpartition(" from ")
    if found and where is None:
        yield Remove(what, rest)


@_ORDERS(
    rf"{_MOVE} (?P<what>.+?) (?:to )?(?:be )?{_RIGHT}(?P<way>{_BEFORE}|{_AFTER}) (?P<anchor>.+)",
    rf"(?P<what>.+?) {SHOULD} {_STAND} {_RIGHT}(?P<way>{_BEFORE}|{_AFTER}) (?P<anchor>.+)",
    rf"{WANT} (?P<what>.+?) (?:to {_STAND} )?{_RIGHT}(?P<way>{_BEFORE}|{_AFTER}) (?P<anchor>.+)",
)
def _move(match: re.Match[str]) -> Iterator[Form]:
    is_before = re.fullmatch(_BEFORE, match["way"], re.I)
    yield Move(match["what"], "before" if is_before else "after", match["anchor"])


@_ORDERS(
    rf"{_MOVE} (?P<what>.+?) (?:to|at) the (?:very )?(?P<end>top|bottom|start|beginning|end)(?: of the page)?",
    rf"(?P<what>.+?) {SHOULD} {_STAND} (?:at|to) the (?:very )?(?P<end>top|bottom|end)(?: of the page)?",
    rf"{WANT} (?P<what>.+?) at the (?:very )?(?P<end>top|bottom|end)(?: of the page)?",
)
def _move_to_end(match: re.Match[str]) -> Iterator[Form]:
    yield Move(match["what"], "bottom" if match["end"].lower() in ("bottom", "end") else "top")


_ONE: Final = r"(?: (?:by )?one(?: (?:place|position|spot|section|step))?)?"


@_ORDERS(
    rf"{_MOVE} (?P<what>.+?) (?P<way>up|down|higher|lower){_ONE}",
    rf"{_MOVE} (?P<what>.+?) one (?:place|position|spot|section|step) (?P<way>up|down|higher|lower)",
)
def _move_by_one(match: re.Match[str]) -> Iterator[Form]:
    yield Move(match["what"], "down" if match["way"].lower() in ("down", "lower") else "up")


@_ORDERS(
    r"(?:swap|exchange|switch)(?: the (?:order|positions?|places) of)? (?P<first>.+?) (?:and|with) "
    r"(?P<second>.+?)(?: around)?"
)
def _swap(match: re.Match[str]) -> Iterator[Form]:
    yield Swap(match["first"], match["second"])


@_ORDERS(r"(?:add|insert|include|create) (?P<rest>.+)")
def _add(match: re.Match[str]) -> Iterator[Form]:
    yield Add(match["rest"])


@_ORDERS(
    r"(?:use |add )?(?P<way>more|less) (?P<what>.+)", r"(?P<way>increase|reduce|decrease) (?P<what>.+)",
    r"make (?P<what>.+?) (?P<way>more|less) (?P<how>compact|airy|spacious|dense)",
)  # fmt: skip
def _step(match: re.Match[str]) -> Iterator[Form]:
    is_more = match["way"].lower() in ("more", "increase")
    is_reversed = (match.groupdict().get("how") or "").lower() in ("compact", "dense")
    yield Step(match["what"], is_more != is_reversed)
