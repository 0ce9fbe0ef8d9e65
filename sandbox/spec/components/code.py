"""Code: lines to copy, as they are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import Component, Label, Props, RenderContext
from sandbox.spec.html import Html, tag


class CodeProps(Props):
    """Props of Code."""

    code: Annotated[str, Field(min_length=1, max_length=4000)]
    title: Label | None = None
    """A file name, or the program that the lines are typed into."""


def render(props: CodeProps, ctx: RenderContext) -> Html:
    """Render preformatted text that scrolls sideways, also by keyboard."""
    title = tag("p", props.title, class_="code-title") if props.title else None
    lines = tag("pre", tag("code", props.code), role="group", tabindex=0, aria_label=props.title or "Code")
    return tag("div", title, lines, class_="code", id=ctx.id)


COMPONENT = Component(
    name="Code",
    summary="lines of code: code, title; stands in a Section, or in the slot aside of a Hero",
    props=CodeProps,
    example={"code": "pip install loaf\nloaf bake --hours 40", "title": "Terminal"},
    render=render,
    words=("code", "code block", "code sample", "snippet"),
    css="""
.code {
  overflow: hidden;
  border: 1px solid var(--deep-line);
  border-radius: calc(var(--radius) * 1.25);
  background: var(--deep);
  color: var(--on-deep);
  text-align: left;
}
.code-title {
  padding: .65rem 1.2rem;
  border-bottom: 1px solid var(--deep-line);
  font-size: .85rem;
  color: var(--deep-muted);
}
.code pre {
  margin: 0;
  padding: 1.15rem 1.2rem 1.3rem;
  overflow-x: auto;
  font: 400 .92rem/1.7 ui-monospace, "Cascadia Code", "Source Code Pro", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  tab-size: 4;
}
.code code { font: inherit; }
.code pre:focus-visible { outline-offset: -4px; outline-color: var(--deep-accent); }
""",
)
