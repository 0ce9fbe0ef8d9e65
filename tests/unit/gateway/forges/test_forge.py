"""Comments at a real HTTP server that speaks as trackers do; both forges are asked in tests/conformance."""

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pydantic import SecretStr

from gateway.forges.forge import ForgeError, neutralise, write_to_ticket
from routing.policy.agents import Account, AccountsConfig
from tests.forge import TOKEN, Forge


@pytest.fixture
def forge() -> Iterator[Forge]:
    with Forge() as running:
        yield running


def github(forge: Forge, token: str = TOKEN) -> Account:
    return Account(kind="github", api_url=forge.url, token=SecretStr(token), git_url="https://forge.example/a/")


def linear(forge: Forge, token: str = TOKEN) -> Account:
    return Account(kind="linear", api_url=f"{forge.url}/graphql", token=SecretStr(token))


def test_a_ticket_of_linear_is_written_to_once_for_each_mark(forge: Forge) -> None:
    mark, other = uuid4(), uuid4()
    for each in (mark, mark, other):
        write_to_ticket(linear(forge), reference="issue-7", text="A pull request is open.", mark=each, team="ENG")
    assert [comment["issue"] for comment in forge.comments] == ["issue-7", "issue-7"]


def test_a_tracker_that_refuses_says_why(forge: Forge) -> None:
    with pytest.raises(ForgeError, match="not found") as caught:
        write_to_ticket(linear(forge), reference="nothing", text="x", mark=uuid4())
    assert not caught.value.is_passing
    with pytest.raises(ForgeError, match="401"):
        write_to_ticket(linear(forge, "wrong"), reference="issue-7", text="x", mark=uuid4(), team="ENG")


def test_a_redirect_is_told_as_such_and_counts_for_no_answer(forge: Forge) -> None:
    forge.failures.append(302)
    with pytest.raises(ForgeError, match="the tracker answered 302"):
        write_to_ticket(linear(forge), reference="issue-7", text="x", mark=uuid4(), team="ENG")
    assert forge.comments == []


@pytest.mark.parametrize("team", ["ENG", ""])
def test_only_an_issue_of_the_project_s_team_is_written_to(forge: Forge, team: str) -> None:
    with pytest.raises(ForgeError, match="not of the project's team") as caught:
        write_to_ticket(linear(forge), reference="issue-8", text="x", mark=uuid4(), team=team)
    assert (caught.value.is_passing, forge.comments) == (False, [])


def test_an_account_is_found_by_its_own_tenants_alone() -> None:
    accounts = AccountsConfig(by_name={"acme": Account(kind="github", tenants=("acme",))})
    assert accounts.find("ACME", tenant="acme") is not None
    assert accounts.find("acme", tenant="other") is None
    assert accounts.find("other", tenant="acme") is None


@pytest.mark.parametrize(
    "text",
    [
        "/merge",
        "fine\n  /close",
        "Closes https://gitlab.example/a/b/-/issues/7",
        "Fixes a/b#7",
        "@all",
        "![x](y)",
        "Fixes GH-12",
    ],
)
def test_a_text_of_others_commands_nothing_at_a_forge(text: str) -> None:
    safe = neutralise(text)
    assert safe != text
    assert safe.replace("\u2060", "") == text.strip()
    assert not re.search(r"^\s*/\w|issues/\d|#\d|GH-\d|@\w|!\[", safe, re.MULTILINE)
