"""Which commands build a site."""

import json

import pytest

from workers.handlers.build import build_commands

BUILD = ("npm", "run", "build")


def package(**fields: object) -> dict[str, bytes]:
    return {"package.json": json.dumps(fields).encode()}


def test_a_site_with_packages_installs_them_without_their_scripts_and_builds() -> None:
    install, build, _ = build_commands(package(scripts={"build": "vite build"}, devDependencies={"vite": "6"}))
    assert install[:3] == ("npm", "install", "--ignore-scripts")
    assert build == BUILD


def test_a_build_without_packages_installs_nothing() -> None:
    assert build_commands(package(scripts={"build": "node build.mjs"})) == (BUILD,)


@pytest.mark.parametrize(
    "files",
    [
        {},
        package(),
        package(scripts={"test": "x"}),
        package(scripts=[]),
        package(scripts={"build": 7}),
        {"package.json": b"{"},
        {"package.json": b"[" * 100_000},
        {"package.json": b"[]"},
        {"package.json": b"\xff"},
    ],
)
def test_without_a_build_script_nothing_is_run(files: dict[str, bytes]) -> None:
    assert build_commands(files) == ()
