"""Changes between releases as people read them; nothing in a file makes a terminal obey."""

from __future__ import annotations

from producers.commands.context import out
from producers.commands.routes_shown import harmless
from producers.comparison import Comparison


def show_comparison(found: Comparison) -> None:
    """Print which files differ, with their unified diffs."""
    out.print(f"from {found.before or 'nothing'} to {found.after}")
    out.print(f"{found.added} added, {found.removed} removed, {found.changed} changed")
    for change in found.changes:
        sizes = " -> ".join(str(size) for size in (change.before_bytes, change.after_bytes) if size is not None)
        what = "" if change.is_served else ", a source"
        out.print(f"\n{change.status} {harmless(change.path)} ({sizes} bytes{what})", markup=False)
        if change.diff:
            out.print("\n".join(harmless(line) for line in change.diff.rstrip("\n").split("\n")), markup=False)
