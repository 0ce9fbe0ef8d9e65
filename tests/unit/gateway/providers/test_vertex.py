"""Vertex: what its key must be."""

import pytest

from gateway.providers.vertex import VertexProvider
from routing.errors import PolicyError
from tests.provider_dialects import SERVICE_ACCOUNT


@pytest.mark.parametrize("key", ["{}", "{", SERVICE_ACCOUNT.replace("BEGIN", "MIDDLE")])
def test_a_key_file_that_is_no_service_accounts_stops_the_start_and_is_not_repeated(key: str) -> None:
    with pytest.raises(PolicyError, match="no service account") as caught:
        VertexProvider("https://example.org", key)
    assert "PRIVATE" not in str(caught.value)
