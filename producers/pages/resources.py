"""What the pages' listener works with: it can read releases, and do nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from monitoring.ledger.store import Ledger
from sandbox.den import Den
from sandbox.preview import PreviewSigner


@dataclass(frozen=True)
class PageResources:
    """Everything the pages need; their owner opens and closes it."""

    ledger: Ledger
    den: Den
    signer: PreviewSigner
    preview_seconds: float
    """How long a preview link opens something."""
    console_url: str = ""
    """The origin of the console, which alone may show its own links in a frame; empty for nobody."""


def page_resources_of(request: Request) -> PageResources:
    """Return the resources of the application that serves this request."""
    resources = request.app.state.resources
    assert isinstance(resources, PageResources)
    return resources


PageResourcesDep = Annotated[PageResources, Depends(page_resources_of)]
