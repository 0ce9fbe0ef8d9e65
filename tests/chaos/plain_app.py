"""The same work on plain Celery, set up as its own documentation and notes/fleet.md section 2 advise for paid jobs.

Late acknowledgement, one message at a time, lost workers retried a bounded number of times, a visibility timeout of
twice the hard limit that is swept often, time limits, JSON only, retries with backoff for what is transient.
"""

from __future__ import annotations

import os
from uuid import uuid4

import anthropic
import psycopg
from celery import Celery, Task

HARD_SECONDS = 30
VISIBILITY_SECONDS = 2 * HARD_SECONDS
MODEL = "claude-haiku-4-5-20251001"

app = Celery("plain", broker=os.environ["PLAIN_BROKER"], set_as_current=False)
app.conf.update(
    task_acks_late=True,
    task_acks_on_failure_or_timeout=True,
    task_retry_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_soft_time_limit=HARD_SECONDS - 5,
    task_time_limit=HARD_SECONDS,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": VISIBILITY_SECONDS,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
    },
    visibility_timeout=VISIBILITY_SECONDS,
)

_TRANSIENT = (anthropic.APIStatusError, anthropic.APIConnectionError, psycopg.OperationalError)


@app.task(
    bind=True,
    name="plain.job",
    autoretry_for=_TRANSIENT,
    retry_backoff=1,
    retry_backoff_max=10,
    max_retries=8,
    default_retry_delay=1,
)
def job(_: Task, order: str, prompt: str, calls: int) -> None:
    """Ask the model as often as the job needs, then have the effect that its caller paid for."""
    client = anthropic.Anthropic(base_url=os.environ["PLAIN_MODEL"], api_key="plain", max_retries=2)
    for number in range(calls):
        client.messages.create(
            model=MODEL,
            max_tokens=1024,
            messages=[{"role": "user", "content": f"{prompt} ({order}, part {number})"}],
            extra_headers={"x-pointsman-call": f"{order}/{number}/{uuid4()}"},
        )
    with psycopg.connect(os.environ["PLAIN_DATABASE"], autocommit=True) as connection:
        connection.execute("INSERT INTO effect (job) VALUES (%s)", (order,))
