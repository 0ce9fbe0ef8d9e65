"""Claude on Google Vertex AI: the Messages API at other addresses, signed by a service account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from pydantic_core import from_json

from gateway.messages import ModelRequest, encode
from gateway.providers.anthropic import COUNTED_FIELDS, AnthropicProvider
from gateway.providers.provider import UpstreamRequest, error_body, message_of_error
from routing.errors import PolicyError

_VERSION = "vertex-2023-10-16"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_COUNT_MODEL = "count-tokens"
_OK = 200


class VertexProvider(AnthropicProvider):
    """A project at Vertex AI.

    Args:
        base_url: up to the location: `https://LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION`.
        key: a service account's key as JSON, or an access token, which lasts an hour.

    Raises:
        PolicyError: the operator's fault: the key is unusable, or `pointsman[vertex]` is not installed.
    """

    def __init__(self, base_url: str, key: str) -> None:
        super().__init__(base_url, key)
        self._credentials = _service_account(key) if key.lstrip().startswith("{") else None

    def call(
        self, request: ModelRequest, *, max_tokens: int, headers: Mapping[bytes, bytes], call_id: UUID
    ) -> UpstreamRequest:
        """Return the body without its model, which stands in the address."""
        fields = {name: value for name, value in request.fields.items() if name != "model"}
        body = encode(fields | {"max_tokens": max_tokens, "anthropic_version": _VERSION})
        verb = "streamRawPredict" if request.streams else "rawPredict"
        own = self._headers(headers) | {"x-pointsman-call": str(call_id)}
        return UpstreamRequest(self._url(request.model, verb), own, body)

    def count(self, request: ModelRequest, *, headers: Mapping[bytes, bytes]) -> UpstreamRequest:
        """Return a request of the fields that can be counted; it keeps its model."""
        fields = {name: request.fields[name] for name in COUNTED_FIELDS if name in request.fields}
        body = encode(fields | {"anthropic_version": _VERSION})
        return UpstreamRequest(self._url(_COUNT_MODEL, "rawPredict"), self._headers(headers), body)

    def pass_back(self, body: bytes, *, status: int) -> bytes:
        """Return an error of Google's own as the Messages API words it; the model's are of it already."""
        shown = body if status == _OK or _is_own(body) else error_body(status, message_of_error(body))
        return shown.replace(self._bearer().encode(), b"[redacted]")

    def _url(self, model: str, verb: str) -> str:
        return f"{self._base_url}/publishers/anthropic/models/{quote(model, safe='@')}:{verb}"

    def _headers(self, headers: Mapping[bytes, bytes]) -> dict[str, str]:
        passed = super()._headers(headers)
        for name in ("x-api-key", "anthropic-version"):
            del passed[name]
        return passed | {"authorization": f"Bearer {self._bearer()}"}

    def _bearer(self) -> str:
        if self._credentials is None:
            return self._key
        if not self._credentials.valid:
            self._credentials.refresh(None)  # signs a token here: nobody is asked
        return str(self._credentials.token)


def _is_own(body: bytes) -> bool:
    try:
        return bool(from_json(body)["type"] == "error")
    except (ValueError, LookupError, TypeError):
        return False


def _service_account(key: str) -> Any:
    try:
        from google.oauth2 import service_account
    except ImportError:
        raise PolicyError("api vertex: install pointsman[vertex] to sign with a service account") from None
    try:
        return service_account.Credentials.from_service_account_info(
            from_json(key), scopes=[_SCOPE], always_use_jwt_access=True
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise PolicyError(f"api vertex: the key is no service account's ({type(error).__name__})") from None
