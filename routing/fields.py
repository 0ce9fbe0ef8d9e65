"""Kinds of fields that outside text is read into."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def check_text(text: str) -> str:
    """Return `text` when a ledger can store it.

    Raises:
        ValueError: the caller's fault; the message is the rule.
    """
    if any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must be valid Unicode text without NUL")
    return text


Text = Annotated[str, AfterValidator(check_text)]
