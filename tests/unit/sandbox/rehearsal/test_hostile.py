"""Whatever a client sends, it gets a reply or an API error."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.prices import Usage
from sandbox.rehearsal.casting import Casting
from sandbox.rehearsal.errors import RequestError
from sandbox.rehearsal.events import message_body, stream_steps
from sandbox.rehearsal.loading import load_rules
from sandbox.rehearsal.reply import plan_reply
from sandbox.rehearsal.request import parse_request
from sandbox.rehearsal.tokens import PromptCache
from tests.unit.sandbox.rehearsal.factories import make_body

RULES = load_rules([], faults=True)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False)
WORDS = """
type text tool_use tool_result content id tool_use_id name input object array string properties required items minItems
enum $ref anyOf cache_control is_error schema format Read Edit Write list_files read_file edit_site site_outline
[rehearse:invalid-spec]
"""
NAMES = st.sampled_from(WORDS.split())
JSON: Any = st.recursive(
    SCALARS | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=15,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=5)
CONTENT = st.text(max_size=20) | NAMES | st.lists(OBJECTS, max_size=3)
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": CONTENT})
MESSAGES = st.lists(MESSAGE, min_size=1, max_size=4)
TOOLS = st.lists(st.fixed_dictionaries({"name": NAMES, "input_schema": OBJECTS}), max_size=3)


def test_every_request_gets_a_reply_or_an_api_error() -> None:
    outcomes: set[str] = set()

    @settings(max_examples=60, deadline=None)
    @given(MESSAGES, TOOLS, JSON, JSON, st.sampled_from(["auto", "any", "none"]))
    def play(messages: Any, tools: Any, system: Any, output_config: Any, choice: str) -> None:
        body = make_body(*messages, tools=tools, system=system, tool_choice={"type": choice})
        body |= {"output_config": output_config} if isinstance(output_config, dict) else {}
        try:
            request = parse_request(json.dumps(body).encode())
            part = Casting(RULES).choose(request)
            assert part is not None
            counted = PromptCache().usage(request, owner="k", now=0.0)
            reply = plan_reply(request, part, counted=counted)
        except RequestError:
            outcomes.add("refused")
            return
        outcomes.add("played")
        json.dumps(message_body(reply))
        assert b"".join(step.data for step in stream_steps(reply)).endswith(b"\n\n")
        assert min(counted) >= 0
        assert counted != Usage()

    play()
    assert outcomes == {"refused", "played"}
