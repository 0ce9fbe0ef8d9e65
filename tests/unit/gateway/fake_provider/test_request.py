import json

import pytest

from gateway.fake_provider.playback import plan_reply
from gateway.fake_provider.request import RequestError, example_of, parse_request
from gateway.fake_provider.scenario import RuleBook, load_rules
from routing.policy.prices import Usage
from tests.unit.gateway.fake_provider.factories import make_body, make_request, tool, tool_turn, user


def test_the_prompt_is_the_last_thing_the_user_wrote_not_a_tool_result():
    request = make_request(user("First"), *tool_turn("look", {}, "found"))
    assert request.prompt == "First"
    assert request.has_tool_result
    assert request.turn == 2


def test_texts_that_claude_code_adds_are_not_the_prompt():
    blocks = [
        {"type": "text", "text": "<system-reminder>be good [rehearse:cut]</system-reminder>"},
        {"type": "text", "text": "Do it"},
    ]
    request = make_request({"role": "user", "content": blocks})
    assert request.prompt == "Do it"
    assert request.tags == frozenset()


def test_a_question_is_what_stands_below_the_pages_and_is_all_that_an_answer_quotes() -> None:
    blocks = [{"type": "text", "text": "The site 'bakery', 13 files."}, {"type": "text", "text": "When do you open?"}]
    request = make_request({"role": "user", "content": blocks}, *tool_turn("look", {}, "found"))
    assert request.question == "When do you open?"
    match = RuleBook(load_rules([])).match(request)
    assert match is not None
    (text,) = plan_reply(request, match, counted=Usage()).content
    assert text.characters.startswith("You asked: “When do you open?”")


def test_tags_of_every_user_text_count():
    request = make_request(
        user("Go [rehearse:slow]"), {"role": "assistant", "content": "ok"}, user("on [rehearse:cut]")
    )
    assert request.tags == {"slow", "cut"}


def test_a_tool_result_knows_its_call():
    request = make_request(user("x"), *tool_turn("read_file", {"path": "a.html"}, "<p>"))
    (result,) = request.tool_results
    assert (result.tool, result.input, result.text) == ("read_file", {"path": "a.html"}, "<p>")


def test_any_demands_the_first_tool():
    request = make_request(tools=[tool("a"), tool("b")], tool_choice={"type": "any"})
    assert request.forced_tool is not None
    assert request.forced_tool.name == "a"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "body"),
        (json.dumps({"model": "m", "max_tokens": 5}).encode(), "messages"),
        (json.dumps(make_body(max_tokens=0)).encode(), "max_tokens"),
        (json.dumps(make_body(tool_choice={"type": "tool", "name": "x"})).encode(), "tool_choice.name"),
        (json.dumps(make_body({"role": "robot", "content": "x"})).encode(), "messages.0.role"),
    ],
)
def test_a_wrong_request_is_refused_by_its_field(body, words):
    with pytest.raises(RequestError, match=words):
        parse_request(body)


def test_an_example_follows_references_choices_and_bounds():
    schema = {
        "type": "object",
        "required": ["kind", "items", "n", "maybe", "short"],
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "items": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/item"}},
            "n": {"type": "integer", "minimum": 3},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "short": {"type": "string", "maxLength": 5},
            "optional": {"type": "string"},
        },
        "$defs": {"item": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}},
    }
    item = {"id": "a-long-story"}
    expected = {"kind": "a", "items": [item, item], "n": 3, "maybe": True, "short": "Long "}
    assert example_of(schema, about="A long story") == expected


def test_an_example_of_an_endless_schema_ends():
    schema = {"type": "object", "required": ["child"], "properties": {"child": {"$ref": "#"}}}
    assert "child" in example_of(schema, about="x")
