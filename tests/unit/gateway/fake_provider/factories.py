"""Requests for the tests of the fake provider."""

import json
from typing import Any

from gateway.fake_provider.request import Request, parse_request

MODEL = "claude-haiku-4-5-20251001"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tool(name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "description": "", "input_schema": schema or {"type": "object", "properties": {}}}


def tool_turn(
    name: str, given: dict[str, Any], result: str, *, number: int = 1, is_error: bool = False
) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
    came = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": result, "is_error": is_error}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [came]}]


def make_body(*messages: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 1000, "messages": list(messages) or [user("Hello")], **overrides}


def make_request(*messages: dict[str, Any], **overrides: Any) -> Request:
    return parse_request(json.dumps(make_body(*messages, **overrides)).encode())
