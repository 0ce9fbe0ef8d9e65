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
    bodies = {queue: _attempt_body(queue, handler, resources) for queue, handler in by_queue.items()}
    bodies[QueueName.CONTROL] = _control_body(resources)
    for queue, record in QUEUES.items():
        limits = policy.queues[queue]
        app.task(
            bodies[queue],
            name=record.task,
            shared=False,  # a shared task would join every other app of the process
            soft_time_limit=limits.soft_seconds,
            time_limit=limits.hard_seconds,
        )


def _attempt_body(
    queue: QueueName, handler: Handler, resources: Callable[[], Resources]
) -> Callable[[dict[str, Any]], None]:
    def work(message: JobMessage) -> None:
        run_attempt(message, queue, handler, resources())

    return _decoding(queue, work, resources)


def _control_body(resources: Callable[[], Resources]) -> Callable[[dict[str, Any]], None]:
    def work(message: JobMessage) -> None:
        run_control(message, resources())

    return _decoding(QueueName.CONTROL, work, resources)


def _decoding(
    queue: QueueName, work: Callable[[JobMessage], None], resources: Callable[[], Resources]
) -> Callable[[dict[str, Any]], None]:
    def body(message: dict[str, Any]) -> None:
        try:
            read = read_message(message)
        except UnknownMessageError as unread:
            requeue_unknown(unread, queue, resources())
        else:
            work(read)

    return body
