"""`python -m workers.runs.alone AGENT`: the command line of one agent alone; a composition root of its own.

Without an address of a model it brings the rehearsal model; a box then reaches it through the door, as it would a
gateway.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from routing.config import PolicyConfig, read_settings, without_settings
from routing.errors import PolicyError
from routing.policy import load_policy
from sandbox.config import BoxConfig
from sandbox.den import Den
from sandbox.errors import SandboxError, TreeRefusedError
from sandbox.rehearsal.config import RehearsalConfig
from sandbox.rehearsal.server import running_rehearsal
from sandbox.worktree import Worktree
from workers.boxes import BoxPool, NoBoxes, PoolOnDemand
from workers.config import RunsConfig
from workers.errors import WorkerError
from workers.runs.solo import Alone, Place, read_project, run_alone
from workers.runs.trees import TreeLimits


class AloneSettings(BaseModel):
    """The sections that an agent alone reads."""

    model_config = ConfigDict(frozen=True)

    policy: PolicyConfig = PolicyConfig()
    box: BoxConfig = BoxConfig()
    runs: RunsConfig = RunsConfig()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pointsman agent run", description="Run one agent against a directory.")
    parser.add_argument("name", help="an agent of the policy, such as frontend-dev")
    parser.add_argument("--task", required=True, help="what it is to do")
    parser.add_argument("--dir", type=Path, required=True, help="the project")
    parser.add_argument("--url", help="a Messages API; without one the rehearsal model plays")
    parser.add_argument("--token-file", type=Path, help="a file with the token for --url")
    parser.add_argument("--dry-run", action="store_true", help="write nothing into the directory")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one agent. Returns the exit code: 0 it did its task, 1 it did not, 2 it could not be asked."""
    given = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    try:
        settings = read_settings(AloneSettings, os.environ)
        worktree = Worktree(given.dir)
        with _place(given, settings) as place:
            project = read_project(worktree, TreeLimits(max_bytes=place.policy.runs.workspace_bytes))
            alone = run_alone(given.name, task=given.task, project=project, place=place)
    except (PolicyError, TreeRefusedError, OSError) as error:
        sys.stderr.write(f"pointsman agent run: {error}\n")
        return 2
    except (SandboxError, WorkerError) as error:
        sys.stderr.write(f"pointsman agent run: {error}\n")
        return 1
    if not given.dry_run and alone.failure is None:
        worktree.write(alone.changes, {})
    sys.stdout.write(json.dumps(alone.told()) + "\n" if given.json else _shown(alone))
    return 1 if alone.failure is not None else 0


@contextmanager
def _place(given: argparse.Namespace, settings: AloneSettings) -> Iterator[Place]:
    policy = load_policy(settings.policy.path)
    agent = policy.agents.get(given.name)
    needs_box = agent is not None and agent.needs_box
    token = given.token_file.read_text("ascii").strip() if given.token_file else "alone"
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-alone-"))
        url = given.url
        if url is None:
            # A box reaches this machine by the address of its engine's outer network, so there it listens on all.
            config = RehearsalConfig(host="0.0.0.0" if needs_box else "127.0.0.1", speed="max")
            url = stack.enter_context(running_rehearsal(config)).url
        boxes: PoolOnDemand | NoBoxes = NoBoxes()
        if needs_box:
            boxes = PoolOnDemand(lambda: _open_pool(settings.box, url, is_here=given.url is None))
        stack.callback(boxes.close)
        yield Place(
            policy=policy, url=url, token=token, den=Den(Path(home)), boxes=boxes, runs=settings.runs,
            environment=without_settings(os.environ), tell=_tell,
        )  # fmt: skip


def _tell(news: str) -> None:
    sys.stderr.write(f"{news}\n")


def _open_pool(config: BoxConfig, url: str, *, is_here: bool) -> BoxPool:
    from workers.engine import open_engine_pool

    parts = urlsplit(url)
    host = "" if is_here else parts.hostname or ""
    changes = {"warm": 0, "gateway_host": host, "gateway_port": parts.port or 80, "network": ""}
    return open_engine_pool(BoxConfig.model_validate(config.model_dump() | changes))


def _shown(alone: Alone) -> str:
    lines = [f"{'deleted' if data is None else 'wrote  '} {path}" for path, data in sorted(alone.changes.items())]
    lines += [f"dropped {line}" for line in alone.dropped]
    if alone.failure is not None:
        lines.append(f"failed: {alone.failure}")
    if alone.result is not None:
        lines.append(json.dumps(alone.result, indent=2, ensure_ascii=False))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
