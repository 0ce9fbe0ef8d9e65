"""An HTML tokenizer that follows browsers, and reports markup that browsers may read differently (threat G6).

Tree builders drop what they cannot place: lxml loses the handlers of a second `<body>`, cuts pages at 256 levels, and
needs minutes for a tag with a million attributes. Browsers may keep it, so here every start tag counts wherever it
stands. What depends on the tree, raw text and foreign content in <svg> and <math>, is exact for well-nested pages;
every other page is reported as ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from html.entities import html5
from typing import NamedTuple

MAX_TAGS = 300_000
MAX_ATTRIBUTES = 600_000
MAX_MARKS = 600_000
MAX_ATTRIBUTES_PER_TAG = 300
_MAX_DOUBTS = 20
_MAX_FOREIGN_DEPTH = 100

_TAG_NAME = re.compile(r"[A-Za-z][^\t\n\f\r />]*")
_ATTRIBUTE = re.compile(
    r"[\t\n\f\r /]*+(?P<name>=?[^\t\n\f\r />=]*+)"
    r"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"(?P<double>[^\"]*+)(?P<closed2>\"?)|'(?P<single>[^']*+)(?P<closed1>'?)"
    r"|(?P<bare>[^\t\n\f\r >\"'][^\t\n\f\r >]*+)|(?=>)))?+"
)
_MARK = re.compile(r"<(?=[A-Za-z/!?])")
_COMMENT_END = re.compile(r"--!?>")
_SCRIPT_STEP = re.compile(r"<!--|-->|<(/?)script(?=[\t\n\f\r />])", re.IGNORECASE | re.ASCII)
_UPPER_ASCII = re.compile(r"[A-Z]+")
_REFERENCE = re.compile(r"&(#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[A-Za-z][A-Za-z0-9]*;?)(=?)")

_RAW_TEXT = frozenset({"style", "title", "textarea", "noscript", "xmp", "iframe", "noembed", "noframes"})
_RAW_TEXT_ENDS = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE | re.ASCII) for name in _RAW_TEXT}
_FOREIGN = frozenset({"svg", "math"})
_TEXT_INSIDE_FOREIGN = frozenset({"desc", "title", "mi", "mo", "mn", "ms", "mtext"})
_MIXED_INSIDE_FOREIGN = frozenset({"foreignobject", "annotation-xml"})
_IN_SELECT = frozenset({"option", "optgroup", "hr", "script"})
_BREAKS_OUT_NAMES = """
b big blockquote body br center code dd div dl dt em embed font h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta
nobr ol p pre ruby s small span strike strong sub sup table tt u ul var
"""
_BREAKS_OUT = frozenset(_BREAKS_OUT_NAMES.split())


class Attribute(NamedTuple):
    """An attribute of a start tag."""

    name: str
    """In lower case."""
    value: str
    """With character references resolved."""


class _Parts(NamedTuple):
    """The parts of a tag."""

    name: str
    attributes: tuple[Attribute, ...]
    end: int
    """The position after `>`; -1 if the page ends first, which makes no tag."""
    is_self_closing: bool


_NO_TAG = _Parts("", (), -1, False)


class Tag(NamedTuple):
    """A start tag."""

    name: str
    """In lower case."""
    attributes: tuple[Attribute, ...]
    is_foreign: bool
    """Whether it stands inside <svg> or <math>."""
    line: int
    """Of the file, counted from 1."""
    text: str | None = None
    """The text up to its end tag, for <script>, <style> and the elements that have raw text."""
    text_line: int = 0

    def get(self, name: str) -> str | None:
        """Return an attribute's value as a browser sees it: the first of its name."""
        return next((attribute.value for attribute in self.attributes if attribute.name == name), None)


@dataclass
class MarkupBudget:
    """How much markup one scan still reads."""

    tags: int = MAX_TAGS
    """Start tags."""
    attributes: int = MAX_ATTRIBUTES
    """Attributes, and character references in them."""
    marks: int = MAX_MARKS
    """Everything else that begins with `<`."""

    @property
    def is_spent(self) -> bool:
        """Whether more was read than is allowed."""
        return self.tags < 0 or self.attributes < 0 or self.marks < 0


