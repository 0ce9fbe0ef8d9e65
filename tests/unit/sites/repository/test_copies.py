"""Copies of repositories: whole, by digest, gone on with, and of plain files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sites.disk import Disk
from sites.errors import WorkspaceError
from sites.repository import copies
from sites.repository.copies import claim_root, copy_workspace, owner_of, remove_workspace
from tests.unit.workers.runs.repositories import make_project


def tree_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make_project(tmp_path / "a.git", {"README.md": b"# Shop", "src/app.ts": b"export {};"})
    return tmp_path / "a.git"


def test_a_copy_follows_what_has_come_changed_and_gone_and_reads_no_object_twice(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new" / "a.git"
    copy_workspace(source, target)
    assert tree_of(target) == tree_of(source)
    (source / "refs/heads/new").write_text("0" * 40 + "\n")
    (source / "HEAD").write_text("ref: refs/heads/next\n")
    (source / "objects/aa").mkdir(exist_ok=True)
    (source / "objects/aa/new").write_bytes(b"x")
    (target / ".HEAD.0123").write_bytes(b"the draft of a copy that was killed")
    written: list[str] = []
    settle = Disk.settle_file
    monkeypatch.setattr(Disk, "settle_file", lambda self, a, b: [written.append(b.name), settle(self, a, b)])
    copy_workspace(source, target)
    assert tree_of(target) == tree_of(source)
    assert sorted(written) == ["HEAD", "new", "new"]


@pytest.mark.parametrize("place", ["/etc/passwd", "/etc"])
def test_a_link_is_never_followed(source: Path, tmp_path: Path, place: str) -> None:
    (source / "objects/info").mkdir(exist_ok=True)
    (source / "objects/info/alternates").symlink_to(place)
    with pytest.raises(WorkspaceError, match="no plain file"):
        copy_workspace(source, tmp_path / "b.git")


def test_a_copy_that_differs_from_what_was_read_is_refused_and_leaves_no_file(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = copies._digest
    monkeypatch.setattr(copies, "_digest", lambda draft: draft.write_bytes(b"bad disk") and digest(draft))
    with pytest.raises(WorkspaceError, match="differs"):
        copy_workspace(source, tmp_path / "b.git")
    assert tree_of(tmp_path / "b.git") == {}


def test_a_file_that_is_replaced_while_it_is_copied_is_whole_as_it_was_when_it_was_opened(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest_late(path: Path) -> str:
        digest = whole_digest(path)
        if path.name.startswith(".HEAD."):
            Disk().write_atomically(source / "HEAD", b"ref: refs/heads/next\n")
        return digest

    before, whole_digest = tree_of(source), copies._digest
    monkeypatch.setattr(copies, "_digest", digest_late)
    copy_workspace(source, tmp_path / "b.git")
    assert tree_of(tmp_path / "b.git") == before
    copy_workspace(source, tmp_path / "b.git")
    assert tree_of(tmp_path / "b.git") == tree_of(source) != before


def test_a_removal_that_was_cut_off_is_finished(source: Path, tmp_path: Path) -> None:
    source.rename(tmp_path / ".swept-a.git")
    remove_workspace(source)
    remove_workspace(source)
    assert list(tmp_path.iterdir()) == []


def test_a_repository_that_came_again_after_a_removal_was_cut_off_is_removed_with_what_that_left(
    source: Path, tmp_path: Path
) -> None:
    copy_workspace(source, tmp_path / ".swept-a.git")
    remove_workspace(source)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_workspaces_belongs_to_one_cell(tmp_path: Path) -> None:
    assert owner_of(tmp_path) is None
    claim_root(tmp_path, "east")
    claim_root(tmp_path, "east")
    with pytest.raises(WorkspaceError, match="cell 'east'"):
        claim_root(tmp_path, "west")
    assert owner_of(tmp_path) == "east"
