"""A run's workspace against the real git's own server: cloned without history, pushed as one commit."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from sites.errors import WorkspaceError
from sites.repository.workspace import Step, Workspace
from tests.unit.workers.runs.repositories import make_project
from workers.errors import RemoteError
from workers.runs.git.sync import Remote, RemoteRules, create_workspace, push

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")

FILES = {"README.md": b"# Shop\n", "src/app.ts": b"app\n"}
RULES = RemoteRules(schemes={"http"}, private_addresses=True)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def backend(root: Path) -> Any:
    """`git http-backend` as a WSGI application."""

    def serve(environ: dict[str, Any], start: Any) -> list[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        names = ("PATH_INFO", "QUERY_STRING", "REQUEST_METHOD", "CONTENT_TYPE", "HTTP_CONTENT_ENCODING")
        env = {
            **{name: environ[name] for name in names if environ.get(name)},
            "PATH": os.defpath,
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "HOME": str(root),
            "GIT_PROTOCOL": environ.get("HTTP_GIT_PROTOCOL", ""),
            "REMOTE_USER": "ann",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        body = environ["wsgi.input"].read(length)
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")]
        status = next((value for name, value in headers if name == "Status"), "200 OK")
        start(status, [(name, value) for name, value in headers if name != "Status"])
        return [content]

    return serve


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    (tmp_path / "remotes").mkdir()
    make_project(tmp_path / "remotes" / "shop.git", FILES, commits=5)
    git("-C", str(tmp_path / "remotes" / "shop.git"), "config", "http.receivepack", "true")
    return tmp_path / "remotes" / "shop.git"


@pytest.fixture
def remote(bare: Path) -> Iterator[Remote]:
    with make_server("127.0.0.1", 0, backend(bare.parent), handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Remote(url=f"http://127.0.0.1:{server.server_port}/shop.git", branch="main")
        finally:
            server.shutdown()
            thread.join()


def test_a_project_comes_without_its_history_and_its_outcome_goes_back_as_one_commit(
    remote: Remote, bare: Path, tmp_path: Path
) -> None:
    workspace = Workspace.of_run(tmp_path / "runs", uuid4())
    base = create_workspace(workspace, remote, RULES)
    assert base == git("-C", str(bare), "rev-parse", "main")
    assert workspace.read(base).files == FILES
    assert git("-C", str(workspace.path), "rev-list", "--count", base) == "1"
    commit = workspace.commit_step(base, {"src/new.ts": b"new\n"}, step=Step("dev", 1), message="m", when=1_800_000_000)
    squashed = workspace.squash(base, commit, message="Add it", when=1_800_000_000)
    for _ in range(2):
        push(workspace, squashed, branch="pointsman/1", remote=remote, rules=RULES)

    assert git("-C", str(bare), "rev-list", "--count", "pointsman/1") == "6"
    assert git("-C", str(bare), "diff", "--name-status", "main", "pointsman/1") == "A\tsrc/new.ts"
    assert git("-C", str(bare), "fsck", "--full") == ""
    other = workspace.squash(base, commit, message="Another", when=1_800_000_000)
    with pytest.raises(WorkspaceError, match="with other content"):
        push(workspace, other, branch="pointsman/1", remote=remote, rules=RULES)


def test_a_push_goes_through_when_the_project_has_moved_on_meanwhile(
    remote: Remote, bare: Path, tmp_path: Path
) -> None:
    workspace = Workspace.of_run(tmp_path / "runs", uuid4())
    base = create_workspace(workspace, remote, RULES)
    tree = git("-C", str(bare), "rev-parse", "main^{tree}")
    author = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
    newer = git("-C", str(bare), *author, "commit-tree", tree, "-p", base, "-m", "later")
    git("-C", str(bare), "update-ref", "refs/heads/main", newer)
    commit = workspace.commit_step(base, {"src/new.ts": b"new\n"}, step=Step("dev", 1), message="m", when=1_800_000_000)
    squashed = workspace.squash(base, commit, message="Add it", when=1_800_000_000)

    push(workspace, squashed, branch="pointsman/2", remote=remote, rules=RULES)

    assert git("-C", str(bare), "merge-base", "main", "pointsman/2") == base


def test_a_push_that_the_remote_refuses_says_so(remote: Remote, bare: Path, tmp_path: Path) -> None:
    hook = bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    workspace = Workspace.of_run(tmp_path / "runs", uuid4())
    base = create_workspace(workspace, remote, RULES)
    commit = workspace.commit_step(base, {"a.ts": b"a\n"}, step=Step("dev", 1), message="m", when=1_800_000_000)
    squashed = workspace.squash(base, commit, message="Add it", when=1_800_000_000)

    with pytest.raises(RemoteError, match="refuses"):
        push(workspace, squashed, branch="pointsman/1", remote=remote, rules=RULES)