@dataclass
class Page:
    """A page that is being read."""

    text: str
    """With CR LF and CR normalized to LF, as browsers do first."""
    budget: MarkupBudget
    first_line: int = 1
    has_scripts: bool = True
    """Whether the browser runs scripts and so reads <noscript> as text."""
    ambiguous: list[tuple[int, str]] = field(default_factory=list)
    """Lines with markup that browsers may read in two ways."""
    too_complex: bool = False
    """Whether the page exceeded a limit and was not read to its end."""
    _lines: int = 0
    _counted: int = 0
    _nest: list[str] = field(default_factory=list)
    """The open elements from the outermost <svg> or <math>; empty outside of them."""
    _in_select: bool = False
    _has_template: bool = False
    _is_cut: bool = False
    """Whether the text ended inside a tag or a comment."""

    def tags(self) -> Iterator[Tag]:
        """Yield the start tags of the page in order."""
        text = self.text
        position = 0
        budget = self.budget
        while found := _MARK.search(text, position):
            start = found.start()
            follow = text[start + 1]
            if follow == "/":
                budget.marks -= 1
                position = self._end_tag(start)
            elif follow in "!?":
                budget.marks -= 1
                position = self._declaration(start)
            else:
                tag, position = self._start_tag(start)
                if tag is None:
                    self._is_cut = True
                    break
                budget.tags -= 1
                budget.attributes -= len(tag.attributes)
                if budget.tags < 0 or budget.attributes < 0:
                    break
                yield tag
            if budget.marks < 0:
                break
        self.too_complex = self.too_complex or budget.is_spent
        if self._is_cut and not self.too_complex:
            self._doubt(len(text), "ends inside a tag or a comment")
        elif not self.has_scripts and (self._nest or self._in_select):
            self._doubt(len(text), "<noscript> ends inside of what it holds")

    def _start_tag(self, start: int) -> tuple[Tag | None, int]:
        name, attributes, end, is_self_closing = self._tag_parts(start + 1)
        if end < 0:
            return None, end
        is_foreign = bool(self._nest)
        self._note_nesting(name, start, is_self_closing)
        line = self._advance(start)
        stop = self._text_end(name, end, is_foreign and not is_self_closing)
        if stop is None or (is_foreign and is_self_closing):
            return Tag(name, attributes, is_foreign, line), end
        return Tag(name, attributes, is_foreign, line, self.text[end:stop], self._advance(end)), stop

    def _text_end(self, name: str, position: int, is_foreign: bool) -> int | None:
        """Return where an element's raw text ends; None for an element with markup."""
        if name == "plaintext" and not is_foreign:
            return len(self.text)
        if is_foreign and name in ("script", "style"):
            return self._foreign_text_end(position, name)
        if name == "script":
            return self._script_end(position)
        is_markup = is_foreign or name not in _RAW_TEXT or (name == "noscript" and not self.has_scripts)
        return None if is_markup else self._raw_text_end(position, name)

    def _foreign_text_end(self, position: int, name: str) -> int:
        """Return the end of a style or script in <svg>, whose text is markup there and raw elsewhere."""
        end = self._until("<", position) - 1
        if not self.text.startswith(f"</{name}", end) or "&" in self.text[position:end]:
            self._doubt(position, f"<{name}> inside <{self._nest[-1]}>")
        return end

    def _advance(self, offset: int) -> int:
        self._lines += self.text.count("\n", self._counted, offset)
        self._counted = offset
        return self.first_line + self._lines

    def _tag_parts(self, position: int) -> _Parts:
        text = self.text
        match = _TAG_NAME.match(text, position)
        if match is None:
            return _NO_TAG
        position = match.end()
        name = match[0].lower() if match[0].isascii() else _lower(match[0])
        if text.startswith(">", position):
            return _Parts(name, (), position + 1, False)
        attributes: list[Attribute] = []
        while position < len(text):
            found = _ATTRIBUTE.match(text, position)
            if found is None or found["closed2"] == "" or found["closed1"] == "":
                return _NO_TAG
            if found["name"]:
                value = found["double"] or found["single"] or found["bare"] or ""
                self.budget.attributes -= value.count("&")
                attributes.append(Attribute(_lower(found["name"]), value))
            if len(attributes) > MAX_ATTRIBUTES_PER_TAG or self.budget.is_spent:
                self.too_complex = True
                return _NO_TAG
            position = found.end()
            if text.startswith(">", position):
                is_self_closing = text[position - 1] == "/" and not found["bare"]  # <svg a=b/> is not
                return _Parts(name, tuple(map(_decode, attributes)), position + 1, is_self_closing)
        return _NO_TAG

    def _end_tag(self, start: int) -> int:
        if not _TAG_NAME.match(self.text, start + 2):
            return self._until(">", start + 2)
        name, _, end, _ = self._tag_parts(start + 2)
        if end < 0:
            self._is_cut = True
            return len(self.text)
        if name == "select":
            self._in_select = False
        if self._nest:
            self._leave_foreign(name, start)
        return end

    def _leave_foreign(self, name: str, start: int) -> None:
        """Close a foreign element; another element's end tag may close <svg> and what is around it."""
        if name not in self._nest or name in ("p", "br"):
            self._doubt(start, f"</{name}> inside <{self._nest[-1]}>")
            return
        while self._nest.pop() != name:
            pass

    def _declaration(self, start: int) -> int:
        text = self.text
        if text.startswith("<!--", start):
            if text.startswith((">", "->"), start + 4):
                return text.index(">", start + 4) + 1
            found = _COMMENT_END.search(text, start + 4)
            self._is_cut = found is None
            return found.end() if found else len(text)
        if text.startswith("<![CDATA[", start) and self._nest:
            self._doubt(start, "<![CDATA[")
        return self._until(">", start + 2)

    def _note_nesting(self, name: str, start: int, is_self_closing: bool) -> None:
        if self._in_select and name not in _IN_SELECT:
            self._doubt(start, f"<{name}> inside <select>")
        if name == "col" and self._has_template:  # what follows <template><col> is ignored, even <style>
            self._doubt(start, "<col> after <template>")
        self._in_select = self._in_select or name == "select"
        self._has_template = self._has_template or name == "template"
        if not self._nest:
            if name in _FOREIGN and not is_self_closing:
                self._nest.append(name)
            return
        around = self._nest[-1]
        if around in _TEXT_INSIDE_FOREIGN or name in _BREAKS_OUT or name in _MIXED_INSIDE_FOREIGN:
            self._doubt(start, f"<{name}> inside <{around}>")
        elif not is_self_closing and len(self._nest) < _MAX_FOREIGN_DEPTH:
            self._nest.append(name)
        elif not is_self_closing:
            self._doubt(start, f"more than {_MAX_FOREIGN_DEPTH} levels of <{self._nest[0]}>")

    def _raw_text_end(self, position: int, name: str) -> int:
        found = _RAW_TEXT_ENDS[name].search(self.text, position)
        if found is None:
            self._doubt(position, f"<{name}> is never closed")
            return len(self.text)
        return found.start()

    def _script_end(self, position: int) -> int:
        """Return where a script ends, following the tokenizer states of `<!--` and `<script`."""
        is_escaped = is_doubly_escaped = False
        while found := _SCRIPT_STEP.search(self.text, position):
            position = found.end()
            self.budget.marks -= 1
            if self.budget.is_spent:
                break
            if found[0] == "<!--":
                is_escaped = True
                position -= 2  # its dashes may also begin the end
            elif found[0] == "-->":
                is_escaped = is_doubly_escaped = False
            elif found[1] and not is_doubly_escaped:
                return found.start()
            else:
                is_doubly_escaped = is_escaped and not found[1]
        self._doubt(position, "<script> is never closed")
        return len(self.text)

    def _until(self, mark: str, position: int) -> int:
        found = self.text.find(mark, position)
        self._is_cut = self._is_cut or found < 0
        return len(self.text) if found < 0 else found + len(mark)

    def _doubt(self, offset: int, what: str) -> None:
        if len(self.ambiguous) < _MAX_DOUBTS:
            self.ambiguous.append((self.first_line + self.text.count("\n", 0, offset), what))


def _decode(attribute: Attribute) -> Attribute:
    return attribute._replace(value=decode_references(attribute.value)) if "&" in attribute.value else attribute


def _lower(name: str) -> str:
    """Lower ASCII letters only, as browsers do: the Kelvin sign is no k."""
    return name.lower() if name.isascii() else _UPPER_ASCII.sub(lambda match: match[0].lower(), name)


def decode_references(value: str) -> str:
    """Resolve character references by the rules for attribute values."""
    return _REFERENCE.sub(_decode_one, value)


def _decode_one(match: re.Match[str]) -> str:
    name, follow = match[1], match[2]
    is_named = not name.startswith("#")
    if is_named and (name not in html5 or (follow and not name.endswith(";"))):
        return match[0]
    return unescape(f"&{name}") + follow
