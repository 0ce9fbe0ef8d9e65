"""Which pages of a site still are the render of its spec, and how the others survive the next render.

A page is managed by the spec only while its bytes equal its render. An edit of the file detaches it: from then on the
file is the truth, the spec is rendered around it, and a change of the spec that would need the page is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.errors import SandboxError
from sandbox.spec.model import Site
from sandbox.spec.render import render


class DetachedPagesError(SandboxError, ValueError):
    """A change of the spec would change files that are no longer its render (nobody's fault); nothing changed."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(paths)
        self.paths = paths

    def __str__(self) -> str:
        verb = "is" if len(self.paths) == 1 else "are"
        return f"{', '.join(self.paths)} {verb} no longer rendered from the spec, and this edit would change more there"


def detached_files(site: Site, files: Mapping[str, bytes]) -> frozenset[str]:
    """Return the pages of a site, and its style sheet, whose files differ from their render or are gone.

    Args:
        site: a valid site.
        files: the site's files by path.
    """
    return frozenset(path for path, data in render(site).items() if files.get(path) != data)


def render_onto(before: Site, after: Site, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return a site's files after a change of its spec; files that are not the spec's render stay as they are.

    Args:
        before: the spec that the files come from.
        after: the changed spec.
        files: the site's files by path.

    Raises:
        DetachedPagesError: the change needs a page that is detached, or a file that is not the spec's.
    """
    old, new = render(before), render(after)
    changed = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    if lost := sorted(path for path in changed if files.get(path) != old.get(path)):
        raise DetachedPagesError(tuple(lost))
    kept = {path: data for path, data in files.items() if path not in changed}
    return kept | {path: new[path] for path in sorted(changed & new.keys())}
