"""Claude on Amazon Bedrock and on Google Vertex AI: the Messages API in the envelopes of two clouds.

Bedrock wraps it in InvokeModel and its response stream; Vertex has other addresses and a service account's signature.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import UUID

from pydantic_core import from_json, to_json

from gateway.messages import ModelRequest, as_event, encode
from gateway.providers.anthropic import COUNTED_FIELDS, AnthropicProvider, betas_of, read_event
from gateway.providers.provider import (
    MAX_EVENT_BYTES,
    Meter,
    ReplyStream,
    UnreadableStreamError,
    UpstreamRequest,
    error_body,
    message_of_error,
)
from routing.errors import PolicyError
from routing.provider_circuit import Trouble

_BEDROCK_VERSION = "bedrock-2023-05-31"
_VERTEX_VERSION = "vertex-2023-10-16"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_COUNT_MODEL = "count-tokens"
_LEFT_OUT = frozenset({"model", "stream", "metadata", "service_tier", "inference_geo", "speed"})
"""What stands in the address, or says nothing to this API."""
_BETAS = (
    "context-management-",
    "effort-",
    "fine-grained-tool-streaming-",
    "interleaved-thinking-",
    "token-efficient-tools-",
)
"""What of `anthropic-beta` it knows; it refuses a request with any other."""
_REGION = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
_ERRORS = {
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "validationException": 400,
}
"""HTTP statuses of the exceptions inside a stream; any other is the server's fault."""
_OK = 200
_MODEL_FAILED = 424
_FAILED = 500
_SECRET_PARTS = 3


class BedrockProvider(AnthropicProvider):
    """An account at Bedrock in one region.

    Args:
        base_url: `https://bedrock-runtime.REGION.amazonaws.com`, or an endpoint of one's own.
        key: a Bedrock API key, or `ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]`.
        region: of the signature; empty for the one in the base URL.

    Raises:
        PolicyError: the operator's fault: the region is unknown, or `pointsman[bedrock]` is not installed.
    """

    def __init__(self, base_url: str, key: str, *, region: str = "") -> None:
        super().__init__(base_url, key)
        found = _REGION.match(urlsplit(base_url).hostname or "")
        self._signer = _signer(key, region or (found.group(1) if found else "")) if ":" in key else None
        self._secrets = [part.encode() for part in key.split(":", _SECRET_PARTS - 1)]
        _import_eventstream()

    def call(
        self, request: ModelRequest, *, max_tokens: int, headers: Mapping[bytes, bytes], call_id: UUID
    ) -> UpstreamRequest:
        """Return the body without its model, which stands in the address."""
        fields = {name: value for name, value in request.fields.items() if name not in _LEFT_OUT}
        betas = [name for name in betas_of(headers).split(",") if name.startswith(_BETAS)]
        body = encode(
            fields
            | {"max_tokens": max_tokens, "anthropic_version": _BEDROCK_VERSION}
            | ({"anthropic_beta": betas} if betas else {})
        )
        verb = "invoke-with-response-stream" if request.streams else "invoke"
        return self._request(request.model, verb, body, {"x-pointsman-call": str(call_id)})

    def count(self, request: ModelRequest, *, headers: Mapping[bytes, bytes]) -> UpstreamRequest:
        """Return a request to count what a call would send."""
        fields = {name: request.fields[name] for name in COUNTED_FIELDS if name in request.fields and name != "model"}
        whole = encode(fields | {"max_tokens": request.max_tokens or 1, "anthropic_version": _BEDROCK_VERSION})
        body = to_json({"input": {"invokeModel": {"body": base64.b64encode(whole).decode()}}})
        return self._request(request.model, "count-tokens", body, {})

    def read_count(self, body: bytes) -> int | None:
        """Return `inputTokens` with the margin."""
        return super().read_count(_count(body))

    def open_stream(self, meter: Meter) -> ReplyStream:
        """Return a reader that unwraps the events."""
        return _FrameStream(meter)

    def pass_back(self, body: bytes, *, status: int) -> bytes:
        """Return a count or an error as the Messages API words it."""
        fault = _FAILED if status == _MODEL_FAILED else status
        shown = _count(body) if status == _OK else error_body(fault, message_of_error(body))
        for secret in self._secrets:
            shown = shown.replace(secret, b"[redacted]")
        return shown

    def reply_headers(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """Name the type of what the caller gets, not of AWS's envelope."""
        passed = [(name, value) for name, value in super().reply_headers(headers) if name != b"content-type"]
        is_stream = "eventstream" in headers.get("content-type", "")
        kind = b"text/event-stream" if is_stream else b"application/json"
        return [*passed, (b"content-type", kind)]

    def trouble_of(self, status: int | None, *, kind: str = "") -> Trouble | None:
        """Judge as the Messages API does, but for the model's own failure."""
        return super().trouble_of(_FAILED if status == _MODEL_FAILED else status, kind=kind)

    def _request(self, model: str, verb: str, body: bytes, more: Mapping[str, str]) -> UpstreamRequest:
        url = f"{self._base_url}/model/{quote(model, safe=':')}/{verb}"
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self._signer is None:
            headers["authorization"] = f"Bearer {self._key}"
        else:
            headers |= self._signer(url, body)
        return UpstreamRequest(url, {**headers, **more}, body)


def _signer(key: str, region: str) -> Any:
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
    except ImportError:
        raise _not_installed() from None
    if not region:
        raise PolicyError("api bedrock: region is not in base_url: set it")
    own = Credentials(*key.split(":", _SECRET_PARTS - 1))

    def sign(url: str, body: bytes) -> dict[str, str]:
        request = AWSRequest("POST", url, data=body, headers={"content-type": "application/json"})
        SigV4Auth(own, "bedrock", region).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items()}

    return sign


