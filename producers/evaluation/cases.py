"""Cases of `pointsman eval`: a site, a request, its route, and what must be true afterwards, with the checks of that.

A file is a YAML list of cases; the shipped ones are `gateway/fake_provider/library/*.yaml`. With the replies of a good
model a case runs without a key, and the fake provider plays them to whoever asks the same of the same site. Checks are
pure functions from files before and after to findings in words.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from lxml import etree, html
from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

from gateway.fake_provider.library import CaseError, RecordedReply, library_path, read_documents

Kind = Literal["question", "edit", "patch", "new_site", "vague", "revision", "outside_service", "translation"]
Route = Literal["tools", "answer", "spec", "patch", "agent", "clarify", "unchanged"]
"""Where a request is done; `unchanged` is an edit for which nothing had to change."""
Texts = tuple[Annotated[str, StringConstraints(min_length=1)], ...]

SHIPPED_SITES: Mapping[str, str] = {"bakery": "producers.local/demo_site"}
"""Shipped sites that do not lie in `producers/evaluation/sites/`."""


class Section(BaseModel, frozen=True, extra="forbid"):
    """A part of a case: a field that it does not know is an error."""


class Named(Section):
    """A case of any kind."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{1,39}$")


CaseT = TypeVar("CaseT", bound=Named)


class VisitStep(Section):
    """What a visitor does, or sees then.

    Exactly one field is given; elements are named by Playwright's selectors, where possible by what visitors go by:
    `role=button[name="Accept"]`.
    """

    open: str | None = None
    """A page, also to load it again."""
    click: str | None = None
    hover: str | None = None
    press: str | None = None
    """A key."""
    fill: tuple[str, str] | None = None
    choose: tuple[str, str] | None = None
    """A list and the label of one of its options."""
    scroll: int | None = None
    """Pixels from the top."""
    width: int | None = None
    """Of the window, in pixels."""
    clock: datetime | None = None
    """From now on it is that time."""
    scrolled: int | None = None
    """How far the page comes to be scrolled."""
    sees: str | None = None
    misses: str | None = None
    """An element that is not to be seen."""
    reads: tuple[str, str] | None = None
    """An element, and a regular expression that its text matches."""
    style: tuple[str, str, str] | None = None
    """An element, a CSS property, and a regular expression that its computed value matches."""

    @model_validator(mode="after")
    def _check_single(self) -> VisitStep:
        if len(self.model_fields_set) != 1:
            raise ValueError("a step of a visit has exactly one field")
        return self

    def __str__(self) -> str:
        return json.dumps(self.model_dump(exclude_defaults=True, mode="json"), ensure_ascii=False)


class Then(Section):
    """What must be true of a result. Links are always checked, and a preview always passed the scan.

    Pages are globs of paths, texts are compared without regard to case, spacing and the shape of apostrophes.
    """

    shows: Mapping[str, Texts] = Field(default_factory=dict)
    """By page: texts that visitors see."""
    gone: Mapping[str, Texts] = Field(default_factory=dict)
    """By page: texts that visitors see no longer."""
    source: Mapping[str, Texts] = Field(default_factory=dict)
    """By file: regular expressions that its source matches."""
    lacks: Mapping[str, Texts] = Field(default_factory=dict)
    """By file: regular expressions that its source does not match."""
    only: Texts | None = None
    """Globs of all places that may change: files, or `PAGE PLACE` with the id of a section, `header`, `footer`, `head`
    or `body`. None for no such limit."""
    looks: Texts | None = None
    """Globs of all places that may look different in a browser, as in `only`, which they are where this is None."""
    visits: tuple[tuple[VisitStep, ...], ...] = ()
    """What visitors do in a browser and see then, each with an empty storage."""
    loses: Texts = ()
    """Regular expressions of visible copy that may go; all other copy of the site has to be there still. `.*` for all.
    """
    answer: Texts = ()
    """Regular expressions that the answer, or the question to the owner, matches."""
    summary: Texts = ()
    """Regular expressions that the report to the owner matches."""


class Round(Section):
    """One request of a case's session, and what must be true of its result."""

    request: str = Field(min_length=1)
    route: Route
    """Where it has to be done."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Further fields of the job."""
    then: Then = Then()
    replies: tuple[RecordedReply, ...] = ()
    """What a good model replies, in order."""


class Reply(Section):
    """The owner's answer to a question of the product."""

    answer: str = Field(min_length=1)
    route: Route
    then: Then = Then()
    replies: tuple[RecordedReply, ...] = ()


