"""The threats F1 to F12 of notes/sandbox.md, each with what must happen."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from sites.diff.apply import SITE, apply_diff
from sites.diff.model import DiffRefusedError, Reason

PAGE = b"".join(b"<p>line %d</p>\n" % number for number in range(1, 41))
FILES = {"index.html": PAGE, "css/site.css": b"a { color: red; }\n", "crlf.txt": b"one\r\ntwo\r\nthree\r\n"}


def refusal(diff: str | bytes, files: dict[str, bytes] | None = None, **options: object) -> DiffRefusedError:
    before = dict(files or FILES)
    with pytest.raises(DiffRefusedError) as caught:
        apply_diff(before, diff, **options)  # type: ignore[arg-type]
    assert before == (files or FILES)
    return caught.value


def created(path: str) -> str:
    return f"--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+x\n"


def updated(path: str) -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1,2 +1,2 @@\n-<p>line 1</p>\n+<p>new</p>\n <p>line 2</p>\n"


@pytest.mark.threat("F1")
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("b/../x.html", "parent"),
        ("b/a/../../x.html", "parent"),
        ("/etc/passwd", "absolute"),
        ("b//etc/x", "dot_segment"),
        ("b/.git/hooks/x", "git"),
        ("b/.GIT/x", "git"),
        ("b/.Git", "git"),
        ("b/sub/.git/config", "git"),
        ("b/GIT~1/x", "git"),
        ("b/a\\..\\x", "backslash"),
        ("C:/x", "drive"),
        ("b/C:x", "drive"),
        ('"b/x\\000y"', "malformed"),
        ('"b/\\001"', "control"),
        ('"b/\\377.html"', "encoding"),
        ("b/.g\u200cit/x", "direction"),
    ],
)
def test_f1_a_path_out_of_the_site_is_refused(path: str, rule: str) -> None:
    refused = refusal(created(path))
    if rule == "malformed":
        assert refused.reason in (Reason.MALFORMED, Reason.UNSAFE_PATH)
    else:
        assert refused.reason is Reason.UNSAFE_PATH
        assert refused.detail.startswith(rule)


@pytest.mark.threat("F1")
@pytest.mark.parametrize(
    "diff",
    [
        "*** Begin Patch\n*** Add File: ../x\n+x\n*** End Patch\n",
        "../x\n<<<<<<< SEARCH\n=======\nx\n>>>>>>> REPLACE\n",
        "*** Begin Patch\n*** Update File: index.html\n*** Move to: /x\n*** End Patch\n",
        "*** Begin Patch\n*** Delete File: .git/config\n*** End Patch\n",
    ],
)
def test_f1_every_format_is_held_to_the_same_paths(diff: str) -> None:
    assert refusal(diff).reason is Reason.UNSAFE_PATH


@pytest.mark.threat("F1")
def test_f1_a_path_through_a_symbolic_link_is_refused() -> None:
    assert refusal(created("b/link/x.html"), obstacles=("link",)).reason is Reason.SYMLINK
    assert refusal(updated("index.html"), obstacles=("index.html",)).reason is Reason.SYMLINK


@pytest.mark.threat("F1")
@pytest.mark.parametrize(
    "path", ["INDEX.html", "CSS/new.css", "css/SITE.css", "css", "index.html/x.html", "ＣＳＳ/x.css"]
)
def test_f1_a_new_name_that_is_another_on_some_file_system_is_refused(path: str) -> None:
    assert refusal(created(f"b/{path}")).reason is Reason.NAME_COLLISION


@pytest.mark.threat("F2", "F3")
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("new file mode 120000", Reason.SYMLINK),
        ("new file mode 160000", Reason.SUBMODULE),
        ("new file mode 100755", Reason.MODE_CHANGE),
    ],
)
def test_f2_what_is_no_plain_file_is_not_made(header: str, reason: Reason) -> None:
    diff = f"diff --git a/x.html b/x.html\n{header}\n--- /dev/null\n+++ b/x.html\n@@ -0,0 +1 @@\n+/etc/passwd\n"
    assert refusal(diff, policy=SITE).reason is reason


@pytest.mark.threat("F3")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("rename from index.html\nrename to ../x.html\n", Reason.UNSAFE_PATH),
        ("rename from index.html\nrename to other.html\n", Reason.RENAME),
        ("copy from index.html\ncopy to other.html\n", Reason.RENAME),
        ("old mode 100644\nnew mode 100755\n", Reason.MODE_CHANGE),
        ("old mode 100644\nnew mode 120000\n", Reason.SYMLINK),
        (
            "index 1234567..89abcde 160000\n--- a/index.html\n+++ b/index.html\n@@ -1 +1 @@\n-Subproject commit 1\n"
            "+Subproject commit 2\n",
            Reason.SUBMODULE,
        ),
        ("index 1234567..89abcde\nGIT binary patch\nliteral 3\nKcmZ\n", Reason.BINARY),
        ("index 1234567..89abcde\nBinary files a/index.html and b/index.html differ\n", Reason.BINARY),
    ],
)
def test_f3_renames_modes_submodules_and_binaries_are_refused(body: str, reason: Reason) -> None:
    target = body.partition(" to ")[2].strip() or "index.html"
    assert refusal(f"diff --git a/index.html b/{target}\n{body}", policy=SITE).reason is reason


@pytest.mark.threat("F4")
@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        (
            "diff --git a/index.html b/index.html\n--- a/index.html\n+++ b/css/site.css\n@@ -1 +1 @@\n-a\n+b\n",
            Reason.PATH_MISMATCH,
        ),
        ('diff --git a/x "b/\\056\\056/x"\n--- a/x\n+++ "b/\\056\\056/x"\n@@ -1 +1 @@\n-a\n+b\n', Reason.PATH_MISMATCH),
        ('--- /dev/null\n+++ "b/\\056\\056/x"\n@@ -0,0 +1 @@\n+b\n', Reason.UNSAFE_PATH),
        ("--- a/index.html\n+++ b/css/site.css\n@@ -1 +1 @@\n-a\n+b\n", Reason.PATH_MISMATCH),
    ],
)
def test_f4_headers_that_name_two_files_are_refused(diff: str, reason: Reason) -> None:
    assert refusal(diff).reason is reason


@pytest.mark.threat("F4")
def test_f4_names_with_spaces_and_a_tab_behind_them_are_read_as_git_writes_them() -> None:
    files = {"my page.html": b"a\n"}
    diff = "diff --git a/my page.html b/my page.html\n--- a/my page.html\t\n+++ b/my page.html\t\n@@ -1 +1 @@\n-a\n+b\n"
    assert apply_diff(files, diff).changed == {"my page.html": b"b\n"}


@pytest.mark.threat("F5")
@pytest.mark.parametrize("counts", ["+1,2", "+1", "+1,9", "+0,0", "+1,4"])
def test_f5_a_new_file_has_all_its_lines_whatever_the_counts_say(counts: str) -> None:
    diff = f"--- /dev/null\n+++ b/new.html\n@@ -0,0 {counts} @@\n+1\n+2\n+3\n+4\n"
    assert apply_diff(FILES, diff).changed == {"new.html": b"1\n2\n3\n4\n"}


TWICE = b"<div>\n<p>same</p>\n</div>\n" + b"<hr>\n" * 30 + b"<div>\n<p>same</p>\n</div>\n"


@pytest.mark.threat("F6")
@pytest.mark.parametrize(
    "header", ["@@ -16,3 +16,3 @@", "@@ ... @@", "@@ -2,3 +2,3 @@", "@@ -33,3 +33,3 @@", "@@ -1,9 +1,9 @@"]
)
def test_f6_two_places_are_ambiguous_where_git_takes_the_nearest(header: str) -> None:
    diff = f"--- a/x.html\n+++ b/x.html\n{header}\n <div>\n-<p>same</p>\n+<p>other</p>\n </div>\n"
    refused = refusal(diff, {"x.html": TWICE})
    assert refused.reason is Reason.AMBIGUOUS
    assert refused.hunk == 1
    assert "1, 34" in refused.detail


@pytest.mark.threat("F7")
def test_f7_two_files_need_no_git_header() -> None:
    diff = updated("index.html") + "--- a/css/site.css\n+++ b/css/site.css\n@@ -1 +1 @@\n-a { color: red; }\n+a {}\n"
    assert sorted(apply_diff(FILES, diff).changed) == ["css/site.css", "index.html"]


@pytest.mark.threat("F8")
def test_f8_line_ends_byte_order_mark_and_a_missing_last_line_feed_stay() -> None:
    diff = "--- a/crlf.txt\n+++ b/crlf.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three\n"
    assert apply_diff(FILES, diff).changed == {"crlf.txt": b"one\r\n2\r\n2b\r\nthree\r\n"}
    files = {"x.txt": b"\xef\xbb\xbfone\ntwo\nthree"}
    diff = "--- a/x.txt\n+++ b/x.txt\n@@ -1,3 +1,3 @@\n \ufeffone\ntwo\n-three\n+3\n"
    assert apply_diff(files, diff).changed == {"x.txt": b"\xef\xbb\xbfone\ntwo\n3"}


@pytest.mark.threat("F9")
def test_f9_one_bad_hunk_of_five_leaves_everything_as_it_was() -> None:
    hunks = [f"@@ -{n},1 +{n},1 @@\n-<p>line {n}</p>\n+<p>new {n}</p>\n" for n in (2, 10, 20, 30)]
    hunks.insert(3, "@@ -25,1 +25,1 @@\n-<p>never was</p>\n+<p>x</p>\n")
    refused = refusal("--- a/index.html\n+++ b/index.html\n" + "".join(hunks))
    assert (refused.reason, refused.hunk, refused.file) == (Reason.NOT_FOUND, 4, "index.html")
    assert any("line 25" in line for line in refused.nearest)
    assert "never" not in "".join(refused.nearest)


@pytest.mark.threat("F10")
@pytest.mark.parametrize(
    "diff",
    [
        updated("index.html"),
        created("b/new.html"),
        "*** Begin Patch\n*** Delete File: css/site.css\n*** End Patch\n",
        "--- a/index.html\n+++ b/index.html\n@@ -38,3 +38,4 @@\n"
        " <p>line 38</p>\n <p>line 39</p>\n <p>line 40</p>\n+<p>end</p>\n",
        "--- a/index.html\n+++ b/index.html\n@@ -1,2 +1,3 @@\n+<p>top</p>\n <p>line 1</p>\n <p>line 2</p>\n",
        "--- a/index.html\n+++ b/index.html\n@@ -4,5 +4,4 @@\n"
        " <p>line 4</p>\n <p>line 5</p>\n-<p>line 6</p>\n <p>line 7</p>\n"
        " <p>line 8</p>\n",
        "index.html\n<<<<<<< SEARCH\n<p>line 7</p>\n=======\n<p>seven</p>\n>>>>>>> REPLACE\n",
    ],
)
def test_f10_a_diff_that_is_applied_twice_is_already_applied(diff: str) -> None:
    after = apply_diff(FILES, diff).onto(FILES)
    assert after != FILES
    assert refusal(diff, after).reason is Reason.ALREADY_APPLIED


@pytest.mark.threat("F11")
@pytest.mark.parametrize(
    "line",
    [
        "<!-- ... rest unchanged ... -->",
        "// ... existing code ...",
        "/* … remaining styles … */",
        "... rest of the page",
        "# ... (rest of the file unchanged)",
        "<!-- rest of the page stays the same -->",
        "{/* existing sections here */}",
    ],
)
def test_f11_a_placeholder_is_refused_for_a_site(line: str) -> None:
    diff = f"--- a/index.html\n+++ b/index.html\n@@ -1,2 +1,2 @@\n-<p>line 1</p>\n+{line}\n <p>line 2</p>\n"
    assert refusal(diff, policy=SITE).reason is Reason.PLACEHOLDER
    assert apply_diff(FILES, diff)


@pytest.mark.parametrize(
    "line",
    [
        "<p>We keep our existing customers happy...</p>",
        "<!-- the same as above: see the guide -->".replace("above", "x"),
        "... and much, much more",
        "<p>... and the rest is history</p>",
        "a { margin: 0 } /* reset */",
    ],
)
def test_text_of_a_page_is_no_placeholder(line: str) -> None:
    diff = f"--- a/index.html\n+++ b/index.html\n@@ -1,2 +1,2 @@\n-<p>line 1</p>\n+{line}\n <p>line 2</p>\n"
    assert apply_diff(FILES, diff, policy=SITE)


@pytest.mark.threat("F11")
def test_f11_most_of_a_page_may_not_go() -> None:
    body = "".join(f"-<p>line {number}</p>\n" for number in range(2, 40))
    diff = f"--- a/index.html\n+++ b/index.html\n@@ -1,40 +1,2 @@\n <p>line 1</p>\n{body} <p>line 40</p>\n"
    assert refusal(diff, policy=SITE).reason is Reason.MASS_DELETION
    assert apply_diff(FILES, diff)


@pytest.mark.threat("D2", "F1")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".npmrc", Reason.PLANTED),
        ("CLAUDE.md", Reason.PLANTED),
        (".claude/settings.json", Reason.PLANTED),
        (".github/workflows/x.yml", Reason.PLANTED),
        ("x.php", Reason.EXTENSION),
        ("x", Reason.EXTENSION),
    ],
)
def test_d2_planted_configuration_and_foreign_kinds_of_file_are_refused_for_a_site(path: str, reason: Reason) -> None:
    assert refusal(created(f"b/{path}"), policy=SITE).reason is reason
    assert apply_diff(FILES, created(f"b/{path}")).changed == {path: b"x\n"}


def hostile() -> dict[str, tuple[dict[str, bytes], bytes]]:
    many = b"".join(b"@@ -%d,1 +%d,1 @@\n-x\n+y\n" % (n, n) for n in range(1, 10_001))
    header = b"--- a/f\n+++ b/f\n"
    same = b"x\n" * 50_000
    blank = b"\n" * 20_000
    body = b"".join(b" x\n" for _ in range(5_000)) + b"-x\n+y\n"
    sides = b"a\n" * 242 + b"=======\n" + b"a\nb\n" * 500
    rewritten = b"-x" + b"a" * 398 + b"y\n+z" + b"ab" * 199 + b"w\n"
    return {
        "ten megabytes": ({"f": b"a\n"}, header + b"@@ -1 +1 @@\n" + b"+y\n" * 3_400_000),
        "ten thousand hunks, one line": ({"f": same}, header + many),
        "ten thousand hunks without numbers": ({"f": same}, header + b"@@ @@\n-x\n+y\n" * 10_000),
        "a line of a megabyte": (
            {"f": b"z" * 1_000_000 + b"\n"},
            header + b"@@ -1 +1 @@\n-" + b"z" * 1_000_001 + b"\n+y\n",
        ),
        "a long hunk everywhere": ({"f": same}, header + b"@@ -9,1 +9,1 @@\n" + body),
        "a hunk with gaps": ({"f": (b"a\n" + b"b\n") * 20_000}, header + b"@@ @@\n" + b" aaaaaa\n b\n" * 150 + b"-q\n"),
        "gaps among equal lines": (
            {"f": b"aaaaaa\nb\nc\n" * 9_000},
            header + b"@@ @@\n" + b" aaaaaa\n b\n" * 150 + b"-c\n",
        ),
        "blank lines": ({"f": blank}, header + b"@@ -1,9 +1,9 @@\n" + b" \n" * 8_000 + b"-x\n+y\n"),
        "headers only": ({"f": b"a\n"}, header * 200_000),
        "fences only": ({"f": b"a\n"}, header + b"@@ @@\n" + b"```\n" * 200_000),
        "names with spaces": ({"f": b"a\n"}, b"diff --git " + b"a " * 200_000 + b"\n"),
        "blocks": ({"f": same}, b"f\n" + b"<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n" * 9_000),
        "one huge block": (
            {"f": same},
            b"f\n<<<<<<< SEARCH\n" + b"x\n" * 40_000 + b"=======\n" + b"x\ny\n" * 40_000 + b">>>>>>> REPLACE\n",
        ),
        "blocks of equal lines": (
            {"f": b"a\n" * 242},
            b"".join(b"f\n<<<<<<< SEARCH\n" + sides + b">>>>>>> REPLACE\n" for _ in range(100)),
        ),
        "lines that are hardly alike": (
            {"f": b"".join(b"%d\nx%sy\n" % (n, b"a" * 398) for n in range(190))},
            header + b"@@ @@\n" + b"".join(b" %d\n%s" % (n, rewritten) for n in range(190)) + b" 0\n",
        ),
        "a name with a blank end": ({"f": b"a\n"}, b"--- a/f" + b" " * 200_000 + b"x\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"),
        "anchors": (
            {"f": same},
            b"*** Begin Patch\n*** Update File: f\n" + b"@@ x\n" * 50_000 + b"-x\n+y\n*** End Patch\n",
        ),
        "hunk headers": ({"f": same}, header + b"@@ -1 +1 @@\n" * 300_000),
        "blank runs": ({"f": b"a\n"}, header + (b"@@ -1 +1 @@\n-a\n+b\n" + b"\n" * 900) * 400),
        "escapes": ({"f": b"a\n"}, b'--- "a/' + b"\\141" * 200_000 + b'"\n+++ "b/x"\n@@ -1 +1 @@\n-a\n+b\n'),
    }


@pytest.mark.slow
@pytest.mark.threat("F12")
def test_f12_a_hostile_diff_is_answered_in_bounded_time() -> None:
    for name, (files, diff) in hostile().items():
        started = time.process_time()
        with suppress(DiffRefusedError):
            apply_diff(files, diff)
        assert time.process_time() - started < 4.0, name  # two seconds on a quiet machine
