"""What a project may take of the operator's services."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from routing.errors import ProjectConfigError
from routing.policy.platform import platform_policy
from routing.policy.project import ProjectConfig, read_project
from routing.policy.services import OfferedService, services_of

POLICY = platform_policy()
LEAST = {"repo": {"url": "https://forge.example/acme/shop.git"}, "stack": {"language": "python"}}


def read(services: Any) -> ProjectConfig:
    return read_project(yaml.safe_dump({**LEAST, "services": services}), source="project.yaml", policy=POLICY)


def test_a_project_names_an_offer_and_says_how_it_uses_it() -> None:
    config = read({"db": {"image": "postgresql", "env": {"POSTGRES_DB": "shop"}, "ready": "pg_isready"}})
    (service,) = services_of(config.services, POLICY.runs.services)
    assert (service.name, service.image, service.port, service.ready) == ("db", "postgres:16", 5432, "pg_isready")
    assert service.env == {"POSTGRES_HOST_AUTH_METHOD": "trust", "POSTGRES_DB": "shop"}
    assert service.title == "service db (postgresql)"


@pytest.mark.parametrize(
    ("services", "said"),
    [
        ({"db": {"image": "evil"}}, "services.db.image: must be the name of an offer"),
        ({"db": {"image": "postgres:16"}}, "services.db.image: "),
        ({"egress": {"image": "redis"}}, "is a name that every box has already"),
        ({"Db": {"image": "redis"}}, "services.Db: "),
        ({"db": {"image": "redis", "data": ["/x"]}}, "services.db: has an unknown field"),
        ({"db": {"image": "redis", "env": {"A": "b\nc"}}}, "services.db.env.A: "),
        ({"db": {"image": "redis", "port": 0}}, "services.db.port: "),
        ({name: {"image": "redis"} for name in "abcd"}, "services: "),
        ({"db": {"image": "redis", "env": {"TOKEN": "ghp_" + "a" * 36}}}, "looks like a key"),
    ],
)
def test_what_is_not_offered_or_breaks_a_rule_is_refused_with_its_place(services: Any, said: str) -> None:
    with pytest.raises(ProjectConfigError) as caught:
        read(services)
    assert said in str(caught.value)


@pytest.mark.parametrize("data", ["data", "/", "/data/../etc", "/a b"])
def test_an_offer_s_data_are_plain_directories(data: str) -> None:
    with pytest.raises(ValidationError):
        OfferedService(image="redis:7", port=1, data=(data,))
