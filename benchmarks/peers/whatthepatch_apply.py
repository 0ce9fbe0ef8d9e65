"""whatthepatch: parses a diff and applies it to lists of lines in memory."""

from collections.abc import Callable

import whatthepatch

from benchmarks.inputs import edit


def operation() -> Callable[[], object]:
    """Return what applies the diff, from its text to the texts of the files."""
    before, after, diff = edit()

    def apply() -> dict[str, str]:
        return {
            patch.header.new_path.removeprefix("b/"): "\n".join(
                whatthepatch.apply_diff(patch, before[patch.header.old_path.removeprefix("a/")])
            )
            + "\n"
            for patch in whatthepatch.parse_patch(diff)
        }

    assert apply() == after
    return apply
