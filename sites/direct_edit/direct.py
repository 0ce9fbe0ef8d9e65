"""Step 0 of tier 1: the direct edit, which calls no model and costs nothing.

A request is taken only when its whole text is understood and all ways to understand it lead to one and the same site.
Any doubt (two targets, a condition, a value that could be an instruction) gives None, and the request goes to the
model. Several orders in one request are taken when each of them is understood so, and their order does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from sites.direct_edit import entries, layout, links, text
from sites.direct_edit.orders import DirectEdit, forms_of
from sites.direct_edit.request import Request, read_clauses, read_request
from sites.spec.edit import apply_edit
from sites.spec.errors import SpecError
from sites.spec.model import Site

_TABLES: Final = (entries.RULES, layout.RULES, links.RULES, text.RULES)


def parse_direct(prompt: str, site: Site) -> DirectEdit | None:
    """Return the one change that a request means on a site, or None when it means none or more than one.

    Args:
        prompt: the request as the user wrote it.
        site: a valid site.
    """
    request = read_request(prompt)
    readings = _readings(request, site) if request else {}
    if joined := _joined(read_clauses(prompt), site):
        readings.setdefault(apply_direct(site, joined).canonical(), joined)
    return next(iter(readings.values())) if len(readings) == 1 else None


def apply_direct(site: Site, edit: DirectEdit) -> Site:
    """Return the site after a direct edit that was parsed against this very site.

    Raises:
        SpecError: the site is not the one that the edit was parsed against (the caller's fault).
    """
    return apply_edit(site, [dict(operation) for operation in edit.operations])


def _readings(request: Request, site: Site) -> dict[str, DirectEdit | None]:
    """Return every reading by the site that it leads to.

    One that leads to no valid site, or changes nothing, takes part in the count but is no edit.
    """
    readings: dict[str, DirectEdit | None] = {}
    tried: set[str] = set()
    before = site.canonical()
    for form in forms_of(request):
        for read in chain.from_iterable(table.get(type(form), ()) for table in _TABLES):
            for edit in read(form, request, site):
                written = repr(edit.operations)
                if written not in tried:
                    tried.add(written)
                    outcome = _outcome(site, edit)
                    is_change = outcome is not None and outcome != before
                    readings.setdefault(outcome or written, edit if is_change else None)
    return readings


def _outcome(site: Site, edit: DirectEdit) -> str | None:
    try:
        return apply_direct(site, edit).canonical()
    except SpecError:
        return None


def _joined(clauses: Sequence[Request], site: Site) -> DirectEdit | None:
    """Return several orders as one edit: each with one reading, the same site in either order."""
    if not clauses:
        return None
    forward, backward = _in_order(clauses, site), _in_order(clauses[::-1], site)
    if forward is None or backward is None or _outcome(site, forward) != _outcome(site, backward):
        return None
    return forward


def _in_order(clauses: Sequence[Request], site: Site) -> DirectEdit | None:
    operations: list[Any] = []
    summaries: list[str] = []
    sought: list[str] = []
    for clause in clauses:
        readings = _readings(clause, site)
        edit = next(iter(readings.values())) if len(readings) == 1 else None
        if edit is None:
            return None
        site = apply_direct(site, edit)
        operations += edit.operations
        summaries.append(edit.summary)
        sought += edit.sought
    return DirectEdit("several", " ".join(summaries), tuple(operations), tuple(sought))
