"""A changed site as what its owner reviews: pages rendered around the detached ones, and notes in their language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from routing.jobs import Reason
from routing.queues import Tier
from sites.errors import DetachedPagesError
from sites.links import named_files
from sites.releases import profile_of
from sites.spec.components.tables import unsorted_columns
from sites.spec.fonts.families import is_shipped
from sites.spec.html import say
from sites.spec.languages.owner import written_in
from sites.spec.languages.versions import lead_everywhere, main_language, outdated
from sites.spec.model import Site
from sites.spec.permitted import permitted
from sites.spec.render import render, render_onto, theme_notes
from workers.compute import timed
from workers.inputs import Inputs
from workers.outcomes import Candidate, Escalate


def pages_fact(paths: Iterable[str], kind: str) -> str:
    """Return which files an edit changed and their kind, for the job's owner."""
    return f"{', '.join(sorted(paths))}: {kind}"


def candidate_of(
    inputs: Inputs, site: Site, *, before: Site | None, summary: str, how: str, left: Sequence[str] = ()
) -> Candidate | Escalate:
    """Render a changed site around its detached pages, or escalate if the change affects one of them.

    The owner is told what was `left` as it is, and all else that is not as wished.
    """
    assert inputs.site is not None
    lang = owner_language(inputs, before or site)
    site, missing = permitted(site, profile_of(inputs.policy, inputs.site), told_in=lang)
    with timed("render"):
        try:
            site, files = _rendered(before, site, inputs.files)
        except DetachedPagesError as error:
            return Escalate(Tier.PATCH, Reason.NOT_SPEC_MANAGED, str(error))
    changed = {path for path, data in files.items() if inputs.files.get(path) != data and not is_shipped(path)}
    facts = {"how": how, "pages": pages_fact(changed, "spec-managed")}
    notes = [*left, *missing, *_notes_of(before, site, lang)]
    summary = " ".join([summary, *(f"{say('Note', lang)}: {note}." for note in notes)])
    return Candidate(files=files, summary=summary, spec=site.canonical().encode(), facts=facts)


def _rendered(before: Site | None, site: Site, files: Mapping[str, bytes]) -> tuple[Site, dict[str, bytes]]:
    """Return a changed site, all of whose pages lead to its new languages unless one was edited by hand; its files."""
    linked = lead_everywhere(before, site)
    if before is None:
        return linked, dict(files) | render(linked)
    try:
        return linked, render_onto(before, linked, files)
    except DetachedPagesError:
        return site, render_onto(before, site, files)


def owner_language(inputs: Inputs, site: Site) -> str:
    """Return the language that the owner writes, else the site's."""
    return written_in(inputs.words, otherwise=main_language(site))


def missing_files_note(inputs: Inputs, site: Site) -> list[str]:
    """Return a note on files that the owner's words name and the site does not have; empty if it has them."""
    _, missing = named_files(inputs.words, inputs.files)
    return (
        [say("the site has no file {files}", owner_language(inputs, site), files=", ".join(missing))] if missing else []
    )


def _notes_of(before: Site | None, site: Site, lang: str) -> list[str]:
    """Return what the owner should know of a change beyond its summary, in their language."""
    notes = [*theme_notes(site, lang, before=before)]
    if before is not None and (versions := outdated(before, site)):
        notes.append(say("{pages} in another language stays as it was", lang, pages=", ".join(versions)))
    unsorted = _unsorted(site)
    if unsorted and unsorted != (_unsorted(before) if before is not None else {}):
        columns = ", ".join(dict.fromkeys(name for names in unsorted.values() for name in names))
        notes.append(
            say("tables do not sort by {columns}, where the values have no common order", lang, columns=columns)
        )
    return notes


def _unsorted(site: Site) -> dict[tuple[str, str], list[str]]:
    return {
        (path, key): names
        for path, page in site.pages.items()
        for key, element in page["elements"].items()
        if element["type"] == "ComparisonTable" and (names := unsorted_columns(element["props"]))
    }
