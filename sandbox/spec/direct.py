"""Step 0 of tier 1: the direct edit, which calls no model and costs nothing.

A request is taken only when its whole text matches the grammar and all matches together mean one and the same change.
Any doubt (two targets, a second clause, a value that could be an instruction) gives None, and the request goes to the
model.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from sandbox.spec import rules as package
from sandbox.spec.edit import apply_edit
from sandbox.spec.errors import SpecError
from sandbox.spec.model import Site
from sandbox.spec.rules.wording import DirectEdit, Rule, read_request

__all__ = ["DirectEdit", "apply_direct", "describe", "parse_direct"]


def parse_direct(prompt: str, site: Site) -> DirectEdit | None:
    """Return the one change that a request means on a site, or None when it means none or more than one.

    Args:
        prompt: the request as the user wrote it.
        site: a valid site.
    """
    request = read_request(prompt)
    if request is None:
        return None
    readings: dict[str, DirectEdit] = {}
    for rule in grammar():
        if match := rule.pattern.fullmatch(request.text):
            readings.update((repr(edit.operations), edit) for edit in rule.handle(match, request, site))
    if len(readings) != 1:
        return None
    edit = next(iter(readings.values()))
    return edit if _applies(site, edit) else None


def apply_direct(site: Site, edit: DirectEdit) -> Site:
    """Return the site after a direct edit that was parsed against this very site.

    Raises:
        SpecError: the site is not the one that the edit was parsed against (the caller's fault).
    """
    return apply_edit(site, [dict(operation) for operation in edit.operations])


def describe(edit: DirectEdit) -> str:
    """Return one plain sentence that says what a direct edit did."""
    return edit.summary


@cache
def grammar() -> tuple[Rule, ...]:
    """Return all rules, of every module in `rules/` that has any."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return tuple(rule for module in modules for rule in getattr(module, "RULES", ()))


def _applies(site: Site, edit: DirectEdit) -> bool:
    try:
        apply_direct(site, edit)
    except SpecError:
        return False
    return True
