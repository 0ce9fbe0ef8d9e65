"""What may be called from here: global unicast, however an address is written or wrapped."""

import pytest

from routing.addresses import NO_URL, NOT_PUBLIC, is_exposed_broker, is_exposed_ledger, is_public, refusal_of


@pytest.mark.threat("B6")
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.17.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.100.100.200",
        "0.0.0.0",
        "192.0.0.9",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b::64:ff9b",
        "64:ff9b:1::",
        "64:ff9b:1::a00:1",
        "64:ff9b:1::101:101",
        "100::1",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:a00:1::",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "",
        "example.org",
    ],
)
def test_an_address_behind_the_wall_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.215.14",
        "100.63.0.1",
        "223.255.255.1",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "2a00:1450::1",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
    ],
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    ["https://example.com/hook", "http://example.com:8080/?a=b", "https://[2606:2800::1]/", "https://1.1.1.1/h"],
)
def test_a_url_of_the_internet_may_be_named(url: str) -> None:
    assert refusal_of(url, allow_private=False) is None


@pytest.mark.threat("B3")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "①②⑦.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[fec0::1]",
        "[64:ff9b:1::a00:1]",
        "[::127.0.0.1]",
        "[::ffff:0:127.0.0.1]",
        "localhost",
        "LOCALHOST.",
        "db.localhost",
    ],
)
def test_a_url_of_an_address_that_is_not_public_is_refused_without_a_look_up(host: str) -> None:
    refusal = refusal_of(f"http://{host}:8080/hook", allow_private=False)
    assert refusal == NOT_PUBLIC
    assert refusal_of(f"http://{host}:8080/hook", allow_private=True) is None


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
        "http://a..b/",
        "http://" + "a" * 300 + "/",
        "//example.com/",
    ],
)
def test_a_url_that_is_no_plain_http_address_is_refused_and_breaks_nothing(url: str) -> None:
    assert refusal_of(url, allow_private=True) == NO_URL


@pytest.mark.parametrize(
    ("url", "is_exposed"),
    [
        ("redis://127.0.0.1:6379/0", False),
        ("redis://localhost/0", False),
        ("redis://[::1]:6379/0", False),
        ("redis://broker.internal:6379/0", True),
        ("redis:///0?host=broker.internal", True),
        ("redis://10.0.0.7/0", True),
        ("rediss://broker.internal/0", False),
    ],
)
def test_a_broker_over_a_network_needs_tls(url: str, is_exposed: bool) -> None:
    assert is_exposed_broker(url) is is_exposed


@pytest.mark.parametrize(
    ("url", "is_exposed"),
    [
        ("postgresql://p@127.0.0.1/p", False),
        ("postgresql:///p?host=/run/postgresql", False),
        ("postgresql:///p?host=db.internal", True),
        ("postgresql://127.0.0.1/p?hostaddr=10.0.0.7", True),
        ("postgresql:///p?host=127.0.0.1:5432,db.internal", True),
        ("postgresql:///p?host=localhost:5432", False),
        ("postgresql:///p?host=%2Frun%2Fpostgresql&port=5433", False),
        ("postgresql://%2Frun/p", False),
        ("postgresql://p@db.internal/p", True),
        ("postgresql://p@db.internal/p?sslmode=require", True),
        ("postgresql://p@db.internal/p?sslmode=verify-full&sslrootcert=/ca.pem", False),
    ],
)
def test_a_ledger_over_a_network_needs_a_certificate_that_is_checked(url: str, is_exposed: bool) -> None:
    assert is_exposed_ledger(url) is is_exposed
