"""A provider's key: where it may stand, and what it may be."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from gateway.config import GatewayConfig
from routing.config import read_settings
from routing.errors import PolicyError

OWN = "POINTSMAN_GATEWAY__PROVIDERS__OWN__"
BASE = {
    "POINTSMAN_GATEWAY__PEPPER": "pepper-pepper-pepper",
    f"{OWN}BASE_URL": "https://example.org",
    f"{OWN}LABEL": "own",
}


class Settings(BaseModel):
    gateway: GatewayConfig


@pytest.mark.req("S-066")
def test_a_key_is_read_from_the_file_that_holds_it_and_shown_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("a-key-of-their-own\n")
    found = read_settings(Settings, BASE | {f"{OWN}API_KEY_FILE": str(path)}).gateway.providers["own"]
    assert found.api_key.get_secret_value() == "a-key-of-their-own"
    assert "a-key-of-their-own" not in repr(found) + found.model_dump_json()


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"with space", "schlüssel".encode(), b"x\0y", b"\xff"])
def test_a_file_that_holds_no_key_stops_the_start_and_is_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(PolicyError, match=f"{OWN}API_KEY_FILE: ") as caught:
        read_settings(Settings, BASE | {f"{OWN}API_KEY_FILE": str(path)})
    assert "lines" not in str(caught.value)


@pytest.mark.parametrize("key", [{}, {f"{OWN}API_KEY": ""}])
def test_a_provider_without_a_key_stops_the_start(key: dict[str, str]) -> None:
    with pytest.raises(PolicyError, match=f"{OWN}API_KEY: "):
        read_settings(Settings, BASE | key)
