"""Drawings of a new site or an edit: one call each, and none where time or money is short."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.client import Text
from routing.jobs import Reason
from sites.errors import SpecError
from sites.spec.catalog import read_prompt
from sites.spec.drawings.requests import brief, draw_tool, drawn, shapes_of, wanted
from sites.spec.html import say
from sites.spec.model import Site, parse_site
from workers.attempt import Prompt
from workers.handlers.candidate import owner_language
from workers.handlers.model_task import Poor, Task
from workers.inputs import Inputs
from workers.outcomes import Outcome

_MAX_DRAWINGS = 3
"""Of one job, whose limits hold for their calls, too."""


def drawing_task(
    inputs: Inputs,
    site: Site,
    then: Callable[..., Outcome | Poor | Task],
    *,
    left: Sequence[str] = (),
) -> Task:
    """Return the task of drawing what a site wants; where one does not come out, it shows what it did before."""
    showing = wanted(site)[:_MAX_DRAWINGS]
    told = say("the drawing did not come out, so ask for it once more", owner_language(inputs, site))
    system, tool = read_prompt("drawing.md"), draw_tool()
    return Task(
        [Prompt("spec_draw", system, tool, [Text(brief(site, of)), Text(inputs.asked)]) for of in showing],
        partial(_drawn, spec=site.canonical(), showing=showing, then=then, left=left, told=told),
        otherwise=partial(then, spec=drawn(site, {}, before=inputs.spec).canonical(), left=(*left, told)),
    )


def _drawn(
    inputs: Inputs,
    replies: Sequence[Mapping[str, Any]],
    *,
    spec: str,
    showing: Sequence[str],
    then: Callable[..., Outcome | Poor | Task],
    left: Sequence[str],
    told: str,
) -> Outcome | Poor | Task:
    """Put what came out into the site; only where nothing did are the calls made again."""
    shapes, problem = {}, ""
    for of, reply in zip(showing, replies, strict=True):
        try:
            shapes[of] = shapes_of(reply)
        except SpecError as error:
            problem = problem or str(error)
    if not shapes:
        return Poor(Reason.SPEC_INVALID, problem)
    site = parse_site(spec)
    is_whole = len(shapes) == len(wanted(site))
    try:
        done = drawn(site, shapes, before=inputs.spec)
    except SpecError as error:  # a document has its size
        return Poor(Reason.SPEC_INVALID, str(error))
    return then(inputs, spec=done.canonical(), left=left if is_whole else (*left, told))
