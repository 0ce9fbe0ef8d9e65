"""The tools read and write files in memory, and tell the model what they refuse."""

from typing import Any

import pytest

from workers.errors import ToolRefusedError
from workers.file_tools import FileTools

FILES = {"index.html": b"<h1>Bread</h1>\n<p>Fresh</p>\n", "logo.png": b"\x89PNG\0", "src/app.ts": b"// bread\n"}
ALL = ("list_files", "read_file", "search_files", "write_file")


def use(name: str, arguments: Any, files: dict[str, bytes] | None = None, **limits: Any) -> str:
    return FileTools(files or FILES, **limits).use(name, arguments, allowed=ALL)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("read_file", {"path": "missing"}, "there is no file 'missing'; list_files"),
        ("read_file", {"path": "../../etc/passwd"}, "there is no file"),
        ("read_file", {"path": ["index.html"]}, "read_file: path: "),
        ("read_file", "index.html", "read_file: "),
        ("read_file", {"path": "logo.png"}, "no text file \\(5 bytes\\)"),
        ("read_file", {"path": "index.html", "offset": -4}, "read_file: offset: "),
        ("delete_file", {"path": "x"}, "there is no tool 'delete_file' here"),
        ("write_file", {"path": "index.html", "content": ""}, "you may write nothing"),
    ],
)
def test_what_cannot_be_done_is_refused(name: str, arguments: Any, why: str) -> None:
    with pytest.raises(ToolRefusedError, match=why):
        use(name, arguments)


def test_a_tool_that_was_not_offered_is_none() -> None:
    with pytest.raises(ToolRefusedError, match="there is no tool"):
        FileTools(FILES).use("list_files", {}, allowed=())


@pytest.mark.parametrize("text", ["x" * 25, "one\ntwo\r\n" * 4, "a\u2028b\x0c" * 6, "\n" * 22])
def test_a_long_file_is_read_to_its_end_in_parts(text: str) -> None:
    files, place, parts = {"long.txt": text.encode()}, {}, list[str]()
    while True:
        shown = use("read_file", {"path": "long.txt", **place}, files, most_shown=10)
        part, cut, rest = shown.rpartition("\n[")
        parts.append(part if cut else shown)
        if not cut:
            break
        words = rest.removesuffix("]").split()
        place = {name: int(value) for name, _, value in (word.partition("=") for word in words) if value}
    assert "".join(parts) == text


def test_only_so_many_lines_are_read() -> None:
    assert use("read_file", {"path": "index.html", "from_line": 2, "lines": 1}) == "<p>Fresh</p>"
    assert use("read_file", {"path": "index.html", "from_line": 9}) == "[no lines there]"


def test_files_are_listed_with_their_sizes_and_how_many_more_there_are() -> None:
    assert use("list_files", {}).split() == ["28", "index.html", "5", "logo.png", "9", "src/app.ts"]
    assert use("list_files", {"directory": "src"}).split() == ["9", "src/app.ts"]
    many = {f"{number}.txt": b"" for number in range(1001)}
    assert use("list_files", {}, many).splitlines()[1000:] == ["and 1 more: name a directory"]


def test_lines_are_found_with_those_beside_them() -> None:
    sheet = "\n".join(f".rule-{number} {{ }}" for number in range(1, 30))
    found = use("search_files", {"text": "RULE-20", "beside": 3}, {"styles.css": sheet.encode()})
    assert found.splitlines() == [f"styles.css:{number}: .rule-{number} {{ }}" for number in range(17, 24)]
    assert use("search_files", {"text": "bread"}) == "index.html:1: <h1>Bread</h1>\nsrc/app.ts:1: // bread"
    assert use("search_files", {"text": "bread", "directory": "src"}) == "src/app.ts:1: // bread"
    assert use("search_files", {"text": "bread", "directory": "src/app.ts"}) == "src/app.ts:1: // bread"
    assert use("search_files", {"text": "bread", "directory": "sr"}) == "nothing found"
    assert use("search_files", {"text": "PNG"}) == "nothing found", "a file that is no text"
    assert use("search_files", {"text": "nav"}) == "nothing found"
    long = {"a.html": b"<p>" + b"word " * 300 + b"Dogs are welcome " + b"word " * 300}
    assert "Dogs are welcome" in use("search_files", {"text": "dogs"}, long)
    assert len(use("search_files", {"text": "dogs"}, long)) < 420


def test_a_search_that_finds_too_much_says_so() -> None:
    many = {"a.txt": b"hit\n" * 101}
    assert use("search_files", {"text": "hit"}, many).splitlines()[100].startswith("[there is more")
    assert len(use("search_files", {"text": "hit"}, {"a.txt": b"hit\n" * 100}).splitlines()) == 100
    assert len(use("search_files", {"text": "hit"}, many, most_shown=200)) < 300


def test_the_lines_after_those_that_were_asked_for_are_told() -> None:
    shown = use("read_file", {"path": "a.txt", "lines": 2}, {"a.txt": b"one\ntwo\nthree\nfour"})
    assert shown == "one\ntwo\n[11 more characters: go on with from_line=2 and offset=3]"
    assert use("read_file", {"path": "a.txt", "offset": 9}, {"a.txt": b"one\ntwo"}) == "\ntwo"
