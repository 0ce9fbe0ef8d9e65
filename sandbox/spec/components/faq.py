"""FAQ: questions that open to show their answers, with no script."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    LongText,
    OutlineSection,
    Props,
    RenderContext,
    SectionProps,
    Title,
    section_props,
)
from sandbox.spec.html import Html, paragraphs, section, tag
from sandbox.spec.model import JsonObject


class Question(Props):
    """One question with its answer."""

    question: Title
    answer: LongText


class FaqProps(SectionProps):
    """Props of FAQ."""

    items: Annotated[tuple[Question, ...], Field(min_length=1, max_length=30)]


def render(props: FaqProps, ctx: RenderContext) -> Html:
    """Render each question as a disclosure."""
    return section(ctx, props, tag("div", *(_question(item) for item in props.items), class_="questions"), kind="faq")


def _question(item: Question) -> Html:
    return tag("details", tag("summary", item.question), tag("div", paragraphs(item.answer), class_="answer"))


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    pairs = [
        {"question": item["title"][:140], "answer": item.get("text") or item.get("detail")}
        for item in section.items
        if item.get("title") and (item.get("text") or item.get("detail"))
    ]
    return {**section_props(section), "items": pairs[:12]}


COMPONENT = Component(
    name="FAQ",
    summary="questions and answers: heading, items [{question, answer}]",
    props=FaqProps,
    example={"heading": "Questions", "items": [{"question": "Do you deliver?", "answer": "In town, by bicycle."}]},
    render=render,
    words=("faq", "faqs", "questions", "frequently asked questions", "q&a"),
    outline=_outline,
    outline_hint="items: title = question, text = answer",
    nav_label="Questions",
    css="""
@media (min-width: 60rem) {
  .faq > .wrap:has(.intro) { display: grid; grid-template-columns: 1fr 1.9fr; gap: 4rem; }
  .faq .intro { margin-inline: 0; text-align: left; }
}
.questions { border-top: 1px solid var(--line); }
.questions details { border-bottom: 1px solid var(--line); }
.questions summary {
  display: flex;
  justify-content: space-between;
  align-items: center;
  gap: 1.5rem;
  padding-block: 1.2rem;
  cursor: pointer;
  list-style: none;
  font-family: var(--font-headings);
  font-size: 1.13rem;
  font-weight: 600;
  line-height: 1.35;
}
.questions summary::-webkit-details-marker { display: none; }
.questions summary::after {
  content: "";
  width: .6rem;
  height: .6rem;
  margin-right: .3rem;
  border: solid var(--link);
  border-width: 0 2px 2px 0;
  transform: rotate(45deg) translate(-2px, -2px);
  flex: none;
}
.questions details[open] summary::after { transform: rotate(-135deg) translate(-2px, -2px); }
.questions summary:hover { color: var(--link); }
.answer { padding-bottom: 1.4rem; max-width: 44rem; color: var(--muted); }
""",
)
