"""Bedrock: how it is addressed and signed, and streams that are not of its format. Vertex: what its key must be."""

import json
from uuid import UUID

import pytest

from gateway.client import translate_error
from gateway.errors import ProviderBusyError
from gateway.messages import parse_request
from gateway.providers.clouds import BedrockProvider, VertexProvider
from gateway.providers.provider import Meter, UnreadableStreamError
from routing.errors import PolicyError
from routing.policy.platform import platform_policy
from routing.provider_circuit import Trouble
from tests.provider_dialects import ACCESS, SECRET, frame, service_account

URL = "https://bedrock-runtime.eu-west-3.amazonaws.com"
REQUEST = parse_request(
    json.dumps(
        {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "metadata": {"user_id": "u"}}
    ).encode(),
    models=frozenset({"m"}),
    most_tokens=10,
    names={"m": "arn:aws:bedrock:eu-west-3:1:inference-profile/x"},
)


def meter() -> Meter:
    price = platform_policy().prices["claude-haiku-4-5-20251001"]
    return Meter(price, reserved_nanousd=10_000_000, max_tokens=1000)


def test_a_request_is_signed_for_the_region_of_its_address_unless_another_is_set() -> None:
    for region, signed in (("", "eu-west-3"), ("us-east-1", "us-east-1")):
        made = BedrockProvider(URL, f"{ACCESS}:{SECRET}:session", region=region).call(
            REQUEST, max_tokens=5, headers={}, call_id=UUID(int=1)
        )
        assert f"/{signed}/bedrock/aws4_request" in made.headers["authorization"]
        assert made.headers["x-amz-security-token"] == "session"
        assert made.url == URL + "/model/arn:aws:bedrock:eu-west-3:1:inference-profile%2Fx/invoke"


@pytest.mark.parametrize(
    ("betas", "passed"),
    [(b"", None), (b"claude-code-20250219", None), (b"effort-2025-11-24,pdfs-1", ["effort-2025-11-24"])],
)
def test_only_betas_that_bedrock_knows_are_passed_on(betas: bytes, passed: list[str] | None) -> None:
    made = BedrockProvider(URL, "key").call(
        REQUEST, max_tokens=5, headers={b"anthropic-beta": betas}, call_id=UUID(int=1)
    )
    body = json.loads(made.body)
    assert body.get("anthropic_beta") == passed
    assert not {"model", "stream", "metadata"} & body.keys()


def test_a_region_that_nobody_names_stops_the_start() -> None:
    with pytest.raises(PolicyError, match="region"):
        BedrockProvider("https://bedrock.example.org", f"{ACCESS}:{SECRET}")
    BedrockProvider("https://bedrock.example.org", "an-api-key")


@pytest.mark.parametrize(
    "data",
    [
        b"event: message_start\n\n" * 10,
        frame({"bytes": "x"})[:-1] + b"\0",
        frame({"other": "x"}),
        frame({"bytes": "!!!"}),
        frame({"bytes": "bm90IEpTT04="}),
    ],
    ids=["no frame", "checksum", "no bytes", "no base64", "no JSON"],
)
def test_a_stream_that_is_not_of_the_format_is_given_up(data: bytes) -> None:
    with pytest.raises(UnreadableStreamError):
        BedrockProvider(URL, "key").open_stream(meter()).feed(data)


def test_a_frame_without_an_end_is_given_up() -> None:
    stream = BedrockProvider(URL, "key").open_stream(meter())
    start = frame({"bytes": "x" * 12_000_000})
    assert stream.feed(start[:2_000_000]) == b""
    with pytest.raises(UnreadableStreamError, match="longer"):
        stream.feed(start[2_000_000:7_000_000])


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (408, Trouble.FAILING),
        (424, Trouble.FAILING),
        (429, Trouble.RATE_LIMITED),
        (503, Trouble.OVERLOADED),
        (400, None),
    ],
)
def test_what_a_status_says_about_bedrock(status: int, trouble: Trouble | None) -> None:
    provider = BedrockProvider(URL, "key")
    assert provider.trouble_of(status) is trouble
    told = translate_error(status, json.loads(provider.pass_back(b'{"message": "x"}', status=status)))
    assert isinstance(told, ProviderBusyError) is (trouble is not None)


def test_a_key_file_that_is_no_service_accounts_stops_the_start_and_is_not_repeated() -> None:
    for key in ("{}", "{", service_account()[0].replace("BEGIN", "MIDDLE")):
        with pytest.raises(PolicyError, match="no service account") as caught:
            VertexProvider("https://example.org", key)
        assert "PRIVATE" not in str(caught.value), key
