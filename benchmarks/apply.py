"""What does it cost to apply a diff? Three files, eight hunks, in memory, under the policy that holds for sites."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.environments import python_with
from benchmarks.inputs import edit
from benchmarks.race import Peer, Race, calls_of, module
from sites.diff.apply import SITE, apply_diff


def operation() -> Callable[[], object]:
    """Return what applies the diff."""
    before, after, diff = edit()
    files = {path: text.encode() for path, text in before.items()}
    assert apply_diff(files, diff, policy=SITE).changed == {path: after[path].encode() for path in sorted(after)}
    return lambda: apply_diff(files, diff, policy=SITE)


QUESTION = Race(
    name="apply",
    asks="A diff of three files and eight hunks, applied in memory with all checks",
    ours=module(__name__),
    peers=(
        Peer("git apply, with its process and files", module("benchmarks.peers.git_apply"), target=12),
        Peer(
            "whatthepatch 1.0.7, parse and apply in memory",
            module("benchmarks.peers.whatthepatch_apply", lambda: python_with(["whatthepatch==1.0.7"])),
            target=2,
        ),
    ),
    count_calls=calls_of(__name__),
)
