"""Parse a sentence into the few forms of orders that the rules look up on a site.

"Change X to Y", "X should say Y", "I want X to be Y", "use Y as X" and "X: Y" are one form, so each kind of target
understands every wording. A sentence may fit several forms or be cut in several ways; all are returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sites.direct_edit.request import QUOTED, Request
from sites.spec.model import Site


@dataclass(frozen=True)
class DirectEdit:
    """One change that needs no model, for one particular site."""

    kind: str
    """The kind of change: `text`, `replace`, `colour`, `font`, `remove`, ..."""
    summary: str
    """One plain sentence for the receipt."""
    operations: tuple[Mapping[str, Any], ...]
    """RFC 6902 operations on the site document."""
    sought: tuple[str, ...] = ()
    """What was searched for on the whole site; pages outside the spec must not contain it."""


def setting(kind: str, summary: str, *, path: str, value: Any, is_new: bool = False) -> DirectEdit:
    """Return the change of one value."""
    return DirectEdit(kind, summary, ({"op": "add" if is_new else "replace", "path": path, "value": value},))


class Put(NamedTuple):
    """Set a target to a value, both as phrases."""

    target: str
    value: str
    old: str | None = None
    """The stated current value."""


class Replace(NamedTuple):
    """Replace one text by another."""

    old: str
    new: str
    where: str | None = None
    is_everywhere: bool = False


class Remove(NamedTuple):
    """Remove something."""

    what: str
    where: str | None = None


class Move(NamedTuple):
    """Move a section before or after another, up or down by one, or to the top or bottom."""

    what: str
    way: str
    anchor: str | None = None


class Swap(NamedTuple):
    """Exchange the places of two sections."""

    first: str
    second: str


class Add(NamedTuple):
    """Add something; the text after the verb."""

    rest: str
    where: str | None = None


class Step(NamedTuple):
    """Make something more or less."""

    what: str
    is_more: bool


Form = Put | Replace | Remove | Move | Swap | Add | Step


Rules = Mapping[type, tuple[Callable[[Any, Request, Site], Iterator[DirectEdit]], ...]]
"""The meanings of each form on a site; all are yielded, because only a single one is carried out."""
Build = Callable[["re.Match[str]"], Iterator[Form]]


_WORDINGS: Final[list[tuple[re.Pattern[str], Build]]] = []
"""Patterns for whole sentences, with the function that builds their forms."""


def _wording(*patterns: str) -> Callable[[Build], Build]:
    """Register the decorated function for some patterns."""

    def add(build: Build) -> Build:
        _WORDINGS.extend((re.compile(pattern, re.I), build) for pattern in patterns)
        return build

    return add


_MAX_CUTS: Final = 14
_Q: Final = f"(?:{QUOTED})"
CHANGE: Final = (
    r"(?:change|set|update|edit|switch|rename|retitle|replace|swap|alter|modify|rewrite|turn|correct|fix|adjust|raise"
    r"|lower|increase|reduce|relabel|reword)"
)
_TO: Final = re.compile(
    r" (?:so (?:that )?it (?:says|reads)|to say|to read|to be|to show|to|into|with|as|for|be|say|read):? "
    r"| ?(?:=>|->|→|=) ?|: ?",
    re.I,
)
SHOULD: Final = r"(?:should|must|needs to|need to|has to|have to|ought to|shall)"
_BE: Final = r"(?:now )?(?:be|say|read|become|show|have|use|state)(?: (?:changed to|set to|replaced (?:by|with)))?:?"
_CALLED: Final = r"(?:now )?be (?:called|named|titled|renamed to)"
_NOW: Final = (
    r"(?:is now|are now|has changed to|have changed to|(?:has|have) become|changed to|changes to"
    r"|will now be|will be)"
)
WANT: Final = r"(?:i|we)(?:'d| would)? (?:really )?(?:want|like|need|prefer)"
_LEAD_TO: Final = r"(?:now )?(?:link to|point to|lead to|go to|open|take (?:people|visitors|you) to|link to|direct to)"
PLACE: Final = r"(?:on|in|at|for|within|under)"
_REPLACE: Final = r"(?:replace|change|swap|substitute|rename|update|correct|fix|turn|exchange|reword)"
_NOUN: Final = r"(?:(?:the )?(?:text|words?|phrase|typo|spelling|sentence|line|wording|name)(?: from)?:? )?"
_ALL: Final = r"(?:every|all|each)(?: (?:the )?(?:occurrences?|instances?|mentions?))?(?: of)?"
_EVERYWHERE: Final = (
    r"(?P<all>,? (?:everywhere|throughout(?: the (?:site|website))?|on (?:all|every) pages?|across the (?:site|website)"
    r"|on the whole (?:site|website)|site-?wide))?"
)


@_wording(r"(?:replace|swap|substitute|exchange) (?P<target>.+?) by (?P<value>.+)")
def _by(match: re.Match[str]) -> Iterator[Form]:
    """Accept "by" only after verbs of exchange: "increase the price by €5" names a difference."""
    yield from _put(match["target"], match["value"])


@_wording(rf"(?:{CHANGE}|make|use|let|have) (?P<rest>.+)")
def _change(match: re.Match[str]) -> Iterator[Form]:
    """Try every "to" of a sentence as the one between target and value."""
    rest = match["rest"]
    for middle in list(_TO.finditer(rest))[:_MAX_CUTS]:
        yield from _put(rest[: middle.start()], rest[middle.end() :])


@_wording(
    rf"(?P<target>.+?) {SHOULD} {_BE} (?P<value>.+)",
    rf"(?P<target>.+?) {_NOW} (?P<value>.+)",
    r"(?:the |our |my )?new (?P<target>.+?)(?: is|:| =) (?P<value>.+)",
    rf"{WANT} (?P<target>.+?) to {_BE} (?P<value>.+)",
    r"(?:make|let|have) (?P<target>.+?) (?:say|read|show|be|use)(?::)? (?P<value>.+)",
    r"(?:use|put|write|have|take|show) (?P<value>.+?) (?:as|for|in|on) (?P<target>.+)",
    rf"{WANT} (?P<value>.+?) (?:as|for) (?P<target>.+)",
    r"make (?P<value>.+?) (?P<target>(?:the |our |my ).+)",
    r"(?P<target>[^:=]{3,80}?)(?:: ?| = | -> | → )(?P<value>.+)",
    rf"(?P<target>[^:=]{{3,80}}?) [-–—] (?P<value>{_Q})",
)
def _say(match: re.Match[str]) -> Iterator[Form]:
    yield from _put(match["target"], match["value"])


@_wording(
    rf"(?:make|let|have) (?P<target>.+?) {_LEAD_TO} (?P<value>.+)",
    rf"(?P<target>.+?) {SHOULD} {_LEAD_TO} (?P<value>.+)",
    rf"{CHANGE} (?P<target>.+?) to {_LEAD_TO} (?P<value>.+)",
    rf"{WANT} (?P<target>.+?) to {_LEAD_TO} (?P<value>.+)",
    r"(?:link|point|direct|connect) (?P<target>.+?) (?:to|at) (?P<value>.+)",
)
def _lead(match: re.Match[str]) -> Iterator[Form]:
    yield from _put(f"link of {match['target']}", match["value"])


@_wording(
    r"(?:rename|retitle) (?P<target>.+?) (?:to|as|into) (?P<value>.+)",
    rf"(?P<target>.+?) {SHOULD} {_CALLED} (?P<value>.+)",
    rf"{WANT} (?P<target>.+?) to {_CALLED} (?P<value>.+)",
    rf"(?:call|name|title|label) (?P<target>.+?) (?P<value>{_Q})",
)
def _call(match: re.Match[str]) -> Iterator[Form]:
    """Set the heading or the name: few things have both.

    A bare quotation is a text that may be anywhere, not a thing with a heading.
    """
    if re.fullmatch(_Q, match["target"].strip()):
        return
    yield from _put(f"heading of {match['target']}", match["value"])
    yield from _put(f"name of {match['target']}", match["value"])


@_wording(r"(?:make|turn|set|use|switch to|change to|go|enable|turn on|apply|always use) (?P<rest>.+)")
def _make(match: re.Match[str]) -> Iterator[Form]:
    """Cut between any two words: "make the corners very rounded", and backwards, "use a serif font"."""
    words = match["rest"].split(" ")
    for cut in range(1, min(len(words), _MAX_CUTS)):
        first, second = " ".join(words[:cut]), " ".join(words[cut:])
        yield from _put(first, second)
        yield from _put(second, first)


@_wording(r"give (?P<what>.+)")
def _give(match: re.Match[str]) -> Iterator[Form]:
    """Read "give the FAQ a dark background" as "the background of the FAQ is dark"."""
    words = match["what"].split(" ")
    for cut in range(2, min(len(words), _MAX_CUTS)):
        value = " ".join(words[cut - 1 : -1])
        yield from _put(f"{words[-1]} of {' '.join(words[: cut - 1])}", re.sub(r"^an? ", "", value, flags=re.I))


@_wording(r"(?P<what>.+?) (?:now )?costs? (?:now )?(?P<value>.+)", rf"(?P<what>.+?) {SHOULD} cost (?P<value>.+)")
def _cost(match: re.Match[str]) -> Iterator[Form]:
    yield Put(f"price of {match['what']}", match["value"])


@_wording(rf"(?:{PLACE} )?(?P<days>.+?),? we(?:'re| are)(?: now)? (?:open|there)(?: from)? (?P<value>.+)")
def _open(match: re.Match[str]) -> Iterator[Form]:
    yield Put(f"{match['days']} hours", match["value"])


@_wording(
    rf"{_REPLACE} {_NOUN}(?P<old>{_Q}) ?(?:with|by|to|for|into|->|→|=>)(?: (?:say|read))? (?P<new>{_Q})"
    rf"(?: {PLACE} (?P<where>(?!all |every )[\w&' -]+?))?{_EVERYWHERE}",
    rf"{_REPLACE} (?P<all>{_ALL}) (?P<old>{_Q}) (?:with|by|to|for|into) (?P<new>{_Q})",
    rf"{_NOUN}(?P<old>{_Q}) (?:{SHOULD} (?:be|say|read|become)|(?:->|→|=>|becomes))(?: changed to)? (?P<new>{_Q})",
    rf"{WANT} {_NOUN}(?P<old>{_Q}) to (?:be|say|read|become) (?P<new>{_Q})",
    rf"(?:{_REPLACE} {_NOUN})?instead of (?P<old>{_Q}),? (?:write|say|put|use|it should (?:say|read|be)) (?P<new>{_Q})",
    rf"(?:write|put|say|use) (?P<new>{_Q}) instead of (?P<old>{_Q})",
    rf"where (?:it|the (?:page|site|text)) says (?P<old>{_Q}),? "
    rf"(?:it should (?:say|read|be)|(?:please )?(?:write|put)) (?P<new>{_Q})",
)
def _replace(match: re.Match[str]) -> Iterator[Form]:
    found = match.groupdict()
    yield Replace(found["old"], found["new"], found.get("where"), is_everywhere=bool(found.get("all")))


def _put(target: str, value: str) -> Iterator[Form]:
    """Yield the forms of a target and a value; "from Z" in the target states the current value."""
    target, value = target.strip(" ,"), value.strip()
    if not target or not value:
        return
    yield Put(target, value)
    what, found, old = target.rpartition(" from ")
    if found:
        yield Put(what, value, old)
    if match := re.fullmatch(rf"(?P<value>{_Q}) (?P<where>{PLACE} .+)", value):
        yield Put(f"{target} {match['where']}", match["value"])


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


def forms_of(request: Request) -> Iterator[Form]:
    """Yield every form that a whole request matches."""
    text = request.text
    for part, where in _with_place(text):
        for pattern, build in _WORDINGS:
            if match := pattern.fullmatch(part):
                yield from (form if where is None else _placed(form, where) for form in build(match))


def _with_place(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield a sentence as it is, and without a leading place ("on the classes page, ...")."""
    yield text, None
    if match := _IN_FRONT.match(text):
        yield match["rest"], match["where"]


