"""What is kept of a session, and the file from which the next one goes on."""

import gzip
import json
from typing import Any

import pytest

from sandbox.claude_code import encode_prompt
from sandbox.transcripts import MAX_BYTES, MAX_RESUMED_BYTES, Transcript, TranscriptRefusedError, conversation, unpack

MODEL = "claude-sonnet-4-5"
SECRET = "sk-ant-api03-of-the-tests-0123456789abcdef"
INIT = {"type": "system", "subtype": "init", "model": MODEL}


def use(number: int, **given: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": given or {"command": "ls"}}
    message = {"id": f"msg_{number}", "role": "assistant", "model": MODEL, "content": [block], "usage": {}}
    return {"type": "assistant", "message": message}


def used(number: int, content: Any = "index.html") -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "tool_use_result": {"stdout": content}}


def lines(*events: dict[str, Any] | bytes, known: tuple[str, ...] = (), begun: bytes = b"") -> bytes:
    transcript = Transcript(known=known, begun=begun)
    transcript.add(encode_prompt("Add a page").rstrip())
    for event in (INIT, *events):
        transcript.add(event if isinstance(event, bytes) else json.dumps(event).encode())
    return unpack(transcript.packed())


def records(said: bytes, **limits: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in conversation(said, model=MODEL, **limits).splitlines()]


def test_of_a_long_session_the_beginning_and_the_end_are_kept() -> None:
    transcript = Transcript()
    for number in range(60):
        transcript.add(f"{number:04}".encode() + b"x" * 100_000)
    kept = gzip.decompress(transcript.packed())
    assert len(kept) <= MAX_BYTES
    assert kept.startswith(b"0000")
    assert b"0059" in kept


def test_equal_sessions_give_equal_bytes() -> None:
    first, second = Transcript(), Transcript()
    first.add(b"a")
    second.add(b"a")
    assert first.packed() == second.packed()


@pytest.mark.threat("C9")
def test_no_key_is_kept_whatever_it_stands_in_and_the_rest_is_as_it_was() -> None:
    own = "the-operators-own-key"
    said = lines(
        use(1, command=f"echo password={SECRET}"),
        used(1, f"a\n{own}\nDB_PASSWORD=hunter2hunter2 b"),
        f"noise {SECRET}".encode(),
        known=(own,),
    )
    assert SECRET.encode() not in said
    assert own.encode() not in said
    assert b"hunter2" not in said
    assert all(line.startswith(b"{") for line in said.splitlines()[:-1])
    assert json.loads(said.splitlines()[1]) == INIT


def test_a_conversation_is_the_prompt_and_what_was_said_and_done_in_one_chain() -> None:
    found = records(lines(use(1), used(1), {"type": "result", "subtype": "error_max_turns"}))
    assert [record["type"] for record in found] == ["user", "assistant", "user"]
    assert found[0]["message"]["content"] == "Add a page"
    assert found[1]["message"]["content"][0]["input"] == {"command": "ls"}
    assert found[2]["message"]["content"][0]["content"] == "index.html"
    assert [record["parentUuid"] for record in found] == [None, found[0]["uuid"], found[1]["uuid"]]
    assert len({record["sessionId"] for record in found}) == 1
    assert "toolUseResult" not in found[2]


def test_a_third_session_goes_on_from_both_before_it() -> None:
    first = lines(use(1), used(1))
    second = lines(use(2), used(2), begun=first)
    assert second.startswith(first)
    assert [record["type"] for record in records(second)] == ["user", "assistant", "user", "user", "assistant", "user"]


def test_a_thought_is_sent_back_as_it_was_or_not_at_all() -> None:
    def thinks(text: str) -> dict[str, Any]:
        said = use(1)
        thought = {"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}
        return {**said, "message": {**said["message"], "content": [thought, *said["message"]["content"]]}}

    whole = records(lines(thinks("I look."), used(1)))[1]["message"]["content"]
    assert [block["type"] for block in whole] == ["thinking", "tool_use"]
    changed = records(lines(thinks(f"I use {SECRET}"), used(1)))[1]["message"]["content"]
    assert [block["type"] for block in changed] == ["tool_use"]


def test_what_was_interrupted_is_told_as_that_and_not_as_a_wish_to_stop() -> None:
    rejected = "The user doesn't want to proceed with this tool use. STOP what you are doing and wait."
    told = {"role": "user", "content": [{"type": "text", "text": "[Request interrupted by user for tool use]"}]}
    first = lines(use(1), used(1), use(2), used(2, rejected), {"type": "user", "message": told})
    assert b"STOP" in first
    found = records(first)
    assert len(found) == 5
    assert "unknown" in found[4]["message"]["content"][0]["content"]
    assert not any("STOP" in json.dumps(record) or "by user" in json.dumps(record) for record in found)


def test_a_use_that_was_never_answered_is_answered_before_anything_follows_it() -> None:
    killed = lines(use(1), use(2), used(1))
    for said, place in ((killed, -1), (lines(use(3), used(3), begun=killed), 4)):
        answer = records(said)[place]
        assert answer["type"] == "user"
        [block] = answer["message"]["content"]
        assert (block["tool_use_id"], block["is_error"]) == ("toolu_2", True)


def test_what_the_cli_says_in_the_model_s_place_is_no_part_of_a_conversation() -> None:
    error = {"role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": "API Error: 529"}]}
    found = records(lines(use(1), used(1), {"type": "assistant", "message": error}))
    assert len(found) == 3


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((), "nothing yet"),
        (({"type": "system", "subtype": "compact_boundary"}, use(1)), "was cut"),
        ((use(1), b'{"type": "user", "mess'), "damaged"),
        ((use(1), {"type": "user", "message": {"role": "assistant", "content": "x"}}), "damaged"),
        ((use(1), {"type": "user", "message": {"role": "user", "content": 7}}), "damaged"),
        ((use(1), used(2)), "damaged"),
        ((use(1), {"type": "user", "message": {"role": "user", "content": [{"type": "script"}]}}), "damaged"),
        (({**INIT, "model": "claude-opus-4-5"}, use(1)), "another model"),
        ((use(1), used(1, "x" * MAX_RESUMED_BYTES)), "too large"),
        ((use(1), used(1), *(used(1, "x" * 200_000) for _ in range(11))), "was cut"),
    ],
)
def test_a_transcript_that_cannot_be_gone_on_from_says_why(events: tuple[Any, ...], why: str) -> None:
    with pytest.raises(TranscriptRefusedError, match=why):
        records(lines(*events))


def test_what_costs_more_to_read_than_it_is_worth_is_refused() -> None:
    said = lines(use(1), used(1))
    assert records(said, most_bytes=10_000)
    with pytest.raises(TranscriptRefusedError, match="too large"):
        records(said, most_bytes=100)


@pytest.mark.parametrize(
    "packed", [b"", b"nothing", gzip.compress(b"x")[:-3], gzip.compress(b"x" * (MAX_BYTES + 1))], ids=len
)
def test_a_file_that_is_none_or_too_much_of_one_is_damaged(packed: bytes) -> None:
    with pytest.raises(TranscriptRefusedError, match="damaged"):
        unpack(packed)
