import json
import unicodedata

import pytest

from sites.errors import PathRefusedError, TreeRefusedError
from sites.files import (
    MAX_DEPTH,
    MAX_PATH_BYTES,
    check_path,
    check_tree,
    collision_key,
    is_built,
    is_planted,
    public_of,
    served_part,
    sources_of,
)

HOSTILE = [
    ("", "empty"),
    ("../x", "parent"),
    ("a/../../x", "parent"),
    ("./../x", "dot_segment"),
    ("a//b", "dot_segment"),
    ("a/", "dot_segment"),
    ("/etc/passwd", "absolute"),
    ("//host/share", "absolute"),
    ("C:/x", "drive"),
    ("c:x", "drive"),
    ("C:\\x", "backslash"),
    ("a\\..\\b", "backslash"),
    ("a\0b", "control"),
    ("a\nb", "control"),
    ("a\x7fb", "control"),
    ("a\u2028b", "control"),
    ("a\u202egpj.html", "direction"),
    ("a\u2067b", "direction"),
    (".g\u200cit/config", "direction"),
    ("a\ufeffb", "direction"),
    ("a\udcffb", "encoding"),
    ("a.", "trailing_dot_space"),
    ("a /b", "trailing_dot_space"),
    (" a", "trailing_dot_space"),
    ("...", "trailing_dot_space"),
    ("CON", "device_name"),
    ("x/nul.html", "device_name"),
    ("Com1.tar.gz", "device_name"),
    ("aux .txt", "device_name"),
    ("clock$", "device_name"),
    # NTFS: another stream of a file, or the directory itself; characters that no file there may have.
    (".git::$INDEX_ALLOCATION", "reserved_character"),
    (".git::$INDEX_ALLOCATION/config", "reserved_character"),
    ("index.html::$DATA", "reserved_character"),
    ("a/xy:z", "reserved_character"),
    ('a?b"<', "reserved_character"),
    ("a*", "reserved_character"),
    ("a|b", "reserved_character"),
    ("a>b", "reserved_character"),
    # What nobody sees, or everybody reads as something else.
    ("a\u3164b", "invisible"),
    ("\u3164", "invisible"),
    ("\u2800", "invisible"),
    ("a\uffa0", "invisible"),
    ("a\u115fb", "invisible"),
    ("a\u034fb", "invisible"),
    ("a\u17b5b", "invisible"),
    ("a\ufe0fb", "invisible"),
    ("a\U000e0101b", "invisible"),
    ("a\U000e0041b", "direction"),
    ("a\uf022b", "encoding"),
    ("a\ufffeb", "encoding"),
    ("a\U000e0080b", "encoding"),
    ("\u00a0a", "trailing_dot_space"),
    ("a\u3000", "trailing_dot_space"),
    ("\u2003/a", "trailing_dot_space"),
    ("/".join("d" * (MAX_DEPTH + 1)), "too_deep"),
    ("/".join("d" * 300), "too_deep"),
    ("a" * 256, "segment_too_long"),
    ("é" * 128, "segment_too_long"),
    ("/".join(["é" * 100] * 21), "too_long"),
    ("a" * 10_000_000, "too_long"),
]


@pytest.mark.threat("E", "F1")
@pytest.mark.parametrize(("path", "reason"), HOSTILE, ids=lambda value: ascii(value)[:30])
def test_a_hostile_name_is_refused_with_its_reason(path: str, reason: str) -> None:
    with pytest.raises(PathRefusedError) as caught:
        check_path(path)
    assert caught.value.reason == reason
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "path",
    [
        "index.html",
        "a/b c/d.css",
        ".well-known/security.txt",
        "..a",
        "a..b/c",
        "über/straße.html",
        "Screenshot at 9.41.12\u202fAM.png",
        "[...slug]/(group)/$page.tsx",
        "हिन्दी/한국어.html",
        "console.html",
        "日本/語.html",
    ],
)
def test_an_ordinary_name_passes_unchanged(path: str) -> None:
    assert check_path(path) == path


def test_caps_let_exactly_their_number_pass() -> None:
    assert check_path("/".join("d" * MAX_DEPTH))
    assert check_path("a" * 255)
    longest = "/".join(["a" * 255] * 16)[:MAX_PATH_BYTES]
    assert len(check_path(longest)) == MAX_PATH_BYTES - 1


def test_a_decomposed_name_becomes_its_composed_form() -> None:
    decomposed = unicodedata.normalize("NFD", "café.html")
    assert check_path(decomposed) == "café.html"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A.js", "a.js"),
        ("straße", "STRASSE"),
        ("ﬁ.css", "fi.css"),
        ("K", "\u212a"),
        ("Ａ１.css", "a1.css"),
        ("x².js", "x2.js"),
    ],
)
def test_names_that_some_disk_holds_as_one_share_a_key(one: str, other: str) -> None:
    assert collision_key(one) == collision_key(other)


