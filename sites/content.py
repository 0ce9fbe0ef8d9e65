"""What a directory or an archive holds as a site: its files, with the pages rendered where it holds a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sites.archives import SPEC_FILE
from sites.errors import TreeRefusedError
from sites.spec.model import parse_site
from sites.spec.render import detached_files, render


@dataclass(frozen=True)
class Content:
    """A site's content."""

    files: Mapping[str, bytes]
    spec: bytes | None
    """The site's spec in canonical form, if its pages are rendered from one."""


def content_of(files: Mapping[str, bytes]) -> Content:
    """Return the content of files as their author keeps them.

    Raises:
        SpecError: the author's fault: the spec is invalid.
        TreeRefusedError: the author's fault: `empty`, or `not_its_render` for a file that differs from the page that
            the spec renders in its place.
    """
    if not files:
        raise TreeRefusedError("empty", "", "there must be at least one file")
    if SPEC_FILE not in files:
        return Content(files, None)
    site = parse_site(files[SPEC_FILE])
    pages = render(site)
    assets = {path: data for path, data in files.items() if path != SPEC_FILE}
    if other := sorted(detached_files(site, assets) & assets.keys()):
        rule = f"{SPEC_FILE} renders this page, but here is another file of its name; remove one of the two"
        raise TreeRefusedError("not_its_render", other[0], rule)
    return Content(assets | pages, site.canonical().encode())
