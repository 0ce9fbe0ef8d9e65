"""Project repositories for tests: made with dulwich, so that they can hold what git itself would not let in."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.repo import Repo

PLAIN, EXECUTABLE, LINK, SUBMODULE, DIRECTORY = 0o100644, 0o100755, 0o120000, 0o160000, 0o040000
Files = Mapping[str, bytes | tuple[int, bytes]]


def write_tree(repository: Repo, files: Files) -> ObjectID:
    """A tree of files by path; a value may bring its mode."""
    tree = Tree()
    below: dict[str, dict[str, bytes | tuple[int, bytes]]] = {}
    for path, value in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = value
            continue
        mode, data = value if isinstance(value, tuple) else (PLAIN, value)
        if mode == SUBMODULE:
            tree.add(name.encode(), mode, ObjectID(b"1" * 40))
            continue
        blob = Blob.from_string(data)
        repository.object_store.add_object(blob)
        tree.add(name.encode("utf-8", "surrogateescape"), mode, blob.id)
    for name, rest_files in below.items():
        tree.add(name.encode("utf-8", "surrogateescape"), DIRECTORY, write_tree(repository, rest_files))
    repository.object_store.add_object(tree)
    return tree.id


def commit_tree(repository: Repo, tree: ObjectID, *, branch: str = "main", parents: tuple[ObjectID, ...] = ()) -> str:
    """A commit on a branch, which becomes the default one."""
    commit = Commit()
    commit.tree = tree
    commit.parents = list(parents)
    commit.author = commit.committer = b"Ann <ann@example.com>"
    commit.author_time = commit.commit_time = 1_700_000_000
    commit.author_timezone = commit.commit_timezone = 0
    commit.message = b"Work"
    repository.object_store.add_object(commit)
    repository.refs[b"refs/heads/" + branch.encode()] = commit.id
    repository.refs.set_symbolic_ref(b"HEAD", b"refs/heads/" + branch.encode())
    return commit.id.decode()


def make_project(path: Path, files: Files, *, commits: int = 1) -> str:
    """A bare repository whose newest commit on `main` holds files; returns the commit."""
    with closing(Repo.init_bare(str(path), mkdir=True)) as repository:
        parents: tuple[ObjectID, ...] = ()
        name = ""
        for number in range(commits):
            old = {} if number == commits - 1 else {f"old-{number}.txt": b"old\n" * (number + 1)}
            name = commit_tree(repository, write_tree(repository, {**files, **old}), parents=parents)
            parents = (ObjectID(name.encode()),)
        return name


def files_of(path: Path, commit: str) -> dict[str, bytes]:
    """What a commit of a repository holds, by path; modes and all else aside."""
    found: dict[str, bytes] = {}
    with closing(Repo(str(path))) as repository:

        def walk(tree: ObjectID, prefix: str) -> None:
            for item in repository.object_store[tree].items():
                name = prefix + item.path.decode("utf-8", "replace")
                if item.mode == DIRECTORY:
                    walk(item.sha, f"{name}/")
                elif item.mode != SUBMODULE:
                    found[name] = repository.object_store[item.sha].as_raw_string()

        walk(repository.object_store[commit.encode()].tree, "")
    return found
