"""Services and install scripts proposed from a repository: comments until a person lets them count."""

import json
from typing import Any

import pytest
import yaml

from routing.policy.platform import platform_policy
from routing.policy.project import parse_project
from routing.policy.project_proposal import proposal_text, propose
from routing.policy.service_proposal import Found, find_needs

POLICY = platform_policy()
COMPOSE = """
services:
  web: {build: .}
  db:
    image: docker.io/library/postgres:15-alpine@sha256:00
    environment: {POSTGRES_DB: shop, POSTGRES_PASSWORD: hunter22, POSTGRES_USER: $OWNER}
  queue: {image: "redis:7"}
  mail: {image: mailhog/mailhog}
"""


def found(**files: str) -> Found:
    names = {"compose": "compose.yaml", "variables": ".env.example", "package": "package.json"}
    names["lock"] = "package-lock.json"
    return find_needs({names[name]: text for name, text in files.items()}, POLICY.runs.services)


def test_services_of_a_compose_file_are_proposed_as_far_as_they_are_offered_and_no_password_is_copied() -> None:
    assert found(compose=COMPOSE) == Found(
        services={"db": {"image": "postgresql", "env": {"POSTGRES_DB": "shop"}}, "queue": {"image": "redis"}},
        scripts=(),
        notes=("service 'mail' of the compose file ('mailhog') is not offered here by that name",),
    )


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("DATABASE_URL=postgresql+psycopg://u:p@localhost/shop\n", {"db": {"image": "postgresql"}}),
        ("export REDIS_URL=x\nPGHOST=y\n", {"db": {"image": "postgresql"}, "cache": {"image": "redis"}}),
        ("# POSTGRES_DB=\nNAME=redis\n", {}),
    ],
)
def test_without_a_compose_file_the_names_of_variables_show_what_is_needed(text: str, hosts: dict[str, Any]) -> None:
    assert found(variables=text).services == hosts
    assert found(variables=text, compose=COMPOSE).services.keys() == {"db", "queue"}


def test_install_scripts_are_those_of_the_lock_or_of_packages_known_for_them() -> None:
    packages = {"": {}, "node_modules/a": {"hasInstallScript": True}, "node_modules/b": {}}
    packages["node_modules/b/node_modules/@c/d"] = {"hasInstallScript": True}
    declared = json.dumps(
        {"dependencies": {"sharp": "1", "left": "2"}, "pnpm": {"onlyBuiltDependencies": ["e", "../f"]}}
    )
    assert found(package=declared, lock=json.dumps({"packages": packages})).scripts == ("@c/d", "a", "e")
    assert found(package=declared).scripts == ("e", "sharp")


@pytest.mark.parametrize(
    "text", ["[", "services: [1]", "services: {db: postgres}", "- a", "services: {1: {image: [2]}}"]
)
def test_what_cannot_be_read_proposes_nothing(text: str) -> None:
    assert found(compose=text, package=text, lock=text).services == {}


def test_nothing_that_is_proposed_counts_before_a_person_removes_the_mark() -> None:
    files = {
        "compose.yaml": COMPOSE,
        "package.json": json.dumps({"scripts": {"test": "node --test"}, "dependencies": {"esbuild": "1"}}),
    }
    proposal = propose(files, [*files, "src/a.ts"], POLICY)
    text = proposal_text(proposal, url="https://forge.example/acme/shop.git", branch="main", tried={})
    silent, _ = parse_project(text, source="x")
    assert (dict(silent.services), silent.commands.scripts) == ({}, ())

    lines = [
        line.replace("# ", "", 1) if "scripts:" in line or line.startswith("#   ") else line
        for line in text.splitlines()
    ]
    allowed = "\n".join("services:" if line == "# services:" else line for line in lines)
    assert yaml.safe_load(allowed)["services"]["queue"] == {"image": "redis"}
    project, _ = parse_project(allowed, source="x")
    assert set(project.services) == {"db", "queue"}
    assert project.commands.scripts == ("esbuild",)
