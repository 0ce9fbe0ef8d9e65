"""What a checkout on this machine says about itself: its files, its remote, its branch. No git program is run."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dulwich.errors import NotGitRepository
from dulwich.repo import Repo

from sites.errors import HandoverError
from sites.repository.trees import Snapshot, TreeLimits, read_tree, tree_of

_SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[A-Za-z0-9.-]+):(?P<path>[A-Za-z0-9._~-][A-Za-z0-9._/~-]{0,199})")
_REMOTE_HEAD = b"refs/remotes/origin/"


@dataclass(frozen=True)
class Checkout:
    """A checkout."""

    root: Path
    paths: frozenset[str]
    """Its tracked files, and those at its top."""
    url: str
    """Its origin by https; without one the directory itself."""
    branch: str


def read_checkout(directory: Path) -> Checkout:
    """Read the checkout that a directory is in.

    Raises:
        HandoverError: the caller's fault: it is in none.
    """
    try:
        repository = Repo.discover(str(directory))
    except (NotGitRepository, OSError):
        raise HandoverError(f"{directory}: is in no git repository") from None
    with closing(repository):
        root = Path(repository.path).resolve()
        if repository.bare:
            raise HandoverError(f"{root}: is a bare repository: a checkout of it is needed")
        try:
            tracked = {path.decode("utf-8", "replace") for path in repository.open_index()}
        except (ValueError, AssertionError, OSError):
            raise HandoverError(f"{root}: its git index cannot be read") from None
        try:
            origin = repository.get_config().get((b"remote", b"origin"), b"url").decode("utf-8", "replace")
        except KeyError:
            origin = ""
        except (ValueError, OSError):
            raise HandoverError(f"{root}: its git configuration cannot be read") from None
        branch = _branch(repository)
    top = {path.name for path in root.iterdir() if path.is_file()}
    return Checkout(root, frozenset(tracked | top), https_url(origin) or root.as_uri(), branch)


def read_head(root: Path) -> Snapshot:
    """Return the files of a checkout's last commit as agents would see them.

    Raises:
        HandoverError: the caller's fault: it has no commit.
        RepositoryRefusedError: its owner's fault: it has more files or bytes than a project may.
    """
    with closing(Repo(str(root))) as repository:
        try:
            head = repository.head()
        except KeyError:
            raise HandoverError(f"{root}: has no commit, from which a run could start") from None
        return read_tree(repository.object_store, tree_of(repository.object_store, head), TreeLimits())


def https_url(origin: str) -> str:
    """Return a remote's address by https without user and password; empty if it has none."""
    if (found := _SCP.fullmatch(origin)) and "://" not in origin:
        return f"https://{found['host']}/{found['path']}"
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("https", "ssh") or not parts.hostname:
        return ""
    place = f":{port}" if port and parts.scheme == "https" else ""
    return f"https://{parts.hostname}{place}{parts.path}"


def _branch(repository: Repo) -> str:
    """Return the remote's main branch, else the one that is checked out."""
    symrefs = repository.refs.get_symrefs()
    remote = symrefs.get(_REMOTE_HEAD + b"HEAD", b"").removeprefix(_REMOTE_HEAD)  # type: ignore[call-overload]
    here = symrefs.get(b"HEAD", b"").removeprefix(b"refs/heads/")  # type: ignore[call-overload]
    return (remote or here).decode("utf-8", "replace") or "main"
