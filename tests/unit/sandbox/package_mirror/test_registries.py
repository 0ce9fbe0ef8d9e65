import base64
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import RegistryConfigError
from sandbox.package_mirror.registries import Registries, parse_registries, read_registries

NPMRC = """
; what an operator writes
registry=https://packages.example/
//packages.example/:_authToken=${THE_TOKEN}
//own.example:8443/api/npm/:_auth="dXNlcjpwYXNz"
//old.example/:username=tom
//old.example/:_password=c2VjcmV0
//packages.example/:always-auth=true
# //commented.example/:_authToken=no
"""
SETTINGS = {
    "registry": "https://packages.example",
    "@acme:registry": "https://own.example:8443/api/npm",
    "cafile": "/etc/ca.pem",
    "@acme:other": "x",
    "proxy": None,
}


def registries() -> Registries:
    return parse_registries(SETTINGS, [NPMRC], {"THE_TOKEN": "t0k3n"})


def test_each_scope_has_its_own_registry() -> None:
    found = registries()
    assert found.registry_of("left") == "https://packages.example/"
    assert found.registry_of("@acme/left") == "https://own.example:8443/api/npm/"
    assert found.registry_of("@other/left") == "https://packages.example/"
    assert found.origins == {("packages.example", 443), ("own.example", 8443)}
    assert found.ca_file == Path("/etc/ca.pem")


@pytest.mark.threat("C1")
@pytest.mark.parametrize(
    ("url", "authorization"),
    [
        ("https://packages.example/left", "Bearer t0k3n"),
        ("https://packages.example/left/-/left-1.0.0.tgz", "Bearer t0k3n"),
        ("https://own.example:8443/api/npm/@acme%2fleft", "Basic dXNlcjpwYXNz"),
        ("https://own.example:8443/elsewhere", None),
        ("https://own.example/api/npm/left", None),
        ("https://old.example/x", "Basic " + base64.b64encode(b"tom:secret").decode()),
        ("https://packages.example.evil.example/left", None),
        ("https://evil.example/packages.example/left", None),
        ("https://commented.example/left", None),
    ],
)
def test_a_credential_goes_where_npm_would_send_it_and_nowhere_else(url: str, authorization: str | None) -> None:
    assert registries().authorization_of(url) == authorization


@pytest.mark.threat("C9")
def test_credentials_do_not_show_in_what_is_printed() -> None:
    assert "t0k3n" not in repr(registries())


@pytest.mark.parametrize(
    "registry",
    [
        None,
        "",
        "packages.example",
        "ftp://packages.example/",
        "https://",
        "https://u:p@packages.example/",
        "https://packages.example/?x=1",
        7,
    ],
)
def test_a_registry_that_cannot_be_used_stops_the_start(registry: Any) -> None:
    with pytest.raises(RegistryConfigError, match="npm names a registry"):
        parse_registries({"registry": registry}, [], {})


def test_an_npmrc_alone_says_it_where_there_is_no_npm(tmp_path: Path) -> None:
    npmrc = tmp_path / "npmrc"
    npmrc.write_text(f"{NPMRC}\n@acme:registry = https://own.example:8443/api/npm\ncafile=/etc/ca.pem\n")
    found = read_registries("no-such-program", {"THE_TOKEN": "t0k3n"}, npmrc=npmrc)
    assert found == registries()


def test_an_npmrc_that_names_no_registry_is_named(tmp_path: Path) -> None:
    for text in ("# registry=https://packages.example/\n", "@acme:registry=https://own.example/\n"):
        (tmp_path / "npmrc").write_text(text)
        with pytest.raises(RegistryConfigError, match="npmrc cannot be read, or has no line `registry=URL`"):
            read_registries("npm", {}, npmrc=tmp_path / "npmrc")
    with pytest.raises(RegistryConfigError, match="absent cannot be read"):
        read_registries("npm", {}, npmrc=tmp_path / "absent")


def test_an_npm_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryConfigError, match="cannot be run: No such file"):
        read_registries(str(tmp_path / "npm"), {})
    for name, script in {"fails": "#!/bin/sh\nexit 3\n", "babbles": "#!/bin/sh\necho hello\n"}.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
        with pytest.raises(RegistryConfigError, match="config list --json` failed"):
            read_registries(str(tmp_path / name), {"PATH": "/bin:/usr/bin"})
