"""Which part of a release visitors get."""

import json

import pytest

from sandbox.public import is_built, public_of, served_part, sources_of


def site(*paths: str, **package: object) -> dict[str, bytes]:
    content = {"scripts": {"build": "make"}, **package}
    return {"package.json": json.dumps(content).encode(), **dict.fromkeys(paths, b"x")}


def named(directory: object, *paths: str) -> dict[str, bytes]:
    return site(*paths, pointsman={"public": directory})


@pytest.mark.parametrize(
    "files",
    [
        {}, {"index.html": b"x"}, {"dist/index.html": b"x", "index.html": b"x"},
        site("dist/index.html", scripts={"test": "x"}), site("dist/index.html", scripts=["build"]),
        {"dist/index.html": b"x", "package.json": b"["}, {"dist/index.html": b"x", "package.json": b"\xff"},
        {"dist/index.html": b"x", "package.json": b"[" * 100_000},
    ],
)  # fmt: skip
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
