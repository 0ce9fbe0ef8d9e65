import hashlib
from collections.abc import Mapping
from uuid import UUID

import pytest

from producers.commands.context import show_comparison
from producers.use_cases.changes import MAX_DIFF_BYTES, MAX_TOTAL_DIFF_CHARS, Comparison, FileChange, compare
from sites.content_store import Entry
from sites.diff.apply import apply_diff
from sites.files import media_type_of


def changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> dict[str, FileChange]:
    blobs = {hashlib.sha256(data).hexdigest(): data for data in (*before.values(), *after.values())}

    def entry(path: str, data: bytes) -> Entry:
        return Entry(hashlib.sha256(data).hexdigest(), len(data), media_type_of(path))

    old, new = ({path: entry(path, data) for path, data in files.items()} for files in (before, after))
    return {change.path: change for change in compare(old, new, read=blobs.__getitem__)}


def hunk(change: FileChange) -> str:
    """Return a diff without git's headers."""
    assert change.diff is not None
    return change.diff[change.diff.index("--- ") :]


def test_a_changed_text_file_comes_with_a_unified_diff() -> None:
    change = changes({"a.css": b"one\ntwo\n"}, {"a.css": b"one\n2\n"})["a.css"]
    assert change.status == "changed"
    assert hunk(change) == "--- a/a.css\n+++ b/a.css\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"


def test_a_last_line_without_its_end_is_marked_as_git_does() -> None:
    change = changes({"a.css": b"one"}, {"a.css": b"one\n"})["a.css"]
    assert hunk(change) == "--- a/a.css\n+++ b/a.css\n@@ -1,1 +1,1 @@\n-one\n\\ No newline at end of file\n+one\n"


def test_added_and_removed_files_name_nothing_on_the_other_side() -> None:
    found = changes({"old.txt": b"x\n"}, {"new.txt": b"y\n"})
    assert (found["old.txt"].status, found["new.txt"].status) == ("removed", "added")
    assert hunk(found["old.txt"]) == "--- a/old.txt\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n"
    assert hunk(found["new.txt"]) == "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,1 @@\n+y\n"
    assert (found["old.txt"].before_bytes, found["old.txt"].after_bytes) == (2, None)


def test_what_is_not_text_or_too_large_has_no_diff() -> None:
    large = b"x" * (MAX_DIFF_BYTES + 1)
    before = {"a.png": b"1", "b.css": b"\xff", "c.css": b""}
    found = changes(before, {"a.png": b"2", "b.css": b"ok", "c.css": large})
    assert {path: change.diff for path, change in found.items()} == dict.fromkeys(before)


def test_a_carriage_return_is_no_end_of_line() -> None:
    change = changes({"a.txt": b"a\rb\r\n"}, {"a.txt": b"a\rc\r\n"})["a.txt"]
    assert "-a\rb\r\n+a\rc\r\n" in hunk(change)


def test_a_diff_can_be_applied() -> None:
    before, after = {"a.css": b"one\ntwo\n"}, {"a.css": b"one\n2\n"}
    diff = changes(before, after)["a.css"].diff
    assert diff is not None
    assert apply_diff(before, diff).onto(before) == after


def test_equal_files_are_not_listed() -> None:
    assert changes({"a.txt": b"x"}, {"a.txt": b"x"}) == {}


def test_the_text_of_all_diffs_is_bounded_and_every_file_is_still_named() -> None:
    after = {f"{number:02}.txt": (b"%060d\n" % number) * 4_000 for number in range(12)}
    found = changes({}, after)
    assert list(found) == sorted(after)
    shown = [change.diff for change in found.values() if change.diff is not None]
    assert 0 < len(shown) < len(after)
    assert sum(map(len, shown)) < MAX_TOTAL_DIFF_CHARS + MAX_DIFF_BYTES
    assert found["11.txt"].after_bytes == len(after["11.txt"])


def test_nothing_in_a_file_makes_a_terminal_obey(capsys: pytest.CaptureFixture[str]) -> None:
    change = FileChange(
        path="a\x1b]0;x.html", status="changed", before_bytes=1, after_bytes=2, diff="-a\n+\x1b[2Jb\u202ec\n"
    )
    show_comparison(Comparison(before=None, after=UUID(int=1), added=0, removed=0, changed=1, changes=(change,)))
    shown = capsys.readouterr().out
    assert "changed a" in shown
    assert not any(sign in shown for sign in ("\x1b", "\u202e"))
