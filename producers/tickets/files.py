"""Tickets in files: YAML, or Markdown whose front matter is YAML and whose text is the ticket's body."""

from __future__ import annotations

import re
from typing import Any

import yaml
from pydantic import ValidationError

from producers.tickets.requests import TicketBody
from routing.errors import FieldError, InvalidJobError

MAX_FILE_BYTES = 128 * 1024
_FRONT = re.compile(r"\A---[ \t]*\r?\n(?P<head>.*?)^---[ \t]*\r?\n?(?P<body>.*)\Z", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r"\A\s*#[ \t]+(?P<title>[^\r\n]+)\r?\n?(?P<body>.*)\Z", re.DOTALL)


def read_ticket(text: str, *, project: str) -> TicketBody:
    """Read a ticket's file.

    Args:
        text: YAML with title, body, labels, priority, source and url; or Markdown, whose first heading is the title
            where the front matter has none.
        project: what it is about; a file cannot choose another.

    Raises:
        InvalidJobError: the caller's fault; names each field and the rule it breaks.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_FILE_BYTES:
        raise InvalidJobError((FieldError("ticket", f"must not be longer than {MAX_FILE_BYTES} bytes"),))
    fields = {"source": "file", **_fields(text)}
    if fields.get("project", project) != project:
        raise InvalidJobError((FieldError("project", "the file names another project than the one given"),))
    try:
        return TicketBody.model_validate({**fields, "project": project})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:50]
        raise InvalidJobError(
            tuple(FieldError(".".join(map(str, item["loc"]))[:200] or "ticket", _rule(item)) for item in found)
        ) from None


def _fields(text: str) -> dict[str, Any]:
    front = _FRONT.match(text)
    if front is not None:
        return _markdown(front["body"], _mapping(front["head"]))
    if _TITLE.match(text):
        return _markdown(text, {})
    return _mapping(text)


def _markdown(body: str, fields: dict[str, Any]) -> dict[str, Any]:
    titled = _TITLE.match(body)
    if "title" not in fields and titled is not None:
        return {**fields, "title": titled["title"].strip(), "body": titled["body"].strip()}
    return {**fields, "body": body.strip()}


def _mapping(text: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InvalidJobError((FieldError("ticket", f"is no YAML: line {line}"),)) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InvalidJobError((FieldError("ticket", "is no YAML"),)) from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InvalidJobError((FieldError("ticket", "must be a mapping with a title, or Markdown"),))
    return found


def _rule(item: Any) -> str:
    rule = "is not a field of a ticket" if item["type"] == "extra_forbidden" else str(item["msg"])
    return rule.removeprefix("Value error, ")
