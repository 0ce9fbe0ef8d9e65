"""The dialects of the model providers, each spoken by a server in front of one that speaks the Messages API.

A vendor's own SDK accepts what this says (tests/integration/gateway/test_provider_conformance.py), and it accepts
only what that SDK sends: a request whose signature, address or body is not of the dialect gets a 4xx.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import unquote

import aiohttp
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt as google_jwt

from tests.threads import serve_app_in_thread

ACCESS, SECRET, REGION = "AKIAEXAMPLEEXAMPLE01", "canary-secret-0123456789abcdefghijklmnop", "eu-central-1"
BEARER = "canary-bearer-0123456789abcdefghijklmnop"
PROJECT = "/v1/projects/acme/locations/europe-west1"
ACCOUNT = "fleet@acme.iam.gserviceaccount.com"


@cache
def service_account() -> tuple[str, bytes]:
    """A service account's key file, made here, and its public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    fields = {
        "type": "service_account",
        "project_id": "acme",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": ACCOUNT,
        "token_uri": "https://oauth2.invalid/token",
    }
    return json.dumps(fields, indent=2), public


class Dialects:
    """One server of all dialects.

    Args:
        upstream: base URL of a server of the Messages API.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        """What was received, as it came."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/openai/v1/chat/completions", self.chat)
        app.router.add_post("/model/{model}/{verb}", self.bedrock)
        app.router.add_post(PROJECT + "/publishers/anthropic/models/{model}:{verb}", self.vertex)
        return app

    # -- Bedrock -------------------------------------------------------------------------------------------------------
    async def bedrock(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        if not _is_signed(http, raw):
            return web.json_response({"message": "The security token in the request is invalid"}, status=403)
        body, verb = json.loads(raw), http.match_info["verb"]
        self.bodies.append(body)
        if verb == "count-tokens":
            inner = json.loads(base64.b64decode(body["input"]["invokeModel"]["body"]))
            return await self._count(http, inner, name="inputTokens")
        if {"model", "stream", "metadata"} & body.keys() or body.get("anthropic_version") != "bedrock-2023-05-31":
            return web.json_response({"message": "Malformed input request: extraneous key"}, status=400)
        streams = verb == "invoke-with-response-stream"
        fields = {name: value for name, value in body.items() if not name.startswith("anthropic_")}
        async with self._ask(http, fields | {"model": unquote(http.match_info["model"]), "stream": streams}) as reply:
            if reply.status != 200:
                error = (await reply.json())["error"]
                return web.json_response(
                    {"message": error["message"]}, status=_aws(reply.status), headers=_retry(reply)
                )
            if not streams:
                return web.Response(body=await reply.read(), content_type="application/json")
            response = web.StreamResponse(headers={"content-type": "application/vnd.amazon.eventstream"})
            await response.prepare(http)
            async for data in _events(reply):
                kind = _kind(data)
                if kind == "error":
                    await response.write(frame({"message": "busy"}, exception="throttlingException"))
                else:
                    await response.write(frame({"bytes": base64.b64encode(data).decode(), "p": "abcdef"}))
            return await _end(http, response, reply)

    # -- Vertex --------------------------------------------------------------------------------------------------------
    async def vertex(self, http: web.Request) -> web.StreamResponse:
        token = http.headers.get("authorization", "").removeprefix("Bearer ")
        try:
            signer = service_account()[1]
            claims: Mapping[str, Any] = google_jwt.decode(token, certs=signer) if token != BEARER else {"iss": ACCOUNT}
        except ValueError:
            claims = {}
        if claims.get("iss") != ACCOUNT:
            error = {"error": {"code": 401, "message": f"invalid token {token}", "status": "UNAUTHENTICATED"}}
            return web.json_response(error, status=401)
        body, verb, model = await http.json(), http.match_info["verb"], http.match_info["model"]
        self.bodies.append(body)
        if model == "count-tokens":
            return await self._count(http, body, name="input_tokens")
        streams = verb == "streamRawPredict"
        known = body.pop("anthropic_version", "")
        if "model" in body or known != "vertex-2023-10-16" or bool(body.get("stream")) is not streams:
            error = {"error": {"code": 400, "message": "model: extra inputs", "status": "INVALID_ARGUMENT"}}
            return web.json_response(error, status=400)
        async with self._ask(http, body | {"model": model}) as reply:
            if reply.status != 200:
                error = {"error": {"code": reply.status, "message": (await reply.json())["error"]["message"]}}
                return web.json_response(error, status=reply.status, headers=_retry(reply))
            return await _pass_on(http, reply)

    # -- OpenAI --------------------------------------------------------------------------------------------------------
    async def chat(self, http: web.Request) -> web.StreamResponse:
        if http.headers.get("authorization") != f"Bearer {BEARER}":
            error = {"error": {"message": f"Incorrect key: {http.headers.get('authorization')}", "code": "invalid"}}
            return web.json_response(error, status=401)
        body = await http.json()
        self.bodies.append(body)
        async with self._ask(http, _as_message_request(body)) as reply:
            if reply.status != 200:
                error = {"error": {"message": (await reply.json())["error"]["message"], "type": "server_error"}}
                return web.json_response(error, status=_aws(reply.status), headers=_retry(reply))
            if not body.get("stream"):
                return web.json_response(_as_completion(await reply.json()))
            response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
            await response.prepare(http)
            chunks = _Chunks()
            async for data in _events(reply):
                for chunk in chunks.of(data, wants_usage=body.get("stream_options", {}).get("include_usage", False)):
                    await response.write(b"data: " + chunk + b"\n\n")
            return await _end(http, response, reply)

    # -- the server behind ---------------------------------------------------------------------------------------------
    def _ask(self, http: web.Request, fields: dict[str, Any]) -> aiohttp.client._RequestContextManager:
        headers = {"x-api-key": "k", "x-pointsman-call": http.headers.get("x-pointsman-call", "")}
        return http.app[SESSION].post(f"{self._upstream}/v1/messages", json=fields, headers=headers)

    async def _count(self, http: web.Request, fields: dict[str, Any], *, name: str) -> web.Response:
        url = f"{self._upstream}/v1/messages/count_tokens"
        kept = {key: value for key, value in fields.items() if not key.startswith("anthropic_") and key != "max_tokens"}
        async with http.app[SESSION].post(url, json={"model": "m"} | kept, headers={"x-api-key": "k"}) as reply:
            return web.json_response({name: (await reply.json())["input_tokens"]})


SESSION = web.AppKey("session", aiohttp.ClientSession)


@contextmanager
def dialects(upstream: str) -> Iterator[Dialects]:
    """Serve in a thread."""
    server = Dialects(upstream)
    app = server.app()
    app.cleanup_ctx.append(_open_session)
    with serve_app_in_thread(app) as server.url:
        yield server


async def _open_session(app: web.Application) -> AsyncIterator[None]:
    async with aiohttp.ClientSession() as app[SESSION]:
        yield


def _is_signed(http: web.Request, raw: bytes) -> bool:
    given = http.headers.get("authorization", "")
    if given == f"Bearer {BEARER}":
        return True
    names = given.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    signed = {name: http.headers[name] for name in names if name in http.headers and name != "x-amz-date"}
    request = AWSRequest("POST", f"http://{http.host}{http.raw_path}", data=raw, headers=signed)
    request.context["timestamp"] = http.headers.get("x-amz-date", "")
    auth = _At(Credentials(ACCESS, SECRET), "bedrock", REGION)
    auth.when = http.headers.get("x-amz-date", "")
    auth.add_auth(request)
    return bool(request.headers["Authorization"] == given)


class _At(SigV4Auth):  # type: ignore[misc]
    """Signs as if it were another time."""

    when = ""

    def add_auth(self, request: Any) -> None:
        request.context["timestamp"] = self.when
        self._modify_request_before_signing(request)
        canonical = self.canonical_request(request)
        self._inject_signature_to_request(request, self.signature(self.string_to_sign(request, canonical), request))


def frame(payload: dict[str, Any], *, exception: str = "") -> bytes:
    """One message of AWS's event stream, by its published format."""
    names = (
        {":message-type": "exception", ":exception-type": exception}
        if exception
        else {":message-type": "event", ":event-type": "chunk"}
    )
    names[":content-type"] = "application/json"
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in names.items()
    )
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    start = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + data
    return start + struct.pack(">I", binascii.crc32(start))


