"""Clone a project's branch into a run's workspace, and push the run's outcome back as a branch of its own.

A workspace is built beside its place and renamed into it, so it exists whole or not at all. What is pushed is one
commit on the commit that the run began with: new objects only, and never over a branch with other content.

A remote is hostile: it may never stop sending, redirect, or resolve to an address that only this machine can reach.
Credentials are read when they are needed, go to the remote's own origin alone, and are never in a URL, in the
repository's configuration or in an error.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import urllib3
from dulwich.client import GitClient, LocalGitClient, Urllib3HttpGitClient
from dulwich.config import StackedConfig
from dulwich.errors import GitProtocolError, NotGitRepository
from dulwich.objects import Commit, ObjectID
from dulwich.pack import UnpackedObject, pack_objects_to_data
from dulwich.refs import Ref, check_ref_format
from dulwich.repo import Repo
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

from gateway.errors import ForgeError
from gateway.forges.deploy_keys import DeployKey, deploy_key
from gateway.forges.github_app import token_of
from gateway.network import connect_public
from routing.policy.agents import Account, AccountsConfig, RunRules
from routing.policy.integrations import Repository
from routing.policy.project import ProjectConfig
from sites.disk import Disk
from sites.errors import RepositoryRefusedError, WorkspaceError
from sites.repository.trees import PackLimits, TreeLimits, check_pack, object_of
from sites.repository.workspace import BASE, Workspace, new_objects
from workers.config import RunsConfig
from workers.errors import RemoteError
from workers.retries import is_storage_error
from workers.runs.git.allowance import GARBAGE, SILENCE_SECONDS, Allowance
from workers.runs.git.ssh import is_ssh, place_of, ssh_client

_STALE_SECONDS = 86_400
_DRAFT = ".draft-"


class Branch(NamedTuple):
    """A branch of a remote, and its commit."""

    ref: Ref
    commit: ObjectID


def create_workspace(
    workspace: Workspace, remote: Remote, rules: RemoteRules, *, limits: PackLimits | None = None
) -> str:
    """Create a run's workspace from a project's branch, and return the commit that the run begins with.

    Only that commit is fetched, without its history. A remote without any commit gives an empty first one. If another
    worker was first, its workspace stays.

    Raises:
        RepositoryRefusedError: too large, no such branch, or a forbidden location (its owner's fault).
        RemoteError: it cannot be reached (its owner's fault, or transient).
        OSError: the operator's fault: the runs' disk is full or away.
    """
    disk = Disk()
    if workspace.exists():
        return workspace.started_with()
    disk.make_directory(workspace.path.parent)
    _sweep(workspace.path.parent)
    draft = workspace.path.parent / f"{_DRAFT}{secrets.token_hex(8)}"
    try:
        base = _fill(draft, remote, rules, limits or PackLimits())
        made = Workspace(draft)
        made.point(BASE, base)
        made.read(base)  # refuse an unreadable tree now, not in the first step
        disk.settle(draft, workspace.path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return workspace.started_with()


def _fill(draft: Path, remote: Remote, rules: RemoteRules, limits: PackLimits) -> str:
    with closing(
        Repo.init_bare(str(draft), mkdir=True, config=StackedConfig([]), default_branch=b"base")
    ) as repository:
        config = repository.get_config()
        config.set((b"core",), b"fsyncObjectFiles", True)
        config.write_to_path()
    with closing(Repo(str(draft))) as repository, connected(remote, rules) as (client, path):
        branch = _fetch(repository, client, path, wanted=remote.branch, limits=limits)
        if branch is None:
            return Workspace(draft).start_empty()
        if object_of(repository.object_store, branch.commit, Commit).parents:
            repository.update_shallow({branch.commit}, None)
        return branch.commit.decode("ascii")


def _fetch(repository: Repo, client: GitClient, path: str, *, wanted: str, limits: PackLimits) -> Branch | None:
    """Fetch one commit; None when the remote has none at all."""
    found: list[Branch | None] = []

    def choose(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
        branch = _choose(refs, wanted)
        found.append(branch)
        return [branch.commit] if branch is not None else []

    stream, commit, abort = repository.object_store.add_pack()
    is_done = False
    try:
        names = [Ref(b"HEAD"), _branch_ref(wanted)] if wanted else [Ref(b"HEAD")]
        client.fetch_pack(path, choose, repository.get_graph_walker(), stream.write, depth=1, ref_prefix=names)
        if found and found[-1] is not None:
            check_pack(stream, limits)
            stream.seek(0, 2)
            commit()
            is_done = True
    finally:
        if not is_done:
            abort()
    if not found:
        raise RemoteError("the remote named no branches")
    return found[-1]


def _choose(refs: Mapping[Ref, ObjectID], wanted: str) -> Branch | None:
    name = _branch_ref(wanted) if wanted else Ref(b"HEAD")
    if name in refs:
        return Branch(name, refs[name])
    if refs or wanted:
        raise RepositoryRefusedError("no_branch", f"it has no branch {wanted or 'HEAD'}"[:200])
    return None


def _branch_ref(name: str) -> Ref:
    ref = Ref(f"refs/heads/{name}".encode("ascii", "replace"))
    if not check_ref_format(ref):
        raise RepositoryRefusedError("bad_branch", "git allows no branch of this name")
    return ref


def _sweep(root: Path) -> None:
    """Remove what killed workers had begun."""
    for draft in root.glob(f"{_DRAFT}*"):
        if time.time() - draft.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(draft, ignore_errors=True)


def push(
    workspace: Workspace,
    commit: str,
    *,
    branch: str,
    remote: Remote,
    rules: RemoteRules,
    expected: str | None = None,
) -> None:
    """Point a branch of the remote at a commit of `Workspace.squash`, if it is still at `expected`. Idempotent.

    `expected` is None for a new branch. The remote has the commit's parent, unless it was empty.

    Raises:
        WorkspaceError: the branch exists with other content; nothing was changed.
        RemoteError: it cannot be reached, or refuses the push (its owner's fault, or transient).
        RepositoryRefusedError: a forbidden location, or credentials that may not push (the project's owner's fault).
    """
    ref = _branch_ref(branch)
    name = ObjectID(commit.encode("ascii"))

    def update(refs: dict[Ref, ObjectID]) -> dict[Ref, ObjectID]:
        there = refs.get(ref)
        if expected is not None and there not in (name, expected.encode("ascii")):
            raise WorkspaceError(f"somebody else has pushed to the branch {branch!a}, or deleted it")
        if expected is None and there not in (name, None):
            raise WorkspaceError(f"the remote has a branch {branch!a} already, with other content")
        return {ref: name}

    with workspace.store() as store, connected(remote, rules) as (client, path):

        def pack(have: Any, want: Any, **options: Any) -> tuple[int, Iterator[UnpackedObject]]:
            return pack_objects_to_data(list(new_objects(store, name)))

        result = client.send_pack(path.encode(), update, pack)
        refused = (result.ref_status or {}).get(ref)
        if refused:
            raise RemoteError(f"the remote refuses the branch: {str(refused)[:200]!a}")


def remote_of(project: ProjectConfig, accounts: AccountsConfig, *, tenant: str) -> Remote:
    """Return a project's remote, layers 1 and 2 of the configuration put together.

    The account that it names is used only where the operator allows this tenant to, and only for repositories below the
    account's URL: a project cannot send somebody's token elsewhere.
    """

    def credentials() -> Credentials | DeployKey | None:
        name = project.git_account
        account = accounts.find(name, tenant=tenant) if name is not None else None
        if name is None or account is None or not account.git_url or not project.repo.place.startswith(account.git_url):
            return None
        if project.repo.scheme == "ssh":
            return deploy_key(name, account)
        return Credentials(account.username or "x-access-token", _token(account, project.repo))

    return Remote(url=project.repo.url, branch=project.repo.branch, credentials=credentials)


def _token(account: Account, repository: Repository) -> str:
    try:
        return token_of(account, urlsplit(repository.place).path.strip("/").removesuffix(".git"))
    except ForgeError as error:
        if error.is_passing:
            raise RemoteError(str(error)) from None
        raise RepositoryRefusedError("credentials", str(error)) from None


def remote_rules(config: RunsConfig, rules: RunRules, *, seconds: float) -> RemoteRules:
    """Return where remotes may be in this installation, and the time limit of one exchange."""
    return RemoteRules(
        schemes=rules.remotes, private_addresses=config.private_remotes, files_below=config.files_below, seconds=seconds
    )


def tree_limits(rules: RunRules) -> TreeLimits:
    """Return how much of a repository agents see."""
    return TreeLimits(max_entries=2 * rules.workspace_files, max_bytes=rules.workspace_bytes)


def pack_limits(rules: RunRules) -> PackLimits:
    """Return what a repository may contain: files that are not shown may be larger, but are bounded too."""
    return PackLimits(total_bytes=10 * rules.workspace_bytes)


@dataclass(frozen=True)
class Credentials:
    """A name and a token for a remote, hidden from reprs."""

    username: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A project's remote repository."""

    url: str
    """`https://HOST/PATH`, `http://...`, `ssh://git@HOST/PATH`, `git@HOST:PATH` or `file:///PATH`."""
    branch: str = ""
    """Empty for the remote's default."""
    credentials: Callable[[], Credentials | DeployKey | None] = lambda: None
    """None for a public remote, or a directory; by ssh there must be a key."""


@dataclass(frozen=True, kw_only=True)
class RemoteRules:
    """Where remotes may be."""

    schemes: Collection[str] = frozenset({"https"})
    private_addresses: bool = False
    """Whether a remote may have a non-public address, such as a forge in the operator's own network."""
    files_below: Path | None = None
    """The directory that `file:` remotes must lie in; None allows none."""
    seconds: float = 20.0
    """For one whole exchange."""
    answer_bytes: int = 300 * 1_048_576
    """That a remote may send in one exchange."""


class _BoundedClient(Urllib3HttpGitClient):
    """Reads within an allowance, and requests nothing outside the remote's own URL."""

    def __init__(self, url: str, *, allowance: Allowance, **options: Any) -> None:
        super().__init__(url, quiet=True, timeout=SILENCE_SECONDS, **options)
        self._below = url.rstrip("/") + "/"
        self._allowance = allowance
        self._open: list[Any] = []

    def _http_request(self, url: str, headers: Any = None, data: Any = None, raise_for_status: bool = True) -> Any:
        if not url.startswith(self._below):
            raise GitProtocolError("the remote leads elsewhere")
        self._allowance.spend(0)
        response, read = super()._http_request(url, headers, data, raise_for_status=False)
        self._open.append(response)
        if response.status in (401, 403):
            raise RepositoryRefusedError("credentials", "the remote does not accept them")
        if response.status == 404:
            raise RemoteError("the remote has no repository there, or hides it from these credentials")
        if response.status != 200:
            raise RemoteError(f"the remote answers with status {response.status}")

        def counted(size: int = -1) -> bytes:
            data = read(size)
            self._allowance.spend(len(data))
            return data

        return response, counted

    def close(self) -> None:
        """Close what an interrupted exchange left open."""
        for response in self._open:
            response.close()

    def _discover_references(self, *arguments: Any, **options: Any) -> Any:
        found = super()._discover_references(*arguments, **options)
        if self.dumb:
            raise GitProtocolError("the remote serves files, not git's protocol")
        return found


def _connect(connection: HTTPConnection) -> socket.socket:
    try:
        return connect_public(connection.host, connection.port or 0, timeout_seconds=SILENCE_SECONDS)
    except OSError as error:
        raise NewConnectionError(connection, str(error)) from error


class _PublicHTTPConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _PublicHTTPSConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _PublicHTTP(urllib3.HTTPConnectionPool):
    ConnectionCls = _PublicHTTPConnection


class _PublicHTTPS(urllib3.HTTPSConnectionPool):
    ConnectionCls = _PublicHTTPSConnection


def check_url(url: str, rules: RemoteRules) -> None:
    """Check a remote's URL before anything is sent there.

    Raises:
        RepositoryRefusedError: `bad_url` or `scheme` (its owner's fault), `not_allowed` (the operator's decision).
    """
    if is_ssh(url):
        place_of(url)
        if "ssh" not in rules.schemes:
            raise RepositoryRefusedError("scheme", "ssh: is not one that remotes may have here")
        return
    try:
        parts = urlsplit(url)
        has_login = parts.username is not None or parts.password is not None
        _ = parts.port
    except ValueError:
        raise RepositoryRefusedError("bad_url", "it is no URL") from None
    if has_login or parts.query or parts.fragment or not url.isascii() or not url.isprintable():
        raise RepositoryRefusedError("bad_url", "it must hold no name, password, query or fragment")
    if parts.scheme not in rules.schemes or parts.scheme not in ("https", "http", "file"):
        raise RepositoryRefusedError("scheme", f"{parts.scheme or 'no scheme'}: is not one that remotes may have here")
    if parts.scheme == "file":
        _check_directory(Path(unquote(parts.path)), rules, is_local=not parts.netloc)
    elif not parts.hostname:
        raise RepositoryRefusedError("bad_url", "it names no host")


def _check_directory(path: Path, rules: RemoteRules, *, is_local: bool) -> None:
    if rules.files_below is None:
        raise RepositoryRefusedError("not_allowed", "this installation names no directory for file: remotes")
    if not is_local or not path.resolve().is_relative_to(rules.files_below.resolve()):
        raise RepositoryRefusedError("not_allowed", "it does not lie in the directory for file: remotes")


@contextmanager
def connected(remote: Remote, rules: RemoteRules) -> Iterator[tuple[GitClient, str]]:
    """Yield a client for a remote, and the path to give to it.

    Raises:
        RepositoryRefusedError: as `check_url`; also for too much data (the remote's fault) and refused credentials (the
            project owner's).
        RemoteError: it cannot be reached, or answers with something else (its fault, or transient).
        OSError: the operator's fault: our own disk is full or away.
    """
    check_url(remote.url, rules)
    parts = urlsplit(remote.url)
    with _translated():
        if parts.scheme == "file":
            yield LocalGitClient(thin_packs=False, quiet=True), unquote(parts.path)
            return
        credentials = remote.credentials()
        allowance = Allowance(time.monotonic() + rules.seconds, rules.answer_bytes)
        if is_ssh(remote.url):
            place = place_of(remote.url)
            if not isinstance(credentials, DeployKey):
                raise RepositoryRefusedError("credentials", f"no account here has a deploy key for ssh to {place.host}")
            with ssh_client(
                place, credentials, allowance=allowance, private_addresses=rules.private_addresses
            ) as by_ssh:
                yield by_ssh, place.path
            return
        login: dict[str, str] = {}
        if isinstance(credentials, Credentials):
            login = {"username": credentials.username, "password": credentials.password}
        with _pools(rules) as pools:
            client = _BoundedClient(remote.url, allowance=allowance, pool_manager=pools, **login)
            with closing(client):
                yield client, ""


@contextmanager
def _pools(rules: RemoteRules) -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(
        num_pools=1, headers={"User-Agent": "git/pointsman"}, retries=urllib3.Retry(0, redirect=0)
    ) as pools:
        if not rules.private_addresses:
            pools.pool_classes_by_scheme = {"http": _PublicHTTP, "https": _PublicHTTPS}
        yield pools


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (RepositoryRefusedError, RemoteError):
        raise
    except NotGitRepository:
        raise RemoteError("the remote has no repository there") from None
    except GARBAGE as error:
        if is_storage_error(error):
            raise
        raise RemoteError(f"the remote cannot be reached or understood ({type(error).__name__})") from None
