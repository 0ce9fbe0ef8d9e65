"""What a failing command's finding says about packages whose code was not run."""

import json

import pytest
from pydantic import ValidationError

from routing.policy.project import Commands
from workers.runs.installs import left_out

LOCK = {
    "lockfileVersion": 3,
    "packages": {
        "": {"name": "shop", "hasInstallScript": True},
        "node_modules/esbuild": {"version": "0.25.0", "hasInstallScript": True},
        "node_modules/a/node_modules/@acme/native": {"version": "1.0.0", "hasInstallScript": True},
        "node_modules/ms": {"version": "2.1.3"},
    },
}
FILES = {"package-lock.json": json.dumps(LOCK).encode()}


def test_packages_whose_scripts_have_not_run_are_named_with_the_setting() -> None:
    (said,) = left_out(FILES, "", scripts=())
    assert said.startswith("Install scripts of @acme/native, esbuild have not run")
    assert "`commands.scripts`" in said
    assert list(left_out(FILES, "", scripts=("esbuild", "@acme/native"))) == []


def test_a_python_package_without_a_wheel_is_named_with_the_operator_s_setting() -> None:
    output = "ERROR: Could not find a version\nERROR: No matching distribution found for odd-one==1.0\n"
    (said,) = left_out({}, output, scripts=())
    assert "no wheel of odd-one:" in said
    assert "POINTSMAN_MIRROR__PYTHON_SDISTS" in said


@pytest.mark.parametrize(
    "lock", [b"", b"{", b"[]", b'{"packages": []}', b'{"packages": {"node_modules/x": 1}}', b"\xff", b"[" * 9000]
)
def test_a_lock_that_cannot_be_read_says_nothing(lock: bytes) -> None:
    assert list(left_out({"package-lock.json": lock}, "", scripts=())) == []


def test_listed_scripts_are_a_command_after_set_up_and_before_the_rest() -> None:
    commands = Commands(setup="npm ci", test="npm test", scripts=("esbuild", "@acme/native"))
    assert list(commands.named().items()) == [
        ("setup", "npm ci"),
        ("scripts", "npm rebuild --ignore-scripts=false esbuild @acme/native"),
        ("test", "npm test"),
    ]
    assert Commands(setup="npm ci").named() == {"setup": "npm ci"}
    assert Commands().named() == {}


@pytest.mark.parametrize("name", ["--foreground-scripts", "a b", "a;b", "$(id)", "../x", "@acme", "A", "a@1"])
def test_what_is_no_name_of_a_package_is_not_taken(name: str) -> None:
    with pytest.raises(ValidationError):
        Commands(scripts=(name,))
