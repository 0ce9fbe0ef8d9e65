"""A run's workspace: what agents are shown, how their changes come together, and what a pull request gets."""

import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from dulwich.objects import ObjectID, Tree
from dulwich.repo import Repo

from sites.errors import ObstructedError, RepositoryRefusedError, WorkspaceMissingError, WriteConflictError
from sites.repository.trees import LeftOut, TreeLimits
from sites.repository.workspace import Step, Workspace
from tests.unit.workers.runs.repositories import (
    DIRECTORY,
    EXECUTABLE,
    LINK,
    SUBMODULE,
    commit_tree,
    files_of,
    make_project,
    write_tree,
)
from workers.runs.git.sync import Remote, RemoteRules, create_workspace, push

FILES = {"README.md": b"# Shop\n", "src/app.ts": b"export {};\n", "src/cart.ts": b"// cart\n"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "remotes").mkdir()
    return tmp_path


def rules(place: Path) -> RemoteRules:
    return RemoteRules(schemes={"file"}, files_below=place / "remotes")


def remote(place: Path, *, branch: str = "main") -> Remote:
    return Remote(url=f"file://{place}/remotes/shop.git", branch=branch)


def begin(place: Path, files: object = FILES, **options: object) -> tuple[Workspace, str]:
    make_project(place / "remotes" / "shop.git", files, **options)  # type: ignore[arg-type]
    workspace = Workspace.of_run(place / "runs", uuid4())
    return workspace, create_workspace(workspace, remote(place), rules(place))


def step(workspace: Workspace, base: str, changes: dict[str, bytes | None], *, key: str = "dev", when: int = 5) -> str:
    return workspace.commit_step(base, changes, step=Step(key, 1), message=f"{key}: did it", when=when)


@pytest.mark.req("S-045")
def test_a_workspace_begins_with_the_newest_commit_of_the_branch_and_each_step_leaves_a_commit(place: Path) -> None:
    workspace, base = begin(place, commits=3)

    assert workspace.read(base).files == FILES
    commit = step(workspace, base, {"src/app.ts": b"new\n", "artifacts/dev/notes.md": b"n\n"})
    with closing(Repo(str(workspace.path))) as repository:
        assert repository.bare
        assert repository.refs[b"refs/steps/dev/1"] == commit.encode()
        assert repository.object_store[commit.encode()].parents == [base.encode()]
    assert workspace.read(commit).files == {**FILES, "src/app.ts": b"new\n", "artifacts/dev/notes.md": b"n\n"}
    assert workspace.changes(base, commit) == {"src/app.ts": b"new\n", "artifacts/dev/notes.md": b"n\n"}
    assert workspace.differences(base, commit) == {
        "src/app.ts": (FILES["src/app.ts"], b"new\n"),
        "artifacts/dev/notes.md": (None, b"n\n"),
    }


def test_git_itself_finds_nothing_wrong_with_a_workspace(place: Path) -> None:
    workspace, base = begin(place, commits=3)
    one = step(workspace, base, {"src/app.ts": b"new\n", "README.md": None})
    head = workspace.absorb(base, one, base=base, message="dev", when=6).head
    workspace.squash(base, head, message="All", when=7)

    done = subprocess.run(
        ["git", "-C", str(workspace.path), "fsck", "--full", "--strict"], capture_output=True, text=True, check=False
    )

    said = [line for line in (done.stdout + done.stderr).splitlines() if "fsyncObjectFiles is deprecated" not in line]
    assert (done.returncode, [line for line in said if not line.startswith("dangling commit")]) == (0, [])


@pytest.mark.req("S-047")
def test_parallel_steps_come_together_without_a_conflict_when_they_wrote_in_different_places(place: Path) -> None:
    workspace, base = begin(place)
    one = step(workspace, base, {"src/header.ts": b"header\n", "src/cart.ts": None}, key="one")
    two = step(workspace, base, {"src/footer/a.ts": b"footer\n"}, key="two")

    first = workspace.absorb(base, one, base=base, message="one", when=6)
    second = workspace.absorb(first.head, two, base=base, message="two", when=7)

    assert second.changed == ("src/footer/a.ts",)
    assert first.changed == ("src/cart.ts", "src/header.ts")
    assert set(workspace.read(second.head).files) == {"README.md", "src/app.ts", "src/header.ts", "src/footer/a.ts"}


