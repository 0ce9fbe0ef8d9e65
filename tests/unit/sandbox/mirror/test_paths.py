import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.mirror.paths import Description, File, file_of, parse_path


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/left-pad", Description("left-pad")),
        ("/JSONStream", Description("JSONStream")),
        ("/@acme/left.pad", Description("@acme/left.pad")),
        ("/left/-/left-1.0.0-beta.1+build.tgz", File("left", "left-1.0.0-beta.1+build.tgz")),
        ("/@acme/left/-/left-1.0.0.tgz", File("@acme/left", "left-1.0.0.tgz")),
        ("/@acme/left/-/@acme/left-1.0.0.tgz", File("@acme/left", "left-1.0.0.tgz")),
        ("/api/npm/left", Description("left")),
        ("/api/npm/left/-/left-1.0.0.tgz", File("left", "left-1.0.0.tgz")),
    ],
)
def test_a_package_and_its_files_are_known(path: str, asked: Description | File) -> None:
    assert parse_path(path, prefixes=("", "api/npm")) == asked


@pytest.mark.threat("B5")
@given(st.text(max_size=40) | st.from_regex(r"/[@a-z./%\\:?#~-]{0,30}", fullmatch=True))
def test_what_is_asked_for_never_leaves_the_registry(path: str) -> None:
    asked = parse_path(path)
    if asked is None:
        return
    parts = asked.name.split("/") + ([asked.file] if isinstance(asked, File) else [])
    assert len(parts) <= 3
    for part in parts:
        assert part.isascii()
        assert not part.startswith((".", "_", "/"))
        assert not set(part) & set("%?#\\:; \r\n\0")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.org/x/-/x-1.0.0.tgz", "x-1.0.0.tgz"),
        ("https://example.org/x/-/x-1.0.0.tgz?token=1#f", "x-1.0.0.tgz"),
        ("https://example.org/download/x/1.0.0/0a1b", None),
        ("https://example.org/..%2fx.tgz%00", None),
        ("https://[broken/x.tgz", None),
    ],
)
def test_a_file_is_called_what_its_url_ends_with(url: str, name: str | None) -> None:
    assert file_of(url) == name
