"""The direct edit of a site of plain HTML: one reading or none, and every byte but the wanted ones as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.markup.edits import Change, Reading, apply_changes
from sandbox.markup.errors import NotEditableError
from sandbox.markup.readings import READERS
from sandbox.markup.site import PlainSite
from sandbox.spec.rules.phrasing import forms_of
from sandbox.spec.rules.wording import Request, read_request


@dataclass(frozen=True)
class PlainEdit:
    """A change that was made without a model."""

    summary: str
    """One plain sentence for the receipt."""
    files: Mapping[str, bytes]
    """The whole site after it."""


@dataclass(frozen=True)
class NoPlainEdit:
    """Why a request is not done without a model."""

    reason: str
    is_ambiguous: bool = False
    """Whether it can mean more than one change."""


def edit_plain(
    prompt: str, files: Mapping[str, bytes], *, only: frozenset[str] | None = None
) -> PlainEdit | NoPlainEdit:
    """Do a request on a site of plain files, if it means exactly one change.

    Args:
        prompt: the request as the user wrote it.
        files: the site's files by path.
        only: the pages that may be read and changed; None for all.
    """
    request = read_request(prompt)
    if request is None:
        return NoPlainEdit("the request is not one plain order")
    try:
        site = PlainSite(files, only=only)
        outcomes = _outcomes(request, site)
    except NotEditableError as error:
        return NoPlainEdit(str(error))
    if len(outcomes) != 1:
        found = "more than one place" if outcomes else "nothing that could be told for certain"
        return NoPlainEdit(f"the request names {found} on pages of plain HTML", is_ambiguous=bool(outcomes))
    return next(iter(outcomes.values()))


def _outcomes(request: Request, site: PlainSite) -> dict[tuple[tuple[str, bytes], ...], PlainEdit]:
    """Return what every reading leads to, by the files that change."""
    found: dict[tuple[tuple[str, bytes], ...], PlainEdit] = {}
    for form in forms_of(request):
        for kind, read in READERS:
            for reading in read(form, request, site) if isinstance(form, kind) else ():
                changed = _apply(reading, site)
                found.setdefault(tuple(sorted(changed.items())), PlainEdit(reading.summary, {**site.files, **changed}))
    return found


def _apply(reading: Reading, site: PlainSite) -> dict[str, bytes]:
    by_page: dict[str, list[Change]] = {}
    for page, change in reading.changes:
        by_page.setdefault(page, []).append(change)
    return {page: apply_changes(site.pages[page], changes) for page, changes in by_page.items()}