def _aws(status: int) -> int:
    return 503 if status == 529 else status


def _retry(reply: aiohttp.ClientResponse) -> dict[str, str]:
    return {"retry-after": reply.headers["retry-after"]} if "retry-after" in reply.headers else {}


async def _events(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each event; the stream's own break is passed on by `_end`."""
    pending = b""
    try:
        async for chunk in reply.content.iter_any():
            pending += chunk
            *events, pending = pending.split(b"\n\n")
            for event in events:
                yield event.partition(b"\ndata: ")[2]
    except aiohttp.ClientError:
        return


def _kind(data: bytes) -> str:
    try:
        return str(json.loads(data)["type"])
    except ValueError:
        return ""


async def _end(http: web.Request, response: web.StreamResponse, reply: aiohttp.ClientResponse) -> web.StreamResponse:
    if reply.content.exception() is not None:
        assert http.transport is not None
        http.transport.abort()
        return response
    await response.write_eof()
    return response


async def _pass_on(http: web.Request, reply: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": reply.headers["content-type"]})
    await response.prepare(http)
    try:
        async for chunk in reply.content.iter_any():
            await response.write(chunk)
    except aiohttp.ClientError:
        pass
    return await _end(http, response, reply)


# -- chat completions as messages, and messages as completions ---------------------------------------------------------
_CHOICES = {"auto": {"type": "auto"}, "required": {"type": "any"}, "none": {"type": "none"}}
_FINISHES = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


def _as_message_request(body: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": body["model"], "max_tokens": body["max_tokens"], "messages": []}
    fields["stream"] = body.get("stream", False)
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role == "system":
            fields["system"] = content
        elif role == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
            fields["messages"].append({"role": "user", "content": [result]})
        elif role == "assistant":
            blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
            for call in message.get("tool_calls", []):
                given = json.loads(call["function"]["arguments"])
                blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": given})
            fields["messages"].append({"role": role, "content": blocks})
        else:
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else [_part(p) for p in content]
            last = fields["messages"][-1] if fields["messages"] else None
            if last is not None and last["role"] == "user":
                last["content"] += parts
            else:
                fields["messages"].append({"role": "user", "content": parts})
    if body.get("tools"):
        functions = [tool["function"] for tool in body["tools"]]
        fields["tools"] = [
            {name: value for name, value in function.items() if name != "parameters"}
            | {"input_schema": function["parameters"]}
            for function in functions
        ]
        choice = body["tool_choice"]
        named = isinstance(choice, dict)
        fields["tool_choice"] = {"type": "tool", "name": choice["function"]["name"]} if named else _CHOICES[choice]
    return fields


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    head, _, data = part["image_url"]["url"].partition(";base64,")
    source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "image", "source": source}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    cached = usage.get("cache_read_input_tokens") or 0
    prompt = usage["input_tokens"] + cached
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage["output_tokens"],
        "total_tokens": prompt + usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _as_completion(message: dict[str, Any]) -> dict[str, Any]:
    said = "".join(block["text"] for block in message["content"] if block["type"] == "text")
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    answer = {"role": "assistant", "content": said or None} | ({"tool_calls": calls} if calls else {})
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": message["model"],
        "choices": [{"index": 0, "message": answer, "finish_reason": _FINISHES[message["stop_reason"]]}],
        "usage": _usage(message["usage"]),
    }


class _Chunks:
    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._tools: dict[int, int] = {}

    def of(self, data: bytes, *, wants_usage: bool) -> Iterator[bytes]:
        try:
            event = json.loads(data)
        except ValueError:
            yield b'{"id": "chatcmpl-1", "choices": [{"index": 0, "del'
            return
        match event["type"]:
            case "message_start":
                self._usage, self._model = event["message"]["usage"], event["message"]["model"]
                yield self._chunk({"role": "assistant", "content": ""})
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                block = event["content_block"]
                self._tools[event["index"]] = len(self._tools)
                function = {"name": block["name"], "arguments": ""}
                yield self._call(event["index"], id=block["id"], type="function", function=function)
            case "content_block_delta" if "text" in event["delta"]:
                yield self._chunk({"content": event["delta"]["text"]})
            case "content_block_delta":
                yield self._call(event["index"], function={"arguments": event["delta"]["partial_json"]})
            case "message_delta":
                self._usage = self._usage | event["usage"]
                yield self._chunk({}, finish=_FINISHES[event["delta"]["stop_reason"]])
            case "message_stop":
                if wants_usage:
                    yield self._encode(choices=[], usage=_usage(self._usage))
                yield b"[DONE]"
            case "error":
                yield json.dumps({"error": {"message": "busy", "type": "rate_limit", "code": 429}}).encode()

    def _call(self, index: int, **fields: Any) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._tools[index], **fields}]})

    def _chunk(self, delta: dict[str, Any], *, finish: str | None = None) -> bytes:
        return self._encode(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])

    def _encode(self, **fields: Any) -> bytes:
        whole = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self._model, **fields}
        return json.dumps(whole).encode()
