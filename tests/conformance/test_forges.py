"""What a run asks of a forge, asked of each: real HTTP servers that speak as GitHub and GitLab document it."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from pydantic import SecretStr

from gateway.forges.forge import ForgeError, check_covered, forge_of, write_to_ticket
from gateway.forges.gitlab import GitLabForge
from routing.policy.agents import Account
from routing.policy.integrations import GitHub, GitLab
from tests.forge import TOKEN, Forge
from tests.forge import GitLab as GitLabServer

ASKED = {"repository": "a/shop", "branch": "pointsman/12", "base": "main", "title": "Fix the total", "body": "Done."}


@dataclass
class Place:
    """A forge, and how a pull request looks there."""

    server: Forge
    settings: GitHub | GitLab
    address: str
    head: str
    base: str
    closed: str = "closed"
    git_url: str = "https://forge.example/a/"

    def account(self, token: str = TOKEN) -> Account:
        return Account(kind=self.settings.kind, api_url=self.server.url, token=SecretStr(token), git_url=self.git_url)

    def open(self, *, is_draft: bool = False) -> tuple[int, str]:
        return forge_of(self.account()).open_pull_request(**ASKED, is_draft=is_draft)


@pytest.fixture(params=["github", "gitlab"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    named = {"repository": "a/shop", "token": "acme"}
    if request.param == "github":
        with Forge() as server:
            yield Place(server, GitHub.model_validate(named), "/a/shop/pull/1", "head", "base")
    else:
        with GitLabServer() as server:
            address = "/a/shop/-/merge_requests/1"
            yield Place(server, GitLab.model_validate(named), address, "source_branch", "target_branch")


@pytest.mark.req("S-029")
def test_a_pull_request_is_opened_once_however_often_it_is_asked_for(place: Place) -> None:
    first, second = place.open(), place.open()
    assert first == second == (1, f"{place.server.url}{place.address}")
    (pull,) = place.server.pulls
    head, base = pull[place.head], pull[place.base]
    assert (head["ref"] if isinstance(head, dict) else head) == "pointsman/12"
    assert (base["ref"] if isinstance(base, dict) else base) == "main"
    assert pull["title"] == "Fix the total"
    assert "Done." in (pull.get("body"), pull.get("description"))


def test_a_draft_says_that_it_is_one(place: Place) -> None:
    place.open(is_draft=True)
    (pull,) = place.server.pulls
    assert pull.get("draft") or pull["title"].startswith("Draft: ")


def test_a_pull_request_that_was_closed_takes_no_commits_and_is_opened_anew(place: Place) -> None:
    place.open()
    forge_of(place.account()).check_open(repository="a/shop", number=1)
    place.server.pulls[0]["state"] = place.closed
    with pytest.raises(ForgeError, match="merged or closed") as caught:
        forge_of(place.account()).check_open(repository="a/shop", number=1)
    assert not caught.value.is_passing
    assert place.open()[0] == 2


@pytest.mark.parametrize(("status", "is_passing"), [(500, True), (502, True), (429, True), (404, False), (422, False)])
def test_a_forge_that_does_not_do_it_says_whether_to_try_again(place: Place, status: int, is_passing: bool) -> None:
    place.server.failures = [status]
    with pytest.raises(ForgeError, match=str(status)) as caught:
        place.open()
    assert caught.value.is_passing is is_passing


def test_a_wrong_token_is_no_passing_trouble_and_is_not_repeated(place: Place) -> None:
    with pytest.raises(ForgeError, match="401") as caught:
        forge_of(place.account("wrong-token-of-a-project")).open_pull_request(**ASKED)
    assert not caught.value.is_passing
    assert "wrong-token" not in str(caught.value)


def test_a_forge_that_is_away_is_tried_again(place: Place) -> None:
    account = place.account()
    with Forge() as gone:
        account = account.model_copy(update={"api_url": gone.url})
    with pytest.raises(ForgeError, match="cannot be reached") as caught:
        forge_of(account).open_pull_request(**ASKED)
    assert caught.value.is_passing


@pytest.mark.req("S-030")
def test_tickets_and_pull_requests_are_written_to_once_for_each_mark(place: Place) -> None:
    mark, other = uuid4(), uuid4()
    references = ["a/shop#12", place.settings.reference_of(12)]
    for reference in dict.fromkeys(references):
        before = len(place.server.comments)
        for each in (mark, mark, other):
            write_to_ticket(place.account(), reference=reference, text="A pull request is open.", mark=each)
        assert [comment["issue"] for comment in place.server.comments[before:]] == [reference, reference]
        assert place.server.comments[-1]["body"].startswith("A pull request is open.")


def test_a_ticket_with_very_many_comments_still_hears_of_it(place: Place) -> None:
    place.server.comments = [{"id": n, "issue": "a/shop#12", "body": "me too", "url": "x"} for n in range(400)]
    mark = uuid4()
    for _ in range(2):  # the second time as if the first answer was lost
        write_to_ticket(place.account(), reference="a/shop#12", text="A pull request is open.", mark=mark)
        assert place.server.comments[-1]["body"].startswith("A pull request is open.")
    assert len(place.server.comments) == 401


@pytest.mark.parametrize("reference", ["a/shop", "a/shop#x", "ENG-12", ""])
def test_what_is_no_issue_is_refused_before_anything_is_asked(place: Place, reference: str) -> None:
    with pytest.raises(ForgeError, match="is no issue of a forge"):
        write_to_ticket(place.account(), reference=reference, text="x", mark=uuid4())
    assert place.server.asked == []


OUTSIDE = {
    "another's": "https://forge.example/b/",
    "a longer name": "https://forge.example/a/shop-2/",
    "ssh": "ssh://forge.example/ab/",
    "none at all": "",
}


@pytest.mark.threat("D7")
@pytest.mark.parametrize("git_url", OUTSIDE.values(), ids=OUTSIDE)
def test_an_account_s_token_is_for_the_repositories_below_its_git_url_alone(place: Place, git_url: str) -> None:
    place.git_url = git_url
    number, reference = 1, place.settings.reference_of(1)
    for ask in (
        place.open,
        lambda: forge_of(place.account()).check_open(repository="a/shop", number=number),
        lambda: write_to_ticket(place.account(), reference=reference, text="x", mark=uuid4()),
    ):
        with pytest.raises(ForgeError, match="below its GIT_URL") as caught:
            ask()
        assert not caught.value.is_passing
    assert place.server.asked == []


@pytest.mark.parametrize("git_url", ["https://forge.example/", "ssh://forge.example/a/", "https://forge.example/a/"])
def test_what_lies_below_the_git_url_is_open_to_the_account(place: Place, git_url: str) -> None:
    place.git_url = git_url
    assert place.open()[0] == 1


def test_dots_lead_to_no_other_repository(place: Place) -> None:
    with pytest.raises(ForgeError, match="below its GIT_URL"):
        write_to_ticket(place.account(), reference="a/../b/shop#1", text="x", mark=uuid4())


def test_a_gitlab_below_a_path_has_its_groups_below_it() -> None:
    account = Account(kind="gitlab", api_url="https://x.example/gitlab", git_url="https://x.example/gitlab/a/")
    check_covered(account, "a/shop")
    with pytest.raises(ForgeError, match="below its GIT_URL"):
        check_covered(account, "b/shop")


def test_a_fork_s_merge_request_from_a_branch_of_that_name_is_not_taken_for_ours() -> None:
    with GitLabServer() as server:
        branches = {"source_branch": ASKED["branch"], "target_branch": ASKED["base"]}
        fork = {"iid": 1, "web_url": "x", "state": "opened", "source_project_id": 2, "target_project_id": 1, **branches}
        server.pulls.append(fork)
        forge = GitLabForge(
            Account(kind="gitlab", api_url=server.url, token=SecretStr(TOKEN), git_url="https://x.example/a/")
        )
        assert [forge.open_pull_request(**ASKED).number for _ in range(2)] == [2, 2]


def test_an_account_of_another_kind_opens_no_pull_request() -> None:
    with pytest.raises(ForgeError, match="of kind github or gitlab"):
        forge_of(Account(kind="git"))


def test_only_who_may_push_is_heard_at_gitlab() -> None:
    with GitLabServer(levels={1: 50, 2: 30, 3: 20}) as server:
        forge = GitLabForge(
            Account(kind="gitlab", api_url=server.url, token=SecretStr(TOKEN), git_url="https://x.example/a/")
        )
        heard = {user: forge.may_write(repository="a/b/shop", user_id=user) for user in (1, 2, 3, 4)}
    assert heard == {1: True, 2: True, 3: False, 4: False}
    assert server.asked[0] == "GET /api/v4/projects/a%2Fb%2Fshop/members/all/1"
