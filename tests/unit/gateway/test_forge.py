"""Pull requests and comments at a real HTTP server that speaks as forges and trackers do."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from pydantic import SecretStr

from gateway.forge import ForgeError, open_pull_request, write_to_ticket
from routing.policy.agents import Account, AccountsConfig
from tests.forge import TOKEN, Forge


@pytest.fixture
def forge() -> Iterator[Forge]:
    with Forge() as running:
        yield running


def github(forge: Forge, token: str = TOKEN) -> Account:
    return Account(kind="github", api_url=forge.url, token=SecretStr(token))


def linear(forge: Forge, token: str = TOKEN) -> Account:
    return Account(kind="linear", api_url=f"{forge.url}/graphql", token=SecretStr(token))


ASKED = {"repository": "a/shop", "branch": "pointsman/12", "base": "main", "title": "Fix the total", "body": "Done."}


@pytest.mark.req("S-029")
def test_a_pull_request_is_opened_once_however_often_it_is_asked_for(forge: Forge) -> None:
    first = open_pull_request(github(forge), **ASKED)
    second = open_pull_request(github(forge), **ASKED)
    assert first == second == (1, f"{forge.url}/a/shop/pull/1")
    assert [(pull["head"]["ref"], pull["base"]["ref"], pull["title"]) for pull in forge.pulls] == [
        ("pointsman/12", "main", "Fix the total")
    ]


def test_a_pull_request_that_was_closed_is_opened_anew(forge: Forge) -> None:
    open_pull_request(github(forge), **ASKED)
    forge.pulls[0]["state"] = "closed"
    assert open_pull_request(github(forge), **ASKED).number == 2


@pytest.mark.parametrize(("status", "is_passing"), [(500, True), (502, True), (429, True), (404, False), (422, False)])
def test_a_forge_that_does_not_do_it_says_whether_to_try_again(forge: Forge, status: int, is_passing: bool) -> None:
    forge.failures = [status]
    with pytest.raises(ForgeError, match=str(status)) as caught:
        open_pull_request(github(forge), **ASKED)
    assert caught.value.is_passing is is_passing


def test_a_wrong_token_is_no_passing_trouble_and_is_not_repeated(forge: Forge) -> None:
    with pytest.raises(ForgeError, match="401") as caught:
        open_pull_request(github(forge, "wrong-token-of-a-project"), **ASKED)
    assert not caught.value.is_passing
    assert "wrong-token" not in str(caught.value)


def test_a_forge_that_is_away_is_tried_again() -> None:
    with Forge() as gone:
        account = github(gone)
    with pytest.raises(ForgeError, match="cannot be reached") as caught:
        open_pull_request(account, **ASKED)
    assert caught.value.is_passing


@pytest.mark.req("S-030")
def test_a_ticket_is_written_to_once_for_each_mark(forge: Forge) -> None:
    mark, other = uuid4(), uuid4()
    for each in (mark, mark, other):
        write_to_ticket(github(forge), reference="a/shop#12", text="A pull request is open.", mark=each)
    assert [comment["issue"] for comment in forge.comments] == ["a/shop#12", "a/shop#12"]
    assert forge.comments[0]["body"].startswith("A pull request is open.")


def test_a_ticket_with_very_many_comments_still_hears_of_it(forge: Forge) -> None:
    forge.comments = [{"id": number, "issue": "a/shop#12", "body": "me too", "url": "x"} for number in range(400)]
    write_to_ticket(github(forge), reference="a/shop#12", text="A pull request is open.", mark=uuid4())
    assert forge.comments[-1]["body"].startswith("A pull request is open.")


def test_a_ticket_of_linear_is_written_to_once_for_each_mark(forge: Forge) -> None:
    mark, other = uuid4(), uuid4()
    for each in (mark, mark, other):
        write_to_ticket(linear(forge), reference="issue-7", text="A pull request is open.", mark=each)
    assert [comment["issue"] for comment in forge.comments] == ["issue-7", "issue-7"]


@pytest.mark.parametrize("reference", ["a/shop", "a/shop#x", ""])
def test_what_is_no_issue_is_refused_before_anything_is_asked(forge: Forge, reference: str) -> None:
    with pytest.raises(ForgeError, match="not a GitHub issue"):
        write_to_ticket(github(forge), reference=reference, text="x", mark=uuid4())
    assert forge.asked == []


def test_a_tracker_that_refuses_says_why(forge: Forge) -> None:
    with pytest.raises(ForgeError, match="not found") as caught:
        write_to_ticket(linear(forge), reference="nothing", text="x", mark=uuid4())
    assert not caught.value.is_passing
    with pytest.raises(ForgeError, match="401"):
        write_to_ticket(linear(forge, "wrong"), reference="issue-7", text="x", mark=uuid4())


def test_an_account_is_found_by_its_own_tenants_alone() -> None:
    accounts = AccountsConfig(by_name={"acme": Account(kind="github", tenants=("acme",))})
    assert accounts.find("ACME", tenant="acme") is not None
    assert accounts.find("acme", tenant="other") is None
    assert accounts.find("other", tenant="acme") is None
