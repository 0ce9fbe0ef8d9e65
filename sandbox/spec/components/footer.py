"""Footer: the end of every page."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import Business, Component, Email, Label, Link, Phone, Props, RenderContext, Text
from sandbox.spec.contact import contact_lines
from sandbox.spec.html import Html, tag
from sandbox.spec.model import JsonObject


class FooterProps(Props):
    """Props of Footer."""

    brand: Label
    text: Text | None = None
    links: Annotated[tuple[Link, ...], Field(max_length=12)] = ()
    social: Annotated[tuple[Link, ...], Field(max_length=6)] = ()
    email: Email | None = None
    phone: Phone | None = None
    address: Text | None = None
    note: Text | None = None
    """The last line: copyright, registration, credits."""


def render(props: FooterProps, ctx: RenderContext) -> Html:
    """Render name, links and contact data."""
    about = tag("div", tag("p", props.brand, class_="brand-name"), tag("p", props.text) if props.text else None)
    links = _links(props.links, ctx, "Footer")
    social = _links(props.social, ctx, "Elsewhere")
    contact = contact_lines(email=props.email, phone=props.phone, address=props.address)
    top = tag("div", about, links, social, contact, class_="footer-top")
    note = tag("p", props.note, class_="footer-note") if props.note else None
    return tag("footer", tag("div", top, note, class_="wrap"), class_="site-footer", id=ctx.id)


def _links(links: tuple[Link, ...], ctx: RenderContext, label: str) -> Html | None:
    if not links:
        return None
    items = [tag("li", tag("a", link.label, href=ctx.url(link.href))) for link in links]
    return tag("nav", tag("ul", *items), aria_label=label)


def _minimal(business: Business) -> JsonObject:
    links = [link.model_dump() for link in business.links]
    return {"brand": business.name, **({"links": links} if links else {}), **business.contact_props()}


COMPONENT = Component(
    name="Footer",
    summary="end of the page: brand, text, links [{label, href}], social [{label, href}], email, phone, address, note",
    props=FooterProps,
    example={"brand": "Hill Bakery", "links": [{"label": "Bread", "href": "#bread"}], "note": "© Hill Bakery"},
    render=render,
    place="footer",
    words=("footer", "page footer", "site footer"),
    minimal=_minimal,
    css="""
.site-footer {
  padding-block: clamp(2.75rem, 2rem + 3vw, 4.5rem) 2rem;
  background: var(--deep);
  color: var(--on-deep);
  font-size: .98rem;
}
main:has(> .tone-deep:last-child) + .site-footer { border-top: 1px solid var(--deep-line); }
.footer-top { display: flex; flex-wrap: wrap; gap: 2.25rem clamp(2.5rem, 6vw, 5.5rem); }
.footer-top > :first-child { flex: 1 1 18rem; }
.site-footer .contact-lines { max-width: 18rem; }
.site-footer p { color: var(--deep-muted); max-width: 24rem; margin-top: .6rem; }
.site-footer .brand-name { margin: 0; color: var(--on-deep); }
.footer-top > * { min-width: 0; }
.site-footer ul { list-style: none; margin: 0; padding: 0; display: grid; gap: .55rem; }
.site-footer a { color: var(--on-deep); text-decoration: none; }
.site-footer a:hover { text-decoration: underline; color: var(--deep-accent); }
.site-footer .icon { color: var(--deep-accent); }
.site-footer .footer-note {
  max-width: none;
  margin-top: 2.75rem;
  padding-top: 1.4rem;
  border-top: 1px solid var(--deep-line);
  font-size: .9rem;
}
.site-footer :focus-visible { outline-color: var(--deep-accent); }
.site-footer nav ul:has(> :nth-child(6)) { grid-template-columns: 1fr 1fr; column-gap: 2.5rem; }
@media (max-width: 40rem) {
  .footer-top { flex-direction: column; }
  .footer-top > :first-child { flex-basis: auto; }
  .site-footer nav ul { grid-template-columns: 1fr 1fr; column-gap: 2rem; }
}
""",
)
