"""The library: replies that a good model gave to whole prompts, which the fake provider plays before it improvises.

Its files hold the cases of `pointsman eval` (producers/evaluation/cases.py); only their requests and replies are read
here. A reply is found by the request's words, the tool and the site that the prompt shows, so that it outlives a
rewording of the prompt around them. One that was refused is not played again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from gateway.errors import GatewayError
from gateway.fake_provider.request import Request, RequestError
from gateway.fake_provider.wire import Reply, Text, ToolUse, Written
from gateway.messages import usage_of
from routing.config import Section
from routing.model_call import request_digest
from routing.redaction import redact_all
from routing.yaml_data import load_yaml

_REFUSED = re.compile(r"Your last (?:reply|patch) was refused:")
"""How the tiers' prompts introduce a second try."""
_ANYWHERE = frozenset({"argue", "choose_tier", "choose_mode", "read_intent", "translate_texts", "draw"})
"""Tools whose prompts show no site, or any part of its texts."""
_NO_PART = ("stream", "max_tokens", "metadata")
"""Fields that do not change what is asked."""


class CaseError(GatewayError, ValueError):
    """A file of cases is invalid (its author's fault); the message names file and line."""


class RecordedReply(Section):
    """One reply: a `text`, the input of one tool under its name, or several of these under `say`."""

    say: tuple[dict[str, Any], ...] = Field(min_length=1)
    turn: int = Field(default=1, ge=1)
    """Of the conversation; in a debate, 1 for the advocate and 2 for the critic."""
    second_try: bool = False
    """Whether it mends a reply that was refused."""
    shows: str = ""
    """A text of its prompt, where one request causes several calls with one tool, as for two languages."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "say" in value:
            return value
        settings = {name: value[name] for name in ("turn", "second_try", "shows") if name in value}
        return settings | {"say": [{name: said} for name, said in value.items() if name not in settings]}

    @property
    def blocks(self) -> tuple[Text | ToolUse, ...]:
        """The reply as the provider plays it."""
        return tuple(
            Text(said) if name == "text" else ToolUse(name, said) for part in self.say for name, said in part.items()
        )

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools that it uses."""
        return frozenset(name for part in self.say for name in part if name != "text")


class RecordedRound(BaseModel):
    """A request, and the replies to the calls that it causes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    request: str = ""
    answer: str = ""
    """The owner's answer to a question about the request before it."""
    replies: tuple[RecordedReply, ...] = ()


class RecordedCase(RecordedRound):
    """A case as far as it is played."""

    marks: tuple[str, ...] = ()
    """Texts one of which every prompt about the case's site shows; none for a request without a site."""
    rounds: tuple[RecordedRound, ...] = ()


class _Entry(NamedTuple):
    reply: RecordedReply
    marks: tuple[str, ...]
    answer: str

    def fits(self, request: Request, *, turn: int, shown: str) -> bool:
        reply, forced = self.reply, request.forced_tool
        if reply.turn != turn or reply.second_try != (_REFUSED.search(shown) is not None):
            return False
        if forced is not None and reply.tools != {forced.name}:
            return False
        if not reply.tools <= set(request.tool_names) or self.answer not in shown or reply.shows not in shown:
            return False
        return bool(reply.tools & _ANYWHERE) or not self.marks or any(mark in shown for mark in self.marks)


class Library:
    """Recorded replies by the words of their request."""

    def __init__(self, cases: Iterable[RecordedCase]) -> None:
        self._entries: dict[str, list[_Entry]] = {}
        for case in cases:
            asked = case.request
            for each in (case, *case.rounds):
                asked = each.request or asked
                self._entries.setdefault(_key(asked), []).extend(
                    _Entry(reply, case.marks, each.answer) for reply in each.replies
                )

    def find(self, request: Request) -> Sequence[Text | ToolUse]:
        """Return the reply to a request; empty if there is none."""
        asked = _Asked(request)
        entries = next((self._entries[key] for key in asked.keys if key in self._entries), ())
        fitting = (entry for entry in entries if entry.fits(request, turn=asked.turn, shown=asked.shown))
        return next((entry.reply.blocks for entry in fitting), ())


