"""Sentences that say what something is to be: set, rename, link, price, and write one text instead of another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sandbox.spec.rules.forms import Form, Put, Replace, Wordings
from sandbox.spec.rules.wording import QUOTED

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

SAYINGS: Final = Wordings()


@SAYINGS(r"(?:replace|swap|substitute|exchange) (?P<target>.+?) by (?P<value>.+)")
def _by(match: re.Match[str]) -> Iterator[Form]:
    """Read "by" after verbs of exchange alone: "increase the price by €5" names a difference."""
    yield from _put(match["target"], match["value"])


@SAYINGS(rf"(?:{CHANGE}|make|use|let|have) (?P<rest>.+)")
def _change(match: re.Match[str]) -> Iterator[Form]:
    """Try every "to" of a sentence as the one between what is changed and what it becomes."""
    rest = match["rest"]
    for middle in list(_TO.finditer(rest))[:_MAX_CUTS]:
        yield from _put(rest[: middle.start()], rest[middle.end() :])


@SAYINGS(
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


@SAYINGS(
    rf"(?:make|let|have) (?P<target>.+?) {_LEAD_TO} (?P<value>.+)",
    rf"(?P<target>.+?) {SHOULD} {_LEAD_TO} (?P<value>.+)",
    rf"{CHANGE} (?P<target>.+?) to {_LEAD_TO} (?P<value>.+)",
    rf"{WANT} (?P<target>.+?) to {_LEAD_TO} (?P<value>.+)",
    r"(?:link|point|direct|connect) (?P<target>.+?) (?:to|at) (?P<value>.+)",
)
def _lead(match: re.Match[str]) -> Iterator[Form]:
    yield from _put(f"link of {match['target']}", match["value"])


@SAYINGS(
    r"(?:rename|retitle) (?P<target>.+?) (?:to|as|into) (?P<value>.+)",
    rf"(?P<target>.+?) {SHOULD} {_CALLED} (?P<value>.+)",
    rf"{WANT} (?P<target>.+?) to {_CALLED} (?P<value>.+)",
    rf"(?:call|name|title|label) (?P<target>.+?) (?P<value>{_Q})",
)
def _call(match: re.Match[str]) -> Iterator[Form]:
    """Read what something is to be called as its heading, and as its name: few things have both.

    A bare quotation is a text that may stand anywhere, not a thing that has a heading.
    """
    if re.fullmatch(_Q, match["target"].strip()):
        return
    yield from _put(f"heading of {match['target']}", match["value"])
    yield from _put(f"name of {match['target']}", match["value"])


@SAYINGS(r"(?:make|turn|set|use|switch to|change to|go|enable|turn on|apply|always use) (?P<rest>.+)")
def _make(match: re.Match[str]) -> Iterator[Form]:
    """Cut between any two words: "make the corners very rounded", and backwards, "use a serif font"."""
    words = match["rest"].split(" ")
    for cut in range(1, min(len(words), _MAX_CUTS)):
        first, second = " ".join(words[:cut]), " ".join(words[cut:])
        yield from _put(first, second)
        yield from _put(second, first)


@SAYINGS(r"give (?P<what>.+)")
def _give(match: re.Match[str]) -> Iterator[Form]:
    """Read "give the FAQ a dark background" as "the background of the FAQ is dark"."""
    words = match["what"].split(" ")
    for cut in range(2, min(len(words), _MAX_CUTS)):
        value = " ".join(words[cut - 1 : -1])
        yield from _put(f"{words[-1]} of {' '.join(words[: cut - 1])}", re.sub(r"^an? ", "", value, flags=re.I))


@SAYINGS(r"(?P<what>.+?) (?:now )?costs? (?:now )?(?P<value>.+)", rf"(?P<what>.+?) {SHOULD} cost (?P<value>.+)")
def _cost(match: re.Match[str]) -> Iterator[Form]:
    yield Put(f"price of {match['what']}", match["value"])


@SAYINGS(rf"(?:{PLACE} )?(?P<days>.+?),? we(?:'re| are)(?: now)? (?:open|there)(?: from)? (?P<value>.+)")
def _open(match: re.Match[str]) -> Iterator[Form]:
    yield Put(f"{match['days']} hours", match["value"])


@SAYINGS(
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
    """Yield the reading of a target and a value; "from Z" in the target says what it is now."""
    target, value = target.strip(" ,"), value.strip()
    if not target or not value:
        return
    yield Put(target, value)
    what, found, old = target.rpartition(" from ")
    if found:
        yield Put(what, value, old)
    if match := re.fullmatch(rf"(?P<value>{_Q}) (?P<where>{PLACE} .+)", value):
        yield Put(f"{target} {match['where']}", match["value"])