def _placed(form: Form, where: str) -> Form:
    if isinstance(form, Put):
        return form._replace(target=f"{form.target} in {where}")
    if isinstance(form, Replace | Remove | Add) and form.where is None:
        return form._replace(where=where)
    return form


@_wording(
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


@_wording(
    rf"{_MOVE} (?P<what>.+?) (?:to )?(?:be )?{_RIGHT}(?P<way>{_BEFORE}|{_AFTER}) (?P<anchor>.+)",
    rf"(?P<what>.+?) {SHOULD} {_STAND} {_RIGHT}(?P<way>{_BEFORE}|{_AFTER}) (?P<anchor>.+)",
    rf"{WANT} (?P<what>.+?) (?:to {_STAND} )?{_RIGHT}(?P<way>{_BEFORE}|{_AFTER}) (?P<anchor>.+)",
)
def _move(match: re.Match[str]) -> Iterator[Form]:
    is_before = re.fullmatch(_BEFORE, match["way"], re.I)
    yield Move(match["what"], "before" if is_before else "after", match["anchor"])


@_wording(
    rf"{_MOVE} (?P<what>.+?) (?:to|at) the (?:very )?(?P<end>top|bottom|start|beginning|end)(?: of the page)?",
    rf"(?P<what>.+?) {SHOULD} {_STAND} (?:at|to) the (?:very )?(?P<end>top|bottom|end)(?: of the page)?",
    rf"{WANT} (?P<what>.+?) at the (?:very )?(?P<end>top|bottom|end)(?: of the page)?",
)
def _move_to_end(match: re.Match[str]) -> Iterator[Form]:
    yield Move(match["what"], "bottom" if match["end"].lower() in ("bottom", "end") else "top")


_ONE: Final = r"(?: (?:by )?one(?: (?:place|position|spot|section|step))?)?"


@_wording(
    rf"{_MOVE} (?P<what>.+?) (?P<way>up|down|higher|lower){_ONE}",
    rf"{_MOVE} (?P<what>.+?) one (?:place|position|spot|section|step) (?P<way>up|down|higher|lower)",
)
def _move_by_one(match: re.Match[str]) -> Iterator[Form]:
    yield Move(match["what"], "down" if match["way"].lower() in ("down", "lower") else "up")


@_wording(
    r"(?:swap|exchange|switch)(?: the (?:order|positions?|places) of)? (?P<first>.+?) (?:and|with) "
    r"(?P<second>.+?)(?: around)?"
)
def _swap(match: re.Match[str]) -> Iterator[Form]:
    yield Swap(match["first"], match["second"])


@_wording(r"(?:add|insert|include|create) (?P<rest>.+)")
def _add(match: re.Match[str]) -> Iterator[Form]:
    yield Add(match["rest"])


@_wording(
    r"(?:use |add )?(?P<way>more|less) (?P<what>.+)",
    r"(?P<way>increase|reduce|decrease) (?P<what>.+)",
    r"make (?P<what>.+?) (?P<way>more|less) (?P<how>compact|airy|spacious|dense)",
)
def _step(match: re.Match[str]) -> Iterator[Form]:
    is_more = match["way"].lower() in ("more", "increase")
    is_reversed = (match.groupdict().get("how") or "").lower() in ("compact", "dense")
    yield Step(match["what"], is_more != is_reversed)
