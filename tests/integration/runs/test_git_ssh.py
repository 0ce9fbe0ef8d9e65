"""Projects by ssh: a real sshd, a deploy key of the operator's, and no server that nobody has pinned."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from dulwich.repo import Repo

from gateway.forges.deploy_keys import deploy_key
from ledger.runs.tables import Project
from producers.doctor import Verdict, check_deploy_keys
from routing.jobs import State
from routing.policy.agents import Account, AccountsConfig
from routing.policy.project import ProjectConfig
from sites.errors import RepositoryRefusedError
from sites.repository.workspace import Step
from tests.factories import Shop
from tests.integration.runs.run_world import Yard
from tests.services import wait_until
from tests.sshd import Sshd, make_key, needs_sshd
from tests.unit.workers.runs.git.test_sync import FILES, workspace_in
from tests.unit.workers.runs.repositories import files_of, make_project
from workers.errors import RemoteError
from workers.runs.git.sync import Remote, RemoteRules, create_workspace, push, remote_of, remote_rules

pytestmark = needs_sshd
LOCAL = RemoteRules(schemes={"ssh"}, private_addresses=True, seconds=10)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    make_project(tmp_path / "shop's.git", FILES, commits=3)
    return tmp_path / "shop's.git"


def account_of(sshd: Sshd, **changes: object) -> Account:
    fields = {
        "kind": "git",
        "ssh_key": sshd.client,
        "known_hosts": sshd.known_hosts,
        "username": sshd.user,
        "git_url": f"{sshd.base_url}/",
        "tenants": ("acme",),
    }
    return Account.model_validate({**fields, **changes})


def remote(sshd: Sshd, bare: Path, **changes: object) -> Remote:
    key = deploy_key("acme-deploy", account_of(sshd, **changes))
    return Remote(url=f"{sshd.base_url}{bare}", branch="main", credentials=lambda: key)


def refusal(sshd: Sshd, bare: Path, tmp_path: Path, **changes: object) -> RepositoryRefusedError:
    with pytest.raises(RepositoryRefusedError) as refused:
        create_workspace(workspace_in(tmp_path), remote(sshd, bare, **changes), LOCAL)
    assert list((tmp_path / "runs").iterdir()) == []
    assert "PRIVATE KEY" not in str(refused.value)
    return refused.value


def test_a_project_is_cloned_and_pushed_to_by_ssh(sshd: Sshd, bare: Path, tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path)
    base = create_workspace(workspace, remote(sshd, bare), LOCAL)
    assert workspace.read(base).files == FILES
    commit = workspace.commit_step(base, {"new.ts": b"new\n"}, step=Step("dev", 1), message="m", when=5)
    squashed = workspace.squash(base, commit, message="New", when=6)
    for _ in range(2):
        push(workspace, squashed, branch="pointsman/1", remote=remote(sshd, bare), rules=LOCAL)
    assert files_of(bare, squashed) == {**FILES, "new.ts": b"new\n"}
    with closing(Repo(str(bare))) as repository:
        assert repository.refs[b"refs/heads/pointsman/1"].decode() == squashed


class SshYard(Yard):
    """A project that is reached by ssh alone."""

    def _fetch(self, run_id: object) -> str:
        with self.shop.ledger.begin() as session:
            found = ProjectConfig.model_validate(session.get_one(Project, self.run(run_id).project_id).config)  # type: ignore[arg-type]
        place = remote_of(found, self.resources.accounts, tenant="acme")
        rules = remote_rules(self.resources.runs, self.resources.policy.runs, seconds=10)
        return create_workspace(self.workspace(run_id), place, rules)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_ticket_becomes_a_branch_of_a_repository_by_ssh(shop: Shop, sshd: Sshd, tmp_path: Path) -> None:
    url = f"ssh://git@127.0.0.1:{sshd.port}{tmp_path}/remotes/shop.git"
    project = f'repo: {{url: "{url}", account: acme-deploy}}\nstack: {{language: typescript, frontend: react}}\n'
    yard = SshYard(shop, tmp_path, project=project)
    accounts = AccountsConfig(by_name={"acme-deploy": account_of(sshd)})
    runs = yard.resources.runs.model_copy(update={"private_remotes": True, "files_below": None})
    yard.resources = replace(yard.resources, accounts=accounts, runs=runs)
    job = yard.play(yard.submit("Fix the broken header"))
    assert job.state == State.PUBLISHED, job.detail
    with closing(Repo(str(tmp_path / "remotes" / "shop.git"))) as repository:
        assert repository.refs[f"refs/heads/{job.result['branch']}".encode()].decode() == job.result["commit"]


def test_a_server_that_nobody_has_pinned_is_not_trusted_and_the_error_says_how_to_pin_it(
    sshd: Sshd, bare: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    error = refusal(sshd, bare, tmp_path, known_hosts=empty)
    assert error.reason == "host_key"
    assert f"127.0.0.1 (port {sshd.port}) is not pinned" in str(error)
    assert f"`ssh-keyscan -p {sshd.port} 127.0.0.1`" in str(error)
    assert empty.read_bytes() == b"", "nothing was learned from the server itself"


def test_a_server_with_another_key_than_the_pinned_one_gets_nothing(sshd: Sshd, bare: Path, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    pinned = tmp_path / "known_hosts"
    words = Path(f"{other}.pub").read_text().split()
    pinned.write_text(f"[127.0.0.1]:{sshd.port} {words[0]} {words[1]}\n")
    error = refusal(sshd, bare, tmp_path, known_hosts=pinned)
    assert error.reason == "host_key"
    assert "shows another host key" in str(error)


def test_a_key_that_the_server_does_not_know_or_others_may_read_is_refused(
    sshd: Sshd, bare: Path, tmp_path: Path
) -> None:
    stranger = make_key(tmp_path / "stranger")
    error = refusal(sshd, bare, tmp_path, ssh_key=stranger)
    assert error.reason == "credentials"
    assert "does not accept the deploy key of account 'acme-deploy'" in str(error)
    stranger.chmod(0o640)
    assert "run chmod 600" in str(refusal(sshd, bare, tmp_path, ssh_key=stranger))
    assert "cannot be read" in str(refusal(sshd, bare, tmp_path, ssh_key=tmp_path / "absent"))
    stranger.chmod(0o600)
    pinned = tmp_path / "pinned"
    pinned.write_text("")
    pinned.chmod(0o666)
    assert "others on this machine may write" in str(refusal(sshd, bare, tmp_path, known_hosts=pinned))


def test_a_remote_by_ssh_has_no_more_time_and_bytes_than_one_by_https(sshd: Sshd, bare: Path, tmp_path: Path) -> None:
    with pytest.raises(RepositoryRefusedError, match="pack_too_large"):
        create_workspace(workspace_in(tmp_path), remote(sshd, bare), replace(LOCAL, answer_bytes=200))
    with pytest.raises(RemoteError, match="not public"):
        create_workspace(workspace_in(tmp_path), remote(sshd, bare), replace(LOCAL, private_addresses=False))
    assert not [child for child in psutil.Process().children() if child.name() == "ssh"]


def test_a_silent_server_is_left_in_time_and_the_key_is_in_no_argument_or_variable(
    sshd: Sshd, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent-of-the-tests")
    key = deploy_key("acme-deploy", account_of(sshd))
    seen: list[tuple[str, str]] = []

    def look() -> None:
        found = wait_until(
            lambda: [child for child in psutil.Process().children() if child.name() == "ssh"],
            seconds=5,
            what="the client runs",
        )
        seen.append((" ".join(found[0].cmdline()), str(found[0].environ())))

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ssh://git@127.0.0.1:{silent.getsockname()[1]}{bare}"
        place = Remote(url=url, branch="main", credentials=lambda: key)
        looking = threading.Thread(target=look)
        looking.start()
        with pytest.raises(RemoteError, match="took too long"):
            create_workspace(workspace_in(tmp_path), place, replace(LOCAL, seconds=1))
        looking.join()
    ((arguments, environment),) = seen
    secret = sshd.client.read_text().splitlines()[2]
    assert secret not in arguments + environment
    assert "SSH_AUTH_SOCK" not in environment
    assert "StrictHostKeyChecking" in arguments
    assert not [child for child in psutil.Process().children() if child.name() == "ssh"]


def test_the_doctor_looks_at_deploy_keys(sshd: Sshd, tmp_path: Path) -> None:
    (good,) = check_deploy_keys(AccountsConfig(by_name={"acme": account_of(sshd)}))
    assert good.verdict is Verdict.OK
    locked = tmp_path / "locked"
    os.spawnlp(os.P_WAIT, "ssh-keygen", "ssh-keygen", "-q", "-t", "ed25519", "-N", "phrase", "-f", str(locked))
    broken = {
        "passphrase": account_of(sshd, ssh_key=locked),
        "pinned": account_of(sshd, git_url="ssh://forge.example/acme/"),
        "git_url": account_of(sshd, git_url=""),
        "known_hosts": account_of(sshd, known_hosts=None),
        "cannot be read": account_of(sshd, ssh_key=tmp_path / "absent"),
        "belong together": Account(kind="github", app_id="Iv23abc"),
        "chmod 600": Account(kind="github", app_id="Iv23abc", app_key=sshd.home / "config"),
    }
    for rule, account in broken.items():
        (found,) = check_deploy_keys(AccountsConfig(by_name={"acme": account}))
        assert found.verdict is Verdict.FAIL, rule
        assert rule in found.line
    assert [*check_deploy_keys(AccountsConfig(by_name={"x": Account(kind="github")}))] == []


def test_an_account_without_a_key_is_told_by_its_host() -> None:
    with pytest.raises(RepositoryRefusedError, match=r"no account here has a deploy key for ssh to forge\.example"):
        create_workspace(workspace_in(Path("/nonexistent")), Remote(url="git@forge.example:acme/shop"), LOCAL)
