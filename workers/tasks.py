"""Celery tasks of the queues: thin, explicitly named, with the time limits of their queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery

from routing.errors import UnknownMessageError
from routing.jobs import JobMessage, read_message
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies
from routing.queues import QUEUES, QueueName
from workers.handlers.agent import edit_with_agent
from workers.handlers.answer import answer_question, run_tool
from workers.handlers.intake import Environment, intake
from workers.handlers.patch import patch_files
from workers.handlers.publish import run_control
from workers.handlers.spec import edit_spec
from workers.lifecycle import Handler, Resources, requeue_unknown, run_attempt
from workers.runs.step import run_step

_Work = Callable[[JobMessage, Resources], None]

HANDLERS: Mapping[QueueName, Handler] = {
    QueueName.TOOLS: run_tool,
    QueueName.ANSWER: answer_question,
    QueueName.SPEC: edit_spec,
    QueueName.PATCH: patch_files,
    QueueName.AGENT: edit_with_agent,
    QueueName.STEPS: run_step,
}


def register_tasks(
    app: Celery,
    *,
    resources: Callable[[], Resources],
    policy: Policy,
    environment: Environment,
    vocabularies: Vocabularies | None = None,
    handlers: Mapping[QueueName, Handler] = HANDLERS,
) -> None:
    """Register the tasks of every queue with its time limits.

    `resources` opens what a task needs, after the fork; `environment` is read for every decision.
    """
    by_queue = {**handlers, QueueName.INTAKE: intake(environment, vocabularies)}
    works: dict[QueueName, _Work] = {queue: _attempts(queue, handler) for queue, handler in by_queue.items()}
    works[QueueName.CONTROL] = run_control
    for queue, record in QUEUES.items():
        limits = policy.queues[queue]
        app.task(
            _body(queue, works[queue], resources),
            name=record.task,
            shared=False,  # a shared task would join every other app of the process
            soft_time_limit=limits.soft_seconds,
            time_limit=limits.hard_seconds,
        )


def _attempts(queue: QueueName, handler: Handler) -> _Work:
    return lambda message, resources: run_attempt(message, queue, handler, resources)


def _body(queue: QueueName, work: _Work, resources: Callable[[], Resources]) -> Callable[[dict[str, Any]], None]:
    def body(message: dict[str, Any]) -> None:
        try:
            read = read_message(message)
        except UnknownMessageError as unread:
            requeue_unknown(unread, queue, resources())
        else:
            work(read, resources())

    return body
