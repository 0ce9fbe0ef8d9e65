"""What no task here is named for is kept on `unrouted`, where an alert sees it, and not thrown away as Celery does."""

from __future__ import annotations

import logging
from typing import Any

from kombu.exceptions import OperationalError

from routing.queues import QueueName

logger = logging.getLogger(__name__)


def keep_unknown(sender: Any, message: Any, name: str, **_: Any) -> None:
    """Move a message with an unknown task's name to `unrouted`. Called in the parent; Celery drops it afterwards.

    Args:
        sender: the consumer that got it.
        message: as it came.
        name: what its sender calls the task.
        _: what else Celery tells.
    """
    logger.error("unknown_task", extra={"task": name[:100]})
    try:
        with sender.app.producer_or_acquire() as producer:
            producer.publish(
                message.body, exchange="", routing_key=QueueName.UNROUTED.value, headers=message.headers,
                content_type=message.content_type, content_encoding=message.content_encoding, retry=False,
            )  # fmt: skip
    except (OperationalError, OSError):
        logger.exception("unknown_task_lost")