@pytest.mark.threat("D1", "D2", "F1")
@pytest.mark.parametrize(
    "path",
    [
        "GIT~1/config",
        "id.key",
        ".amazonq/rules/x.md",
        ".junie/guidelines.md",
        "opencode.json",
        ".opencode/agent/x.md",
        ".bashrc",
        "a/.zshrc",
        ".profile",
        ".ssh/authorized_keys",
        ".config/fish/config.fish",
        ".circleci/config.yml",
        "Jenkinsfile",
        ".vimrc",
        ".dir-locals.el",
        "sitecustomize.py",
        "x.code-workspace",
        "desktop.ini",
        "\uff0eclaude/settings.json",
        "claude~1/settings.json",
        "gi7eba~1/config",
        "MCP~1.JSO",
        "bashrc~1",
    ],
)
def test_configuration_that_tools_obey_is_planted(path: str) -> None:
    """What tests/data/hostile/D2.yaml does not have."""
    assert is_planted(path)


@pytest.mark.parametrize(
    "path",
    [
        "index.html",
        "claude.html",
        "keys.html",
        "git/about.html",
        "environment.css",
        "monkey.png",
        "IMG000~1.JPG",
        "config/settings.json",
        "profile.html",
        "bash.md",
        ".gitignore",
        ".editorconfig",
        ".well-known/security.txt",
    ],
)
def test_ordinary_files_are_not_planted(path: str) -> None:
    assert not is_planted(path)


# Which part of a release visitors get.


@pytest.mark.req("H-103", "H-104", "H-105")
@pytest.mark.parametrize("cap", [2 * 2**20, 5 * 2**20, 20 * 2**20])
def test_a_tree_of_exactly_the_cap_passes_and_one_byte_more_does_not(cap: int) -> None:
    assert check_tree({"a": bytes(cap - 1), "b": b"x"}, max_bytes=cap)
    with pytest.raises(TreeRefusedError) as caught:
        check_tree({"a": bytes(cap), "b": b"x"}, max_bytes=cap)
    assert caught.value.reason == "too_many_bytes"


def site(*paths: str, **package: object) -> dict[str, bytes]:
    content = {"scripts": {"build": "make"}, **package}
    return {"package.json": json.dumps(content).encode(), **dict.fromkeys(paths, b"x")}


def named(directory: object, *paths: str) -> dict[str, bytes]:
    return site(*paths, pointsman={"public": directory})


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"index.html": b"x"},
        {"dist/index.html": b"x", "index.html": b"x"},
        site("dist/index.html", scripts={"test": "x"}),
        site("dist/index.html", scripts=["build"]),
        {"dist/index.html": b"x", "package.json": b"["},
        {"dist/index.html": b"x", "package.json": b"\xff"},
        {"dist/index.html": b"x", "package.json": b"[" * 100_000},
    ],
)
def test_a_site_without_a_build_script_is_served_whole(files: dict[str, bytes]) -> None:
    assert not is_built(files)
    assert public_of(files) == ""
    assert served_part(files, "") == sources_of(files) == files


@pytest.mark.parametrize("directory", ["dist", "build", "out", "_site", "public"])
def test_a_built_site_is_served_from_where_its_index_page_is(directory: str) -> None:
    files = site("index.html", "src/main.js", f"{directory}/index.html", f"{directory}/js/main.js")
    assert public_of(files) == directory
    assert served_part(files, directory) == {"index.html": b"x", "js/main.js": b"x"}


def test_the_first_of_the_usual_directories_wins() -> None:
    assert public_of(site("public/index.html", "build/index.html", "out/index.html")) == "build"


@pytest.mark.parametrize(
    "files",
    [site("index.html"), site("dist/main.js"), site("dist/about/index.html"), site("distx/index.html"), site("dist")],
)
def test_a_built_site_whose_pages_are_not_there_serves_nothing_by_default(files: dict[str, bytes]) -> None:
    assert public_of(files) is None


def test_package_json_may_name_the_directory() -> None:
    assert public_of(named("www/site", "www/site/home.html", "dist/index.html")) == "www/site"
    assert public_of(named(".", "index.html", "dist/index.html")) == ""


@pytest.mark.parametrize(
    "directory", ["", "/dist", "../dist", "dist/..", "dist/", "./dist", "dist\\x", "nothing", 7, ["dist"], None, {}]
)
def test_a_name_that_leads_nowhere_serves_nothing(directory: object) -> None:
    assert public_of(named(directory, "index.html", "dist/a.html")) is None


@pytest.mark.parametrize("directory", ["dist", "build", "out", "_site"])
def test_a_build_starts_without_what_the_last_one_wrote(directory: str) -> None:
    files = site("index.html", f"{directory}/index.html", f"{directory}/old.js", f"{directory}x.js")
    assert sources_of(files).keys() == {"package.json", "index.html", f"{directory}x.js"}


@pytest.mark.parametrize("files", [site("public/index.html"), named("dist", "dist/index.html"), site("dist/a.html")])
def test_pages_that_may_be_somebody_s_own_stay_for_the_build(files: dict[str, bytes]) -> None:
    assert sources_of(files) == files
