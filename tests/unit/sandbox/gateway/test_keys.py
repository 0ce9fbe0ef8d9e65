from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sandbox.gateway.config import GatewayConfig
from sandbox.gateway.keys import KeyFileError, with_keys


def config(**fields: Any) -> GatewayConfig:
    own = {"base_url": "https://example.org", "label": "own", **fields}
    return GatewayConfig.model_validate({"pepper": "pepper-pepper-pepper", "providers": {"own": own}})


@pytest.mark.req("S-066")
def test_a_key_is_read_from_the_file_that_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("a-key-of-their-own\n")
    found = with_keys(config(api_key_file=path)).providers["own"]
    assert found.api_key.get_secret_value() == "a-key-of-their-own"
    assert "a-key-of-their-own" not in repr(found) + found.model_dump_json()
    assert with_keys(config(api_key="another")).providers["own"].api_key.get_secret_value() == "another"


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"with space", "schlüssel".encode(), b"x\0y", b"\xff"])
def test_a_file_that_holds_no_key_stops_the_start_and_is_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(KeyFileError, match="provider own") as caught:
        with_keys(config(api_key_file=path))
    assert "lines" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"provider own: .*gone cannot be read: No such file"):
        with_keys(config(api_key_file=tmp_path / "gone"))


@pytest.mark.parametrize("fields", [{}, {"api_key": ""}, {"api_key": "k", "api_key_file": "/run/k"}])
def test_a_provider_has_a_key_or_a_file_and_not_both(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="either api_key or api_key_file"):
        config(**fields)