class _Asked:
    """What a request asks, apart from its prompt's frame."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.shown = "\n".join(request.user_texts)

    @cached_property
    def _question(self) -> dict[str, Any]:
        """The fields of a decision's question, which is JSON."""
        try:
            question = from_json(self._request.prompt)
        except ValueError:
            return {}
        return question if isinstance(question, dict) else {}

    @property
    def turn(self) -> int:
        """Turn of the conversation, or of the debate."""
        return self._request.turn + ("advocate" in self._question)

    @property
    def keys(self) -> Iterator[str]:
        """Keys under which it may stand, the longest first: a prompt adds paragraphs to a person's words."""
        words = self._question.get("request")
        for text in [words] if isinstance(words, str) else [self._request.ask, self._request.question]:
            parts = text.split("\n\n")
            for count in range(len(parts), 0, -1):
                yield _key("\n\n".join(parts[:count]))


def _key(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!")


def read_documents(path: Path) -> list[Mapping[str, Any]]:
    """Return the cases in a file, or in the `*.yaml` of a directory in order of name, as they are written.

    Raises:
        CaseError: their author's fault.
    """
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    found: list[Mapping[str, Any]] = []
    for file in files:
        try:
            document = load_yaml(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise CaseError(f"{file}: cannot be read: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise CaseError(f"{file}: {error}") from None
        if not isinstance(document, list) or not all(isinstance(case, dict) for case in document):
            raise CaseError(f"{file}: must be a list of cases")
        found += document
    return found


class Recordings:
    """Recorded calls, whose replies are given again, bit for bit, in the order in which they were recorded.

    Our own calls get the reply to exactly the same request. Claude Code's hold names, times and outputs of its box, and
    get the next reply to a call with the same model, tools and number of messages.

    The file holds JSON lines with `request` and `reply`.

    Raises:
        CaseError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._replies: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                call = from_json(line)
                self._replies.setdefault(_key_of(call["request"]), []).append(call["reply"])
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise CaseError(f"{path}: no recorded calls can be read: {error}") from None

    def take(self, request: Request) -> Reply:
        """Return the next reply that was recorded for a request.

        Raises:
            RequestError: the request is not the one that was recorded.
        """
        left = self._replies.get(_key_of(request.raw))
        if not left:
            raise RequestError("no reply is recorded for this request", 404)
        message = left.pop(0)
        return Reply(
            message["id"],
            message["model"],
            tuple(_written(block) for block in message["content"]),
            message["stop_reason"],
            message.get("stop_sequence"),
            usage_of(message),
        )


def _key_of(request: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key under which a request's recorded reply is found; redacted or not, on any day, it is the same."""
    if "metadata" in request:  # the CLI names its session there; our own client sends none
        names = sorted(str(tool.get("name")) for tool in request.get("tools", ()))
        return request["model"], *names, len(request["messages"])
    asked = redact_all({name: value for name, value in request.items() if name not in _NO_PART})
    return (request_digest(asked),)


def _written(block: Mapping[str, Any]) -> Written:
    """Return a recorded block as it is played.

    Raises:
        RequestError: it is neither text nor a tool use.
    """
    if block["type"] == "tool_use":
        return Written(json.dumps(block["input"], ensure_ascii=False), block["name"], block["id"])
    if block["type"] != "text":
        raise RequestError(f"a recorded block of type {block['type']} cannot be replayed", 500)
    return Written(block["text"])


def library_path() -> Path:
    """Return the directory of the shipped cases."""
    return Path(str(resources.files("gateway.fake_provider") / "library"))


@cache
def read_library(paths: tuple[Path, ...] = ()) -> Library:
    """Return the library of some files or directories of cases, the first of which wins, and of the shipped ones.

    Raises:
        CaseError: their author's fault.
    """
    documents = [case for path in (*paths, library_path()) for case in read_documents(path)]
    try:
        return Library([RecordedCase.model_validate(case) for case in documents])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise CaseError(f"a case's {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
