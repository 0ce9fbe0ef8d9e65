"""Replies that need code: small pure functions from a request to blocks, named so that scenario files can use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sandbox.rehearsal.answers import answer
from sandbox.rehearsal.blocks import Block, Text
from sandbox.rehearsal.coding import code_agent
from sandbox.rehearsal.example import example_of
from sandbox.rehearsal.patching import site_patch
from sandbox.rehearsal.request import Request
from sandbox.rehearsal.site import site_edit, site_outline
from sandbox.rehearsal.team.play import team_member

Responder = Callable[[Request], Sequence[Block]]


def structured(request: Request) -> Sequence[Block]:
    """Reply with JSON that satisfies the schema given for the reply."""
    return (Text(json.dumps(example_of(request.output_schema or {}, about=request.prompt))),)


RESPONDERS: dict[str, Responder] = {
    "answer": answer,
    "code_agent": code_agent,
    "site_edit": site_edit,
    "site_outline": site_outline,
    "site_patch": site_patch,
    "structured": structured,
    "team_member": team_member,
}
"""Every responder that a scenario file may name."""