class Case(Named, Round):
    """One case."""

    kind: Kind
    site: str | None = None
    """A shipped site, or a directory beside the file; None for a question or site without one."""
    profile: str = "default"
    """The site's publish profile."""
    new_site: bool = False
    lang: str = Field(default="en", pattern=r"^[a-z]{2}$")
    marks: tuple[str, ...] = ()
    """Texts one of which every prompt about the site shows, by which its replies are found."""
    known_fault: str = ""
    """A fault of the product that keeps it from coming out right: it counts as wrong, but the run does not fail."""
    rounds: tuple[Round | Reply, ...] = ()
    """What follows: a further request on the result, or an answer."""

    @property
    def steps(self) -> Sequence[Round | Reply]:
        """The request and what follows it."""
        return (self, *self.rounds)


def read_cases(paths: Sequence[Path] = ()) -> list[Case]:
    """Return the cases of files or directories, by default the shipped ones.

    Raises:
        CaseError: their author's fault.
    """
    return read_as(Case, paths or (library_path(),))


def read_as(kind: type[CaseT], paths: Sequence[Path]) -> list[CaseT]:
    """Return the cases of one kind in files or directories.

    Raises:
        CaseError: their author's fault.
    """
    found: dict[str, CaseT] = {}
    for path in paths:
        for document in read_documents(path):
            try:
                case = kind.model_validate(document)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(str(part) for part in first["loc"])
                raise CaseError(f"{path}: case {document.get('id', '?')}: {place}: {first['msg']}") from None
            if found.setdefault(case.id, case) is not case:
                raise CaseError(f"several cases have the id {case.id}")
    return list(found.values())


def site_directory(case: Case, *, beside: Sequence[Path] = (), sites: Path | None = None) -> Path:
    """Return the directory of a case's site: in `sites`, beside the files of cases, or a shipped one.

    Raises:
        CaseError: its author's fault: there is none.
    """
    assert case.site is not None
    package, _, name = SHIPPED_SITES.get(case.site, f"producers.evaluation/sites/{case.site}").partition("/")
    places = [sites] if sites is not None else [path if path.is_dir() else path.parent for path in beside]
    for place in (*(place / case.site for place in places), Path(str(resources.files(package))) / name):
        if place.is_dir():
            return place
    raise CaseError(f"case {case.id}: there is no site {case.site}")


Files = Mapping[str, bytes]
_UNSEEN = frozenset({"script", "style", "template", "head", "noscript"})
_INLINE = frozenset(
    {"a", "abbr", "b", "cite", "code", "em", "i", "mark", "small", "span", "strong", "sub", "sup", "time"}
)
_PLACES = frozenset({"header", "footer", "head", "nav"})
_ADDRESSES = ("href", "src", "poster", "action")
_SHOWN = 120


def check(then: Then, before: Files, after: Files, *, said: str = "", summary: str = "") -> list[str]:
    """Return what is not as a case wants it; empty if all is.

    `said` is the answer or the question to the owner, `summary` the report. A question leaves `after` as it was.
    """
    pages = {path: _parse(data) for path, data in after.items() if is_page(path)}
    copy = {path: " ".join(_lines(page)) for path, page in pages.items()}
    findings = [*_texts(then, copy), *_sources(then, after), *_matches("the answer", then.answer, said)]
    findings += _matches("the summary", then.summary, summary)
    if after is not before:
        findings += [*_lost_copy(then, before, copy), *_other_changes(then, before, after), *_dead_links(after, pages)]
    return findings


def _parse(data: bytes) -> Any:
    return html.document_fromstring(data.decode("utf-8", "replace") or "<html></html>")


def is_page(path: str) -> bool:
    """Whether a file is a page."""
    return path.endswith((".html", ".htm"))


def _plain(text: str) -> str:
    return " ".join(text.replace("\xad", "").split())


def _compared(text: str) -> str:
    return _plain(text).casefold().replace("’", "'")


def _lines(page: Any) -> Iterator[str]:
    """Yield the visible copy of a page, a block at a time, with the texts that stand for pictures and fields."""
    parts: list[str] = []

    def walk(element: Any) -> Iterator[str]:
        if not isinstance(element.tag, str) or element.tag in _UNSEEN:
            return
        is_block = element.tag not in _INLINE
        if is_block:
            yield from flush()
        parts.append(element.text or "")
        for name in ("alt", "placeholder", "aria-label"):
            if element.get(name):
                yield _plain(element.get(name))
        for child in element:
            yield from walk(child)
            parts.append(child.tail or "")
        if is_block:
            yield from flush()

    def flush() -> Iterator[str]:
        line = _plain("".join(parts))
        parts.clear()
        if line:
            yield line

    yield from walk(page)


