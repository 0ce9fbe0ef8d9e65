"""Tier 1: change a site by its spec, with no container and nothing executed that a model wrote.

A direct edit costs nothing. Otherwise a model writes a patch of the spec, or an outline that the catalog expands, and a
deterministic builder makes the pages. What cannot be done here goes to tier 2 with the reason: an invalid or poor spec
after one retry (H-067, H-068), and an edit of plain HTML pages, unless it means exactly one change of their text, an
attribute or an element. That is made in place, byte for byte; but never on a page that still is its spec's render,
which it would detach.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from routing.jobs import Reason
from routing.queues import Tier
from sites.direct_edit.direct import NoPlainEdit, PlainEdit, apply_direct, edit_plain, parse_direct
from sites.files import is_built
from sites.spec.edit import relevant_part
from sites.spec.languages.translation import choose_texts
from sites.spec.languages.translation_requests import is_translation
from sites.spec.model import Site
from sites.spec.render import detached_files
from workers.attempt import Attempt
from workers.handlers.candidate import candidate_of, missing_files_note, pages_fact
from workers.handlers.model_task import Task, by_model
from workers.handlers.new_site import outline_task
from workers.handlers.spec_edit import edit_task
from workers.handlers.translation import translation_task
from workers.inputs import Inputs
from workers.outcomes import Candidate, Escalate, Outcome

IMPORTED = "the site was imported without a spec"
_DIRECT = "direct edit, no model"
EDITED = "their bytes are not the render of the site's spec"


def edit_plain_html(inputs: Inputs) -> Candidate | Escalate:
    """Edit pages of plain HTML in place, or escalate with the reason."""
    files, site = inputs.files, inputs.spec
    detached = detached_files(site, files) if site else frozenset()
    managed = site.pages.keys() - detached if site else frozenset()
    why = IMPORTED if site is None else EDITED
    edit = edit_plain(inputs.prompt, files) if not inputs.instruction else NoPlainEdit("a debate added to the request")
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


def also_on(inputs: Inputs, sought: Sequence[str], detached: frozenset[str]) -> str:
    """Return why an edit of the spec would be incomplete, since plain pages are affected too; empty if it is not."""
    if not detached:
        return ""
    if path := page_with(sought, detached, inputs.files):
        return f"{path} is plain HTML ({EDITED}) and has to change too"
    found = edit_plain(inputs.prompt, inputs.files, only=detached)
    if isinstance(found, PlainEdit) or found.is_ambiguous:
        return f"the request can also mean {', '.join(sorted(detached))}, plain HTML ({EDITED})"
    return ""


def page_with(texts: Sequence[str], paths: Iterable[str], files: Mapping[str, bytes]) -> str:
    """Return the first of some files whose source contains one of some texts, or an empty string."""
    wanted = [escape(text, quote=False).encode().lower() for text in texts]
    return next((path for path in sorted(paths) if any(text in files.get(path, b"").lower() for text in wanted)), "")


def is_about(prompt: str, site: Site, paths: frozenset[str]) -> bool:
    """Whether everything that a request names is on some of the site's pages."""
    pages = relevant_part(site, prompt).document["pages"]
    return {path for path, page in pages.items() if page["elements"].keys() - {page["root"]}} <= paths


def edit_spec(attempt: Attempt) -> Outcome:
    """Do a tier 1 job."""
    plan = attempt.compute(_plan)
    return by_model(attempt, plan) if isinstance(plan, Task) else plan


def _plan(inputs: Inputs) -> Outcome | Task:
    """Edit without a model, or return the question for one."""
    if inputs.start is None:
        return outline_task(inputs)
    if is_built(inputs.files):
        return Escalate(Tier.PATCH, Reason.NOT_SPEC_MANAGED, "a build writes the site's pages, and builds need a box")
    site = inputs.spec
    detached = detached_files(site, inputs.files) if site else frozenset()
    if site is None or detached >= site.pages.keys():
        return edit_plain_html(inputs)
    direct = parse_direct(inputs.prompt, site) if not inputs.instruction else None
    if direct is not None:
        changed = apply_direct(site, direct)
        told = missing_files_note(inputs, site)
        result = candidate_of(inputs, changed, before=site, summary=direct.summary, how=_DIRECT, left=told)
        if isinstance(result, Escalate):
            return edit_plain_html(inputs)
        doubt = also_on(inputs, direct.sought, detached)
        return Escalate(Tier.PATCH, Reason.NOT_SPEC_MANAGED, doubt) if doubt else result
    if detached:
        plain = edit_plain_html(inputs)
        if isinstance(plain, Candidate) or is_about(inputs.prompt, site, detached):
            return plain
    if is_translation(inputs.prompt, site) and (texts := choose_texts(site, inputs.words, without=detached)).entries:
        return translation_task(inputs, site, texts, detached)
    return edit_task(inputs, site, detached)
