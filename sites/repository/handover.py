"""Hand the work of a run over: as a git bundle, or as a branch of a repository on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import cast

from dulwich.bundle import Bundle, read_bundle, write_bundle
from dulwich.errors import NotGitRepository
from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.objects import Commit, ShaFile
from dulwich.pack import PackData, PackInflater, UnpackedObject, pack_objects_to_data
from dulwich.refs import Ref
from dulwich.repo import Repo

from sites.errors import HandoverError

MAX_BUNDLE_BYTES = 64 * 1024 * 1024
"""Of all objects of a bundle, unpacked."""
_BRANCHES = "refs/heads/"


class _Objects:
    """What the library takes the objects of a bundle from."""

    object_format = DEFAULT_OBJECT_FORMAT

    def __init__(self, objects: list[ShaFile]) -> None:
        count, records = pack_objects_to_data(objects)
        self._count, self._records = count, list(records)

    def __len__(self) -> int:
        return self._count

    def iter_unpacked(self) -> Iterator[UnpackedObject]:
        return iter(self._records)

    def close(self) -> None:
        """Nothing is open."""


def bundle_of(objects: Iterable[ShaFile], *, branch: str) -> bytes:
    """Return a git bundle of a branch; the first object is its commit, whose parents a receiver must have.

    Raises:
        HandoverError: nobody's fault: it is larger than `MAX_BUNDLE_BYTES`.
    """
    taken: list[ShaFile] = []
    left = MAX_BUNDLE_BYTES
    for item in objects:
        left -= item.raw_length()
        if left < 0:
            raise HandoverError(f"the work is larger than a bundle may be ({MAX_BUNDLE_BYTES} bytes)")
        taken.append(item)
    inside = {item.id for item in taken}
    parents = [parent for item in taken if isinstance(item, Commit) for parent in item.parents]
    with Bundle() as bundle:
        bundle.version, bundle.capabilities = 2, {}
        bundle.prerequisites = [(parent, b"") for parent in parents if parent not in inside]
        bundle.references = {Ref(f"{_BRANCHES}{branch}".encode()): taken[0].id}
        bundle.pack_data = _Objects(taken)
        stream = BytesIO()
        write_bundle(stream, bundle)
    return stream.getvalue()


def branch_in(bundle: bytes) -> tuple[str, str]:
    """Return the branch of a bundle that `bundle_of` made, and its commit."""
    with read_bundle(BytesIO(bundle)) as read:
        ((ref, commit),) = read.references.items()
    return ref.decode().removeprefix(_BRANCHES), commit.decode()


def write_branch(directory: Path, bundle: bytes) -> None:
    """Create a bundle's branch in a repository, which must have its prerequisites; nothing is checked out. Idempotent.

    Raises:
        HandoverError: the caller's fault: no repository, another branch of this name, or not this project's.
    """
    try:
        repository = Repo.discover(str(directory))
    except NotGitRepository:
        raise HandoverError(f"{directory}: is no git repository") from None
    with closing(repository), read_bundle(BytesIO(bundle)) as read:
        for needed, _ in read.prerequisites:
            if needed not in repository.object_store:
                raise HandoverError(
                    f"{directory}: has no commit {needed.decode()}, which the run began with; fetch its branch first"
                )
        ((ref, commit),) = read.references.items()
        if ref in repository.refs and repository.refs[ref] != commit:
            branch = ref.decode().removeprefix(_BRANCHES)
            raise HandoverError(f"{directory}: has a branch {branch} with other content")
        inflater = PackInflater.for_pack_data(cast(PackData, read.pack_data))
        repository.object_store.add_objects([(item, None) for item in inflater])
        repository.refs[ref] = commit