def _texts(then: Then, copy: Mapping[str, str]) -> Iterator[str]:
    for pattern, texts in then.shows.items():
        pages = [_compared(text) for path, text in copy.items() if fnmatchcase(path, pattern)]
        if not pages:
            yield f"there is no page {pattern}"
        for text in texts:
            if pages and not all(_compared(text) in page for page in pages):
                yield f"{pattern} does not show {text!r}"
    for pattern, texts in then.gone.items():
        for path, page in copy.items():
            yield from (
                f"{path} still shows {text!r}"
                for text in texts
                if fnmatchcase(path, pattern) and _compared(text) in _compared(page)
            )


def _sources(then: Then, after: Files) -> Iterator[str]:
    for wanted, is_wanted in ((then.source, True), (then.lacks, False)):
        for pattern, expressions in wanted.items():
            files = {
                path: data.decode("utf-8", "replace") for path, data in after.items() if fnmatchcase(path, pattern)
            }
            if not files and is_wanted:
                yield f"there is no file {pattern}"
            for path, text in files.items():
                for expression in expressions:
                    if (re.search(expression, text, re.S) is not None) != is_wanted:
                        yield f"{path} {'does not match' if is_wanted else 'matches'} /{expression}/"


def _matches(what: str, expressions: Iterable[str], text: str) -> Iterator[str]:
    for expression in expressions:
        if re.search(expression, text, re.I | re.S) is None:
            yield f"{what} does not match /{expression}/: {text[:_SHOWN]!r}"


def _lost_copy(then: Then, before: Files, copy: Mapping[str, str]) -> Iterator[str]:
    """Yield the visible copy of before that is nowhere any more, although nobody asked for that."""
    now = " ".join(copy.values()).casefold()
    gone = [_plain(text).casefold() for texts in then.gone.values() for text in texts]
    for path, data in sorted(before.items()):
        for line in dict.fromkeys(_lines(_parse(data))) if is_page(path) else ():
            is_meant = any(text in line.casefold() for text in gone) or any(re.search(one, line) for one in then.loses)
            if not is_meant and line.casefold() not in now:
                yield f"{path} lost its copy {line[:_SHOWN]!r}"


def _other_changes(then: Then, before: Files, after: Files) -> Iterator[str]:
    if then.only is None:
        return
    for place in sorted(changed_places(before, after)):
        if not any(fnmatchcase(place, pattern) for pattern in then.only):
            yield f"{place} changed, which nobody asked for"


def digest_of(files: Files) -> str:
    """Return the digest of files and their paths; empty for none."""
    parts = sorted(f"{path}\0{hashlib.sha256(data).hexdigest()}" for path, data in files.items())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() if parts else ""


def changed_places(before: Files, after: Files) -> set[str]:
    """Return the places that differ: files, and in pages that both have, `PAGE PLACE`."""
    changed: set[str] = set()
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if old is None or new is None or not is_page(path):
            changed.add(path)
            continue
        was, now = _places(_parse(old)), _places(_parse(new))
        changed |= {f"{path} {place}" for place in was.keys() | now.keys() if was.get(place) != now.get(place)}
    return changed


def _places(page: Any) -> dict[str, str]:
    """Return the source of each place of a page: sections by their id, landmarks by their tag, the rest as `body`."""
    found: dict[str, str] = {}
    outermost = [element for element in page.iter(etree.Element) if _place_of(element) and not _is_inside(element)]
    for element in outermost:
        found[_place_of(element)] = found.get(_place_of(element), "") + _source_of(element)
        element.drop_tree()
    found["body"] = _source_of(page)
    return found


def _source_of(element: Any) -> str:
    return str(etree.canonicalize(element, strip_text=True))


def _place_of(element: Any) -> str:
    """Return the name of a place; empty for an element that is none."""
    return element.tag if element.tag in _PLACES else element.get("id", "") if element.tag == "section" else ""


def _is_inside(element: Any) -> bool:
    return any(_place_of(parent) for parent in element.iterancestors("section", *_PLACES))


def _dead_links(after: Files, pages: Mapping[str, Any]) -> Iterator[str]:
    anchors = {path: set(page.xpath("//@id")) | set(page.xpath("//a/@name")) for path, page in pages.items()}
    for path, page in pages.items():
        links = {value for name in _ADDRESSES for value in page.xpath(f"//*/@{name}")}
        for link in sorted(links):
            target = urlsplit(link)
            if target.scheme or target.netloc or link in ("", "#"):
                continue
            file = (
                posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(target.path)))
                if target.path
                else path
            )
            file = file if file in after or not target.path.endswith("/") else posixpath.join(file, "index.html")
            if file not in after and file != ".":
                yield f"{path} links to {link}, which is not there"
            elif target.fragment and file in anchors and target.fragment not in {*anchors[file], "top"}:
                yield f"{path} links to {link}, which is not on that page"
