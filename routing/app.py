"""The Celery application: explicit settings, made by whoever needs it, never global."""

from __future__ import annotations

import ssl
from typing import Any

from celery import Celery

from routing.queues import QueueName
from routing.topology import PUBLISH_RETRY, TRANSPORT_OPTIONS, build_queues

SETTINGS: dict[str, Any] = {
    # Only JSON travels: pickle would let anyone who can write to the broker run code.
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    # A typo must not make a queue that nobody drains; what names no queue lands where an alert sees it.
    "task_create_missing_queues": False,
    "task_default_queue": QueueName.UNROUTED.value,
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    # Queues of ours wait for no ack at all: the ledger's lease recovers a crash (DESIGN.md section 4).
    "task_acks_late": False,
    "task_reject_on_worker_lost": False,
    "worker_prefetch_multiplier": 1,
    "worker_disable_prefetch": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_send_task_events": False,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_transport": "routing.kombu_transport:Transport",
    "broker_transport_options": TRANSPORT_OPTIONS,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,
    "broker_pool_limit": 4,
    "broker_pool_acquire_timeout": 5,
    # Nothing of ours asks workers over the broker: its reply queues leak when the asker dies (docs/pitfalls.md, 15).
    "worker_enable_remote_control": False,
    "task_publish_retry_policy": PUBLISH_RETRY,
    "enable_utc": True,
    "timezone": "UTC",
}


def create_app(broker_url: str, **overrides: Any) -> Celery:
    """Return a Celery application for the fleet's queues.

    Args:
        broker_url: a `redis://` or `rediss://` URL.
        overrides: settings that one program needs otherwise.
    """
    if broker_url.startswith("rediss:") and not overrides.get("broker_use_ssl"):
        # Without a word kombu would take any certificate.
        overrides["broker_use_ssl"] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    app = Celery("pointsman", broker=broker_url, set_as_current=False, autofinalize=False)
    app.conf.update(SETTINGS | {"task_queues": build_queues()} | overrides)
    app.finalize()
    return app