def _import_eventstream() -> Any:
    try:
        from botocore import eventstream
    except ImportError:
        raise _not_installed() from None
    return eventstream


def _not_installed() -> PolicyError:
    return PolicyError("api bedrock: install pointsman[bedrock]")


def _count(body: bytes) -> bytes:
    try:
        return to_json({"input_tokens": from_json(body)["inputTokens"]})
    except (ValueError, LookupError, TypeError):
        return b"{}"


class _FrameStream:
    """Unwraps the events of the Messages API from AWS's binary frames."""

    def __init__(self, meter: Meter) -> None:
        frames = _import_eventstream()
        self._meter = meter
        self._buffer = frames.EventStreamBuffer()
        self._broken = (frames.ParserError, ValueError, LookupError, TypeError)
        self._waiting = 0

    def feed(self, chunk: bytes) -> bytes:
        """Meter some bytes and return the events that are now whole."""
        self._waiting += len(chunk)
        self._buffer.add_data(chunk)
        events = []
        try:
            for frame in self._buffer:
                self._waiting = 0
                events.append(self._event(frame.headers, frame.payload))
        except self._broken:
            raise UnreadableStreamError("the stream's frames cannot be read") from None
        if self._waiting > MAX_EVENT_BYTES:
            raise UnreadableStreamError(f"a frame is longer than {MAX_EVENT_BYTES} bytes")
        return b"".join(events)

    def _event(self, headers: Mapping[str, Any], payload: bytes) -> bytes:
        if headers.get(":message-type") == "event":
            if headers.get(":event-type") != "chunk":
                return b""
            data = base64.b64decode(from_json(payload)["bytes"])
            read_event(data, self._meter)
            return as_event(str(from_json(data)["type"]), data)
        kind = str(headers.get(":exception-type") or headers.get(":error-code") or "")
        data = error_body(_ERRORS.get(kind, 500), message_of_error(payload))
        read_event(data, self._meter)
        return as_event("error", data)


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
        body = encode(fields | {"max_tokens": max_tokens, "anthropic_version": _VERTEX_VERSION})
        verb = "streamRawPredict" if request.streams else "rawPredict"
        own = self._headers(headers) | {"x-pointsman-call": str(call_id)}
        return UpstreamRequest(self._url(request.model, verb), own, body)

    def count(self, request: ModelRequest, *, headers: Mapping[bytes, bytes]) -> UpstreamRequest:
        """Return a request of the fields that can be counted; it keeps its model."""
        fields = {name: request.fields[name] for name in COUNTED_FIELDS if name in request.fields}
        body = encode(fields | {"anthropic_version": _VERTEX_VERSION})
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
            self._credentials.refresh(None)  # signs a token locally
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
