"""`pointsman apply`: a diff onto a directory, with the engine of tier 2 and nothing else of an installation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from producers.commands.context import FAILED, USAGE, AsJson, clear_errors, err, fail, out, print_json

if TYPE_CHECKING:
    from sandbox.diff.applied import Applied
    from sandbox.diff.errors import DiffRefusedError

app = typer.Typer()


@app.command()
def apply(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The files that the diff changes.")],
    diff: Annotated[Path, typer.Argument(metavar="DIFF", help="A unified diff, search/replace blocks or a `*** Begin "
                                         "Patch`, with or without prose around it; - for standard input.")],
    target: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="A new or empty directory; without it, DIR is changed.")
    ] = None,
    policy: Annotated[
        Literal["site"] | None, typer.Option(metavar="POLICY", help="`site`: what a model may do to a site.")
    ] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Apply a diff, all of it or nothing. Where more than one place is possible, it is refused. Exit 1 if refused."""
    from sandbox.diff.apply import apply_diff
    from sandbox.diff.errors import DiffRefusedError
    from sandbox.diff.policy import MATCHING, SITE
    from sandbox.worktree import Worktree

    text = _read(diff)
    with clear_errors():
        try:
            files = Worktree(directory)
            done = apply_diff(files, text, policy=SITE if policy else MATCHING, obstacles=files.obstacles)
            modes = {receipt.path: receipt.mode for receipt in done.receipts if receipt.mode is not None}
            (files.copy_to(target) if target is not None else files).write(done.changed, modes)
        except DiffRefusedError as refused:
            _show_refusal(refused, as_json=as_json)
            raise typer.Exit(FAILED) from None
        except OSError as error:
            fail(f"apply: {error.filename or directory}: {error.strerror}")
    _show(done, as_json=as_json)


def _read(diff: Path) -> bytes:
    from sandbox.diff.model import Limits

    most = Limits().max_bytes + 1  # one more than is allowed: the engine refuses it by its own rule
    try:
        if str(diff) == "-":
            return sys.stdin.buffer.read(most)
        with diff.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        fail(f"apply: {diff}: {error.strerror}", code=USAGE)


def _show_refusal(refused: DiffRefusedError, *, as_json: bool) -> None:
    if not as_json:
        err.print(f"pointsman: {refused}", markup=False)
        for line in refused.nearest:
            err.print(line, markup=False)
        return
    print_json({
        "ok": False, "reason": refused.reason.value, "files": [], "fuzz": None, "detail": refused.detail,
        "file": refused.file, "hunk": refused.hunk, "nearest": refused.nearest, "feedback": refused.feedback,
    })  # fmt: skip


def _show(done: Applied, *, as_json: bool) -> None:
    touched = sorted({*done.changed, *(receipt.path for receipt in done.receipts if receipt.mode is not None)})
    if as_json:
        receipt = done.as_dict()
        print_json({
            "ok": True, "reason": None, "files": touched, "fuzz": receipt["fuzz"], "fuzz_name": receipt["fuzz_name"],
            "needs_approval": receipt["needs_approval"], "receipts": receipt["files"],
            "diff": done.canonical.decode(errors="replace"),
        })  # fmt: skip
        return
    for path in touched:
        gone = done.changed.get(path, b"") is None
        out.print(f"{'removed' if gone else 'wrote'} {ascii(path)[1:-1]}", markup=False)
    out.print(f"applied, fuzz {int(done.fuzz)} ({done.fuzz.name.lower()})")