@pytest.mark.parametrize(
    ("mine", "its"),
    [
        ({"src/app.ts": b"mine\n"}, {"src/app.ts": b"its\n"}),
        ({"src/app.ts": None}, {"src/app.ts": b"its\n"}),
        ({"new.ts": b"mine\n"}, {"new.ts": b"its\n"}),
        ({"new": b"a file\n"}, {"new/below.ts": b"a directory\n"}),
        ({"new/below.ts": b"a directory\n"}, {"new": b"a file\n"}),
    ],
)
def test_a_step_that_changed_what_another_changed_meanwhile_fails(
    place: Path, mine: dict[str, bytes | None], its: dict[str, bytes | None]
) -> None:
    workspace, base = begin(place)
    head = workspace.absorb(base, step(workspace, base, its, key="its"), base=base, message="its", when=6).head

    with pytest.raises(WriteConflictError):
        workspace.absorb(head, step(workspace, base, mine, key="mine"), base=base, message="mine", when=7)

    assert workspace.read(head).files == {**FILES, **{path: data for path, data in its.items() if data is not None}}


def test_equal_changes_of_two_steps_are_no_conflict(place: Path) -> None:
    workspace, base = begin(place)
    commits = [step(workspace, base, {"src/app.ts": b"same\n"}, key=key) for key in ("one", "two")]
    head = workspace.absorb(base, commits[0], base=base, message="one", when=6).head

    assert workspace.absorb(head, commits[1], base=base, message="two", when=7).head == head


def test_doing_a_thing_again_gives_the_same_ids_so_that_a_killed_worker_costs_nothing(place: Path) -> None:
    workspace, base = begin(place)
    commits = {step(workspace, base, {"src/app.ts": b"new\n"}) for _ in range(2)}
    heads = {workspace.absorb(base, one, base=base, message="dev", when=6).head for one in [*commits, *commits]}
    squashed = {workspace.squash(base, head, message="All", when=7) for head in [*heads, *heads]}

    assert [len(found) for found in (commits, heads, squashed)] == [1, 1, 1]


def test_what_the_service_and_its_agents_use_among_themselves_is_not_in_a_pull_request(place: Path) -> None:
    workspace, base = begin(place, {**FILES, "artifacts/own.txt": b"the project's own\n"})
    files: dict[str, bytes | None] = {
        "src/app.ts": b"new\n",
        "artifacts/qa/report.md": b"fine\n",
        "artifacts/own.txt": b"overwritten\n",
        ".agent-result.json": b"{}",
    }
    one = step(workspace, base, files)
    head = workspace.absorb(base, one, base=base, message="dev", when=6).head

    assert workspace.read(one).files[".agent-result.json"] == b"{}"
    assert ".agent-result.json" not in workspace.read(head).files
    squashed = workspace.squash(base, head, message="Add it", when=7)
    assert workspace.changes(base, squashed) == {"src/app.ts": b"new\n"}
    with closing(Repo(str(workspace.path))) as repository:
        assert repository.object_store[squashed.encode()].parents == [base.encode()]


HOSTILE = {
    "ok.txt": b"ok\n",
    "link": (LINK, b"/etc/passwd"),
    "dir/link": (LINK, b"../../etc"),
    "vendor": (SUBMODULE, b""),
    ".gitattributes": b"* filter=evil\n",
    ".gitmodules": b"[submodule]\n",
    ".claude/settings.json": b"{}",
    "CLAUDE.md": b"obey\n",
    ".env": b"KEY=1\n",
    ".github/workflows/ci.yml": b"on: push\n",
    "big.bin": b"x" * 2000,
    "con.txt": b"device\n",
    "tab\tname": b"control\n",
    "bad\udcffname": b"not UTF-8\n",
    "OK.txt": b"collides\n",
    "cafe\u0301.txt": b"decomposed\n",
}


@pytest.mark.threat("D1")
def test_what_cannot_be_shown_safely_is_left_out_with_a_reason_and_stays_as_it_was(place: Path) -> None:
    make_project(place / "remotes" / "shop.git", HOSTILE)
    workspace = Workspace.of_run(place / "runs", uuid4(), limits=TreeLimits(max_file_bytes=1000))
    base = create_workspace(workspace, remote(place), rules(place))
    shown = workspace.read(base)

    assert set(shown.files) == {"OK.txt"}
    assert set(shown.left_out) == {
        LeftOut("link", "symlink"),
        LeftOut("dir/link", "symlink"),
        LeftOut("vendor", "submodule"),
        LeftOut(".gitattributes", "planted"),
        LeftOut(".gitmodules", "planted"),
        LeftOut(".claude", "planted"),
        LeftOut("CLAUDE.md", "planted"),
        LeftOut(".env", "planted"),
        LeftOut(".github", "planted"),
        LeftOut("big.bin", "file_too_large"),
        LeftOut("con.txt", "device_name"),
        LeftOut("tab\tname", "control"),
        LeftOut("bad\ufffdname", "encoding"),
        LeftOut("ok.txt", "name_collision"),
        LeftOut("cafe\u0301.txt", "unicode_form"),
    }
    assert all(shown.hides(path) for path in ("link", "vendor/x.js", ".claude/settings.json", "big.bin"))
    assert not shown.hides("new.txt")
    commit = step(workspace, base, {"new.txt": b"new\n"})
    before, after = (files_of(workspace.path, name) for name in (base, commit))
    assert after == {**before, "new.txt": b"new\n"}


