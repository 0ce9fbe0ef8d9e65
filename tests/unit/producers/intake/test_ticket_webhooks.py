"""Signatures of webhooks."""

import hashlib
import hmac

import pytest

from producers.intake.ticket_webhooks import is_fresh, is_from_github, is_from_linear

SECRET = "It's a Secret to Everybody"  # GitHub's own test vector, "Validating webhook deliveries"
BODY = b"Hello, World!"
SIGNED = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def test_githubs_own_example_is_right() -> None:
    assert is_from_github(SECRET, BODY, signature=f"sha256={SIGNED}")


@pytest.mark.parametrize(
    "signature", ["", SIGNED, f"sha1={SIGNED}", f"sha256={SIGNED[:-1]}0", f"sha256={SIGNED.upper()}", "sha256=\u00e4"]
)
def test_any_other_signature_is_wrong(signature: str) -> None:
    assert not is_from_github(SECRET, BODY, signature=signature)


def test_another_body_or_secret_is_wrong() -> None:
    assert not is_from_github(SECRET, BODY + b" ", signature=f"sha256={SIGNED}")
    assert not is_from_github("other", BODY, signature=f"sha256={SIGNED}")


def test_without_a_secret_nobody_is_believed() -> None:
    forged = hmac.new(b"", BODY, hashlib.sha256).hexdigest()
    assert not is_from_github("", BODY, signature=f"sha256={forged}")
    assert not is_from_linear("", BODY, signature=forged)


def test_linear_signs_the_body_as_it_is() -> None:
    assert is_from_linear(SECRET, BODY, signature=SIGNED)
    assert not is_from_linear(SECRET, BODY, signature=f"sha256={SIGNED}")


@pytest.mark.parametrize(
    ("sent", "is_taken"),
    [
        (1_000_000, True),
        (1_060_000, True),
        (940_000, True),
        (939_999, False),
        (1_060_001, False),
        (None, False),
        ("1000000", False),
        (True, False),
    ],
)
def test_an_old_delivery_is_not_taken_again(sent: object, is_taken: bool) -> None:
    assert is_fresh(sent, now_seconds=1000.0) is is_taken
