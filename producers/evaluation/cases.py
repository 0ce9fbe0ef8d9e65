"""Cases of `pointsman eval`: a site, a request, its route, and what must be true afterwards.

A file is a YAML list of cases; the shipped ones are `gateway/fake_provider/library/*.yaml`. With the replies of a good
model a case runs without a key, and the fake provider plays them to whoever asks the same of the same site.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gateway.fake_provider.library import CaseError, RecordedReply, library_path, read_documents

Kind = Literal["question", "edit", "patch", "new_site", "vague", "revision", "outside_service", "translation"]
Route = Literal["tools", "answer", "spec", "patch", "agent", "clarify"]
Texts = tuple[Annotated[str, StringConstraints(min_length=1)], ...]

SHIPPED_SITES: Mapping[str, str] = {"bakery": "producers.local/demo_site"}
"""Shipped sites that do not lie in `producers/evaluation/sites/`."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Then(_Section):
    """What must be true of a result. Links are always checked, and a preview always passed the scan.

    Pages are globs of paths, texts are compared without regard to case and spacing.
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
    loses: Texts = ()
    """Regular expressions of visible copy that may go; all other copy of the site has to be there still. `.*` for all.
    """
    answer: Texts = ()
    """Regular expressions that the answer, or the question to the owner, matches."""
    summary: Texts = ()
    """Regular expressions that the report to the owner matches."""


class Round(_Section):
    """One request of a case's session, and what must be true of its result."""

    request: str = Field(min_length=1)
    route: Route
    """Where it has to be done."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Further fields of the job."""
    then: Then = Then()
    replies: tuple[RecordedReply, ...] = ()
    """What a good model replies, in order."""


class Reply(_Section):
    """The owner's answer to a question of the product."""

    answer: str = Field(min_length=1)
    route: Route
    then: Then = Then()
    replies: tuple[RecordedReply, ...] = ()


class Case(Round):
    """One case."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{1,39}$")
    kind: Kind
    site: str | None = None
    """A shipped site, or a directory beside the file; None for a question or site without one."""
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
    cases = [case for path in paths or (library_path(),) for case in _cases_of(path)]
    twice = {case.id for case in cases if sum(other.id == case.id for other in cases) > 1}
    if twice:
        raise CaseError(f"several cases have the id {min(twice)}")
    return cases


def _cases_of(path: Path) -> Iterator[Case]:
    for document in read_documents(path):
        try:
            yield Case.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise CaseError(f"{path}: case {document.get('id', '?')}: {place}: {first['msg']}") from None


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