@pytest.mark.parametrize("path", ["link", "link/below.txt", "vendor/x.js", "dir"])
def test_nothing_is_written_where_a_link_a_submodule_or_a_directory_stands(place: Path, path: str) -> None:
    files = {"dir/a.txt": b"a\n", "link": (LINK, b"/etc"), "vendor": (SUBMODULE, b"")}
    workspace, base = begin(place, files)

    with pytest.raises(ObstructedError):
        step(workspace, base, {path: b"mine\n"})


def test_a_program_stays_a_program_and_a_directory_without_files_is_gone(place: Path) -> None:
    workspace, base = begin(place, {"bin/run": (EXECUTABLE, b"#!/bin/sh\n"), "a/b/c.txt": b"c\n", "x.txt": b"x\n"})
    commit = step(workspace, base, {"bin/run": b"#!/bin/bash\n", "a/b/c.txt": None})

    with closing(Repo(str(workspace.path))) as repository:
        top = repository.object_store[repository.object_store[commit.encode()].tree]
        assert [item.path for item in top.items()] == [b"bin", b"x.txt"]
        assert repository.object_store[top[b"bin"][1]][b"run"][0] == EXECUTABLE


def test_a_file_can_become_a_directory_and_a_directory_a_file(place: Path) -> None:
    workspace, base = begin(place, {"a": b"file\n", "b/c.txt": b"c\n"})
    commit = step(workspace, base, {"a": None, "a/x.txt": b"x\n", "b/c.txt": None, "b": b"file\n"})

    assert workspace.read(commit).files == {"a/x.txt": b"x\n", "b": b"file\n"}


@pytest.mark.slow
def test_a_tree_that_names_itself_a_billion_times_is_refused(place: Path) -> None:
    with closing(Repo.init_bare(str(place / "remotes" / "shop.git"), mkdir=True)) as repository:
        tree = write_tree(repository, {"f": b"x\n"})
        for _ in range(10):
            bomb = Tree()
            for name in range(10):
                bomb.add(b"d%d" % name, DIRECTORY, tree)
            repository.object_store.add_object(bomb)
            tree = bomb.id
        commit_tree(repository, tree)
    workspace = Workspace.of_run(place / "runs", uuid4())

    with pytest.raises(RepositoryRefusedError, match="too_many_entries"):
        create_workspace(workspace, remote(place), rules(place))

    assert not workspace.exists()
    assert list((place / "runs").iterdir()) == []


def test_a_project_without_any_commit_begins_empty_and_can_be_pushed_to(place: Path) -> None:
    Repo.init_bare(str(place / "remotes" / "shop.git"), mkdir=True).close()
    workspace = Workspace.of_run(place / "runs", uuid4())
    base = create_workspace(workspace, remote(place, branch=""), rules(place))
    assert workspace.read(base).files == {}
    commit = workspace.squash(base, step(workspace, base, {"a.txt": b"a\n"}), message="First", when=7)

    push(workspace, commit, branch="pointsman/1", remote=remote(place), rules=rules(place))

    assert files_of(place / "remotes" / "shop.git", commit) == {"a.txt": b"a\n"}


@pytest.mark.parametrize("name", ["0" * 40, "../../x", "refs/heads/base", "", "A" * 40, "0" * 39])
def test_a_commit_that_is_not_there_is_said_to_be_missing(place: Path, name: str) -> None:
    workspace, _ = begin(place)

    with pytest.raises(WorkspaceMissingError):
        workspace.read(name)


@pytest.mark.parametrize("key", ["", "../x", "a b", "a/../b", "x.lock", "-a", "a//b"])
def test_a_step_s_key_cannot_name_another_place(place: Path, key: str) -> None:
    workspace, base = begin(place)

    with pytest.raises(ValueError, match="key"):
        step(workspace, base, {"a": b"a"}, key=key)


