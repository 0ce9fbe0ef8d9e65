"""The way to a remote: over HTTP with a token that goes nowhere else, under limits, and only where remotes may be."""

import base64
import os
import socket
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from dulwich.repo import Repo
from dulwich.server import DictBackend
from dulwich.web import make_wsgi_chain
from pydantic import SecretStr

from gateway.forges.deploy_keys import DeployKey
from routing.policy.agents import Account, AccountsConfig
from routing.policy.platform import platform_policy
from routing.policy.project import ProjectConfig
from sites.errors import RepositoryRefusedError
from sites.repository.trees import PackLimits
from sites.repository.workspace import Step, Workspace
from tests.unit.workers.runs.repositories import files_of, make_project
from workers.config import RunsConfig
from workers.errors import RemoteError
from workers.runs.git.sync import (
    Credentials,
    Remote,
    RemoteRules,
    check_url,
    create_workspace,
    push,
    remote_of,
    remote_rules,
)

TOKEN = "forge-token-0123456789abcdef"
FILES = {"README.md": b"# Shop\n", "src/app.ts": b"app\n"}
ADVERTISEMENT = "application/x-git-upload-pack-advertisement"
Answer = Callable[[dict[str, Any], Any], list[bytes]]
LOCAL = RemoteRules(schemes={"http"}, private_addresses=True, seconds=10)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return


class Forge:
    """A server of git's protocol that wants a token, and can be told to misbehave."""

    def __init__(self, bare: Path) -> None:
        self.repository = Repo(str(bare))
        self._app = make_wsgi_chain(DictBackend({"/shop.git": self.repository}))
        self.seen: list[tuple[str, str]] = []
        self.answer: Callable[[dict[str, Any], Any], Any] | None = None

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        login = environ.get("HTTP_AUTHORIZATION", "")
        self.seen.append((environ["PATH_INFO"], login))
        if self.answer is not None:
            return self.answer(environ, start)
        if login != "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode():
            start("401 Unauthorized", [("WWW-Authenticate", "Basic")])
            return [b""]
        return self._app(environ, start)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    make_project(tmp_path / "shop.git", FILES, commits=3)
    return tmp_path / "shop.git"


@pytest.fixture
def forge(bare: Path) -> Iterator[tuple[Forge, str]]:
    app = Forge(bare)
    with closing(app.repository), serving(app) as url:
        yield app, f"{url}/shop.git"


def with_token(url: str, token: str = TOKEN) -> Remote:
    return Remote(url=url, branch="main", credentials=lambda: Credentials("x-access-token", token))


def workspace_in(place: Path) -> Workspace:
    return Workspace.of_run(place / "runs", uuid4())


def test_a_project_is_cloned_and_pushed_to_over_http_and_its_token_is_nowhere_on_disk(
    forge: tuple[Forge, str], bare: Path, tmp_path: Path
) -> None:
    _, url = forge
    workspace = workspace_in(tmp_path)
    base = create_workspace(workspace, with_token(url), LOCAL)
    assert workspace.read(base).files == FILES
    commit = workspace.commit_step(base, {"new.ts": b"new\n"}, step=Step("dev", 1), message="m", when=5)
    squashed = workspace.squash(base, commit, message="New", when=6)

    push(workspace, squashed, branch="pointsman/1", remote=with_token(url), rules=LOCAL)

    assert files_of(bare, squashed) == {**FILES, "new.ts": b"new\n"}
    secrets = (TOKEN.encode(), base64.b64encode(f"x-access-token:{TOKEN}".encode()))
    for path in workspace.path.rglob("*"):
        assert not path.is_file() or not any(secret in path.read_bytes() for secret in secrets)
    assert b"127.0.0.1" not in (workspace.path / "config").read_bytes()


