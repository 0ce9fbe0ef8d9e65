"""Tier 1 on pages that are no render of a spec: imported ones, and those whose files were edited.

Such a page is edited in place, by structured HTML operations, when the request means exactly one; a page that still is
its spec's render never is, for that would detach it. Everything else about plain HTML is for tier 2, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from routing.jobs import Reason
from routing.queues import Tier
from sandbox.markup.direct import NoPlainEdit, PlainEdit, edit_plain
from sandbox.spec.edit import relevant_part
from sandbox.spec.model import Site, parse_site
from sandbox.spec.render import detached_files
from workers.attempt import Attempt
from workers.outcomes import Candidate, Escalate

IMPORTED = "the site was imported without a spec"
EDITED = "their bytes are not the render of the site's spec"


def spec_of(attempt: Attempt) -> Site | None:
    """Return the site document that is edited; which pages still are its render is another question."""
    assert attempt.start is not None
    digest = attempt.start.spec_sha256
    return None if digest is None else parse_site(attempt.den.get(digest))


def edit_plain_html(attempt: Attempt) -> Candidate | Escalate:
    """Edit pages of plain HTML in place, or hand on with the reason."""
    files, site = attempt.files, spec_of(attempt)
    detached = detached_files(site, files) if site else frozenset()
    managed = site.pages.keys() - detached if site else frozenset()
    why = IMPORTED if site is None else EDITED
    edit = (
        edit_plain(attempt.prompt, files) if not attempt.instruction else NoPlainEdit("a debate added to the request")
    )
    if isinstance(edit, PlainEdit):
        changed = {path for path, data in edit.files.items() if files.get(path) != data}
        if not changed & managed:
            pages = pages_fact(changed, f"plain HTML, for {why}")
            return Candidate(
                edit.files, edit.summary, facts={"how": "direct edit of plain HTML, no model", "pages": pages}
            )
        edit = NoPlainEdit(f"it would also change {min(changed & managed)}, which is rendered from the spec")
    which = f"{', '.join(sorted(detached))}: " if detached else ""
    return Escalate(Tier.PATCH, Reason.NOT_SPEC_MANAGED, f"plain HTML ({which}{why}): {edit.reason}")


def also_on(attempt: Attempt, sought: Sequence[str], detached: frozenset[str]) -> str:
    """Return why an edit of the spec would not be all that was asked, since plain pages have it too; or nothing."""
    if not detached:
        return ""
    if path := page_with(sought, detached, attempt.files):
        return f"{path} is plain HTML ({EDITED}) and has to change too"
    found = edit_plain(attempt.prompt, attempt.files, only=detached)
    if isinstance(found, PlainEdit) or found.is_ambiguous:
        return f"the request can also mean {', '.join(sorted(detached))}, plain HTML ({EDITED})"
    return ""


def page_with(texts: Sequence[str], paths: Iterable[str], files: Mapping[str, bytes]) -> str:
    """Return the first of some files whose source holds one of some texts, or nothing."""
    wanted = [escape(text, quote=False).encode().lower() for text in texts]
    return next((path for path in sorted(paths) if any(text in files.get(path, b"").lower() for text in wanted)), "")


def is_about(prompt: str, site: Site, paths: frozenset[str]) -> bool:
    """Whether all that a request names on a site stands on some of its pages."""
    pages = relevant_part(site, prompt).document["pages"]
    return {path for path, page in pages.items() if page["elements"].keys() - {page["root"]}} <= paths


def pages_fact(paths: Iterable[str], kind: str) -> str:
    """Return which files an edit changed and of what kind they are, for the job's owner."""
    return f"{', '.join(sorted(paths))}: {kind}"
