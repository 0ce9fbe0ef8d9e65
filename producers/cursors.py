"""Where a page of a list ended, as an opaque word that its reader gives back for the next page."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from routing.errors import FieldError, InvalidJobError

MarkT = TypeVar("MarkT")
_LONGEST = 2_000


class Page(BaseModel):
    """What every page of a list holds beside its items."""

    next_cursor: str | None
    """Give it as `cursor` for the next page; null on the last one."""


def cursor_of(mark: object) -> str:
    """Return a mark as a cursor."""
    text = TypeAdapter(type(mark)).dump_json(mark)
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def mark_of(kind: type[MarkT], cursor: str | None) -> MarkT | None:
    """Return the mark that a cursor stands for; None for none.

    Raises:
        InvalidJobError: the caller's fault: no such cursor was ever given out.
    """
    if cursor is None:
        return None
    try:
        if len(cursor) > _LONGEST:
            raise ValueError
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return TypeAdapter(kind).validate_json(text)
    except (ValueError, binascii.Error, ValidationError):
        raise InvalidJobError((FieldError("cursor", "is none that this list gave"),)) from None
