"""The environment is read strictly: a misspelt name must not leave a default in force."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from routing.config import (
    BrokerConfig,
    PolicyConfig,
    Section,
    collect_secrets,
    read_settings,
    split_password,
    with_password,
)
from routing.errors import PolicyError
from routing.redaction import HIDDEN, MARKED, may_hide


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


def test_a_value_may_stand_in_a_file_and_its_line_end_is_no_part_of_it(tmp_path: Path) -> None:
    url, names = tmp_path / "url", tmp_path / "names"
    url.write_bytes(b"redis://:pass word @b:1/0 \r\n")
    names.write_text('["a", "b"]\n')
    settings = read_settings(
        Settings, {"POINTSMAN_BROKER__URL_FILE": str(url), "POINTSMAN_API__NAMES_FILE": str(names)}
    )
    assert settings.broker.url == "redis://:pass word @b:1/0 "
    assert settings.api.names == ("a", "b")


def test_an_empty_file_variable_is_as_good_as_none(tmp_path: Path) -> None:
    environment = {"POINTSMAN_BROKER__URL_FILE": "", "POINTSMAN_BROKER__URL": "redis://b:1/0"}
    assert read_settings(Settings, environment).broker.url == "redis://b:1/0"


def test_the_file_of_a_section_that_another_program_reads_is_not_opened() -> None:
    assert read_settings(Settings, {"POINTSMAN_GATEWAY__PEPPER_FILE": "/nowhere/at/all"}) == Settings()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"", "must hold 1 to 65536 bytes"),
        (b"\n", "must hold 1 to 65536 bytes"),
        (b"x" * 65_537, "must hold 1 to 65536 bytes"),
        (b"secretword\xff", "not UTF-8"),
        (b"secretword", "must begin with redis://"),
    ],
)
def test_a_file_that_gives_no_value_is_refused_by_its_variable_and_not_repeated(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "secretpath"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PolicyError) as refused:
        read_settings(Settings, {"POINTSMAN_BROKER__URL_FILE": str(path)})
    assert said in str(refused.value)
    assert str(refused.value).startswith("POINTSMAN_BROKER")
    assert "secret" not in str(refused.value)


def test_a_secret_that_was_given_for_a_path_is_not_repeated() -> None:
    for value in ("redis://:secretword@b:1/0", "secretword\0"):
        with pytest.raises(PolicyError, match="POINTSMAN_BROKER__URL_FILE") as refused:
            read_settings(Settings, {"POINTSMAN_BROKER__URL_FILE": value})
        assert "secretword" not in str(refused.value)


@pytest.mark.parametrize("turned", [False, True])
def test_a_value_and_a_file_for_the_same_are_refused(tmp_path: Path, turned: bool) -> None:
    path = tmp_path / "url"
    path.write_text("redis://b:1/0")
    given = [("POINTSMAN_BROKER__URL", "redis://b:1/0"), ("POINTSMAN_BROKER__URL_FILE", str(path))]
    with pytest.raises(PolicyError, match="set the same"):
        read_settings(Settings, dict(reversed(given) if turned else given))


@pytest.mark.parametrize("name", ["POINTSMAN_FILE", "POINTSMAN_BROKER_FILE", "POINTSMAN_BROKER___FILE"])
def test_a_file_for_no_field_is_refused(name: str) -> None:
    with pytest.raises(PolicyError, match=f"{name} is no setting"):
        read_settings(Settings, {name: "/etc/hostname"})


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
    assert set(collect_secrets(held)) == {"first-key", "old", "new", "pass%2Fword", "pass/word", "hunter2"}
    assert collect_secrets(Holder(one=Held(url="redis://host/0"))) == ()
    asked = Held(url="postgresql://u@/d?host=/tmp/x&password=a%26b")
    assert collect_secrets(Holder(one=asked)) == ("a%26b", "a&b")


@pytest.mark.parametrize(
    ("url", "without", "password"),
    [
        ("redis://:a%40b@h:1/0", "redis://@h:1/0", "a@b"),
        ("postgresql://u:p@a:1,b:2/d?sslmode=require", "postgresql://u@a:1,b:2/d?sslmode=require", "p"),
        ("postgresql://u@/d?host=/tmp/x&password=a%26b", "postgresql://u@/d?host=/tmp/x", "a&b"),
        ("postgresql://u@[::1]:5432/d", "postgresql://u@[::1]:5432/d", ""),
        ("redis://h:1/0", "redis://h:1/0", ""),
        ("postgresql:///d?host=/run/pg", "postgresql:///d?host=/run/pg", ""),
        ("postgresql:///d?host=/run/pg&password=p", "postgresql:///d?host=/run/pg", "p"),
        ("postgresql:///d", "postgresql:///d", ""),
    ],
)
def test_a_url_is_parted_from_its_password_and_put_together_again(url: str, without: str, password: str) -> None:
    assert split_password(url) == (without, password)
    assert split_password(with_password(without, password)) == (without, password)
    assert split_password(with_password(url, "n:@/w")) == (without.replace("redis://h", "redis://@h"), "n:@/w")


def test_the_secrets_of_named_parts_are_found_too() -> None:
    class Named(BaseModel):
        parts: dict[str, Held]

    found = collect_secrets(Named(parts={"a": Held(key="first-key"), "b": Held(url="redis://:hunter2@host/0")}))
    assert set(found) == {"first-key", "hunter2"}


# A text without a mark holds no secret: each pattern's marks stand in everything that it finds.


@pytest.mark.parametrize(("marks", "pattern"), MARKED, ids=lambda part: part[0] if isinstance(part, tuple) else "")
def test_whatever_a_pattern_finds_holds_one_of_its_marks(marks: tuple[str, ...], pattern: str) -> None:
    # What has to stand before or behind a find becomes a part of it.
    whole = re.compile(pattern.replace("(?<=", "(?:").replace("(?=", "(?:"))

    @settings(max_examples=20)
    @given(text=st.from_regex(whole), before=st.text(max_size=5))
    def hold(text: str, before: str) -> None:
        assert any(mark in text.casefold() for mark in marks)
        assert may_hide(before + text)
        assert may_hide(repr({"before": [before + text]}))

    hold()


@given(text=st.text(alphabet="skpmghwear_-=:/@ \u017f\u212a\n'\"\\0", max_size=60))
def test_what_has_no_mark_has_nothing_to_hide(text: str) -> None:
    assert may_hide(text) or HIDDEN.search(text) is None


@pytest.mark.parametrize("text", ["my pa\u017f\u017fword=hunter2", "PASSWORD: x", "BEARER abcdefghijklmnop"])
def test_a_mark_is_one_whatever_the_case_of_its_letters(text: str) -> None:
    assert HIDDEN.search(text)
    assert may_hide(text)
