"""The demo's ticket: its repository is one that runs can work in, and only its fix counts as done."""

from pathlib import Path

import pytest
from dulwich import porcelain

from producers.local import demo, demo_ticket
from routing.policy.platform import platform_policy
from routing.policy.project import read_project


def test_without_boxes_the_jobs_that_need_one_are_left_out() -> None:
    every, some = ({case.name for case in demo.cases(has_boxes=has_boxes)} for has_boxes in (True, False))
    assert every - some == {"ticket", "code agent"}


def test_its_project_is_taken_where_repositories_may_be_directories(tmp_path: Path) -> None:
    policy = platform_policy()
    runs = policy.runs.model_copy(update={"remotes": policy.runs.remotes | {"file"}})
    file = demo_ticket.project_file(tmp_path)
    config = read_project(file, source="shop.yaml", policy=policy.model_copy(update={"runs": runs}))
    assert config.commands.named() == {"test": "node --test"}


@pytest.mark.parametrize(
    ("text", "is_right"), [("Math.round(price * 100)", True), ("Math.ceil(price * 100)", False), (None, False)]
)
def test_it_is_done_when_one_commit_on_a_branch_is_the_fix(tmp_path: Path, text: str | None, is_right: bool) -> None:
    demo_ticket.make_repository(tmp_path)
    root = tmp_path / demo_ticket.PROJECT
    if text is not None:
        porcelain.checkout(str(root), target=b"main", new_branch=b"pointsman/fix")
        (root / "src" / "cents.js").write_text(f"export const cents = (price) => {text};\n")
        porcelain.add(str(root), [str(root / "src" / "cents.js")])
        porcelain.commit(str(root), message=b"fix", author=b"a <a@b>", committer=b"a <a@b>")

    problem = demo_ticket.show((), tmp_path)

    assert (problem is None) == is_right, problem
    if text is None:
        assert problem == "the ticket: 0 branches beside main"
