"""A forge and a tracker of the tests' own: as much of GitHub's REST API and of Linear's GraphQL as we use."""

import json
import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from urllib.parse import parse_qs, unquote

import jwt

from tests.http_server import Handler, served

TOKEN = "forge-token-of-the-tests-0123456789"


@dataclass
class Forge:
    """One server, for any number of repositories."""

    pulls: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    """Statuses that the next requests get."""
    asked: list[str] = field(default_factory=list)
    app: tuple[str, str] = ("", "")
    """Id and public key of the one App that is installed, in `a/shop` alone."""
    token_seconds: float = 3600.0
    """How long the App's tokens live."""
    granted: list[dict[str, Any]] = field(default_factory=list)
    teams: dict[str, str] = field(default_factory=lambda: {"issue-7": "ENG", "issue-8": "OPS"})
    """Linear's issues, and the keys of their teams."""
    url: str = ""

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.url = self._stack.enter_context(served(_handler_of(self)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def answer(self, method: str, path: str, body: dict[str, Any], *, authorization: str) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        self.asked.append(f"{method} {path}")
        if self.failures:
            return self.failures.pop(0), {"message": "something else is wrong"}
        if path == "/graphql":
            return self._linear(body, authorization)
        if path.endswith("/installation") or path == "/app/installations/77/access_tokens":
            return self._app(method, path, body, authorization)
        if authorization not in (f"token {TOKEN}", f"Bearer {TOKEN}"):
            return 401, {"message": "Bad credentials"}
        if found := re.fullmatch(r"/repos/([^/]+/[^/]+)/pulls", path):
            return self._pulls(method, found[1], body, query=query)
        if found := re.fullmatch(r"/repos/[^/]+/[^/]+/pulls/(\d+)", path):
            return 200, self.pulls[int(found[1]) - 1]
        if found := re.fullmatch(r"/repos/([^/]+/[^/]+)/issues/(\d+)(/comments)?", path):
            return self._issue(method, found[1], found[2], body)
        return 404, {"message": "Not Found"}

    def _app(self, method: str, path: str, body: dict[str, Any], authorization: str) -> tuple[int, Any]:
        name, public = self.app
        try:
            proof = jwt.decode(authorization.removeprefix("Bearer "), public, algorithms=["RS256"], issuer=name)
        except jwt.PyJWTError as error:
            return 401, {"message": f"A JSON web token could not be decoded: {error}"}
        assert proof["exp"] - proof["iat"] <= 600
        if method == "GET":
            return (200, {"id": 77}) if path == "/repos/a/shop/installation" else (404, {"message": "Not Found"})
        self.granted.append(body)
        ends = datetime.now(UTC) + timedelta(seconds=self.token_seconds)
        return 201, {"token": TOKEN, "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def _pulls(self, method: str, repository: str, body: dict[str, Any], *, query: str) -> tuple[int, Any]:
        if method == "GET":
            head = re.search(r"head=([^&]+)", query)
            wanted = head[1].replace("%3A", ":").replace("%2F", "/") if head else ""
            return 200, [pull for pull in self.pulls if pull["head"]["label"] == wanted and pull["state"] == "open"]
        number = len(self.pulls) + 1
        label = f"{repository.partition('/')[0]}:{body['head']}"
        if any(pull["head"]["label"] == label and pull["state"] == "open" for pull in self.pulls):
            return 422, {"message": f"A pull request already exists for {label}."}
        pull = {
            "number": number,
            "html_url": f"{self.url}/{repository}/pull/{number}",
            "state": "open",
            "url": f"{self.url}/repos/{repository}/pulls/{number}",
            "title": body["title"],
            "body": body["body"],
            "head": {"label": label, "ref": body["head"]},
            "base": {"ref": body["base"]},
            "draft": body.get("draft", False),
        }
        self.pulls.append(pull)
        return 201, pull

    def _issue(self, method: str, repository: str, number: str, body: dict[str, Any]) -> tuple[int, Any]:
        url = f"{self.url}/repos/{repository}/issues/{number}"
        about = f"{repository}#{number}"
        if method == "POST":
            comment = {"id": len(self.comments) + 1, "issue": about, "body": body["body"], "url": f"{url}/comments/1"}
            self.comments.append(comment)
            return 201, comment
        mine = [comment for comment in self.comments if comment["issue"] == about]
        return 200, mine

    def _linear(self, body: dict[str, Any], authorization: str) -> tuple[int, Any]:
        if authorization != TOKEN:
            return 401, {"errors": [{"message": "Authentication required"}]}
        variables = body["variables"]
        if variables.keys() == {"issue"}:
            if variables["issue"] not in self.teams:
                return 200, {"errors": [{"message": "Entity not found: Issue"}]}
            return 200, {"data": {"issue": {"team": {"key": self.teams[variables["issue"]]}}}}
        if any(comment["id"] == variables["id"] for comment in self.comments):
            return 200, {"errors": [{"message": f"Entity already exists: {variables['id']}"}]}
        self.comments.append({"id": variables["id"], "issue": variables["issue"], "body": variables["body"]})
        return 200, {"data": {"commentCreate": {"success": True}}}


@dataclass
class GitLab(Forge):
    """As much of GitLab's REST API, version 4, as we use; `levels` are access levels by user."""

    levels: dict[int, int] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: dict[str, Any], *, authorization: str) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        self.asked.append(f"{method} {path}")
        if self.failures:
            return self.failures.pop(0), {"message": "something else is wrong"}
        if authorization != TOKEN:
            return 401, {"message": "401 Unauthorized"}
        if not (found := re.fullmatch(r"/api/v4/projects/([^/]+)/(.+)", path)):
            return 404, {"error": "404 Not Found"}
        repository, place = unquote(found[1]), found[2]
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        if place == "merge_requests":
            return self._merge_requests(method, repository, body, asked)
        if found := re.fullmatch(r"merge_requests/(\d+)", place):
            return 200, self.pulls[int(found[1]) - 1]
        if found := re.fullmatch(r"members/all/(\d+)", place):
            level = self.levels.get(int(found[1]))
            known = {"id": int(found[1]), "access_level": level, "state": "active"}
            return (200, known) if level is not None else (404, {"message": "404 Not found"})
        if found := re.fullmatch(r"(issues|merge_requests)/(\d+)/notes", place):
            about = f"{repository}{'#' if found[1] == 'issues' else '!'}{found[2]}"
            return self._notes(method, about, body, asked)
        return 404, {"error": "404 Not Found"}

    def _merge_requests(
        self, method: str, repository: str, body: dict[str, Any], asked: dict[str, str]
    ) -> tuple[int, Any]:
        if method == "GET":
            return 200, [pull for pull in self.pulls if all(pull[name] == value for name, value in asked.items())]
        body = {"source_project_id": 1, "target_project_id": 1, **body}
        same = ("source_branch", "target_branch", "source_project_id")
        if any(pull["state"] == "opened" and all(pull[name] == body[name] for name in same) for pull in self.pulls):
            return 409, {"message": ["Another open merge request already exists for this source branch"]}
        iid = len(self.pulls) + 1
        made = {"iid": iid, "web_url": f"{self.url}/{repository}/-/merge_requests/{iid}", "state": "opened", **body}
        self.pulls.append(made)
        return 201, made

    def _notes(self, method: str, about: str, body: dict[str, Any], asked: dict[str, str]) -> tuple[int, Any]:
        if method == "POST":
            note = {"id": len(self.comments) + 1, "issue": about, "body": body["body"]}
            self.comments.append(note)
            return 201, note
        size, page = int(asked["per_page"]), int(asked["page"])
        mine = [note for note in self.comments if note["issue"] == about]
        mine = mine if asked.get("sort") == "asc" else mine[::-1]
        return 200, mine[size * (page - 1) : size * page]


def _handler_of(forge: Forge) -> type[Handler]:
    class Asked(Handler):
        def answer(self) -> None:
            body = json.loads(self.read_body() or b"{}")
            authorization = self.headers.get("authorization") or self.headers.get("private-token") or ""
            status, said = forge.answer(self.command, self.path, body, authorization=authorization)
            self.say(json.dumps(said).encode(), status=status)

    return Asked
