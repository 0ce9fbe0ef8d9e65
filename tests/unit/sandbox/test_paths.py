import unicodedata

import pytest

from sandbox.errors import PathRefusedError
from sandbox.paths import MAX_DEPTH, MAX_PATH_BYTES, check_path, collision_key, is_planted

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
    ("one", "other"), [("A.js", "a.js"), ("straße", "STRASSE"), ("ﬁ.css", "fi.css"), ("K", "\u212a")]
)
def test_names_that_some_disk_holds_as_one_share_a_key(one: str, other: str) -> None:
    assert collision_key(one) == collision_key(other)


@pytest.mark.threat("D1", "D2", "F1")
@pytest.mark.parametrize(
    "path",
    [
        "CLAUDE.md", "docs/claude.MD", "CLAUDE.local.md", ".claude/settings.json", "a/.claude/hooks/x", ".mcp.json",
        ".claude.json", ".git/hooks/pre-commit", ".GIT/config", ".git", "GIT~1/config", ".gitmodules", ".gitattributes",
        ".husky/pre-push", "lefthook.yml", ".pre-commit-config.yaml", ".npmrc", ".yarnrc.yml", ".pnpmfile.cjs",
        "bunfig.toml", ".envrc", ".env", ".env.production", ".ripgreprc", ".vscode/tasks.json", ".idea/x",
        ".devcontainer/devcontainer.json", ".github/workflows/x.yml", "certs/server.PEM", "id.key", ".gitleaks.toml",
    ],
)  # fmt: skip
def test_configuration_that_tools_obey_is_planted(path: str) -> None:
    assert is_planted(path)


@pytest.mark.parametrize(
    "path", ["index.html", "claude.html", "keys.html", "git/about.html", "environment.css", "monkey.png"]
)
def test_ordinary_files_are_not_planted(path: str) -> None:
    assert not is_planted(path)
