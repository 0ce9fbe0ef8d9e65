"""A judging model: what it thinks of a result by a rubric, which nobody's pass or failure depends on.

It is called with the account of the run, outside the installation whose work it judges.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any
from uuid import uuid4

import httpx2
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json, to_json

from gateway.config import ProviderConfig, create_provider
from gateway.messages import parse_request
from gateway.providers.provider import Meter
from producers.evaluation.cases import Files
from producers.local.embedded import Account
from routing.policy.prices import Price, price_of
from sites.excerpts import show_text

_MAX_TOKENS = 500
_SECONDS = 120.0
_SHOWN_BYTES = 20_000
"""Of what the pages say, before and after each."""
_OK = 200
Score = Annotated[int, Field(ge=1, le=10)]


class Judgement(BaseModel, frozen=True):
    """What a model thinks of a result, from 1 to 10."""

    done: Score
    words: Score
    looks: Score
    why: Annotated[str, Field(max_length=1000)]

    @property
    def lowest(self) -> int:
        """The lowest score."""
        return min(self.done, self.words, self.looks)


@dataclass(frozen=True)
class Judge:
    """A model at an account."""

    account: Account
    model: str
    prices: Mapping[str, Price]

    def judge(
        self, request: str, before: Files, after: Files, *, said: str, pictures: Sequence[bytes]
    ) -> tuple[Judgement | None, int]:
        """Return what it thinks, None where the call failed, and what the call cost in nanodollars.

        Args:
            request: the owner's words.
            before: the site's files.
            after: those of the result.
            said: what the owner was told.
            pictures: PNGs before and after, or after alone.
        """
        fields = {name.lower(): value for name, value in self.account.settings.items()}
        config = ProviderConfig.model_validate({"label": self.account.name} | fields)
        provider = create_provider(config)
        asked = parse_request(
            to_json(_request(self.model, request, before, after, said=said, pictures=pictures)),
            models=frozenset({self.model}),
            most_tokens=_MAX_TOKENS,
            names=config.models,
        )
        call = provider.call(asked, max_tokens=_MAX_TOKENS, headers={}, call_id=uuid4())
        try:
            answer = httpx2.post(call.url, content=call.body, headers=call.headers, timeout=_SECONDS, trust_env=False)
        except httpx2.HTTPError:
            return None, 0
        if answer.status_code != _OK:
            return None, 0
        price = price_of(self.prices, asked.model).times(config.price_factor)
        meter = Meter(price, reserved_nanousd=0, max_tokens=_MAX_TOKENS)
        reply = provider.read_reply(answer.content, meter)
        cost = meter.settlement(finish="completed", status=_OK).cost_nanousd
        return _judgement_of(reply), cost


def _judgement_of(reply: bytes) -> Judgement | None:
    try:
        content = from_json(reply)["content"]
        return Judgement.model_validate(next(block["input"] for block in content if block["type"] == "tool_use"))
    except (ValueError, ValidationError, LookupError, TypeError, StopIteration):
        return None


def _request(
    model: str, request: str, before: Files, after: Files, *, said: str, pictures: Sequence[bytes]
) -> dict[str, Any]:
    parts = {
        "request": request,
        "before": show_text(before, request, max_bytes=_SHOWN_BYTES),
        "now": show_text(after, request, max_bytes=_SHOWN_BYTES) if after is not before else "unchanged",
        "owner_was_told": said,
    }
    content: list[dict[str, Any]] = [{"type": "text", "text": f"{name}:\n{text}"} for name, text in parts.items()]
    for picture in pictures:
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture).decode()}
        content.append({"type": "image", "source": source})
    tool = {"name": "judge", "description": "Hand over the scores.", "input_schema": Judgement.model_json_schema()}
    rubric = resources.files("producers.evaluation") / "rubric.md"
    return {
        "model": model,
        "max_tokens": _MAX_TOKENS,
        "system": rubric.read_text(encoding="utf-8"),
        "messages": [{"role": "user", "content": content}],
        "tools": [tool],
        "tool_choice": {"type": "tool", "name": "judge"},
    }