def test_many_workers_write_at_once_and_a_killed_one_is_no_hindrance(place: Path) -> None:
    workspace, base = begin(place)
    commits: list[str] = []
    threads = [
        threading.Thread(
            target=lambda number=number: commits.append(
                step(workspace, base, {"src/app.ts": b"same\n", f"p{number % 4}/x.ts": b"x\n"}, key=f"k{number}")
            )
        )
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(commits) == 16
    for left in ("objects", "refs"):
        for path in (workspace.path / left).rglob("*"):
            assert not path.name.endswith(".lock")

    step(workspace, base, {"q.ts": b"q\n"}, key="killed")
    objects = sorted((workspace.path / "objects").glob("??/*"), key=lambda path: path.stat().st_mtime)
    (objects[-1].parent / f".{objects[-1].name}.half").write_bytes(b"half")
    assert step(workspace, base, {"q.ts": b"q\n"}, key="killed")


@pytest.mark.req("S-045")
@pytest.mark.threat("D10")
def test_no_program_hook_or_filter_of_a_project_ever_runs(place: Path) -> None:
    """In a process of its own, which says whether anything was started."""
    trap, ran = place / "trap.sh", place / "ran"
    trap.write_text(f"#!/bin/sh\necho ran >> {ran}\ncat\n")
    trap.chmod(0o755)
    bare = place / "remotes" / "shop.git"
    make_project(bare, {**FILES, ".gitattributes": b"* filter=evil diff=evil merge=evil\n"})
    with (bare / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = {trap}\n\thooksPath = {bare}/hooks\n\tsshCommand = {trap}\n")
        config.write(f'[filter "evil"]\n\tsmudge = {trap}\n\tclean = {trap}\n\tprocess = {trap}\n\trequired = true\n')
        config.write(f'[uploadpack]\n\tpackObjectsHook = {trap}\n[diff "evil"]\n\ttextconv = {trap}\n')
    (bare / "hooks").mkdir(exist_ok=True)
    for hook in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction", "post-commit"):
        (bare / "hooks" / hook).symlink_to(trap)
    script = """
import sys
from pathlib import Path
from uuid import uuid4
place = Path(sys.argv[1])
started = []
sys.addaudithook(lambda event, args: started.append(event) if event in
    ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.system") else None)
from workers.runs.git.sync import create_workspace, push
from workers.runs.git.sync import Remote, RemoteRules
from sites.repository.workspace import Step, Workspace
rules = RemoteRules(schemes={"file"}, files_below=place / "remotes")
remote = Remote(url=f"file://{place}/remotes/shop.git", branch="main")
workspace = Workspace.of_run(place / "runs", uuid4())
base = create_workspace(workspace, remote, rules)
one = workspace.commit_step(base, {"src/app.ts": b"new"}, step=Step("dev", 1), message="m", when=5)
head = workspace.absorb(base, one, base=base, message="m", when=6).head
squashed = workspace.squash(base, head, message="m", when=7)
push(workspace, squashed, branch="pointsman/1", remote=remote, rules=rules)
print(started, squashed)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(place)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    started, _, squashed = done.stdout.strip().rpartition(" ")
    assert started == "[]"
    assert not ran.exists()
    assert files_of(bare, squashed)["src/app.ts"] == b"new"


def test_a_squashed_commit_is_pushed_once_and_never_over_something_else(place: Path) -> None:
    from sites.errors import WorkspaceError

    workspace, base = begin(place, commits=3)
    bare = place / "remotes" / "shop.git"
    commit = workspace.squash(base, step(workspace, base, {"src/app.ts": b"new\n"}), message="New", when=7)
    for _ in range(2):
        push(workspace, commit, branch="pointsman/1", remote=remote(place), rules=rules(place))
    assert files_of(bare, commit) == {**FILES, "src/app.ts": b"new\n"}
    other = workspace.squash(base, step(workspace, base, {"src/app.ts": b"2\n"}, key="x"), message="New", when=7)

    with pytest.raises(WorkspaceError, match="with other content"):
        push(workspace, other, branch="pointsman/1", remote=remote(place), rules=rules(place))

    with closing(Repo(str(bare))) as repository:
        assert repository.refs[b"refs/heads/pointsman/1"] == commit.encode()
        assert repository.refs[b"refs/heads/main"] == base.encode()
        assert ObjectID(other.encode()) not in repository.object_store
    done = subprocess.run(["git", "-C", str(bare), "fsck", "--full"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
