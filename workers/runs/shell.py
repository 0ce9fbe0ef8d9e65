"""`python -m workers.runs.shell RUN`: a person's shell in a box with a run's workspace, at an open gate.

The box is that of the project's steps, without a token: no model and no package is reached from it. What it leaves is
judged as an agent's files are, and becomes a commit of that person on the run's branch; the gate stays open. A
composition root of its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import OperationalError

from ledger.cells.tenant_rows import TENANT_CLOSED, is_closed_error
from ledger.errors import LedgerError
from ledger.runs.shells import ShellOrder, begin_shell, end_shell
from ledger.store import LEDGER_UNREACHABLE, Ledger, create_ledger_engine
from monitoring.config import LedgerConfig
from routing.config import PolicyConfig, collect_secrets, read_settings
from routing.errors import PolicyError
from routing.policy.agents import AccountsConfig, is_covered
from routing.policy.platform import Policy, load_policy
from routing.policy.project import ProjectConfig, for_project
from routing.policy.services import Service, services_of
from routing.redaction import redact
from sandbox.box import Box
from sandbox.config import BoxConfig
from sandbox.docker.terminal import plain_text
from sandbox.errors import SandboxError
from sandbox.pool import build_maker, open_engine
from sites.content_store import ContentStore
from sites.errors import SiteError, WriteConflictError
from sites.repository.workspace import Step, Workspace
from workers.config import RunsConfig
from workers.lifecycle import with_ledger
from workers.runs.cli_runners import collect, put
from workers.runs.git.sync import tree_limits
from workers.runs.step import collect_output

_MOST_BYTES = 10 * 1024 * 1024
"""How much a workspace may grow."""
_AROUND_SECONDS = 420.0
"""What a shell takes at most besides its time: for its box, whose services have 300, and to keep the work."""
_AUTHOR = re.compile(r"[^<>\x00-\x1f]+ <[^<>\x00-\x20]+>")
_ACTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")

OpenBox = Callable[[Sequence[Service], str | None], Box]
Attend = Callable[[Box], bytes]


class ShellEnd(NamedTuple):
    """What came of a shell."""

    commit: str | None
    """On the run's branch; None if nothing of it is there."""
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    refused: str = ""
    """Why nothing is there although files were changed."""


@dataclass(frozen=True)
class Person:
    """Who has the shell."""

    actor: str
    """As in the audit trail."""
    author: str
    """`NAME <E-MAIL>` of the commit."""


@dataclass(frozen=True)
class _Record:
    """How a shell ends in the ledger. It waits for the ledger, since nothing else records the work."""

    ledger: Ledger
    order: ShellOrder
    actor: str
    until: float
    """On the monotonic clock: the gate takes the shell for over by then."""

    def end(self, facts: Mapping[str, Any], merge: Callable[[str], str] | None = None) -> bool:
        def once() -> bool:
            with self.ledger.begin() as session:
                return end_shell(session, self.order, actor=self.actor, facts=facts, merge=merge)

        return with_ledger(once, until=self.until, pause=_wait)

    def refuse(self, facts: Mapping[str, Any], why: str) -> ShellEnd:
        self.end({**facts, "changed": [], "refused": why})
        return ShellEnd(None, (), tuple(facts["dropped"]), why)


def _wait(seconds: float) -> None:
    sys.stderr.write("the ledger is away; your work is recorded as soon as it answers\r")
    time.sleep(seconds)


@dataclass(frozen=True)
class Shells:
    """Shells at the gates of an installation's runs."""

    ledger: Ledger
    policy: Policy
    runs: RunsConfig
    known_keys: tuple[str, ...] = ()

    def hold(
        self, run_id: UUID, person: Person, *, tenant: str, open_box: OpenBox, attend: Attend, seconds: float
    ) -> ShellEnd:
        """Let a person work in a run's workspace at its open gate for so long, and keep what they may change.

        Raises:
            JobNotFoundError, NoOpenGateError: the caller's fault.
            SandboxError: no box can be had, or it is gone: nothing is kept.
            SiteError: the workspace is gone (ours), or its files fit no box.
        """
        seconds += _AROUND_SECONDS
        with self.ledger.begin() as session:
            order = begin_shell(session, run_id, tenant=tenant, actor=person.actor, seconds=seconds)
        record = _Record(self.ledger, order, person.actor, until=time.monotonic() + seconds)
        try:
            return self._hold(order, person, record, open_box=open_box, attend=attend)
        except BaseException as error:
            record.refuse({"dropped": []}, f"it broke off: {type(error).__name__}")
            raise

    def _hold(
        self, order: ShellOrder, person: Person, record: _Record, *, open_box: OpenBox, attend: Attend
    ) -> ShellEnd:
        project = ProjectConfig.model_validate(order.project_config)
        policy = for_project(self.policy, project)
        workspace = Workspace.of_run(self.runs.root, order.workspace_id, limits=tree_limits(policy.runs))
        before = workspace.read(order.head)
        began = time.time()
        box = open_box(services_of(project.services, policy.runs.services), order.project_image)
        with closing(box), tempfile.TemporaryDirectory(prefix="pointsman-shell-") as home:
            put(box, before.files)
            shown = attend(box)
            files, failed = collect(box, ContentStore(Path(home)), before.files, most_bytes=_MOST_BYTES)
        said = redact(plain_text(shown), known=self.known_keys)
        facts = {"seconds": round(time.time() - began, 1), "said": said, "changed": [], "dropped": []}
        if files is None:
            return record.refuse(facts, failed.detail if failed else "its files are not accepted")
        writes = tuple(path for agent in policy.agents.values() for path in agent.writes)
        taken = collect_output(
            before,
            before.files,
            files,
            may_write=lambda path: is_covered(path, writes),
            known_keys=self.known_keys,
        )
        facts |= {"dropped": list(taken.report())}
        if taken.keys:
            return record.refuse(facts, "a key of this installation stands in its files")
        facts |= {"changed": sorted(taken.changes)}
        return _keep(order, person, record, facts, workspace, taken.changes, when=int(began))