@pytest.mark.parametrize("token", ["wrong", None])
def test_a_remote_that_does_not_take_the_token_is_no_passing_trouble_and_the_error_does_not_show_it(
    forge: tuple[Forge, str], tmp_path: Path, token: str | None
) -> None:
    _, url = forge
    remote = with_token(url, token) if token else Remote(url=url)
    with pytest.raises(RepositoryRefusedError) as refused:
        create_workspace(workspace_in(tmp_path), remote, LOCAL)
    shown = "".join(traceback.format_exception(refused.value))
    assert refused.value.reason == "credentials"
    assert "wrong" not in str(refused.value)
    assert base64.b64encode(b"x-access-token:wrong").decode() not in shown
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_a_remote_that_sends_elsewhere_is_not_followed(forge: tuple[Forge, str], tmp_path: Path, status: str) -> None:
    app, url = forge
    elsewhere = Forge(tmp_path / "shop.git")
    with closing(elsewhere.repository), serving(elsewhere) as other:
        where = f"{other}/shop.git/info/refs?service=git-upload-pack"
        app.answer = _body(b"", status=status, Location=where)
        with pytest.raises(RemoteError):
            create_workspace(workspace_in(tmp_path), with_token(url), LOCAL)
    assert elsewhere.seen == []


def _body(content: bytes, kind: str = ADVERTISEMENT, status: str = "200 OK", **headers: str) -> Answer:
    def answer(environ: dict[str, Any], start: Any) -> list[bytes]:
        start(status, [("Content-Type", kind), *headers.items()])
        return [content]

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        _body(b""),
        _body(b"\0" * 1000),
        _body(b"ffff"),
        _body(b"001e# service=git-upload-pack\n0000" + b"00zz"),
        _body(b"<html>", "text/html"),
        _body(b"0000"),
        _body(b"000eversion 2\n0000"),
        _body(b"001e# service=git-upload-pack\n0000000eversion 2\n0000"),
    ],
)
def test_an_answer_that_is_none_is_the_remote_s_fault(forge: tuple[Forge, str], tmp_path: Path, answer: Answer) -> None:
    app, url = forge
    app.answer = answer
    with pytest.raises((RemoteError, RepositoryRefusedError)):
        create_workspace(workspace_in(tmp_path), with_token(url), LOCAL)


