"""Contact data as markup: the same three lines in the contact section and in the footer."""

from __future__ import annotations

import re

from sandbox.spec.components.drawings import icon
from sandbox.spec.html import EMPTY, Html, tag


def contact_lines(*, email: str | None, phone: str | None, address: str | None) -> Html:
    """Return address, phone and email as a list of links, or nothing when none is known."""
    lines = [
        tag("li", icon("pin"), tag("span", address)) if address else None,
        tag("li", icon("phone"), tag("a", phone, href=phone_url(phone))) if phone else None,
        tag("li", icon("mail"), tag("a", email, href=f"mailto:{email}")) if email else None,
    ]
    if not any(lines):
        return EMPTY
    return tag("address", tag("ul", *lines, class_="contact-lines"))


def phone_url(phone: str) -> str:
    """Return the `tel:` address of a phone number as people write it."""
    return "tel:" + re.sub(r"[^0-9+]", "", phone.replace("(0)", ""))
