"""A callback goes only to a public address, and is tried again for more than an hour."""

import pytest

from producers.dispatch.webhooks import RETRY_SECONDS, refusal_of

PUBLIC = ["93.184.215.14"]


@pytest.mark.parametrize("url", ["https://example.com/hook", "http://example.com:8080/?a=b", "https://[2606:2800::1]/"])
def test_a_callback_to_a_public_address_may_go(url: str) -> None:
    assert refusal_of(url, PUBLIC, allow_private=False) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
    ],
)
def test_a_callback_to_an_address_of_our_own_network_is_refused(address: str) -> None:
    assert refusal_of("https://example.com/", [address], allow_private=False) is not None
    assert refusal_of("https://example.com/", [*PUBLIC, address], allow_private=False) is not None


def test_an_operator_can_allow_private_addresses() -> None:
    assert refusal_of("http://localhost:9/", ["127.0.0.1"], allow_private=True) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://",
        "http://[",
        "http://user:word@example.com/",
        "http://user@example.com/",
        "http://example.com:99999/",
        "http://example.com:x/",
        "http://example.com:0/",
        "http://a\x00b/",
        "//example.com/",
    ],
)
def test_a_url_that_is_no_plain_http_address_is_refused_and_breaks_nothing(url: str) -> None:
    assert refusal_of(url, PUBLIC, allow_private=True) is not None


def test_a_host_without_an_address_is_refused() -> None:
    assert refusal_of("https://example.com/", [], allow_private=True) == "the host has no address"


def test_the_waits_grow_from_seconds_to_an_hour() -> None:
    assert RETRY_SECONDS == (5, 30, 120, 600, 3600)
    assert list(RETRY_SECONDS) == sorted(RETRY_SECONDS)