def test_a_remote_that_never_stops_sending_is_cut_off(forge: tuple[Forge, str], tmp_path: Path) -> None:
    app, url = forge

    def endless(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        start("200 OK", [("Content-Type", ADVERTISEMENT)])
        yield b"001e# service=git-upload-pack\n0000"
        for number in range(100_000):
            line = b"%040x refs/heads/b%d\n" % (number, number)
            yield b"%04x" % (len(line) + 4) + line

    app.answer = endless
    rules = RemoteRules(schemes={"http"}, private_addresses=True, answer_bytes=100_000)
    with pytest.raises(RepositoryRefusedError, match="pack_too_large"):
        create_workspace(workspace_in(tmp_path), with_token(url), rules)


def test_a_remote_that_takes_too_long_is_given_up(forge: tuple[Forge, str], tmp_path: Path) -> None:
    _, url = forge
    rules = RemoteRules(schemes={"http"}, private_addresses=True, seconds=-1)
    with pytest.raises(RemoteError, match="too long"):
        create_workspace(workspace_in(tmp_path), with_token(url), rules)


def test_a_disk_of_ours_that_is_full_under_a_fetch_is_no_fault_of_the_remote(
    forge: tuple[Forge, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkstemp

    def make_full(*, dir: str, suffix: str) -> tuple[int, str]:
        descriptor, path = make(dir=dir, suffix=suffix)
        os.close(descriptor)
        return os.open("/dev/full", os.O_RDWR), path

    monkeypatch.setattr(tempfile, "mkstemp", make_full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        create_workspace(workspace_in(tmp_path), with_token(forge[1]), LOCAL)
    assert not isinstance(raised.value, RemoteError)


def test_a_repository_that_is_too_large_is_refused_and_nothing_of_it_stays(
    forge: tuple[Forge, str], tmp_path: Path
) -> None:
    _, url = forge
    with pytest.raises(RepositoryRefusedError, match="object_too_large"):
        create_workspace(workspace_in(tmp_path), with_token(url), LOCAL, limits=PackLimits(object_bytes=50))
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.threat("B3")
def test_nothing_is_said_to_an_address_that_is_not_public(forge: tuple[Forge, str], tmp_path: Path) -> None:
    app, url = forge
    with pytest.raises(RemoteError):
        create_workspace(workspace_in(tmp_path), with_token(url), RemoteRules(schemes={"http"}))
    assert app.seen == []


@pytest.mark.threat("B3")
def test_an_address_that_is_not_public_is_not_even_connected_to(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        url = f"http://localhost:{server.getsockname()[1]}/shop.git"
        with pytest.raises(RemoteError):
            create_workspace(workspace_in(tmp_path), with_token(url), RemoteRules(schemes={"http"}))
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_branch_that_is_not_there_is_named(forge: tuple[Forge, str], tmp_path: Path) -> None:
    _, url = forge
    remote = Remote(url=url, branch="gone", credentials=with_token(url).credentials)
    with pytest.raises(RepositoryRefusedError, match="no_branch"):
        create_workspace(workspace_in(tmp_path), remote, LOCAL)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://ann:secret@forge.example/x.git", "bad_url"),
        ("https://forge.example/x.git?a=b", "bad_url"),
        ("https://forge.example/x#y", "bad_url"),
        ("https://", "bad_url"),
        ("https://forge.example:99999/x", "bad_url"),
        ("https://forge.example/\u202ex", "bad_url"),
        ("https://forge.example/a b", "not raised"),
        ("ssh://git@forge.example/x.git", "not raised"),
        ("ssh://git:secret@forge.example/x.git", "bad_url"),
        ("ssh://git@-oProxyCommand=id/x.git", "bad_url"),
        ("ssh://git@forge.example", "bad_url"),
        ("ssh://git@forge.example/x%0Ay", "bad_url"),
        ("ext::sh -c id", "scheme"),
        ("git@forge.example:x", "not raised"),
        ("-x@forge.example:x", "scheme"),
        ("ftp://forge.example/x", "scheme"),
        ("file:///etc", "not_allowed"),
        ("/etc", "scheme"),
        ("", "scheme"),
        ("file://host/srv/git/x.git", "not_allowed"),
        ("file:///srv/git/../../etc", "not_allowed"),
    ],
)
def test_a_remote_is_only_where_remotes_may_be(url: str, reason: str) -> None:
    rules = RemoteRules(schemes={"https", "ssh", "file"}, files_below=Path("/srv/git"))
    if reason == "not raised":
        check_url(url, rules)
        if url.startswith(("ssh", "git@")):
            with pytest.raises(RepositoryRefusedError, match="scheme"):
                check_url(url, RemoteRules())
        return
    with pytest.raises(RepositoryRefusedError) as refused:
        check_url(url, rules)
    assert refused.value.reason == reason


def test_without_a_directory_for_them_no_remote_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(RepositoryRefusedError, match="not_allowed"):
        check_url(f"file://{tmp_path}", RemoteRules(schemes={"file"}))


def test_an_account_goes_only_to_its_own_repositories_and_for_its_own_tenants() -> None:
    account = Account(kind="github", git_url="https://forge.example/acme/", token=SecretStr(TOKEN), tenants=("acme",))
    silent = Account(kind="github", token=SecretStr(TOKEN), tenants=("acme",))
    accounts = AccountsConfig(by_name={"main": account, "silent": silent})

    def credentials(url: str, *, tenant: str = "acme", token: str = "main") -> Credentials | DeployKey | None:
        github = {"repository": "acme/shop", "token": token}
        project = ProjectConfig.model_validate(
            {"repo": {"url": url}, "stack": {"language": "typescript"}, "integrations": {"github": github}}
        )
        return remote_of(project, accounts, tenant=tenant).credentials()

    assert credentials("https://forge.example/acme/shop.git") == Credentials("x-access-token", TOKEN)
    assert TOKEN not in repr(credentials("https://forge.example/acme/shop.git"))
    assert credentials("https://evil.example/acme/shop.git") is None
    assert credentials("https://forge.example/acme-evil/shop.git") is None
    assert credentials("https://forge.example/acme/shop.git", tenant="globex") is None
    assert credentials("https://forge.example/acme/shop.git", token="other") is None
    assert credentials("https://forge.example/acme/shop.git", token="silent") is None
    assert credentials("git@forge.example:acme/shop.git") is None, "a token is not sent by ssh"
    assert remote_rules(RunsConfig(), platform_policy().runs, seconds=1).files_below is None


@pytest.mark.req("S-073")
def test_a_project_is_fetched_from_the_branch_that_its_file_names() -> None:
    repository = {"url": "https://forge.example/acme/shop.git", "branch": "develop"}
    project = ProjectConfig.model_validate({"repo": repository, "stack": {"language": "typescript"}})
    remote = remote_of(project, AccountsConfig(), tenant="acme")
    assert (remote.url, remote.branch) == (repository["url"], "develop")
