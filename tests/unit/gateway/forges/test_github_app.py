"""A GitHub App in place of a token: short-lived, for one repository, by a key that nobody else can read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gateway.errors import ForgeError
from gateway.forges import github_app
from gateway.forges.forge import forge_of
from gateway.forges.github_app import token_of
from routing.policy.agents import Account, AccountsConfig
from routing.policy.project import ProjectConfig
from sites.errors import RepositoryRefusedError
from tests.forge import TOKEN, Forge
from workers.runs.git.sync import Credentials, remote_of


def make_key(path: Path) -> str:
    """Write a private key, and return its public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(private)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return public.decode()


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    github_app._TOKENS.known.clear()  # another test's server may have had the same port


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    with Forge(app=("Iv23abc", make_key(tmp_path / "app.pem"))) as running:
        yield running


def account(forge: Forge, tmp_path: Path, **changes: object) -> Account:
    app = {"app_id": "Iv23abc", "app_key": tmp_path / "app.pem", "git_url": "https://forge.example/a/"}
    fields = {"kind": "github", "api_url": forge.url, **app}
    return Account.model_validate({**fields, **changes})


def test_an_app_opens_a_pull_request_with_one_token_for_that_repository(forge: Forge, tmp_path: Path) -> None:
    app = account(forge, tmp_path)
    made = forge_of(app).open_pull_request(repository="a/shop", branch="b", base="main", title="Fix", body="Done.")
    forge_of(app).check_open(repository="a/shop", number=made.number)
    (granted,) = forge.granted
    assert granted["repositories"] == ["shop"]
    assert granted["permissions"] == {"contents": "write", "pull_requests": "write", "issues": "write"}


@pytest.mark.parametrize(
    ("git_url", "repository"),
    [("https://forge.example/a/", "globex/shop"), ("https://forge.example/", "a/shop"), ("", "a/shop")],
)
def test_an_app_makes_no_token_for_a_repository_beyond_the_account_s_own(
    forge: Forge, tmp_path: Path, git_url: str, repository: str
) -> None:
    with pytest.raises(ForgeError, match="GIT_URL"):
        token_of(account(forge, tmp_path, git_url=git_url), repository)
    assert forge.granted == []


def test_a_token_that_soon_ends_is_replaced(forge: Forge, tmp_path: Path) -> None:
    forge.token_seconds = 200
    for _ in range(2):
        assert token_of(account(forge, tmp_path), "a/shop") == TOKEN
    assert len(forge.granted) == 2


def test_git_uses_the_token_of_the_app_too(forge: Forge, tmp_path: Path) -> None:
    app = account(forge, tmp_path, git_url="https://forge.example/a/", tenants=("acme",))

    def remote(name: str) -> object:
        project = {"repo": {"url": f"https://forge.example/a/{name}.git", "account": "app"}}
        accounts = AccountsConfig(by_name={"app": app})
        config = ProjectConfig.model_validate({**project, "stack": {"language": "typescript"}})
        return remote_of(config, accounts, tenant="acme").credentials()

    assert remote("shop") == Credentials("x-access-token", TOKEN)
    with pytest.raises(RepositoryRefusedError, match="not installed there"):
        remote("other")


def test_a_key_that_is_wrong_or_open_to_others_is_refused_and_not_shown(forge: Forge, tmp_path: Path) -> None:
    make_key(tmp_path / "other.pem")
    (tmp_path / "text.pem").touch(mode=0o600)
    (tmp_path / "text.pem").write_text("no key")
    (tmp_path / "app.pem").chmod(0o644)
    wanted = {
        "app.pem": "chmod 600",
        "other.pem": "401",
        "text.pem": "is no private key",
        "absent.pem": "cannot be read",
    }
    for name, said in wanted.items():
        with pytest.raises(ForgeError, match=said) as caught:
            token_of(account(forge, tmp_path, app_key=tmp_path / name), "a/shop")
        assert not caught.value.is_passing
        assert "PRIVATE KEY" not in str(caught.value)


def test_a_forge_that_is_away_is_asked_again(tmp_path: Path) -> None:
    with Forge(app=("Iv23abc", make_key(tmp_path / "app.pem"))) as gone:
        app = account(gone, tmp_path)
    with pytest.raises(ForgeError, match="cannot be reached") as caught:
        token_of(app, "a/shop")
    assert caught.value.is_passing
