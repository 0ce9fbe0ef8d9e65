"""What git applies, we apply, to the same bytes; what git refuses as not fitting, we do not apply in another place."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sites.diff.apply import apply_diff
from sites.diff.model import DiffRefusedError, Reason
from tests.unit.sites.diff.git_apply import apply_with_git, diff_of, git

ROOT = Path(__file__).parents[3]
COMMITS = 12
"""Of this project's own history that are tried; a sample, because git takes its time."""

WORDS = st.sampled_from(
    [
        "",
        " ",
        "\t",
        "a",
        "b",
        "  b",
        "\tb",
        "}",
        "  }",
        "<p>Zürich</p>",
        "- x",
        "+ x",
        "-- x",
        "++ x",
        "@@ -1 +1 @@",
        "--- a/x",
        "+++ b/x",
        "\\ No newline",
        "diff --git a/x b/x",
        "```",
        "*** End Patch",
        "=======",
        "\u2028",
        "\x0c",
        "\r",
    ]
)
LINES = st.lists(WORDS, max_size=25)
ENDS = st.sampled_from(["\n", "\r\n"])
PATHS = st.sampled_from(
    ["index.html", "css/a b.css", "js/ü.js", "deep/er/page.html", "LICENSE", "a/x", "b/x", "-x", "q'uote"]
)
OPTIONS = st.sampled_from(
    [
        ("-U0",),
        ("-U1",),
        ("-U2",),
        (),
        ("-U5",),
        ("-U10",),
        ("--patience",),
        ("--minimal",),
        ("--histogram",),
        ("-M", "-C"),
        ("-M", "-C", "--find-copies-harder"),
        ("-B",),
        ("-W",),
        ("--inter-hunk-context=5",),
        ("--full-index",),
        ("--no-renames",),
        ("--no-prefix",),
        ("--src-prefix=i/", "--dst-prefix=w/"),
        ("-D",),
        ("--binary",),
        ("--no-indent-heuristic", "-U1"),
    ]
)


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    end = draw(ENDS)
    text = "".join(line + end for line in draw(LINES))
    return (text if draw(st.booleans()) else text.removesuffix(end)).encode()


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.split(b"\n")
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(lines)))
        size = draw(st.integers(0, 3))
        lines[place : place + size] = [word.encode() for word in draw(st.lists(WORDS, max_size=3))]
    return b"\n".join(lines)


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, bytes], dict[str, bytes]]:
    old = draw(st.dictionaries(PATHS, contents(), max_size=4))
    new = dict(old)
    for path in sorted(old):
        what = draw(st.sampled_from(["edit", "edit", "edit", "keep", "delete", "rename"]))
        if what == "edit":
            new[path] = draw(edited(old[path]))
        elif what in ("delete", "rename"):
            data = new.pop(path)
            if what == "rename":
                new[f"moved/{path}"] = draw(edited(data)) if draw(st.booleans()) else data
    return old, new | draw(st.dictionaries(PATHS.map(lambda path: f"new/{path}"), contents(), max_size=2))


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / "tree"


@settings(max_examples=20)
@given(trees(), OPTIONS)
def test_any_diff_of_git_gives_the_tree_that_it_was_made_from(
    root: Path, both: tuple[dict[str, bytes], dict[str, bytes]], options: tuple[str, ...]
) -> None:
    old, new = both
    diff = diff_of(root, old, new, options)
    if old == new or not diff:
        return
    try:
        done = apply_diff(old, diff)
    except DiffRefusedError as refused:
        assert refused.reason in (Reason.BINARY, Reason.AMBIGUOUS), refused  # noqa: PT017
        if refused.reason is Reason.AMBIGUOUS:
            assert options == ("--no-prefix",)
        return
    assert done.onto(old) == new
    assert done.fuzz == 0
    assert apply_diff(new, done.reverse).onto(new) == old
    assert apply_with_git(root, old, done.canonical) == new
    assert apply_with_git(root, new, done.reverse) == old


@settings(max_examples=20)
@given(trees(), OPTIONS, st.integers(0, 6), st.booleans())
def test_where_git_finds_another_place_we_find_the_same_or_say_that_there_are_two(
    root: Path, both: tuple[dict[str, bytes], dict[str, bytes]], options: tuple[str, ...], shift: int, is_bare: bool
) -> None:
    old, new = both
    diff = diff_of(root, old, new, options)
    if is_bare:
        diff = b"".join(line for line in diff.splitlines(keepends=True) if not line.startswith(b"index "))
    moved = {path: b"moved here\n" * shift + data for path, data in old.items()}
    try:
        ours = apply_diff(moved, diff).onto(moved) if diff else None
    except DiffRefusedError as refused:
        ours = None
        if refused.reason not in (Reason.ALREADY_APPLIED,):
            assert shift or is_bare or refused.reason in (Reason.BINARY, Reason.AMBIGUOUS), refused  # noqa: PT017
    theirs = apply_with_git(root, moved, diff) if diff and options not in (("-U0",), ("--no-prefix",)) else None
    if theirs is not None and ours is not None:
        assert ours == theirs


def own_commits() -> list[str]:
    found = git("rev-list", "--no-merges", f"--max-count={COMMITS}", "HEAD", cwd=ROOT)
    return found.stdout.decode().split()


def blobs(commit: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the files at a commit, of those that it has: all by one process."""
    asked = "".join(f"{commit}:{path}\n" for path in paths)
    answers = io.BytesIO(git("cat-file", "--batch", cwd=ROOT, stdin=asked.encode()).stdout)
    found = {}
    for path in paths:
        if not (head := answers.readline()).endswith(b" missing\n"):
            found[path] = answers.read(int(head.split()[-1]))
            answers.readline()
    return found


def test_each_commit_of_this_project_is_applied_to_the_byte() -> None:
    commits = own_commits()
    if not commits:
        pytest.skip("not a checkout with a history")
    for commit in commits:
        if git("rev-parse", "--verify", "-q", f"{commit}^", cwd=ROOT).returncode:
            continue
        listed = git("diff-tree", "-r", "--name-only", "--no-renames", "-z", f"{commit}^", commit, cwd=ROOT).stdout
        paths = [path.decode() for path in listed.split(b"\0") if path]
        if len(paths) > 1_000:
            continue
        old, new = blobs(f"{commit}^", paths), blobs(commit, paths)
        diff = git("diff-tree", "-p", "-M", f"{commit}^", commit, cwd=ROOT).stdout
        if not diff or b"\nBinary files " in diff:
            continue
        done = apply_diff(old, diff)
        assert done.onto(old) == new, commit
        assert done.fuzz == 0, commit
