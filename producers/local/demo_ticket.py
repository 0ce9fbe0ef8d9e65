"""The ticket of `make demo`: a small repository with a failing test, and what its run must have left there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dulwich import porcelain
from dulwich.objects import Commit
from dulwich.refs import Ref
from dulwich.repo import Repo

from producers.commands.context import out, print_table
from sites.repository.trees import TreeLimits, read_tree

PROJECT = "shop"
TICKET = "Fix src/cents.js: it says `Math.floor(price * 100)` instead of `Math.round(price * 100)`"
_FIXED = b"export const cents = (price) => Math.round(price * 100);\n"
_FILES = {
    "package.json": b'{"name": "shop", "private": true, "type": "module"}\n',
    "src/cents.js": _FIXED.replace(b"round", b"floor"),
    "test/cents.test.js": b"""import { equal } from "node:assert";
import { test } from "node:test";
import { cents } from "../src/cents.js";

test("a fraction of a cent is rounded", () => equal(cents(1.15), 115));
""",
}
_AUTHOR = b"Ann <ann@shop.example>"
_LIMITS = TreeLimits(max_bytes=1 << 20)


def project_file(repositories: Path) -> str:
    """Return the project's file; its test fails until the ticket is done."""
    url = f"file://{repositories / PROJECT}"
    return f'repo: {{url: "{url}"}}\nstack: {{language: javascript}}\ncommands: {{test: node --test}}\n'


def make_repository(repositories: Path) -> None:
    """Make the project's repository."""
    root = repositories / PROJECT
    for path, data in _FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    with closing(Repo.init(str(root), default_branch=b"main")) as repository:
        porcelain.add(repository, [str(root / path) for path in _FILES])
        porcelain.commit(repository, message=b"A shop whose prices lose a cent", author=_AUTHOR, committer=_AUTHOR)


def show(steps: Sequence[Mapping[str, Any]], repositories: Path) -> str | None:
    """Show who did what for the ticket and what was pushed; return what is wrong with it, if anything."""
    out.print("\n[bold]From a ticket to a branch[/], its agents with tools in boxes of their own:\n", markup=True)
    print_table(
        ("step", "agent", "end", "seconds", "dollars"),
        [
            (
                str(step["key"]),
                str(step["agent"] or "the project's tests"),
                str(step["state"]),
                f"{step['seconds']:7.1f}",
                f"${step['cost_usd']}",
            )
            for step in steps
        ],
    )
    text, is_fixed = _pushed(repositories)
    out.print(f"\n  {'yes' if is_fixed else 'NO '}  {text}")
    return None if is_fixed else f"the ticket: {text}"


def _pushed(repositories: Path) -> tuple[str, bool]:
    """Return what a run pushed in words, and whether it is the fix: one commit on top of main."""
    with closing(Repo(str(repositories / PROJECT))) as repository:
        heads = repository.refs.as_dict(Ref(b"refs/heads"))
        main = heads.pop(Ref(b"main"))
        if len(heads) != 1:
            return f"{len(heads)} branches beside main", False
        ((branch, head),) = heads.items()
        commit, base = repository[head], repository[main]
        assert isinstance(commit, Commit)
        assert isinstance(base, Commit)
        after, before = (read_tree(repository.object_store, each.tree, _LIMITS).files for each in (commit, base))
        changed = sorted(path for path in {**after, **before} if after.get(path) != before.get(path))
        text = f"branch {branch.decode()} has one commit more, of {' and '.join(changed)}"
        return text, commit.parents == [main] and after.get("src/cents.js") == _FIXED
