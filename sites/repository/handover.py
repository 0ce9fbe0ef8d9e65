"""Hand the work of a run over: as a git bundle, or as a branch of a repository on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

from dulwich.bundle import Bundle, write_bundle
from dulwich.errors import NotGitRepository
from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.objects import Commit, ObjectID, ShaFile
from dulwich.pack import UnpackedObject, pack_objects_to_data
from dulwich.refs import Ref
from dulwich.repo import Repo

from sites.errors import HandoverError

MAX_BUNDLE_BYTES = 64 * 1024 * 1024
"""Of all objects of a bundle, unpacked."""


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
        bundle.references = {Ref(f"refs/heads/{branch}".encode()): taken[0].id}
        bundle.pack_data = _Objects(taken)
        stream = BytesIO()
        write_bundle(stream, bundle)
    return stream.getvalue()


def write_branch(directory: Path, objects: Iterable[ShaFile], *, branch: str) -> None:
    """Create a branch in a repository, which must have the parents of its commit; nothing is checked out. Idempotent.

    Raises:
        HandoverError: the caller's fault: no repository, another branch of this name, or not this project's.
    """
    try:
        repository = Repo.discover(str(directory))
    except NotGitRepository:
        raise HandoverError(f"{directory}: is no git repository") from None
    with closing(repository):
        taken = list(objects)
        made = {item.id for item in taken}
        for parent in (one for item in taken if isinstance(item, Commit) for one in item.parents):
            if parent not in made and parent not in repository.object_store:
                raise HandoverError(
                    f"{directory}: has no commit {parent.decode()}, which the run began with; fetch its branch first"
                )
        ref, commit = Ref(f"refs/heads/{branch}".encode()), ObjectID(taken[0].id)
        if ref in repository.refs and repository.refs[ref] != commit:
            raise HandoverError(f"{directory}: has a branch {branch} with other content")
        repository.object_store.add_objects([(item, None) for item in taken])
        repository.refs[ref] = commit
