"""Every question that can be asked, in the order in which they are asked and stand in docs/performance.md."""

from __future__ import annotations

from benchmarks import (
    apply,
    box,
    bulk,
    capacity,
    gateway,
    growth,
    http_submit,
    idle,
    interactive,
    lifecycle,
    memory,
    render,
    routing,
    scan,
    submit,
    turnover,
)
from benchmarks.question import Question

_IN_ONE_RUN: tuple[Question, ...] = (
    submit.QUESTION,
    bulk.QUESTION,
    bulk.DIFFERENT_PROMPTS,
    http_submit.QUESTION,
    lifecycle.QUESTION,
    idle.QUESTION,
    interactive.QUESTION,
    routing.QUESTION,
    render.QUESTION,
    apply.QUESTION,
    scan.QUESTION,
    gateway.ADDED,
    gateway.CAPACITY,
    gateway.MEMORY,
    box.QUESTION,
    growth.SHORT,
    memory.QUESTION,
    capacity.QUESTION,
)
IN_ONE_RUN = {question.name: question for question in _IN_ONE_RUN}
BY_NAME = IN_ONE_RUN | {question.name: question for question in (growth.QUESTION, turnover.QUESTION)}
"""With those that take too long for a run of all."""