def _keep(
    order: ShellOrder,
    person: Person,
    record: _Record,
    facts: Mapping[str, Any],
    workspace: Workspace,
    changes: Mapping[str, bytes | None],
    *,
    when: int,
) -> ShellEnd:
    changed, dropped = tuple(facts["changed"]), tuple(facts["dropped"])
    if not changes:
        record.end(facts)
        return ShellEnd(None, (), dropped)
    commit = workspace.commit_step(
        order.head,
        changes,
        step=Step(f"hand/{order.gate_id}", when),
        message=f"By hand at gate {order.gate}\n",
        when=when,
        author=person.author.encode(),
    )

    def merge(head: str) -> str:
        message = f"Take in what was done by hand at gate {order.gate}\n"
        return (
            commit
            if head == order.head
            else workspace.absorb(head, commit, base=order.head, message=message, when=when).head
        )

    try:
        is_kept = record.end(facts, merge)
        why = "" if is_kept else f"its gate was decided meanwhile; the work is commit {commit}"
    except LEDGER_UNREACHABLE:
        is_kept, why = False, f"the ledger is away; the work is commit {commit}"
    except WriteConflictError as error:
        return record.refuse(facts, f"{error}; the work is commit {commit}")
    return ShellEnd(commit if is_kept else None, changed, dropped, why)


class ShellSettings(BaseModel):
    """The sections that a shell reads."""

    model_config = ConfigDict(frozen=True)

    ledger: LedgerConfig = LedgerConfig()
    accounts: AccountsConfig = AccountsConfig()
    policy: PolicyConfig = PolicyConfig()
    box: BoxConfig = BoxConfig()
    runs: RunsConfig = RunsConfig()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pointsman run shell")
    parser.add_argument("run", type=UUID)
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--as", dest="actor", required=True)
    parser.add_argument("--author", required=True)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Hold a shell and return the exit code: 0 its work is kept, 1 it is not, 2 it could not begin."""
    given = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    if not _ACTOR.fullmatch(given.actor) or not _AUTHOR.fullmatch(given.author):
        sys.stderr.write("pointsman run shell: --as: a name without spaces; --author: NAME <E-MAIL>\n")
        return 2
    logging.basicConfig(level=logging.ERROR)  # stderr is that person's terminal
    try:
        settings = read_settings(ShellSettings, os.environ)
        end = _hold(given, settings)
    except (LedgerError, PolicyError, SandboxError, SiteError) as error:
        sys.stderr.write(f"pointsman run shell: {error}\n")
        return 2
    except OperationalError as error:
        if not is_closed_error(error.orig):
            raise
        sys.stderr.write(f"pointsman run shell: {TENANT_CLOSED}; try again in the cell that has it\n")
        return 2
    sys.stdout.write(json.dumps(end._asdict()) + "\n" if given.json else _format(end))
    return 1 if end.refused else 0


def _hold(given: argparse.Namespace, settings: ShellSettings) -> ShellEnd:
    lifetime = given.minutes * 60
    config = settings.box.model_copy(update={"warm": 0, "lifetime_seconds": lifetime + 60})
    ledger = Ledger(create_ledger_engine(settings.ledger.url.get_secret_value(), pool_size=1))
    shells = Shells(ledger, load_policy(settings.policy.path), settings.runs, collect_secrets(settings))
    with closing(ledger), closing(open_engine(config)) as engine:
        maker = build_maker(config, engine)

        def attend(box: Any) -> bytes:
            sys.stderr.write(
                f"a box with the run's files, for {given.minutes} minutes; `exit` keeps what may be kept\n"
            )
            shown: bytes = box.attend(term=os.environ.get("TERM", "xterm"), stdin=0, stdout=1, seconds=lifetime)
            return shown

        return shells.hold(
            given.run,
            Person(given.actor, given.author),
            tenant=given.tenant,
            open_box=lambda services, image: maker.create(services, image=image),
            attend=attend,
            seconds=lifetime,
        )


def _format(end: ShellEnd) -> str:
    lines = [f"changed {path}" for path in end.changed]
    lines += [f"dropped {line}" for line in end.dropped]
    lines += [
        f"commit {end.commit} on the run's branch; the gate waits for somebody else" if end.commit else "no commit"
    ]
    return "\n".join([*lines, *([f"not kept: {end.refused}"] if end.refused else [])]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
