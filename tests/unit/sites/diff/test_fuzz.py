"""Whatever the bytes: an answer or the one typed refusal, and never a file that the diff did not name."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sites.diff.apply import apply_diff
from sites.diff.model import DiffRefusedError, Limits

FILES = {"f": b"a\nb\nc\n\nb\n", "d/g.html": b"<p>\r\n  x\r\n</p>", "empty": b""}
PIECES = st.sampled_from(
    [
        b"diff --git a/f b/f\n",
        b"--- a/f\n",
        b"+++ b/f\n",
        b"--- /dev/null\n",
        b"+++ /dev/null\n",
        b"+++ b/new\n",
        b"@@ -1,3 +1,3 @@\n",
        b"@@ -0,0 +1 @@\n",
        b"@@ -2 +2,2 @@ b\n",
        b"@@ ... @@\n",
        b"@@\n",
        b"@@@ -1 -1 +1 @@@\n",
        b" a\n",
        b"-b\n",
        b"+x\n",
        b" c\n",
        b"\n",
        b"a\n",
        b"\\ No newline at end of file\n",
        b"new file mode 100644\n",
        b"deleted file mode 100644\n",
        b"rename from f\n",
        b"rename to h\n",
        b"copy from d/g.html\n",
        b"copy to k\n",
        b"index 1234567..89abcde 100644\n",
        b"old mode 1\n",
        b"similarity index 9%\n",
        b"f\n",
        b"<<<<<<< SEARCH\n",
        b"=======\n",
        b">>>>>>> REPLACE\n",
        b"*** Begin Patch\n",
        b"*** End Patch\n",
        b"*** Update File: f\n",
        b"*** Add File: n\n",
        b"*** Delete File: f\n",
        b"*** Move to: m\n",
        b"*** End of File\n",
        b"```diff\n",
        b"```\n",
        b"-- \n",
        b"2.39.5\n",
        b'--- "a/\\146"\n',
        b"--- d/g.html\n",
        b"+++ d/g.html\n",
        b"   x\n",
        b"-  x\r\n",
        b"+  y\r\n",
        b"\xff\xfe\n",
        b"\r\n",
        b"---\n",
        b"-",
    ]
)


def check_refusal(refused: DiffRefusedError) -> None:
    assert refused.reason.value
    assert str(refused).isprintable()
    assert refused.feedback


def check(diff: bytes | str) -> None:
    before = dict(FILES)
    try:
        done = apply_diff(before, diff, limits=Limits(max_steps=20_000))
    except DiffRefusedError as refused:
        check_refusal(refused)
    else:
        after = done.onto(before)
        assert apply_diff(after, done.reverse).onto(after) == before if done.changed else after == before
    assert before == FILES


@settings(max_examples=150)
@given(st.lists(PIECES, max_size=14).map(b"".join))
def test_pieces_of_diffs_in_any_order_are_applied_or_refused(diff: bytes) -> None:
    check(diff)


@settings(max_examples=80)
@given(st.binary(max_size=400))
def test_any_bytes_are_applied_or_refused(diff: bytes) -> None:
    check(diff)
    check(b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n" + diff)


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_any_text_is_applied_or_refused(diff: str) -> None:
    check(diff)
    check("*** Begin Patch\n*** Update File: f\n" + diff)
    check("f\n<<<<<<< SEARCH\n" + diff)


@settings(max_examples=150)
@given(st.lists(PIECES, max_size=4), st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_a_good_diff_with_some_bytes_changed_is_applied_or_refused(
    pieces: list[bytes], place: int, other: bytes
) -> None:
    good = (
        b"diff --git a/f b/f\nindex 1234567..89abcde 100644\n--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c\n"
        b"diff --git a/d/g.html b/d/g.html\n--- a/d/g.html\n+++ b/d/g.html\n@@ -1,3 +1,3 @@\n"
        b" <p>\r\n-  x\r\n+  y\r\n </p>\n"
        b"\\ No newline at end of file\n" + b"".join(pieces)
    )
    check(good[:place] + other + good[place + len(other) :])
