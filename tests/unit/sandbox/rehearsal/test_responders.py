import json

import pytest

from sandbox.rehearsal.blocks import Text, ToolUse
from sandbox.rehearsal.example import example_of
from sandbox.rehearsal.responders import RESPONDERS
from tests.unit.sandbox.rehearsal.factories import make_request, tool, tool_turn, user

FILE_TOOLS = [tool("list_files"), tool("read_file")]


def test_an_answer_says_that_it_is_a_rehearsal_and_quotes_the_question():
    (block,) = RESPONDERS["answer"](make_request(user("When do you open?")))
    assert isinstance(block, Text)
    assert "When do you open?" in block.text
    assert "rehearsal model" in block.text


def test_an_answer_looks_at_the_files_first_and_quotes_what_it_read():
    asked = [user("What does the about page say?")]
    *_, first = RESPONDERS["answer"](make_request(*asked, tools=FILE_TOOLS))
    assert first == ToolUse("list_files", {})
    asked += tool_turn("list_files", {}, "index.html (2 KiB)\nabout.html (1 KiB)\nlogo.png")
    (second,) = RESPONDERS["answer"](make_request(*asked, tools=FILE_TOOLS))
    assert second == ToolUse("read_file", {"path": "about.html"})
    asked += tool_turn("read_file", {"path": "about.html"}, "<p>Since 1904</p>", number=2)
    (third,) = RESPONDERS["answer"](make_request(*asked, tools=FILE_TOOLS))
    assert isinstance(third, Text)
    assert "3 files" in third.text
    assert "> <p>Since 1904</p>" in third.text


@pytest.mark.parametrize(
    "listing", ['["index.html", "a.css"]', "- `index.html`", '{"f": ["index.html"]}', "index.html\ta"]
)
def test_a_listing_may_have_many_shapes(listing):
    asked = [user("What is here?"), *tool_turn("list_files", {}, listing)]
    (block,) = RESPONDERS["answer"](make_request(*asked, tools=FILE_TOOLS))
    assert block == ToolUse("read_file", {"path": "index.html"})


def test_an_answer_ends_when_there_is_nothing_to_read():
    asked = [user("What is here?"), *tool_turn("list_files", {}, "")]
    (block,) = RESPONDERS["answer"](make_request(*asked, tools=FILE_TOOLS))
    assert isinstance(block, Text)


def test_structured_output_is_json_of_the_schema():
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    request = make_request(user("Name this"), output_config={"format": {"type": "json_schema", "schema": schema}})
    (block,) = RESPONDERS["structured"](request)
    assert isinstance(block, Text)
    assert json.loads(block.text) == {"title": "Name this"}


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
