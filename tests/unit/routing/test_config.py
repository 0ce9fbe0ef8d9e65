"""The environment is read strictly: a misspelt name must not leave a default in force."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from routing.config import BrokerConfig, PolicyConfig, Section, read_settings, secrets_of
from routing.errors import PolicyError


class ApiLike(Section):
    port: int = 80
    names: tuple[str, ...] = ()
    nested: dict[str, dict[str, str]] = Field(default_factory=dict)


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True)

    broker: BrokerConfig = BrokerConfig()
    policy: PolicyConfig = PolicyConfig()
    api: ApiLike = ApiLike()


def test_what_is_not_set_has_its_default() -> None:
    assert read_settings(Settings, {"PATH": "/bin"}) == Settings()


def test_a_variable_sets_its_field() -> None:
    settings = read_settings(
        Settings,
        {
            "POINTSMAN_BROKER__URL": "redis://b:1/0",
            "POINTSMAN_API__PORT": "81",
            "POINTSMAN_API__NAMES": '["a", "b"]',
            "POINTSMAN_API__NESTED__ONE__KEY": "v",
            "POINTSMAN_POLICY__PATH": "/etc/p.yaml",
        },
    )
    assert settings.broker.url == "redis://b:1/0"
    assert settings.api == ApiLike(port=81, names=("a", "b"), nested={"one": {"key": "v"}})
    assert settings.policy.path == Path("/etc/p.yaml")


def test_an_empty_policy_path_means_the_shipped_policy() -> None:
    assert read_settings(Settings, {"POINTSMAN_POLICY__PATH": ""}).policy.path is None


def test_a_section_that_another_program_reads_is_passed_over() -> None:
    assert read_settings(Settings, {"POINTSMAN_GATEWAY__PORT": "x"}) == Settings()


@pytest.mark.parametrize(
    "environment",
    [
        {"POINTSMAN_BROKER__URI": "secretword"},
        {"POINTSMAN_BORKER__URL": "secretword"},
        {"POINTSMAN_BROKER_URL": "secretword"},
        {"POINTSMAN_URL": "secretword"},
        {"POINTSMAN_BROKER__": "secretword"},
        {"POINTSMAN_BROKER": "secretword"},
        {"POINTSMAN_BROKER__URL__HOST": "secretword"},
        {"POINTSMAN_API__PORT": "secretword"},
        {"POINTSMAN_API__NAMES": "[secretword"},
    ],
)
def test_a_wrong_name_or_value_is_refused_by_its_name_and_not_repeated(environment: dict[str, str]) -> None:
    with pytest.raises(PolicyError) as refused:
        read_settings(Settings, environment)
    assert next(iter(environment)).removesuffix("__HOST") in str(refused.value)
    assert "secretword" not in str(refused.value)


@pytest.mark.parametrize("names", [("URL", "URL__HOST"), ("URL__HOST", "URL")])
def test_two_variables_that_give_one_place_two_shapes_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(PolicyError, match="contradict"):
        read_settings(Settings, {f"POINTSMAN_BROKER__{name}": "x" for name in names})


class Held(BaseModel):
    key: SecretStr = SecretStr("")
    keys: tuple[SecretStr, ...] = ()
    url: str = ""
    ledger: SecretStr = SecretStr("")


class Holder(BaseModel):
    one: Held = Held()
    two: Held = Held()


@pytest.mark.threat("C9")
def test_the_secrets_of_a_program_are_its_secret_settings_and_the_passwords_in_its_urls() -> None:
    held = Holder(
        one=Held(key=SecretStr("first-key"), keys=(SecretStr("old"), SecretStr("new"))),
        two=Held(url="redis://user:pass%2Fword@host/0", ledger=SecretStr("postgresql://me:hunter2@host/db")),
    )
    assert set(secrets_of(held)) == {"first-key", "old", "new", "pass%2Fword", "pass/word", "hunter2"}
    assert secrets_of(Holder(one=Held(url="redis://host/0"))) == ()


def test_the_secrets_of_named_parts_are_found_too() -> None:
    class Named(BaseModel):
        parts: dict[str, Held]

    found = secrets_of(Named(parts={"a": Held(key="first-key"), "b": Held(url="redis://:hunter2@host/0")}))
    assert set(found) == {"first-key", "hunter2"}
